"""Transactions in a log: which records read_committed returns and when, the transaction index, and the state after a
reopen."""

from __future__ import annotations

import errno
import os
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import LogFile, RealFiles
from klog.errors import (
    CorruptBatch,
    InvalidProducerEpoch,
    InvalidTxnState,
    StorageOffline,
    TransactionCoordinatorFenced,
)
from klog.log.read import aborted_transactions
from klog.log.state._log_core import LogCore
from klog.log.state.snapshots import format_snapshot, read_snapshot
from klog.segment import Segment
from tests.support.abandon import abandon
from tests.support.batches import NOW, batch, marker, produced, transactional
from tests.support.crash_files import CrashFiles
from tests.support.damage import flip
from tests.support.faulty_io import FaultyIo
from tests.support.logs import bases, one_log
from tests.support.no_gc import no_gc
from tests.support.reseal import reseal

DAY = 86_400_000


def opened(path: Path, /, files: RealFiles | None = None, *, clean: bool | None = None, **config: Any) -> klog.Log:
    return klog.Log.open(
        path / "t-0", config=config, clock=ManualClock(NOW), files=files or RealFiles(), clean_shutdown=clean
    )


@pytest.fixture
def log(tmp_path: Path) -> Iterator[klog.Log]:
    """A log whose high watermark moves only by its methods."""
    with opened(tmp_path) as log:
        log.update_high_watermark(0)
        yield log


class Producer:
    """Sends batches of one transactional producer, and its markers, as a coordinator does."""

    def __init__(self, log: klog.Log, pid: int, epoch: int = 0) -> None:
        self.log, self.pid, self.epoch, self.sequence = log, pid, epoch, 0

    def send(self, count: int = 1) -> int:
        sent = transactional(self.pid, self.epoch, self.sequence, count)
        self.sequence += count
        return self.log.append_batches(sent).first_offset

    def end(self, kind: str, coordinator: int = 0) -> int:
        ended = marker(self.pid, self.epoch, kind, coordinator=coordinator)
        return self.log.append_batches(ended, origin="coordinator").first_offset


def first_unstable(log: klog.Log) -> int | None:
    found = log._core.producers.first_unstable_offset
    return None if found is None else found.offset


def committed(log: klog.Log) -> list[int]:
    return [record.offset for record in log.read(isolation="read_committed")]


def test_a_transaction_is_unstable_from_its_first_record_to_its_replicated_marker(log: klog.Log) -> None:
    """UL78: more data and the commit leave it, the high watermark beyond the marker clears it."""
    producer = Producer(log, 1)
    log.append_batches(batch(3))
    assert first_unstable(log) is None
    assert producer.send(3) == 3
    assert first_unstable(log) == 3
    producer.send(2)
    assert first_unstable(log) == 3
    assert producer.end("commit") == 8
    assert first_unstable(log) == 3
    log.update_high_watermark(8)
    assert first_unstable(log) == 3 and log.last_stable_offset == 3
    log.update_high_watermark(9)
    assert first_unstable(log) is None and log.last_stable_offset == 9


def four_producers(log: klog.Log) -> None:
    """The script of Kafka's test: pid 1 aborts 0 to 29, pid 2 aborts 8 to 74, pid 3 commits, pid 4 is in none."""
    first, second, third = (Producer(log, pid) for pid in (1, 2, 3))
    first.send(5)  # 0
    log.append_batches(batch(3))  # 5
    second.send(2)  # 8
    first.send(4)  # 10
    log.append_batches(batch(10))  # 14
    first.send(5)  # 24
    assert first.end("abort") == 29
    log.append_batches(batch(6))  # 30
    third.send(3)  # 36
    second.send(33)  # 39
    log.append_batches(produced(4, 0, 0, 2))  # 72
    assert second.end("abort") == 74
    assert third.end("commit") == 75


ABORTED = [(1, 0, 29, 8), (2, 8, 74, 36)]


