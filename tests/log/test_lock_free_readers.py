"""Readers without a lock, while others change the log between two of their steps."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.errors import CorruptBatch, LogClosed, UnknownTopicOrPartition
from klog.log.read import lookup
from klog.record import decode
from klog.segment import Segment
from klog.segment import segment as segment_module
from tests.cleaner.logs import NOW, append, fill, open_log
from tests.cleaner.story import RETENTION_MS, Story
from tests.support.patience import PATIENCE
from tests.support.steps import at_step


def once_after(call: Callable[..., Any], action: Callable[[], Any]) -> Callable[..., Any]:
    """The same function; after its first call, an action runs."""
    left = [action]

    def calls(*args: Any, **more: Any) -> Any:
        found = call(*args, **more)
        if left:
            left.pop()()
        return found

    return calls


def committed(log: klog.Log) -> list[bytes | None]:
    return [record.key for record in log.read(isolation="read_committed")]


@pytest.mark.parametrize("rewritten", [False, True])
def test_aborted_transactions_are_known_during_a_rename_of_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewritten: bool
) -> None:
    """X1: a transaction index that is missing under its old name must not count as empty for good."""
    with Story(tmp_path) as story:
        log = story.log
        story.transact(7, 2)
        story.put(1, 2, 9)
        story.abort(7)
        log.roll()
        story.put(3)
        if rewritten:
            assert log.purge_key(b"9").records_removed == 1
        else:
            log.rename_dir("t-1")  # cached indexes are read again
        expected = [b"1", b"2", b"3"] if rewritten else [b"1", b"2", b"9", b"3"]
        read = once_after(vars(Segment)["txn_index"].fget, lambda: log.rename_dir("t-2"))
        monkeypatch.setattr(Segment, "txn_index", property(read))
        assert committed(log) == expected
        assert log.path.endswith("t-2")
        assert committed(log) == expected


def test_a_removed_segment_reads_its_aborted_transactions_from_its_own_file(tmp_path: Path) -> None:
    """It does not read them from another file with the name that its file is about to get."""
    with Story(tmp_path, **{"file.delete.delay.ms": RETENTION_MS}) as story:
        log = story.log
        story.put(1)
        log.roll()
        story.transact(7, 2)
        story.abort(7)
        log.roll()
        log.rename_dir("t-1")  # cached indexes are read again
        old = log.segments[1]
        log.truncate_to(0)
        assert [entry.producer_id for entry in old.txn_index.entries] == [7]


class Watched(RealFiles):
    """Reports each file before it is unlinked."""

    on_unlink: Callable[[str], object] = staticmethod(lambda path: None)

    def unlink(self, path: str) -> None:
        self.on_unlink(path)
        super().unlink(path)


def test_a_segment_opened_during_its_deletion_is_not_kept_open(tmp_path: Path) -> None:
    """The topic is deleted, and the whole log.dir shares the handles."""
    files = Watched()
    with open_log(tmp_path / "t-0", files=files) as log:
        fill(log)
        old, handles = log.segments[0], log._core.options.handles
        files.on_unlink = lambda path: old.locate(1) if path == old.path else None
        log.delete()
        assert [handles.files.find(old), handles.indexes.find(old)] == [None, None]


def test_count_uses_one_state_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not use one segment from before a truncation, and the next segment from after it."""
    with open_log(tmp_path / "t-0") as log:
        fill(log)

        def rewrite() -> None:
            log.truncate_to(log.segments[0].base_offset)
            append(log, [(b"k", b"v")] * 20)

        monkeypatch.setattr(lookup, "count_records", once_after(lookup.count_records, rewrite))
        assert log.count() == 20


def test_fetch_uses_one_state_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not use a position from before a truncation in the bytes from after it, where no batch may begin."""
    with open_log(tmp_path / "t-0") as log:
        append(log, [(b"k", b"before")] * 60)

        def rewrite() -> None:
            log.truncate_to(10)
            append(log, [(b"k", b"something else")] * 60)

        monkeypatch.setattr(Segment, "locate", once_after(Segment.locate, rewrite))
        found = log.fetch(30)
        first = next(iter(decode(found.memory())))
        assert first.base_offset <= 30 <= first.last_offset
        assert (found.log_end_offset, found.high_watermark) == (log.log_end_offset, log.high_watermark)


def test_an_index_in_use_is_replaced_when_its_file_is_shortened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S5: reading mapped bytes beyond the new end would end the process. Later readers do not get the old index."""
    config = {"segment.bytes": 1 << 20, "segment.index.bytes": 1 << 16}
    with open_log(tmp_path / "t-0", config=config) as log:
        append(log, [(b"k", b"v" * 300)] * 1500, 1)
    with open_log(tmp_path / "t-0", config=config) as log:
        old = log.segments[0]
        old._drop_handles()  # those that the load has opened

        def rewrite() -> None:
            log.truncate_to(40)
            log.roll()

        monkeypatch.setattr(Segment, "_open_index", once_after(Segment._open_index, rewrite))
        assert old.locate(1400) is None
        assert 8 * old.index.entries == Path(old.path.replace(".log", ".index")).stat().st_size
        header = old.locate(39)
        assert header is not None and header.base_offset == 39


