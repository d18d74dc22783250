"""Producer snapshots and open transactions during rolls, truncations and retention."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.log.directory import checkpoint
from tests.support.abandon import abandon
from tests.support.batches import marker, produced, transactional
from tests.support.crash_files import CrashFiles
from tests.support.logs import NOW, bases

X = [(b"k", b"v")]


def opened(path: Path, **options: Any) -> klog.Log:
    config = {"file.delete.delay.ms": 0, **options.pop("config", {})}
    return klog.Log.open(path / "t-0", config=config, clock=ManualClock(NOW), **options)


def snapshots(log: klog.Log) -> list[int]:
    return sorted(int(path.name[:20]) for path in Path(log.path).glob("*.snapshot"))


def one_each(log: klog.Log, count: int, pid: int = 7) -> None:
    """Batches of one record of one producer, a roll after each."""
    for sequence in range(count):
        log.append_batches(produced(pid, 0, sequence))
        log.roll()


def test_each_segment_but_the_first_has_a_snapshot(tmp_path: Path) -> None:
    """UL45, UL46: taken at the roll, without producers, too; a flush within the newest segment removes none."""
    with opened(tmp_path) as log:
        log.append(X)
        log.roll()
        assert snapshots(log) == [1]
        one_each(log, 2)
        assert snapshots(log) == [1, 2, 3]
        log.append_batches(produced(7, 0, 2))
        log.flush(3)
        log.append_batches(produced(7, 0, 3))
        log.flush()
        assert snapshots(log) == [1, 2, 3]


def test_an_append_that_rolls_takes_a_snapshot(tmp_path: Path) -> None:
    """UL47: a truncation to its segment restores the state of the snapshot."""
    with opened(tmp_path, config={"segment.bytes": 100, "max.message.bytes": 100}) as log:
        log.append_batches(produced(7, 0, 0))
        log.append_batches(produced(7, 0, 1))
        assert (bases(log), snapshots(log)) == ([0, 1], [1])
        assert log.truncate_to(1)
        assert (log.segments[-1].size, log._core.producers.end_offset) == (0, 1)
        assert (log.producers[7].last_sequence, log.producers[7].last_offset) == (0, 0)
        log.append_batches(produced(7, 0, 1))
        assert log.producers[7].last_sequence == 1


def test_a_truncation_deletes_snapshots_of_later_records(tmp_path: Path) -> None:
    """UL48: the state is that of the new end."""
    with opened(tmp_path) as log:
        one_each(log, 3)
        log.append_batches(produced(7, 0, 3))
        assert snapshots(log) == [1, 2, 3]
        for offset in (2, 1, 0):
            log.truncate_to(offset)
            assert snapshots(log) == list(range(1, offset + 1))
            assert log._core.producers.end_offset == offset
        assert log.producers == {}


def test_snapshots_outside_the_log_are_deleted(tmp_path: Path) -> None:
    """PS28: by a truncation and by a load: those at or below the log start, and those beyond the log end."""
    with opened(tmp_path) as log:
        one_each(log, 5)
        log.delete_records(1)
        log.truncate_to(4)
        assert snapshots(log) == [2, 3, 4]
        log.delete_records(2)
    with opened(tmp_path, log_start_offset=2) as log:
        assert snapshots(log) == [3, 4]


def test_without_snapshots_the_state_comes_from_the_batches(tmp_path: Path) -> None:
    """UL49: the state comes from the remaining batches."""
    with opened(tmp_path) as log:
        one_each(log, 2)
        for path in Path(log.path).glob("*.snapshot"):
            path.unlink()
        log.truncate_to(1)
        assert (log.producers[7].last_sequence, log._core.producers.end_offset) == (0, 1)


def test_truncating_fully_leaves_no_snapshots(tmp_path: Path) -> None:
    """UL50: no producer is left either."""
    with opened(tmp_path) as log:
        one_each(log, 2)
        log.truncate_fully_and_start_at(29)
        assert (bases(log), snapshots(log), log._core.producers.end_offset) == ([29], [], 29)
        assert log.producers == {}


@pytest.mark.parametrize("empty", [False, True])
def test_snapshots_are_deleted_with_their_segments(tmp_path: Path, empty: bool) -> None:
    """UL51: the newest segment's stays, whether it has records or none."""
    with opened(tmp_path, config={"retention.bytes": 0 if empty else 1}) as log:
        one_each(log, 3)
        if not empty:
            log.append_batches(produced(7, 0, 3))
        assert snapshots(log) == [1, 2, 3]
        log.apply_retention()
        assert (bases(log), snapshots(log), log.log_start_offset) == ([3], [3], 3)
        assert list(Path(log.path).glob("*.deleted")) == []