def test_the_transaction_index(tmp_path: Path) -> None:
    """UL79: an entry for each aborted transaction, with the last stable offset after it; the same by replication;
    the unstable offset moves with the high watermark, and has its position."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with opened(tmp_path / "a") as leader, opened(tmp_path / "b") as follower:
        leader.update_high_watermark(0)
        four_producers(leader)
        assert leader.aborted_transactions() == ABORTED
        offset = 0
        while offset < leader.log_end_offset:
            follower.append_batches(leader.fetch(offset, 400).memory(), origin="replication")
            offset = follower.log_end_offset
        assert follower.aborted_transactions() == ABORTED
        assert follower.producers == leader.producers
        assert committed(follower) == [5, 6, 7, *range(14, 24), *range(30, 39), 72, 73]
        for high_watermark, unstable in ((30, 8), (75, 36), (leader.log_end_offset, None)):
            leader.update_high_watermark(high_watermark)
            assert first_unstable(leader) == unstable
            assert leader.last_stable_offset == (high_watermark if unstable is None else unstable)
            found = leader._core.producers.first_unstable_offset
            if found is not None:
                assert found == leader.maybe_convert_to_offset_metadata(found.offset) and not found.is_message_only
                assert leader.fetch_offset_snapshot().last_stable_offset == found


def test_mixed_producers(log: klog.Log) -> None:
    """UL80: the abort of the first moves the unstable offset to the second's first record, once it is replicated."""
    first, second = Producer(log, 1), Producer(log, 2)
    first.send(3)
    log.append_batches(produced(3, 0, 0, 2))
    second.send(4)
    assert first_unstable(log) == 0
    end = first.end("abort")
    assert first_unstable(log) == 0
    log.update_high_watermark(end + 1)
    assert first_unstable(log) == 5 == log.last_stable_offset
    end = second.end("commit")
    log.update_high_watermark(end + 1)
    assert first_unstable(log) is None


def test_two_interleaved_transactions(log: klog.Log) -> None:
    """UL9: pid 1 from 0, pid 2 from 8: the last stable offset waits for the high watermark, 0, then 8, then the end."""
    first, second = Producer(log, 1), Producer(log, 2)
    assert first.send(8) == 0
    assert second.send(4) == 8
    first.end("commit")
    assert log.last_stable_offset == 0
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 8
    second.end("abort")
    assert log.last_stable_offset == 8
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset
    assert committed(log) == list(range(8))


@pytest.mark.parametrize("managed", [True, False])
def test_read_committed_never_returns_an_undecided_record(tmp_path: Path, managed: bool) -> None:
    """UL10: while transactions of one record are written and aborted and the high watermark moves, read_committed sees
    nothing."""
    with opened(tmp_path) as log:
        if managed:
            log.update_high_watermark(0)
        done = threading.Event()
        seen: list[Any] = []

        def move() -> None:
            while not done.is_set():
                log.update_high_watermark(log.log_end_offset)

        def read_lso() -> None:
            while not done.is_set():
                start = max(log.last_stable_offset - 4, 0)
                seen.extend(log.read(start, isolation="read_committed"))

        threads = [threading.Thread(target=read_lso)]
        if managed:
            threads.append(threading.Thread(target=move))
        for thread in threads:
            thread.start()
        producer = Producer(log, 1)
        for _ in range(300):
            producer.send()
            producer.end("abort")
        done.set()
        for thread in threads:
            thread.join()
        assert not seen
        log.update_high_watermark(log.log_end_offset)
        assert log.last_stable_offset == 600


def test_an_aborted_transaction_over_two_segments(tmp_path: Path) -> None:
    """UL81: a fetch from 0 names it, though its index entry is in the second segment's file."""
    with opened(tmp_path) as log:
        producer = Producer(log, 1)
        producer.send(5)
        log.roll()
        producer.send(5)
        producer.end("abort")
        fetched = log.fetch(0, isolation="read_committed")
        assert [(entry.producer_id, entry.first_offset) for entry in fetched.aborted_transactions] == [(1, 0)]
        assert committed(log) == [] and log.last_stable_offset == 11
        names = sorted(path.name for path in (tmp_path / "t-0").glob("*.txnindex"))
        assert names == [f"{5:020}.txnindex"]


def test_markers_of_older_epochs_are_fenced(log: klog.Log) -> None:
    """UL82: an older coordinator epoch, with data or without; an older producer epoch."""
    producer = Producer(log, 1, epoch=5)
    producer.send()
    producer.end("abort", coordinator=1)
    producer.send()
    with pytest.raises(TransactionCoordinatorFenced) as caught:
        producer.end("abort", coordinator=0)
    assert caught.value.code == 52
    producer.end("commit", coordinator=2)
    with pytest.raises(TransactionCoordinatorFenced):
        producer.end("abort", coordinator=1)
    with pytest.raises(InvalidProducerEpoch):
        log.append_batches(marker(1, 4, "commit", coordinator=9), origin="coordinator")
    assert log.log_end_offset == 4 and log.producers[1].coordinator_epoch == 2


