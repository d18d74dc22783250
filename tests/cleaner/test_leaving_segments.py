"""Readers of segments that a cleaner has replaced read their own files to the end, or get an error."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.errors import CorruptBatch
from klog.record import decode
from tests.cleaner.logs import NOW, fill, offsets, open_log
from tests.cleaner.story import RETENTION_MS, Story

DELAY_MS = 60_000


class WatchedFiles(RealFiles):
    """Calls a hook before and after each change of a directory."""

    def __init__(self) -> None:
        super().__init__()
        self.notify: Callable[[], None] = lambda: None

    def rename(self, source: str, target: str) -> None:
        self.notify()
        super().rename(source, target)
        self.notify()

    def unlink(self, path: str) -> None:
        self.notify()
        super().unlink(path)
        self.notify()

    def fsync_dir(self, path: str) -> None:
        self.notify()
        super().fsync_dir(path)
        self.notify()


class FullDisk(RealFiles):
    """A disk without free space: the next `full` renames to .deleted fail."""

    full = 0

    def rename(self, source: str, target: str) -> None:
        if self.full and target.endswith(".deleted"):
            self.full -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), source)
        super().rename(source, target)


def fetch_all(log: klog.Log, written: dict[int, tuple[bytes | None, bytes | None]]) -> None:
    """Fetch at every few offsets, and check that each slice has the records that were written there."""
    for offset in range(log.log_start_offset, log.log_end_offset, 8):
        batches = list(decode(log.fetch(offset, 2000, isolation="log_end").memory()))
        assert batches[-1].last_offset >= offset
        assert all(written[record.offset] == (record.key, record.value) for batch in batches for record in batch)


def test_a_reader_during_a_swap_reads_the_old_segment_or_the_new_one(tmp_path: Path) -> None:
    """CM: also if an earlier segment with the same base offset waits to be unlinked, and has the name that this one
    gets."""
    files = WatchedFiles()
    with open_log(tmp_path / "t-0", files=files, config={"file.delete.delay.ms": DELAY_MS}) as log:
        written: dict[int, tuple[bytes | None, bytes | None]] = {}
        failures: list[BaseException] = []
        readers: list[threading.Thread] = []

        def read() -> None:
            try:
                fetch_all(log, written)
            except BaseException as error:
                failures.append(error)

        def notify() -> None:
            reader = threading.Thread(target=read)
            reader.start()
            reader.join(0.01)  # it waits for the swap, or has ended
            readers.append(reader)

        for _ in range(2):
            fill(log)
            written.update({record.offset: (record.key, record.value) for record in log.read(isolation="log_end")})
            files.notify = notify
            assert log.compact(roll=True).rounds > 0
            files.notify = lambda: None
            for reader in readers:  # before more is written, since the expected records end here
                reader.join()
        assert len(readers) > 20
        assert failures == []


def test_a_slice_of_replaced_segments_keeps_their_aborted_transactions(tmp_path: Path) -> None:
    """X1: two cleanings later the replacing segments have no entry of a transaction without records."""
    with Story(tmp_path, **{"file.delete.delay.ms": 10 * RETENTION_MS}) as story:
        story.put(1, 2)
        story.log.roll()
        story.transact(7, 2)
        story.abort(7)
        story.transact(7, 3)
        story.commit(7)
        story.log.roll()
        held = story.log.fetch_range(0, isolation="read_committed")
        story.clean()
        story.clean_twice()
        assert story.log.aborted_transactions() == []
        old = held.slice(1)
        batches = decode(old.memory())
        assert [record.key for batch in batches if not batch.is_control for record in batch] == [b"2", b"3"]
        assert [entry.producer_id for entry in old.aborted_transactions] == [7]
        with pytest.raises(CorruptBatch, match="compacted"):
            held.slice(0)  # an earlier one of that base was unlinked when the next was renamed


def test_no_descriptor_keeps_the_bytes_of_an_unlinked_segment(tmp_path: Path) -> None:
    """A descriptor that is cached for the next reader would keep them, forever if few segments are read."""
    clock = ManualClock(NOW)
    with open_log(tmp_path / "t-0", clock=clock, config={"file.delete.delay.ms": DELAY_MS}) as log:
        fill(log)
        held = log.fetch_range(0)
        assert log.compact().rounds > 0
        assert sum(len(slice_.memory()) for slice_ in held) == held.size
        assert offsets(log)
        clock.advance(DELAY_MS)
        opened = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
        assert [name for name in opened if name.startswith(str(tmp_path)) and "deleted" in name] == []


def test_an_index_rebuilt_for_a_replaced_segment_is_unlinked_with_it(tmp_path: Path) -> None:
    """A lost index is rebuilt in a file for a reader that still looks up an offset there (LS10); that file is unlinked
    with the rest."""
    clock = ManualClock(NOW)
    config = {"file.delete.delay.ms": DELAY_MS, "index.interval.bytes": 100}
    with open_log(tmp_path / "t-0", clock=clock, config=config) as log:
        fill(log)
        old = log.segments[0]
        assert log.compact().rounds > 0
        for kind in (".index", ".timeindex"):
            Path(old.path.replace(".log", kind)).unlink()
        header = old.locate(old.next_offset - 1)
        assert header is not None and header.last_offset >= old.next_offset - 1
        assert Path(old.path.replace(".log", ".index")).exists()
        clock.advance(DELAY_MS)
        assert [name for name in os.listdir(tmp_path / "t-0") if name.endswith(".deleted")] == []


def test_a_segment_whose_rename_failed_is_not_unlinked_twice(tmp_path: Path) -> None:
    """At that time the new segment has the same file names, and the only copy of the records."""
    files, clock = FullDisk(), ManualClock(NOW)
    with open_log(tmp_path / "t-0", clock=clock, files=files, config={"file.delete.delay.ms": DELAY_MS}) as log:
        fill(log)
        files.full = 3
        assert log.compact().rounds > 0
        assert files.full == 0
        before = [(record.offset, record.value) for record in log.read()]
        clock.advance(DELAY_MS)
        log.roll()
        assert [segment for segment in log.segments if not os.path.exists(segment.path)] == []
    with open_log(tmp_path / "t-0") as log:
        assert [(record.offset, record.value) for record in log.read()] == before


def test_a_truncated_and_rewritten_segment_is_not_unlinked(tmp_path: Path) -> None:
    files, clock = FullDisk(), ManualClock(NOW)
    with open_log(tmp_path / "t-0", clock=clock, files=files, config={"file.delete.delay.ms": DELAY_MS}) as log:
        fill(log)
        base = log.segments[1].base_offset
        files.full = 3
        log.truncate_to(base - 1)
        assert files.full == 0
        log.append([(b"k", b"v", NOW)] * (base - log.log_end_offset))
        log.roll()
        log.append([(b"k", b"v", NOW)])
        clock.advance(DELAY_MS)
        log.roll()
        assert [segment for segment in log.segments if not os.path.exists(segment.path)] == []


def test_a_fifo_in_place_of_a_transaction_index_does_not_block_deletion(tmp_path: Path) -> None:
    """Fault 28: the fifo is unlinked with its segment."""
    with open_log(tmp_path / "t-0", config={"cleanup.policy": "delete", "retention.bytes": 1}) as log:
        fill(log)
        os.mkfifo(Path(log.segments[0].path).with_suffix(".txnindex"))
        assert log.apply_retention() == 3
        assert log.append([(b"k", b"v")]).first_offset == log.log_end_offset - 1


def test_a_full_disk_leaves_the_snapshots_where_the_new_segments_begin(tmp_path: Path) -> None:
    files = FullDisk()
    with open_log(tmp_path / "t-0", files=files, config={"segment.bytes": 2000}) as log:
        fill(log, keys=60)
        files.full = 100
        assert log.compact(roll=True).rounds == 1 and files.full < 100
        snapshots = {int(path.name[:20]) for path in Path(log.path).glob("*.snapshot")}
        assert {segment.base_offset for segment in log.segments[1:]} == snapshots