def test_a_producer_outlives_its_records(tmp_path: Path) -> None:
    """UL52: it may continue its sequence; only the snapshots of deleted segments are deleted."""
    with opened(tmp_path) as log:
        log.append_batches(produced(7, 0, 0))
        log.roll()
        log.append_batches(produced(8, 0, 0))
        log.roll()
        assert snapshots(log) == [1, 2]
        log.maybe_increment_log_start_offset(2)
        log.apply_retention()
        assert (bases(log), snapshots(log)) == ([2], [2])
        assert set(log.producers) == {7, 8}
        assert log.append_batches(produced(7, 0, 1)).first_offset == 2


def test_a_snapshot_beyond_the_log_end_is_deleted_on_load(tmp_path: Path) -> None:
    """UL54: no batch covers its offset."""
    with opened(tmp_path) as log:
        one_each(log, 2)
        newest = Path(log.path) / f"{2:020d}.snapshot"
        stray = Path(log.path) / f"{42:020d}.snapshot"
        data = newest.read_bytes()
    stray.write_bytes(data)
    disk = CrashFiles()
    disk.keep(tmp_path)
    with opened(tmp_path, files=disk) as log:
        assert snapshots(log) == [1, 2]
        # Else a power cut brings it back after other batches have been written at its offset.
        assert str(stray) not in disk.durable_names


def test_a_snapshot_above_a_truncation_is_durably_gone(tmp_path: Path) -> None:
    """T2: that of a clean stop, which is at no base offset. The leader epochs do not change."""
    with opened(tmp_path) as log:
        for sequence in range(5):
            log.append_batches(produced(7, 0, sequence))
        end = Path(log.path) / f"{5:020d}.snapshot"
    disk = CrashFiles()
    disk.keep(tmp_path)
    with opened(tmp_path, files=disk) as log:
        assert str(end) in disk.durable_names
        log.truncate_to(3)
        assert str(end) not in disk.durable_names


def restart(log: klog.Log) -> None:
    log.truncate_fully_and_start_at(0)


def truncate_to_the_log_start(log: klog.Log) -> None:
    log.delete_records(3)
    log.truncate_to(4)


@pytest.mark.parametrize("empty", [restart, truncate_to_the_log_start])
def test_a_snapshot_above_a_truncation_to_nothing_is_durably_gone(
    tmp_path: Path, empty: Callable[[klog.Log], None]
) -> None:
    """T2: also where leader-epoch-checkpoint, whose replacement syncs the directory, does not change."""
    with opened(tmp_path) as log:
        log.begin_leader_epoch(1)
        log.append_batches(produced(7, 0, 0, count=5))
        end = Path(log.path) / f"{5:020d}.snapshot"
    disk = CrashFiles()
    disk.keep(tmp_path)
    with opened(tmp_path, files=disk) as log:
        assert str(end) in disk.durable_names
        empty(log)
        assert str(end) not in disk.durable_names


def test_a_snapshot_within_the_recovered_segment_is_not_believed_later(tmp_path: Path) -> None:
    """B2: a crash may have replaced the batches below it."""
    with opened(tmp_path) as log:
        for sequence in range(5):
            log.append_batches(produced(7, 0, sequence))
        directory = Path(log.path)
    end = directory / f"{5:020d}.snapshot"
    end.rename(directory / f"{3:020d}.snapshot")  # its state is wrong there
    with opened(tmp_path, clean_shutdown=False, recovery_point=0) as log:
        assert snapshots(log) == [5]
        log.truncate_to(4)
        assert log.producers[7].last_sequence == 3


@pytest.mark.parametrize("how", ["cut", "fully"])
def test_an_open_transaction_is_removed_with_its_records(tmp_path: Path, how: str) -> None:
    """UL77: in a reopened log, too; the last stable offset no longer waits for it."""
    with opened(tmp_path) as log:
        log.append(X)
        log.append_batches(transactional(7, 0, 0))
        log.append_batches(transactional(7, 0, 1))
    with opened(tmp_path) as log:
        assert (log.last_stable_offset, log.log_end_offset) == (1, 3)
        log.truncate_to(2)
        assert (log.last_stable_offset, set(log.producers)) == (1, {7})
        if how == "cut":
            log.truncate_to(1)
            end = 1
        else:
            log.truncate_fully_and_start_at(2, 1)
            end = 2
        assert (log.log_start_offset, log.log_end_offset) == (0 if how == "cut" else 1, end)
        assert (log.last_stable_offset, log.producers) == (end, {})
        assert log._core.producers.first_unstable_offset is None
    with opened(tmp_path) as log:
        assert log.last_stable_offset == log.log_end_offset == end