def test_non_transactional_data_in_an_open_transaction_is_refused(log: klog.Log) -> None:
    producer = Producer(log, 1)
    producer.send()
    with pytest.raises(InvalidTxnState) as caught:
        log.append_batches(produced(1, 0, 1))
    assert caught.value.code == 48
    with pytest.raises(InvalidTxnState):
        log.append_batches(produced(1, 0, 1, base_offset=1), origin="replication")
    assert log.log_end_offset == 1


def test_the_unstable_offset_is_never_below_the_log_start(tmp_path: Path) -> None:
    """UL83: never below the log start: in the middle of a segment, and once the segments are deleted."""
    with opened(tmp_path, retention_ms=DAY) as log:
        producer = Producer(log, 1)
        producer.send(4)
        log.append_batches(batch(4))
        log.roll()
        producer.send(4)
        assert log.last_stable_offset == 0
        log.maybe_increment_log_start_offset(5)
        assert log.last_stable_offset == 5
        assert log.fetch_offset_snapshot().last_stable_offset.offset == 5
        log.maybe_increment_log_start_offset(8)
        assert log.apply_retention() == 1
        assert (log.last_stable_offset, bases(log)) == (8, [8])
        producer.end("abort")
        assert log.last_stable_offset == log.log_end_offset
        assert log.aborted_transactions() == [(1, 0, 12, 13)]