def test_the_newest_timestamp_includes_the_last_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches by time would skip the segment, and retention would delete it too soon."""
    with open_log(tmp_path / "t-0") as log:
        log.append([(b"k", b"v", NOW)])
    with open_log(tmp_path / "t-0", clean_shutdown=True) as log:
        old = log.segments[0]

        def append_and_roll() -> None:
            log.append([(b"k", b"v", NOW + 5)])
            log.roll()

        monkeypatch.setattr(segment_module, "youngest_of", once_after(segment_module.youngest_of, append_and_roll))
        assert old.max_timestamp == NOW
        assert old.max_timestamp == NOW + 5
        assert log.offset_for_timestamp(NOW + 5) == (NOW + 5, 1)


def test_a_range_from_before_a_truncation_stays_invalid_after_a_move(tmp_path: Path) -> None:
    """R3: a holder of the log continues with the copy, which was never truncated."""
    with klog.open([tmp_path / "a", tmp_path / "b"], create=True) as logs:
        logs.create_topic("t")
        log = logs.log("t", 0)
        log.append([(b"k", b"before")] * 9)
        held = log.fetch_range(0)
        log.truncate_to(0)
        log.append([(b"k", b"later")] * 9)
        (there,) = {tmp_path / "a", tmp_path / "b"} - {Path(log.path).parent}
        logs.move("t", 0, there)
        with pytest.raises(CorruptBatch, match="truncated"):
            held.slice(0)


_CLOSED_BESIDE = """
import os, sys, klog
from klog.segment import Segment, find_by_time

log = klog.Log.open(sys.argv[1], config={"segment.index.bytes": 1 << 16, "index.interval.bytes": 100})
old, paths = log.segments[0], [sys.argv[2] + "/" + name for name in ("0" * 20 + ".index", "0" * 20 + ".timeindex")]
before = [os.stat(path).st_size for path in paths]
plain, when = getattr(Segment, sys.argv[3]), []

def calls(segment, *args):
    found = plain(segment, *args)
    if not when:
        when.append(1)
        log.close()
        for path in paths:
            os.truncate(path, 0)  # another process, which has the lock by now
    return found

setattr(Segment, sys.argv[3], calls)
header = old.locate(1400)
assert header.base_offset <= 1400 <= header.last_offset, header
assert find_by_time(old, 1, 1400).offset == 1400
assert [os.stat(path).st_size for path in paths] == [0, 0]  # nor does a closed log write
print("there", before)
"""


@pytest.mark.parametrize("step", ["_open_index", "_read_index", "_load_index"])
def test_a_reader_of_a_closed_log_keeps_no_index_mapped(tmp_path: Path, step: str) -> None:
    """S5: the next owner of the files may shorten them, and reading a missing page ends the process."""
    config = {"segment.bytes": 1 << 20, "segment.index.bytes": 1 << 16, "index.interval.bytes": 100}
    with open_log(tmp_path / "t-0", config=config) as log:
        append(log, [(b"k", b"v" * 300)] * 1500, 1)
        log.roll()
    child = subprocess.run(
        [sys.executable, "-c", _CLOSED_BESIDE, tmp_path / "t-0", tmp_path / "t-0", step],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (child.returncode, child.stdout[:5]) == (0, "there"), child


READS: dict[str, Callable[[klog.Log], object]] = {
    "read": lambda log: list(log.read("earliest")),
    "committed": lambda log: list(log.read("earliest", isolation="read_committed")),
    "count": lambda log: log.count(3),
    "time": lambda log: log.list_offset(NOW),
    "fetch": lambda log: log.fetch(3),
    "fetch range": lambda log: [found.size for found in log.fetch_range(0)],
    "verify": lambda log: log.verify(),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("beside", [False, True])
def test_a_reader_of_a_deleted_topic_raises(tmp_path: Path, beside: bool, read: str) -> None:
    """It raises at any step at which the files are deleted; the error text does not suggest a missing disk."""

    def deleted(logs: klog.LogManager, clock: ManualClock) -> None:
        logs.delete_topic("t")
        clock.advance(120_000)
        logs._scheduler.run_due()

    number, came, raised = 0, True, 0
    while came:
        clock = ManualClock(NOW)
        with klog.open(tmp_path / str(number), create=True, clock=clock) as logs:
            logs.create_topic("t", config={"file.delete.delay.ms": 1000})
            logs.create_topic("other")
            log = logs.log("t", 0)
            for _ in range(3):
                append(log, [(b"k", b"v")] * 9)
                log.roll()
            reader = klog.Log.open(log.path, read_only=True) if beside else log
            try:
                came, _ = at_step(
                    number, lambda logs=logs, clock=clock: deleted(logs, clock), lambda r=reader: READS[read](r)
                )
            except UnknownTopicOrPartition:
                raised += 1
            except LogClosed:  # between two calls of this reader
                assert not beside
            finally:
                if beside:
                    reader.close()
        number += 40 if read == "verify" else 3  # it has ten times as many steps
    assert raised
