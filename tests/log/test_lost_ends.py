"""A closed segment whose file lost its end, or all of it: its indexes show it to a reader that comes to the end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptBatch, CorruptLog
from tests.support.logs import NOW, tree

SMALL = {"segment.bytes": 420, "index.interval.bytes": 0, "retention.ms": -1}
OFFSETS = range(20)
LOST = 2  # number of the segment
READERS: dict[str, Callable[[klog.Log, int], list[int]]] = {}


def reader(function: Callable[[klog.Log, int], list[int]]) -> Callable[[klog.Log, int], list[int]]:
    READERS[function.__name__] = function
    return function


@reader
def records(log: klog.Log, start: int) -> list[int]:
    return [record.offset for record in log.read(start)]


@reader
def pairs(log: klog.Log, start: int) -> list[int]:
    return [int(key or b"-1") for key, _ in log.read(start).pairs()]


@reader
def batches(log: klog.Log, start: int) -> list[int]:
    return [batch.base_offset for batch in log.read(start).batches()]


@reader
def columns(log: klog.Log, start: int) -> list[int]:
    offsets: list[int] = log.read(start).to_arrow()["offset"].to_pylist()
    return offsets


@reader
def headers(log: klog.Log, start: int) -> list[int]:
    offsets: list[int] = log.read(start).batch_headers().to_arrow()["base_offset"].to_pylist()
    return offsets


@reader
def tail(log: klog.Log, start: int) -> list[int]:
    return [record.offset for record in log.tail(start, timeout=0)]


@reader
def latest(log: klog.Log, start: int) -> list[int]:
    return [record.offset for record in log.latest_by_key().values() if record.offset >= start]


@reader
def fetches(log: klog.Log, start: int) -> list[int]:
    found: list[int] = []
    while start < log.log_end_offset:
        data = bytes(log.fetch(start, 1 << 20).memory())
        found += [record.offset for record in klog.record.iter_records(data)]
        start = found[-1] + 1
    return found


@reader
def ranges(log: klog.Log, start: int) -> list[int]:
    return [
        record.offset for part in log.fetch_range(start) for record in klog.record.iter_records(bytes(part.memory()))
    ]


@reader
def count(log: klog.Log, start: int) -> list[int]:
    return [*OFFSETS][start:] if log.count(start) == len(OFFSETS) - start else []


def written(path: Path, policy: str = "delete") -> list[int]:
    """Write segments of some records each. Returns their base offsets."""
    with opened(path, policy) as log:
        for number in OFFSETS:
            log.append([(b"%d" % number, b"v" * 20, NOW + number)])
        log.roll()
        bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > LOST + 2 and bases[LOST + 1] - bases[LOST] >= 3
    return bases


def opened(path: Path, policy: str = "delete", **options: Any) -> klog.Log:
    config = SMALL | {"cleanup.policy": policy}
    return klog.Log.open(path, config=config, clean_shutdown=True, clock=ManualClock(NOW), **options)


def end_of_batches(file: Path, count: int) -> int:
    """Return the byte where the first batches of a .log end."""
    data, at = file.read_bytes(), 0
    for _ in range(count):
        at += 12 + int.from_bytes(data[at + 8 : at + 12])
    return at


def cut(path: Path, base: int, batches: int) -> Path:
    file = path / f"{base:020d}.log"
    os.truncate(file, end_of_batches(file, batches))
    return file


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("name", READERS)
def test_a_reader_does_not_go_on_after_lost_batches(tmp_path: Path, name: str, policy: str, read_only: bool) -> None:
    read, path = READERS[name], tmp_path / "t-0"
    bases = written(path, policy)
    file = cut(path, bases[LOST], 1)
    before = tree(path)
    with opened(path, policy, read_only=read_only) as log:
        for _ in range(2):  # the first look does not hide it from the second
            with pytest.raises(CorruptBatch, match=r"\.index has an entry of offset") as caught:
                read(log, 0)
            error = caught.value
            assert (error.path, error.position, error.kind) == (str(file), file.stat().st_size, "gap")
            assert (error.offset, error.next_offset) == (bases[LOST] + 1, bases[LOST + 1])
        if name != "latest":  # which always begins at the log start
            assert read(log, bases[LOST + 1]) == [*OFFSETS][bases[LOST + 1] :]
    if read_only:
        assert tree(path) == before
    with opened(path, policy) as log, pytest.raises(CorruptBatch):  # nor from the next process
        read(log, 0)


@pytest.mark.parametrize("name", sorted(READERS.keys() - {"count"}))
def test_under_kafka_readers_go_on(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t-0"
    bases = written(path)
    cut(path, bases[LOST], 1)
    with opened(path, recovery="kafka") as log:
        assert READERS[name](log, 0) == [*range(bases[LOST] + 1), *range(bases[LOST + 1], len(OFFSETS))]


def test_the_time_index_shows_it_too(tmp_path: Path) -> None:
    """In a segment of less than index.interval.bytes it alone does: its last entry has the largest timestamp."""
    path, config = tmp_path / "t-0", SMALL | {"index.interval.bytes": 4096}
    with klog.Log.open(path, config=config, clock=ManualClock(NOW)) as log:
        for number in OFFSETS:
            log.append([(b"%d" % number, b"v" * 20, NOW + number)])
        bases = [segment.base_offset for segment in log.segments]
    cut(path, bases[1], 2)
    with (
        klog.Log.open(path, config=config, clock=ManualClock(NOW)) as log,
        pytest.raises(CorruptBatch, match=r"\.timeindex has an entry of offset"),
    ):
        list(log.read())


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
def test_strict_refuses_a_log_with_an_emptied_segment(
    tmp_path: Path, policy: str, clean: bool, read_only: bool
) -> None:
    path = tmp_path / "t-0"
    bases = written(path, policy)
    file = cut(path, bases[LOST], 0)
    before = tree(path)
    options: dict[str, Any] = {"read_only": read_only, "config": SMALL | {"cleanup.policy": policy}}
    options |= {"clean_shutdown": clean, "clock": ManualClock(NOW)}
    with pytest.raises(CorruptLog, match=f"the segment that begins at {bases[LOST]} is empty") as caught:
        klog.Log.open(path, **options)
    assert (caught.value.path, caught.value.offset, caught.value.kind) == (str(file), bases[LOST], "gap")
    assert tree(path) == before
    with klog.Log.open(path, recovery="kafka", **options) as log:
        expected = [*range(bases[LOST]), *range(bases[LOST + 1], len(OFFSETS))]
        assert [record.offset for record in log.read()] == expected
    if read_only:
        with klog.Log.open(path, recovery="skip", **options) as log:
            assert log.log_end_offset == len(OFFSETS)


def test_a_compaction_keeps_what_shows_the_loss(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    bases = written(path, "compact")
    cut(path, bases[LOST], 1)
    before = {name: data for name, data in tree(path).items() if str(name).endswith("log")}
    with opened(path, "compact") as log:
        with pytest.raises(CorruptBatch, match="were lost"):
            log.compact()
        assert {name: data for name, data in tree(path).items() if str(name).endswith("log")} == before
        with pytest.raises(CorruptBatch, match="were lost"):
            list(log.read())
        log.append([(b"k", b"more")])
    assert not list(path.glob("*.cleaned"))


def test_one_wrong_bit_in_an_index_is_no_loss(tmp_path: Path) -> None:
    """Also where a compaction has removed the batches at the end of the segment: the answers stay the same."""
    path = tmp_path / "t-0"
    with opened(path, "compact") as log:
        for number in OFFSETS:
            log.append([(b"%d" % (number % 4 if number % 7 == 6 else number), b"v" * 20, NOW + number)])
        log.append([(b"%d" % number, b"last") for number in range(6, 12)])
        log.roll()
        log.compact()
        expected = [record.offset for record in log.read()]
        bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 2
    checked = 0
    for file in sorted(path.glob("*index"))[:4]:
        for at in range(file.stat().st_size * 8):
            copy = tmp_path / "copy" / "t-0"
            shutil.copytree(path, copy)
            data = bytearray(file.read_bytes())
            data[at // 8] ^= 1 << at % 8
            (copy / file.name).write_bytes(data)
            with opened(copy, "compact") as log:
                assert [record.offset for record in log.read()] == expected, (file.name, at)
            shutil.rmtree(copy)
            checked += 1
    assert checked > 100