class FailingTxnIndex(RealFiles):
    """Cannot open a transaction index while armed."""

    armed = False

    def open(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        if self.armed and path.endswith(".txnindex"):
            raise OSError(28, os.strerror(28), path)
        return super().open(path, write=write, create=create)


def test_a_transaction_index_that_cannot_be_written(tmp_path: Path) -> None:
    """UL84: the append raises, the batch stays, the last stable offset does not move, the log is offline; opened again
    as after a crash it has the whole outcome."""
    files = FailingTxnIndex()
    log = opened(tmp_path, files)
    producer = Producer(log, 1)
    producer.send(10)
    files.armed = True
    with pytest.raises(StorageOffline) as caught:
        producer.end("abort")
    assert isinstance(caught.value.__cause__, OSError) and caught.value.code == 56
    assert (log.log_end_offset, log.last_stable_offset, first_unstable(log)) == (11, 0, 0)
    assert committed(log) == [] and log.offline
    with pytest.raises(StorageOffline):
        producer.end("abort")
    with pytest.raises(StorageOffline):
        log.append([(b"k", b"v")])
    assert log.log_end_offset == 11
    files.armed = False
    log.close()
    with opened(tmp_path, clean=False) as log:
        assert (log.log_end_offset, first_unstable(log)) == (11, None)
        assert log.aborted_transactions() == [(1, 0, 10, 11)]
        assert committed(log) == [] and log.last_stable_offset == 11


def test_the_open_after_a_log_went_offline_is_unclean(tmp_path: Path) -> None:
    """UL84: and closing names the cause."""
    files = FailingTxnIndex()
    logs = klog.open(tmp_path, create=True, clock=ManualClock(NOW), files=files)
    logs.create_topic("t")
    log = logs.log("t")
    producer = Producer(log, 1)
    producer.send(10)
    files.armed = True
    with pytest.raises(StorageOffline):
        producer.end("abort")
    files.armed = False
    with pytest.raises(OSError, match="cannot be written"):
        logs.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with klog.open(tmp_path, clock=ManualClock(NOW)) as logs:
        log = logs.log("t")
        assert not log.recovery.clean_shutdown
        assert log.aborted_transactions() == [(1, 0, 10, 11)] and first_unstable(log) is None


@pytest.mark.parametrize("clean", [True, False])
def test_a_finished_transaction_is_stable_after_a_reload(tmp_path: Path, clean: bool) -> None:
    """UL86: once the high watermark has passed its marker."""
    log = opened(tmp_path)
    producer = Producer(log, 1)
    producer.send(10)
    producer.end("abort")
    if clean:
        log.close()
    else:
        abandon(log)
    with opened(tmp_path, clean=clean) as log:
        assert first_unstable(log) is None and log.last_stable_offset == 11
        assert log.aborted_transactions() == [(1, 0, 10, 11)]


@pytest.mark.parametrize("how", ["closed", "killed", "beside"])
def test_a_producer_whose_batches_are_deleted_is_known_below_a_high_watermark(tmp_path: Path, how: str) -> None:
    """Its state is in a snapshot above the high watermark only: without it a retry would be appended again."""
    log = opened(tmp_path)
    log.update_high_watermark(0)
    log.append_batches(produced(7, 0, 0, 2))
    log.append_batches(batch(2))
    log.update_high_watermark(3)
    log.delete_records(3)
    log.append_batches(batch(2))
    log.roll()
    log.append_batches(batch(2))
    given: dict[str, Any] = {"high_watermark": 4, "recovery_point": 8, "log_start_offset": 3, "clock": log.clock}
    if how == "beside":
        other = klog.Log.open(log.path, read_only=True, **given)
    else:
        if how == "closed":
            log.close()
        else:
            abandon(log)
        other = log = klog.Log.open(log.path, clean_shutdown=how == "closed", **given)
    with log, other:
        assert other.producers[7].last_sequence == 1
        if other is log:
            end = log.log_end_offset
            log.append_batches(produced(7, 0, 0, 2))
            assert log.log_end_offset == end


@pytest.mark.parametrize("how", ["truncated", "closed", "killed", "copied", "beside"])
def test_a_transaction_whose_marker_is_not_replicated_stays_unstable(tmp_path: Path, how: str) -> None:
    """The producer snapshots after the marker no longer have it: those up to the high watermark do."""
    log = opened(tmp_path)
    log.update_high_watermark(0)
    log.append_batches(batch(2))
    log.roll()
    producer = Producer(log, 1)
    producer.send()
    assert producer.end("commit") == 3
    log.roll()
    log.append_batches(batch(2))
    log.roll()
    log.append_batches(batch(2))
    log.update_high_watermark(3)
    assert (log.high_watermark, log.last_stable_offset) == (3, 2)
    if how == "truncated":
        log.truncate_to(6)
        other = log
    elif how == "copied":
        other = log.snapshot()
    elif how == "beside":
        other = klog.Log.open(log.path, read_only=True, high_watermark=3, recovery_point=8)
    else:
        if how == "closed":
            log.close()
        else:
            abandon(log)
        other = log = klog.Log.open(
            log.path, high_watermark=3, recovery_point=8, clock=log.clock, clean_shutdown=how == "closed"
        )
    with log, other:
        assert (other.high_watermark, other.last_stable_offset, committed(other)) == (3, 2, [0, 1])
        if other is log:
            log.update_high_watermark(4)
            assert (log.last_stable_offset, committed(log)) == (4, [0, 1, 2])


def test_truncation_below_the_unstable_offset(tmp_path: Path) -> None:
    """UL77: after a reload, to the end of the earlier data, and fully: nothing is unstable, no producer is known."""
    for fully in (False, True):
        path = tmp_path / str(fully)
        path.mkdir()
        with opened(path) as log:
            Producer(log, 1).send(3)
        with opened(path) as log:
            assert first_unstable(log) == 0 and list(log.producers) == [1]
            if fully:
                log.truncate_fully_and_start_at(2, 1)
                assert (log.log_start_offset, log.log_end_offset) == (1, 2)
            else:
                log.truncate_to(0)
            assert first_unstable(log) is None and not log.producers
            assert log.last_stable_offset == log.log_end_offset


def test_an_open_transaction_is_open_after_a_reload(tmp_path: Path) -> None:
    """PS25: by the snapshot of a clean stop; and its marker ends it."""
    with opened(tmp_path) as log:
        producer = Producer(log, 1)
        log.append_batches(batch(2))
        producer.send(3)
    with opened(tmp_path) as log:
        assert log.last_stable_offset == 2
        producer.log = log
        producer.send(1)
        producer.end("abort")
        assert log.aborted_transactions() == [(1, 2, 6, 7)]
        assert log.last_stable_offset == 7 and committed(log) == [0, 1]


def test_a_coordinator_epoch_that_decreases_in_the_log(tmp_path: Path) -> None:
    """LC6: recovery accepts it; the time is that of the second marker."""
    with opened(tmp_path) as log:
        sent = [
            transactional(1, 0, 0, 1, base_offset=0),
            marker(1, 0, "commit", coordinator=5, base_offset=1, at=NOW + 1),
            marker(1, 0, "commit", coordinator=4, base_offset=2, at=NOW + 2),
        ]
        log.append_batches(b"".join(sent), origin="replication")
        abandon(log)
    for path in (tmp_path / "t-0").glob("*.snapshot"):
        path.unlink()
    with opened(tmp_path, clean=False) as log:
        state = log.producers[1]
        assert (state.coordinator_epoch, state.timestamp) == (4, NOW + 2)


@pytest.mark.parametrize(("start", "left"), [(1, [1, 2]), (2, [2])])
def test_producers_of_deleted_records(tmp_path: Path, start: int, left: list[int]) -> None:
    """LC7: with the start inside a segment an unclean reload knows both producers; with the segment deleted, one."""
    log = opened(tmp_path)
    log.append_batches(produced(1, 0, 0))
    if start == 2:
        log.append_batches(produced(1, 0, 1))
        log.roll()
    log.append_batches(produced(2, 0, 0))
    log.maybe_increment_log_start_offset(start)
    if start == 2:
        assert log.apply_retention() == 1
    assert sorted(log.producers) == [1, 2]
    start_offset = log.log_start_offset
    abandon(log)
    for path in (tmp_path / "t-0").glob("*.snapshot"):
        path.unlink()
    with klog.Log.open(
        tmp_path / "t-0", clock=ManualClock(NOW), clean_shutdown=False, log_start_offset=start_offset
    ) as log:
        assert sorted(log.producers) == left


@pytest.mark.parametrize(("start", "known"), [(0, [1, 2, 3]), (1, [1, 2, 3]), (2, [2, 3]), (4, [3]), (6, [])])
def test_recovery_drops_the_producers_of_segments_below_the_log_start(
    tmp_path: Path, start: int, known: list[int]
) -> None:
    """As in Kafka: snapshots at or below the log start are deleted, and so is the state recovered up to there. A
    transaction that began below it does not hold back the last stable offset."""
    log = opened(tmp_path)
    for pid in (1, 2, 3):
        log.append_batches(transactional(pid, 0, 0, 2))
        log.roll()
    abandon(log)
    with klog.Log.open(
        tmp_path / "t-0", clock=ManualClock(NOW), clean_shutdown=False, log_start_offset=start, recovery_point=0
    ) as log:
        assert sorted(log.producers) == known
        assert log.last_stable_offset == (max(start, 2 * known[0] - 2) if known else 6)


def test_markers_have_their_control_type(log: klog.Log) -> None:
    key = klog.record.control.control_key("leader_change")
    strange = klog.record.encode(
        [(key, b"", NOW)], producer_id=1, producer_epoch=0, is_control=True, is_transactional=True, base_offset=0
    )
    with pytest.raises(klog.errors.InvalidRecord):
        log.append_batches(strange, origin="coordinator")
    with pytest.raises(klog.errors.InvalidRecord):
        log.append_batches(strange, origin="replication")
    assert log.log_end_offset == 0 and log.size == 0


def test_an_emptied_marker_decides_nothing(log: klog.Log) -> None:
    """PS20: a marker emptied by the cleaner leaves an open transaction open."""
    log.append_batches(transactional(1, 0, 0, base_offset=0), origin="replication")
    emptied = klog.record.encode(
        [], base_offset=1, producer_id=1, producer_epoch=0, is_control=True, is_transactional=True,
        max_timestamp=NOW, last_offset_delta=0,
    )  # fmt: skip
    log.append_batches(emptied, origin="replication")
    assert first_unstable(log) == 0 and log.log_end_offset == 2
    Producer(log, 1).end("abort")
    assert log.aborted_transactions() == [(1, 0, 2, 3)]


def recovered(path: Path, *batches: bytes) -> klog.Log:
    """A log of these batches after a crash."""
    (path / "t-0").mkdir(exist_ok=True)
    (path / "t-0" / f"{0:020}.log").write_bytes(b"".join(batches))
    return opened(path, clean=False)


def test_the_producer_of_an_emptied_marker_is_in_a_snapshot_after_a_crash(tmp_path: Path) -> None:
    emptied = klog.record.encode(
        [], base_offset=0, producer_id=1, producer_epoch=0, is_control=True, is_transactional=True,
        max_timestamp=NOW, last_offset_delta=0,
    )  # fmt: skip
    sent = transactional(2, 0, 0, base_offset=1), marker(2, 0, "abort", base_offset=2)
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{3:020}.log").touch()
    with recovered(tmp_path, emptied, *sent) as log:
        assert log.aborted_transactions() == [(2, 1, 2, 3)]
        assert sorted(read_snapshot(log.path, 3)) == [1, 2]


def test_a_long_transaction_begins_with_its_first_batch_after_a_crash(tmp_path: Path) -> None:
    """Also if it is not the first one of its producer, and if of other producers only the last batches count."""
    batches = [transactional(1, 0, 0, base_offset=0), marker(1, 0, "commit", base_offset=1)]
    batches += [transactional(1, 0, number - 1, base_offset=number) for number in range(2, 10)]
    batches += [marker(1, 0, "abort", base_offset=10), batch(1, base_offset=11, leader_epoch=1)]
    with recovered(tmp_path, *batches) as log:
        assert (log.aborted_transactions(), list(log.producers)) == ([(1, 2, 10, 11)], [1])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\0\0\x01\0\0\3", 2**24 + 3),
        (b"\0\0\x01\0\0\3 more", 2**24 + 3),
        (b"\0\0\xff\xff\xff\xfe", -2),
        (b"\0\0\0\0\3", -1),
        (None, -1),
    ],
)
def test_the_coordinator_epoch_of_a_marker_after_a_crash(tmp_path: Path, value: bytes | None, expected: int) -> None:
    """-1 if the value is too short for it."""
    ended = klog.record.encode(
        [(klog.record.control.control_key("commit"), value, NOW)],
        producer_id=1, producer_epoch=0, is_control=True, is_transactional=True,
    )  # fmt: skip
    with recovered(tmp_path, ended) as log:
        assert log.producers[1].coordinator_epoch == expected


