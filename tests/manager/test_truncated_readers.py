"""Readers that keep a position beside a truncation: tails, and named readers before their first commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.errors import LogTruncated
from klog.log.read.chunks import FetchedChunk
from tests.support.batches import marker
from tests.support.logs import WHERE, seen

OLD, NEW = [(b"k", b"old")], [(b"k", b"new")]


async def _taken(records: Any) -> list[Any]:
    return [record async for record in records]


def _rows(reader: Any) -> list[int]:
    return [number for columns in reader.columns(["offset"]) for number in range(columns.num_rows)]


READERS: dict[str, tuple[Callable[[klog.LogManager], Any], Callable[[Any], list[Any]]]] = {
    "tail of a log": (lambda logs: logs.log("t").tail(0, timeout=0), list),
    "tail": (lambda logs: logs.tail("t", "earliest", timeout=0), list),
    "tail of a task": (lambda logs: logs.tail("t", "earliest", timeout=0), lambda tail: asyncio.run(_taken(tail))),
    "reader": (lambda logs: logs.reader("t", "billing"), list),
    "reader in a task": (lambda logs: logs.reader("t", "billing"), lambda reader: asyncio.run(_taken(reader))),
    "tail of a reader": (lambda logs: logs.reader("t", "billing").tail(timeout=0), list),
    "columns of a reader": (lambda logs: logs.reader("t", "billing"), _rows),
    "table of a reader": (lambda logs: logs.reader("t", "billing"), lambda reader: reader.to_arrow()["offset"].to_pylist()),
}  # fmt: skip
EACH = pytest.mark.parametrize("kind", READERS)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[klog.LogManager]:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        append(logs, OLD, 4)
        yield logs


@pytest.fixture(params=WHERE)
def reading(request: pytest.FixtureRequest, logs: klog.LogManager) -> Iterator[klog.LogManager]:
    with seen(logs, request.param) as found:
        yield found


def append(logs: klog.LogManager, records: Any, count: int) -> None:
    for _ in range(count):
        logs.log("t").append(records)


@EACH
@pytest.mark.parametrize("end", [3, 9], ids=["shorter", "grown again"])
def test_a_truncation_below_the_position(logs: klog.LogManager, reading: klog.LogManager, kind: str, end: int) -> None:
    made, take = READERS[kind]
    reader = made(reading)
    assert len(take(reader)) == 4
    logs.log("t").truncate_to(2)
    append(logs, NEW, end - 2)
    for _ in range(2):  # it does not go on after the error either
        with pytest.raises(LogTruncated, match="below offset 4") as caught:
            take(reader)
        assert caught.value.log_end_offset == end
    if isinstance(reader, klog.NamedReader):
        reader.seek(2)
        assert len(take(reader)) == end - 2


@EACH
def test_a_truncation_of_a_marker_below_the_position(
    logs: klog.LogManager, reading: klog.LogManager, kind: str
) -> None:
    """The last record that was returned is still there."""
    made, take = READERS[kind]
    logs.log("t").append_batches(marker(7, 0, "abort"), origin="coordinator")
    reader = made(reading)
    assert len(take(reader)) == 4
    logs.log("t").truncate_to(4)
    append(logs, NEW, 5)
    for _ in range(2):
        with pytest.raises(LogTruncated, match="below offset 5"):
            take(reader)


@pytest.mark.parametrize("end", [3, 9], ids=["shorter", "grown again"])
@pytest.mark.parametrize("kind", ["log", "topic", "reader"])
def test_a_truncation_before_the_first_record(
    logs: klog.LogManager, reading: klog.LogManager, kind: str, end: int
) -> None:
    reader: Any
    if kind == "log":
        reader = reading.log("t").tail(timeout=0)
    else:
        reader = reading.tail("t", timeout=0) if kind == "topic" else reading.reader("t", "billing", start="latest")
    assert list(reader) == []
    logs.log("t").truncate_to(2)
    append(logs, NEW, end - 2)
    for _ in range(2):
        with pytest.raises(LogTruncated, match="below offset 4"):
            list(reader)


@EACH
def test_a_truncation_above_the_position(logs: klog.LogManager, reading: klog.LogManager, kind: str) -> None:
    made, take = READERS[kind]
    reader = made(reading)
    assert len(take(reader)) == 4
    append(logs, OLD, 4)
    logs.log("t").truncate_to(4)
    append(logs, NEW, 2)
    assert len(take(reader)) == 2


@EACH
@pytest.mark.parametrize("end", [6, 9], ids=["shorter", "grown again"])
def test_a_truncation_of_what_an_iteration_was_to_read(
    logs: klog.LogManager, reading: klog.LogManager, kind: str, end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is appended instead is read, whether or not the iteration had begun with a bound beyond it."""
    made, take = READERS[kind]
    for _ in range(4):
        logs.log("t").roll()  # so that a read has several chunks
        append(logs, OLD, 1)
    reader = made(reading)
    todo = [lambda: logs.log("t").truncate_to(5)]
    request = FetchedChunk.request.fget  # type: ignore[attr-defined]

    def requested(chunk: FetchedChunk) -> Any:
        while chunk.stop == 5 and todo:
            todo.pop()()
        return request(chunk)

    monkeypatch.setattr(FetchedChunk, "request", property(requested))
    taken = take(reader)
    assert len(taken) == 5
    append(logs, NEW, end - 5)
    assert len(take(reader)) == end - 5


@EACH
def test_a_truncation_of_what_was_read_and_not_yet_returned(
    logs: klog.LogManager, reading: klog.LogManager, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read is returned, for it was in the log; what follows is not its continuation."""
    made, take = READERS[kind]
    reader = made(reading)
    todo = [lambda: append(logs, NEW, 6), lambda: logs.log("t").truncate_to(2)]
    request = FetchedChunk.request.fget  # type: ignore[attr-defined]

    def requested(chunk: FetchedChunk) -> Any:
        while todo:
            todo.pop()()
        return request(chunk)

    monkeypatch.setattr(FetchedChunk, "request", property(requested))
    counts: list[int] = []
    with pytest.raises(LogTruncated, match="below offset 4"):
        counts.extend(len(take(reader)) for _ in range(2))
    looks_again = kind == "tail of a log" or reading is logs  # before it ends
    assert counts == ([] if looks_again else [4])


@pytest.mark.parametrize(("missing", "count"), [("earliest", 8), ("latest", 0)])
def test_a_reader_goes_on_where_missing_asks_it_to(
    logs: klog.LogManager, reading: klog.LogManager, missing: Any, count: int
) -> None:
    reader = reading.reader("t", "billing", missing=missing)
    assert len(list(reader)) == 4
    logs.log("t").truncate_to(2)
    append(logs, NEW, 6)
    assert [len(list(reader)), len(list(reader))] == [count, 0]
    assert reader.position == {0: 8}