def test_a_truncated_marker_leaves_its_transaction_open_again(tmp_path: Path) -> None:
    """Its abort is no longer in an index."""
    with opened(tmp_path) as log:
        log.append_batches(transactional(7, 0, 0))
        log.append_batches(marker(7, 0, "abort"), origin="coordinator")
        log.append(X)
        assert (log.last_stable_offset, len(log.aborted_transactions())) == (3, 1)
        log.truncate_to(1)
        assert (log.last_stable_offset, log.aborted_transactions()) == (0, [])
        log.append_batches(marker(7, 0, "commit"), origin="coordinator")
        assert (log.last_stable_offset, log.aborted_transactions()) == (2, [])
        assert len(list(log.read(isolation="read_committed"))) == 1
        assert log.verify().problems == []


def test_a_truncation_keeps_the_transactions_below_a_log_start_that_a_crash_may_lose(tmp_path: Path) -> None:
    """The crash brings the records below it back. They were aborted: the snapshots written since must have begun with
    their transaction. So must those that a reader finds, before the log start is in the checkpoint."""
    log = opened(tmp_path)
    log.append_batches(transactional(7, 0, 0, 4))
    for _ in range(3):
        log.append(X)
    log.maybe_increment_log_start_offset(5)  # unlike a deletion by delete_records
    log.truncate_to(6)
    assert (log.log_start_offset, log.log_end_offset) == (5, 6)
    log.roll()
    log.append_batches(marker(7, 0, "abort"), origin="coordinator")
    log.flush()
    with opened(tmp_path, read_only=True) as reader:
        assert [record.offset for record in reader.read(isolation="read_committed")] == [4, 5]
    point = log.recovery_point
    assert point == 7
    abandon(log)
    with opened(tmp_path, recovery_point=point) as log:
        assert (log.log_start_offset, log.last_stable_offset) == (0, 7)
        assert [record.offset for record in log.read(isolation="read_committed")] == [4, 5]
        assert log.verify().problems == []


def test_no_unstable_offset_lies_below_the_log_start(tmp_path: Path) -> None:
    """UL83: this also holds when the segments are deleted."""
    with opened(tmp_path) as log:
        log.append_batches(transactional(7, 0, 0, 8))
        log.roll()
        log.append_batches(transactional(7, 0, 8, 2))
        assert log.last_stable_offset == 0
        log.maybe_increment_log_start_offset(5)
        assert log.last_stable_offset == 5
        log.maybe_increment_log_start_offset(8)
        log.apply_retention()
        assert (bases(log), log.last_stable_offset) == ([8], 8)


@pytest.mark.parametrize(
    ("clean", "recovery_point", "expected"), [(True, None, [3, 4, 5]), (False, 5, [3, 4, 5]), (False, 0, [1, 2, 3, 4, 5])]
)  # fmt: skip
def test_a_load_writes_missing_snapshots(
    tmp_path: Path, clean: bool, recovery_point: int | None, expected: list[int]
) -> None:
    """UL55: at the last two segments and at the end; with recovery, at every segment but the first."""
    with opened(tmp_path) as log:
        one_each(log, 4)
        log.append_batches(produced(7, 0, 4))
    for path in (tmp_path / "t-0").glob("*.snapshot"):
        path.unlink()
    with opened(tmp_path, clean_shutdown=clean, recovery_point=recovery_point) as log:
        assert snapshots(log) == expected
        assert log.producers[7].last_sequence == 4


@pytest.mark.parametrize("clean", [True, False])
def test_a_load_knows_no_producer_of_a_log_whose_records_are_all_deleted(tmp_path: Path, clean: bool) -> None:
    """B5."""
    with opened(tmp_path) as log:
        log.append_batches(produced(7, 0, 0))
    with opened(tmp_path, clean_shutdown=clean, recovery_point=0, log_start_offset=1) as log:
        assert (log.producers, log._core.producers.end_offset) == ({}, 1)


def test_a_restarted_log_has_a_snapshot_after_its_close(tmp_path: Path) -> None:
    """R3: Kafka takes a log without any snapshot for one older than idempotent producers."""
    with opened(tmp_path) as log:
        one_each(log, 1)
        log.truncate_fully_and_start_at(100)
    assert snapshots(log) == [100]


class NoSpaceForARecoveryPoint(CrashFiles):
    armed = False

    def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
        if self.armed and path.endswith(checkpoint.RECOVERY_POINT):
            self.armed = False
            raise OSError(errno.ENOSPC, "full", path)
        super().replace(path, data, private=private)


def test_a_roll_after_one_that_was_undone_writes_its_snapshot(tmp_path: Path) -> None:
    files = NoSpaceForARecoveryPoint()
    with klog.open(tmp_path, create=True, files=files, clock=ManualClock(NOW)) as logs:
        logs.create_topic("t")
        log = logs.log("t")
        log.append_batches(produced(7, 0, 0))
        files.armed = True
        with pytest.raises(OSError, match="full"):
            log.roll()
        assert not files.armed and snapshots(log) == []
        log.roll()
        assert snapshots(log) == [1]