def test_recovery_names_a_marker_with_a_valid_checksum_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CorruptBatch, match="t-0"):
        recovered(tmp_path, reseal(flip(marker(1, 0, "commit"), 61, 6)))  # the length of the record


@pytest.mark.parametrize("begun", [None, 75])
def test_recovery_of_a_segment_with_transactions(tmp_path: Path, begun: int | None) -> None:
    """LS12: one entry, (2, 102, 106, 100), and the state as of 108; with a transaction that is open since 75 by a
    snapshot, the entry begins there."""
    path = tmp_path / "t-0"
    log = klog.Log.open(path, clock=ManualClock(NOW), log_start_offset=70)
    log.append_batches(batch(30, base_offset=70), origin="replication")
    log.roll()
    sent = [
        transactional(1, 0, 0, 2, base_offset=100),
        transactional(2, 0, 15, 2, base_offset=102),
        batch(2, base_offset=104),
        marker(2, 0, "abort", base_offset=106),
        marker(1, 0, "commit", base_offset=107),
    ]
    log.append_batches(b"".join(sent), origin="replication")
    abandon(log)
    (path / f"{100:020}.txnindex").unlink()
    if begun is not None:
        known = klog.ProducerState(0, 14, 80, 0, NOW, 0, begun)
        (path / f"{100:020}.snapshot").write_bytes(format_snapshot({2: known}))
    with klog.Log.open(
        path, clock=ManualClock(NOW), clean_shutdown=False, recovery_point=100, log_start_offset=70
    ) as log:
        assert log.aborted_transactions() == [(2, 102 if begun is None else begun, 106, 100)]
        assert log._core.producers.end_offset == log.log_end_offset == 108
        assert first_unstable(log) is None


@pytest.fixture
def untraceable(tmp_path: Path) -> dict[str, Any]:
    """Arguments of Log.open for a log with an aborted transaction that only its batches show: the transaction index is
    lost, and the snapshots have no producer any more."""
    path = tmp_path / "t-0"
    with opened(tmp_path) as log:
        producer = Producer(log, 1)
        log.append_batches(batch(1, key=b"first"))
        producer.send(2)
        producer.end("abort")
        log.roll()
    arguments = {"path": path, "clock": ManualClock(NOW + 3 * DAY), "clean_shutdown": True}
    for _ in range(2):  # the second load removes the snapshot of the first
        with klog.Log.open(**arguments) as log:
            log.append_batches(batch(1))
    (path / f"{0:020}.txnindex").unlink()
    return arguments


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("way", ["records", "slice", "small slice", "range", "chunks", "listed"])
def test_aborted_records_stay_hidden_without_a_trace_beside_the_batches(
    untraceable: dict[str, Any], way: str, read_only: bool
) -> None:
    aborted = (1, 1, 3, 4)
    with klog.Log.open(**untraceable, read_only=read_only) as log:
        if way == "records":
            assert committed(log) == [0, 4, 5]
        elif way == "slice":
            assert log.fetch(0, isolation="read_committed").aborted_transactions == (aborted,)
        elif way == "small slice":
            small = [log.fetch(offset, 1, isolation="read_committed") for offset in (4, 0, 2, 3)]
            assert [data.aborted_transactions for data in small] == [(), (), (aborted,), (aborted,)]
        elif way == "range":
            whole = log.fetch_range(0, isolation="read_committed")
            assert [data.aborted_transactions for data in whole] == [(aborted,), ()]
        elif way == "chunks":
            assert [chunk.aborted for chunk in log.chunks(0, 6, "read_committed")] == [(aborted[:3],), ()]
        else:
            assert log.aborted_transactions() == [aborted]


def test_a_cleaner_removes_aborted_records_without_a_trace_beside_the_batches(untraceable: dict[str, Any]) -> None:
    with klog.Log.open(**untraceable, config={"cleanup.policy": "compact"}) as log:
        log.compact()
        assert [record.offset for record in log.read(isolation="log_end", include_control=True)] == [0, 3, 4, 5]
        assert log.aborted_transactions() == [(1, 1, 3, 4)]


def test_a_purge_keeps_a_transaction_without_a_trace_beside_the_batches(untraceable: dict[str, Any]) -> None:
    with klog.Log.open(**untraceable) as log:
        log.purge_key(b"first")
        assert [record.offset for record in log.read(isolation="log_end")] == [1, 2, 4, 5]
        assert committed(log) == [4, 5]


def test_a_moving_high_watermark_reads_only_the_transactions_it_passes(tmp_path: Path) -> None:
    def lines_run(path: Path, transactions: int) -> int:
        path.mkdir()
        with opened(path) as log:
            log.update_high_watermark(0)
            for pid in range(transactions):
                producer = Producer(log, pid)
                producer.send()
                producer.end("commit")
            lines = 0

            def count(frame: FrameType, event: str, argument: object) -> Any:
                nonlocal lines
                lines += event == "line"
                return count

            before = sys.gettrace()
            with no_gc():
                sys.settrace(count)
                try:
                    log.update_high_watermark(4)
                finally:
                    sys.settrace(before)
            assert log.last_stable_offset == 4 and first_unstable(log) == 4
            return lines

    assert lines_run(tmp_path / "few", 4) == lines_run(tmp_path / "many", 100)


# ---- many segments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [False, True])
def test_segments_without_aborted_transactions_are_read_once(
    tmp_path: Path, read_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    producer = Producer(log, 1)
    for _ in range(30):
        producer.send()
        producer.end("commit")
        log.roll()
    log.append_batches(batch(1))
    looking = klog.Log.open(tmp_path / "t-0", read_only=True) if read_only else log
    searched: list[int] = []
    ask = aborted_transactions.aborted_in

    def counted(log: LogCore, segment: Segment, *args: Any) -> Any:
        searched.append(segment.base_offset)
        return ask(log, segment, *args)

    monkeypatch.setattr(aborted_transactions, "aborted_in", counted)
    looking.fetch(0, isolation="read_committed")
    assert searched == (list(range(0, 61, 2)) if read_only else [])  # a writer knows what it has appended
    for offset in (0, 0, 15, 60):
        searched.clear()
        looking.fetch(offset, isolation="read_committed")
        assert searched == []  # the fast path looks at the last one itself
    if read_only:
        looking.close()
    log.close()


def test_records_outside_transactions_are_read_without_a_look_at_later_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as log:
        for pid in range(3):
            log.append_batches(produced(pid, 0, 0))
            log.roll()
        log.append_batches(batch(1))
        monkeypatch.setattr(aborted_transactions, "aborted_in", None)
        assert log.fetch(0, isolation="read_committed").size
        assert [record.offset for record in log.read(stop=3, isolation="read_committed")] == [0, 1, 2]


def test_cached_aborted_transactions_are_dropped_with_their_segments(tmp_path: Path) -> None:
    """Each result equals that of a log that reads every segment, through rolls, truncations and retention."""
    random_ = random.Random(3)
    with opened(tmp_path, **{"retention.ms": -1, "segment.bytes": 500}) as log:
        sequence = 0
        for _ in range(200):
            dice = random_.random()
            if dice < 0.3:
                log.append_batches(transactional(1, 0, sequence))
                sequence += 1
                log.append_batches(marker(1, 0, "abort"), origin="coordinator")
            elif dice < 0.8:
                log.append_batches(batch(1))
            elif dice < 0.9:
                log.roll()
            elif dice < 0.95:
                log.truncate_to(max(log.log_end_offset - random_.randrange(12), log.log_start_offset))
                sequence = log.producers[1].last_sequence + 1 if 1 in log.producers else 0
            else:
                log.delete_records(random_.randrange(log.log_start_offset, log.log_end_offset + 1))
                log.apply_retention()
            low = random_.randrange(log.log_start_offset, log.log_end_offset + 1)
            high = random_.randrange(low, log.log_end_offset + 2)
            entries = [entry for segment in log.segments for entry in segment.txn_index.entries]
            wanted = [entry for entry in entries if entry.last_offset >= low and entry.first_offset < high]
            assert log.aborted_transactions(low, high) == wanted


def test_an_open_transaction_survives_a_clean_reload(tmp_path: Path) -> None:
    """R3: the state comes from the snapshot alone; no batch is replayed."""
    with one_log(tmp_path) as log:
        log.append_batches(transactional(7, 0, 0))
        log.roll()
    with one_log(tmp_path) as log:
        log.append([(b"k", b"other")])
        assert (log.last_stable_offset, log.log_end_offset) == (0, 2)
        assert list(log.read(isolation="read_committed")) == []


def test_a_truncation_leaves_decided_transactions_decided(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        producer = Producer(log, 9)
        producer.send()
        producer.end("commit")
        log.append_batches(batch(1))
        log.append_batches(batch(1))
        log.truncate_to(3)
        assert log.last_stable_offset == 3 and committed(log) == [0, 2]


@pytest.mark.parametrize("torn", [0, 20])
def test_a_load_after_a_clean_stop_cuts_the_transaction_index_at_the_log_end(tmp_path: Path, torn: int) -> None:
    """Else the next abort would not be above the last entry. torn: bytes of the marker that are left."""
    with opened(tmp_path) as log:
        producer = Producer(log, 9)
        producer.send()
        size = log.segments[-1].size
        producer.end("abort")
        path, index = Path(log.segments[-1].path), log.segments[-1].txn_index.path
    os.truncate(path, size + torn)
    for snapshot in path.parent.glob("*.snapshot"):
        snapshot.unlink()
    with klog.Log.open(path.parent, clock=ManualClock(NOW), clean_shutdown=True, recovery="kafka") as log:
        assert log.log_end_offset == 1 and os.path.getsize(index) == 0
        Producer(log, 9).end("abort")
        assert log.aborted_transactions() == [(9, 0, 1, 2)]


def test_a_transaction_is_aborted_after_a_renaming(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        producer = Producer(log, 9)
        for name in ("u-0", "v-0"):
            producer.send()
            producer.end("abort")
            log.rename_dir(name)
        assert [each.last_offset for each in log.aborted_transactions()] == [1, 3]
    assert [path.name for path in tmp_path.glob("?-0")] == ["v-0"]


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_a_flush_makes_the_transaction_index_durable(tmp_path: Path, durability: Any) -> None:
    """F1. With "sync" it keeps the log's lock."""
    files = CrashFiles()
    with klog.Log.open(tmp_path / "t-0", clock=ManualClock(NOW), files=files, durability=durability) as log:
        producer = Producer(log, 9)
        producer.send()
        producer.end("abort")
        log.flush()
        path = log.segments[-1].txn_index.path
        assert bytes(files.durable_names[path].durable) == Path(path).read_bytes() != b""


def test_a_reader_whose_replay_has_failed_repeats_it(tmp_path: Path) -> None:
    """The failed one has changed nothing, whatever it had replayed."""
    failed = 0
    with opened(tmp_path) as log:
        producer = Producer(log, 9)
        for nth in range(1, 7):
            producer.send()
            with (
                FaultyIo() as io,
                klog.Log.open(log.path, read_only=True, clock=ManualClock(NOW), files=RealFiles(io.table)) as reader,
            ):
                open_since = log.last_stable_offset
                assert reader.last_stable_offset == open_since
                producer.end("commit")
                log.roll()
                log.append_batches(batch(1))
                reader.refresh()
                io.rule("preadv2", error=errno.EAGAIN)
                io.rule("pread", error=errno.EIO, nth=nth, times=1)
                try:
                    assert reader.last_stable_offset == log.log_end_offset
                except OSError:
                    failed += 1
                io.heal()
                assert reader.last_stable_offset == log.log_end_offset
    assert failed
