"""Truncating a log, or restarting it at an offset: the remaining records, and the other changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import CorruptBatch, CorruptLog, OffsetOutOfRange, ReadOnly
from klog.log.options import Policy
from klog.log.state.high_watermark_rules import OffsetMetadata
from tests.support.abandon import abandon
from tests.support.batches import batch, produced
from tests.support.groups import BATCH
from tests.support.logs import NOW, bases, one_log, rows, values

X = [(None, None)]  # one batch of BATCH bytes


def numbered(first: int, count: int) -> list[tuple[None, bytes, int]]:
    return [(None, b"%04d" % number, NOW + number) for number in range(first, first + count)]


def fill(log: klog.Log, count: int) -> None:
    """One batch per record."""
    for number in range(count):
        log.append(numbered(log.log_end_offset, 1) if number < count else [])


def names_in(log: klog.Log, suffix: str) -> list[str]:
    return sorted(path.name for path in Path(log.path).iterdir() if path.name.endswith(suffix))


def test_truncating_at_or_beyond_the_end_changes_nothing(tmp_path: Path) -> None:
    """UL73: except to an epoch that begins at the log end."""
    with one_log(tmp_path) as log:
        fill(log, 5)
        log._core.epochs.assign(1, 3)
        for offset in (5, 6, 2**62):
            log._core.epochs.assign(2, 5)
            assert log.leader_epochs == [(0, 0), (1, 3), (2, 5)]
            assert not log.truncate_to(offset)
            assert log.leader_epochs == [(0, 0), (1, 3)]
            assert (Path(log.path) / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n1 3\n2 5\n"  # the leader's
        assert (log.log_end_offset, len(rows(log))) == (5, 5)


def test_truncating_to_the_middle_to_nothing_and_filling_again(tmp_path: Path) -> None:
    """UL74: then wholly to an offset beyond, and back below that."""
    with one_log(tmp_path, segment_bytes=10 * BATCH, file_delete_delay_ms=0) as log:
        for _ in range(10):
            log.append(X)
        size = log.size
        assert log.truncate_to(5)
        assert (log.log_end_offset, log.size) == (5, size // 2)
        assert log.truncate_to(0)
        assert (log.log_end_offset, log.size) == (0, 0)
        for _ in range(10):
            log.append(X)
        assert (log.log_end_offset, log.size) == (10, size)
        log.truncate_fully_and_start_at(9)
        assert (log.log_start_offset, log.log_end_offset, log.size, bases(log)) == (9, 9, 0, [9])
        for _ in range(10):
            log.append(X)
        assert (log.log_end_offset, log.size) == (19, size)
        assert log.truncate_to(3)
        assert (log.log_start_offset, log.log_end_offset, log.size, bases(log)) == (3, 3, 0, [3])
        log.append(X)
        assert rows(log) == [(3, None, None, NOW)]
        assert log.verify().problems == []


def test_segments_after_the_cut_are_deleted(tmp_path: Path) -> None:
    """LL10: and appends continue at the cut."""
    with one_log(tmp_path, segment_bytes=3 * BATCH, file_delete_delay_ms=1000) as log:
        for _ in range(14):
            log.append(X)
        assert bases(log) == [0, 3, 6, 9, 12]
        assert log.truncate_to(7)
        assert (bases(log), log.log_end_offset, log.recovery_point) == ([0, 3, 6], 7, 7)
        assert names_in(log, ".log.deleted") == [f"{base:020d}.log.deleted" for base in (9, 12)]
        assert log.append(X).first_offset == 7
        assert [offset for offset, *_ in rows(log)] == list(range(8))
        assert isinstance(log.clock, ManualClock)
        log.clock.advance(999)
        assert names_in(log, ".deleted") != []
        log.clock.advance(1)
        assert names_in(log, ".deleted") == []
        assert log.verify().problems == []


def test_a_segment_that_begins_at_the_cut_stays_empty(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with one_log(tmp_path, clock, segment_bytes=3 * BATCH, segment_ms=1000) as log:
        for _ in range(6):
            log.append(X)
        assert log.truncate_to(3)
        assert (bases(log), log.size) == ([0, 3], 3 * BATCH)
        clock.advance(5000)
        log.append(X)
        assert bases(log) == [0, 3]


def test_a_batch_that_holds_the_offset_is_removed_whole(tmp_path: Path) -> None:
    """LS16: Kafka's rule. The log ends at the offset nevertheless; a batch after a gap is removed, too."""
    with one_log(tmp_path) as log:
        log.append(X * 4)
        log.append(X * 4)
        assert log.truncate_to(6)
        assert (log.log_end_offset, log.count(), log.size) == (6, 4, log.segments[0].size)
        assert log.append(X).first_offset == 6
        assert [offset for offset, *_ in rows(log)] == [0, 1, 2, 3, 6]
        assert values(log, 4) == [None]
        log.append(X)
        assert log.truncate_to(5)  # nothing but a gap holds 5
        assert [offset for offset, *_ in rows(log)] == [0, 1, 2, 3]
        assert log.log_end_offset == 5
    with one_log(tmp_path) as log:
        assert log.log_end_offset == 4


def test_indexes_have_their_full_size_again(tmp_path: Path) -> None:
    """UL75, OI4, TI3: while those of a closed segment are as long as their entries."""
    sizes = {"segment_index_bytes": 200, "index_interval_bytes": 1, "file_delete_delay_ms": 0}
    with one_log(tmp_path, segment_bytes=10 * BATCH, **sizes) as log:
        fill(log, 4)
        log.roll()
        first, directory = log.segments[0], Path(log.path)
        assert (directory / f"{0:020d}.index").stat().st_size == 8 * first.index.entries == 8 * 3
        assert (directory / f"{0:020d}.timeindex").stat().st_size == 12 * first.index.time_entries
        fill(log, 2)
        assert log.truncate_to(3)
        index = log.segments[0].index
        assert (index.entries, index.entries_max) == (2, 200 // 8)
        assert (directory / f"{0:020d}.index").stat().st_size == 200
        assert (directory / f"{0:020d}.timeindex").stat().st_size == 192
        fill(log, 3)
        assert [log.segments[0].locate(offset).base_offset for offset in range(6)] == list(range(6))  # type: ignore[union-attr]
        assert log.verify().problems == []


def test_the_largest_timestamp_is_that_of_what_is_left(tmp_path: Path) -> None:
    """LS6: read again from the batches, and the time index with it."""
    with one_log(tmp_path, index_interval_bytes=10**6) as log:
        log.append([(None, b"a", 400)])
        log.append([(None, b"b", 500)])
        log.append([(None, b"c", 450)])
        assert log.segments[0].max_timestamp == 500
        assert log.truncate_to(1)
        segment = log.segments[0]
        assert (segment.max_timestamp, segment.next_offset, segment.index.time_entries) == (400, 1, 0)
        assert log.offset_for_timestamp(401) is None
        log.append([(None, b"d", 420)])
    with one_log(tmp_path) as log:
        assert log.segments[0].max_timestamp == 420
        assert log.offset_for_timestamp(401) == (420, 1)


def test_a_time_entry_goes_with_its_batch(tmp_path: Path) -> None:
    """Kafka before 3.8 may name the offset of the record, instead of the last one of its batch. Such an entry, below
    the offset of the truncation, would look like one of lost records."""
    with one_log(tmp_path) as log:
        log.append([(None, b"a", NOW)] * 3)
        log.append([(None, b"b", NOW + 9 - number) for number in range(7)])
        index = Path(log.path) / f"{0:020d}.timeindex"
    assert index.read_bytes() == (NOW + 9).to_bytes(8) + (9).to_bytes(4)
    index.write_bytes((NOW + 9).to_bytes(8) + (3).to_bytes(4))
    with one_log(tmp_path) as log:
        assert log.recovery.clean_shutdown
        log.truncate_to(7)
        log.roll()
        log.append([(None, b"c", NOW)])
    with one_log(tmp_path) as log:
        assert [record.offset for record in log.read()] == [0, 1, 2, 7]
        assert log.verify().problems == []


def test_one_record_appended_and_cut_thirty_times(tmp_path: Path) -> None:
    """LS4: cut off and appended again."""
    with one_log(tmp_path) as log:
        log.append([(None, b"first")])
        for number in range(30):
            log.append([(None, b"%d" % number)])
            assert values(log) == [b"first", b"%d" % number]
            assert log.truncate_to(1)
            assert values(log) == [b"first"]


def test_an_emptied_segment_is_like_a_new_one(tmp_path: Path) -> None:
    """LS7: its age counts from then, its indexes have space, nothing is left to read, and it takes appends."""
    clock = ManualClock(NOW)
    with one_log(tmp_path, clock, segment_ms=1000, index_interval_bytes=1, segment_index_bytes=100) as log:
        fill(log, 5)
        clock.advance(500)
        assert log.truncate_to(0)
        segment = log.segments[0]
        assert (segment.created_ms, segment.size, segment.next_offset) == (NOW + 500, 0, 0)
        assert (segment.max_timestamp, segment.first_batch_timestamp, segment.index_full) == (-1, 2**63 - 1, False)
        assert (segment.index.entries, segment.index.time_entries) == (0, 0)
        assert rows(log) == []
        log.append([(None, b"again", -1)])
        clock.advance(1000)
        log.append([(None, b"again", -1)])
        assert bases(log) == [0]
        assert values(log) == [b"again"] * 2


def test_an_empty_segment_stays_in_use_after_a_cut_and_a_restart(tmp_path: Path) -> None:
    """LS5: it does not roll by time, however late the first append is, nor by its indexes; only by offsets."""
    clock = ManualClock(NOW)
    with one_log(tmp_path, clock, segment_ms=1000, cleanup_policy="compact") as log:
        log.append([(b"k", b"v", -1)])
        log.truncate_to(0)
    with one_log(tmp_path, clock) as log:
        log.truncate_to(0)
        clock.advance(5000)
        assert not log.segments[0].index_full
        log.append([(b"k", b"v", -1)])
        assert bases(log) == [0]
        log.truncate_to(0)
        log._core.end_at(2**31)
        log.append([(b"k", b"v", -1)])
        assert bases(log) == [0, 2**31]


def test_epochs_above_the_cut_are_dropped(tmp_path: Path) -> None:
    """UL76: in the file, too, which also has the epoch of the leader."""
    with one_log(tmp_path, index_interval_bytes=1) as log:
        for offset in range(17):
            for epoch, start in ((1, 10), (2, 16)):
                if offset == start:
                    log._core.epochs.assign(epoch, start)
            log.append(X)
        for offset, left in ((11, [(0, 0), (1, 10)]), (10, [(0, 0)]), (0, [])):
            log.truncate_to(offset)
            assert log.leader_epochs == left
            stored = (Path(log.path) / "leader-epoch-checkpoint").read_text().splitlines()
            assert stored[2:] == [f"{epoch} {start}" for epoch, start in (*left, (2, offset))]


def test_a_truncated_epoch_begins_again_with_new_records(tmp_path: Path) -> None:
    logs = klog.open(tmp_path, create=True)
    logs.create_topic("t")
    log = logs.log("t")
    fill(log, 10)
    log._core.epochs.assign(1, 10)
    log._core.epochs.flush()
    fill(log, 5)
    log.truncate_to(5)
    fill(log, 20)
    abandon(logs)
    with klog.open(tmp_path) as logs:
        assert logs.log("t").leader_epochs == [(0, 0), (1, 5)]


def test_a_truncation_moves_the_high_watermark_and_notifies_listeners(tmp_path: Path) -> None:
    """UL4, UL105: a listener gets the first high watermark and every new one; a later listener gets later ones."""
    notified: list[int] = []
    with klog.Log.open(tmp_path / "t-0", high_watermark=0) as log:
        log.append(X * 3)
        log.append(X)
        log.set_offsets_listener(notified.append)
        assert notified == []
        log.update_high_watermark(4)
        log.truncate_to(3)
        assert (notified, log.high_watermark) == ([4, 3], 3)
        log.append(X)
        assert log.high_watermark == 3
        log.truncate_fully_and_start_at(4)
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (4, 4, 4)
        assert log.high_watermark_metadata == OffsetMetadata(4, 4, 0)
        assert notified == [4, 3, 4]
        log.append(X)
        assert (log.high_watermark, notified) == (4, [4, 3, 4])


def test_a_listener_gets_the_first_high_watermark(tmp_path: Path) -> None:
    """UL105: when the log is opened; for a log without replicas, the end of every append, too."""
    notified: list[int] = []
    with one_log(tmp_path, topic="t") as log:
        log.append(X)
        options = log._core.options
    options.offsets_listener, options.clean_shutdown = notified.append, True
    with klog.Log(log.path, options) as log:
        assert notified == [1]
        log.append(X * 2)
        log.truncate_to(1)
        assert notified == [1, 3, 1]


@pytest.mark.parametrize("how", ["cut", "at the start", "fully"])
@pytest.mark.parametrize("managed", [False, True])
def test_a_listener_may_append_when_a_truncation_moves_the_high_watermark(
    tmp_path: Path, managed: bool, how: str
) -> None:
    """T4: the record that it has appended stays."""
    infos, notified = [], []
    with klog.Log.open(tmp_path / "t-0") as log:
        for number in range(4):
            log.append(numbered(2 * number, 2))
        if managed:
            log.update_high_watermark(8)

        def listen(offset: int) -> None:
            notified.append(offset)
            if len(notified) == 1:
                infos.append(log.append([(b"k", b"%d" % offset)]))

        if how == "at the start":
            log.delete_records(5)
        log.set_offsets_listener(listen)
        if how == "fully":
            log.truncate_fully_and_start_at(3)
        else:
            log.truncate_to(5 if how == "at the start" else 4)
        log.set_offsets_listener(None)
        end = {"cut": 4, "at the start": 5, "fully": 3}[how]
        assert notified == ([end] if managed else [end, end + 1])
        assert [(info.first_offset, info.last_offset) for info in infos] == [(end, end)]
        assert log.log_end_offset == end + 1
    with klog.Log.open(tmp_path / "t-0") as log:
        assert rows(log, end)[0][:3] == (end, b"k", b"%d" % end)
        assert log.verify().problems == []


def test_truncating_fully_leaves_one_empty_segment(tmp_path: Path) -> None:
    """LL7, LL8, UL50: below, at or beyond the old one's offsets; no file refers to the old records any more."""
    for number, offset in enumerate((0, 4, 29, 2**40)):
        with one_log(tmp_path, topic=f"t{number}", segment_bytes=3 * BATCH, file_delete_delay_ms=0) as log:
            for _ in range(8):
                log.append(X)
            log.flush()
            log.truncate_fully_and_start_at(offset)
            assert (bases(log), log.size, log.recovery_point) == ([offset], 0, min(offset, 8))
            assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (offset,) * 3
            assert (log.leader_epochs, log._core.producers.end_offset) == ([], offset)
            assert names_in(log, ".snapshot") == names_in(log, ".deleted") == []
            assert names_in(log, ".log") == [f"{offset:020d}.log"]
            assert log.append(X).first_offset == offset
            assert log.verify().problems == []
        with one_log(tmp_path, topic=f"t{number}") as log:
            assert [offset for offset, *_ in rows(log)] == [offset]


def test_truncating_fully_with_a_given_log_start(tmp_path: Path) -> None:
    """Records below the log's first segment are in another tier."""
    with one_log(tmp_path) as log:
        log.append(X)
        log.truncate_fully_and_start_at(2, 1)
        assert (log.log_start_offset, log.log_end_offset) == (1, 2)
        log.append(X)
        assert [offset for offset, *_ in rows(log)] == [2]


@pytest.mark.parametrize("arguments", [(-1,), (5, 6), (5, -1)])
def test_an_impossible_start_is_refused(tmp_path: Path, arguments: tuple[int, ...]) -> None:
    with one_log(tmp_path) as log:
        log.append(X)
        with pytest.raises(ValueError, match="log_start_offset <= offset"):
            log.truncate_fully_and_start_at(*arguments)
        with pytest.raises(ValueError, match="below 0"):
            log.truncate_to(-1)
        assert log.log_end_offset == 1
    with klog.open(tmp_path, read_only=True) as logs:
        with pytest.raises(ReadOnly):
            logs.log("events").truncate_to(0)
        with pytest.raises(ReadOnly):
            logs.log("events").truncate_fully_and_start_at(0)


def test_a_reader_of_truncated_records_raises(tmp_path: Path) -> None:
    """The error does not report damage, and no removed record is returned."""
    with one_log(tmp_path) as log:
        for _ in range(10):
            log.append(X)
        chunks = log.chunks(0, 10, max_bytes=BATCH)
        assert [next(chunks).start for _ in range(3)] == [0, 1, 2]
        log.truncate_to(5)
        log.append([(None, b"new")])
        assert [next(chunks).start for _ in range(2)] == [3, 4]
        log.truncate_to(1)
        with pytest.raises(OffsetOutOfRange):
            next(chunks)


def test_damage_that_hides_the_cut_position_leaves_the_log_unchanged(tmp_path: Path) -> None:
    with one_log(tmp_path, index_interval_bytes=10**6) as log:
        for _ in range(5):
            log.append(X)
        path = Path(log.segments[0].path)
        data = bytearray(path.read_bytes())
        data[2 * BATCH + 8 : 2 * BATCH + 12] = bytes(4)  # the length of the third batch
        path.write_bytes(data)
        with pytest.raises(CorruptBatch):
            log.truncate_to(4)
        assert (log.log_end_offset, log.offline, path.stat().st_size) == (5, None, 5 * BATCH)
        assert log.truncate_to(1)
        assert len(rows(log)) == 1


# ---- checkpoints of the log.dir (T3) -------------------------------------------------------------------------------


def standalone(path: Path, **options: Any) -> klog.Log:
    return klog.Log.open(path / "t-0", clock=ManualClock(NOW), config={"retention.ms": -1}, **options)


def forget(log: klog.Log) -> None:
    """As if the process had died."""
    owner, log._core.directory.owner = log._core.directory.owner, None
    abandon(log)
    owner._unlock()


@pytest.mark.parametrize("how", ["cut", "fully"])
def test_checkpoints_are_lowered_before_a_truncation(tmp_path: Path, how: str) -> None:
    """A recovery point above the cut would hide a torn batch; a log start above the cut would look as if the log had
    been lost."""
    with standalone(tmp_path) as log:
        fill(log, 20)
        log.delete_records(15)
    log = standalone(tmp_path)
    assert (log.log_start_offset, log.recovery_point) == (15, 20)
    if how == "cut":
        log.truncate_to(5)
    else:
        log.truncate_fully_and_start_at(5)
    fill(log, 7)
    forget(log)
    with standalone(tmp_path, clean_shutdown=False) as log:
        assert (log.log_start_offset, log.log_end_offset) == (5, 12)
        assert log.recovery.segments_scanned == 1


@pytest.mark.parametrize("managed", [False, True], ids=["alone", "managed"])
def test_a_load_that_ends_below_the_recovery_point_lowers_it(tmp_path: Path, managed: bool) -> None:
    """Otherwise later appends from there would count as durable, and a torn tail of them as damage."""
    with standalone(tmp_path) as log:
        fill(log, 20)
    path = Path(log.segments[-1].path)
    path.write_bytes(path.read_bytes()[:-300])

    def opened(policy: Policy) -> tuple[klog.Log, klog.Log | klog.LogManager]:
        if managed:
            logs = klog.open(tmp_path, recovery=policy)
            try:
                return logs.log("t"), logs
            except CorruptLog:
                abandon(logs)
                raise
        log = standalone(tmp_path, clean_shutdown=False, recovery=policy)
        return log, log

    with pytest.raises(CorruptLog, match="recovery point 20"):
        opened("strict")
    log, owner = opened("kafka")
    end = log.log_end_offset
    assert end == 15
    fill(log, 2)
    abandon(owner)
    path.write_bytes(path.read_bytes()[:-1])
    log, owner = opened("strict")
    assert log.log_end_offset == end + 1
    owner.close()


@pytest.mark.parametrize("how", ["cut", "fully"])
def test_a_manager_lowers_its_checkpoints_too(tmp_path: Path, how: str) -> None:
    with one_log(tmp_path, topic="t") as log:
        fill(log, 20)
        log.delete_records(15)
    logs = klog.open(tmp_path)
    log = logs.log("t")
    assert (log.log_start_offset, log.recovery_point) == (15, 20)
    if how == "cut":
        log.truncate_to(5)
    else:
        log.truncate_fully_and_start_at(5)
    fill(log, 7)
    abandon(logs)
    with klog.open(tmp_path) as logs:
        log = logs.log("t")
        assert (log.log_start_offset, log.log_end_offset) == (5, 12)
        assert log.recovery.segments_scanned == 1


BETWEEN = {
    "inside the first batch": ([(3, 0)], 1, 2),
    "below the log start, too": ([(3, 0)], 2, 1),
    "a gap that a leader left": ([(10, 0), (10, 50)], 40, 45),
    "with segments after it": ([(3, 0), (3, 3), (3, 6), (3, 9)], 7, 8),
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(("batches", "start", "target"), BETWEEN.values(), ids=BETWEEN)
def test_no_batch_stays_at_or_above_the_log_start(
    tmp_path: Path, batches: list[tuple[int, int]], start: int, target: int, clean: bool
) -> None:
    """The log begins at the log start: for the next load, segments that end below it would be lost records."""
    config = {"segment.bytes": 200, "file.delete.delay.ms": 0}
    left = min(start, target)
    log = klog.Log.open(tmp_path / "t-0", config=config)
    for count, base in batches:
        log.append_batches(batch(count, base_offset=base), origin="replication")
    log.flush()
    log.delete_records(start)
    log.close()
    with klog.Log.open(tmp_path / "t-0", config=config) as log:
        log.update_high_watermark(start)
        assert log.truncate_to(target)
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (left, target, left)
        assert (bases(log), log.size, log.offline, log.fetch(target).size) == ([left], 0, None, 0)
        if not clean:
            abandon(log)
    with klog.Log.open(tmp_path / "t-0", config=config) as log:
        assert (log.log_start_offset, log.log_end_offset, rows(log)) == (left, left, [])
        assert log.verify().problems == []
        assert log.append(X).first_offset == left


@pytest.mark.parametrize("before", [12, 15])
def test_a_log_start_between_the_last_batch_and_the_log_end(tmp_path: Path, before: int) -> None:
    """The next load finds the log end that it needs."""
    with klog.Log.open(tmp_path / "t-0") as log:
        log.append_batches(batch(10))
        log.append_batches(batch(10))
        log.truncate_to(15)
        log.delete_records(before)
    with klog.Log.open(tmp_path / "t-0") as log:
        assert (log.log_start_offset, log.log_end_offset) == (before, 15)
        assert log.append(X).first_offset == 15
        assert log.verify().problems == []


def test_a_lost_empty_log_file_does_not_prevent_opening(tmp_path: Path) -> None:
    """A log start in a log without a byte, as a truncation leaves it that a crash ends: it lowers the recovery point
    first. Below the recovery point a record was on disk."""
    with klog.Log.open(tmp_path / "t-0") as log:
        log.append_batches(batch(3))
        log.delete_records(2)
    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(b"")
    with pytest.raises(CorruptLog, match="the recovery point is 3"):
        klog.Log.open(tmp_path / "t-0")
    with klog.Log.open(tmp_path / "t-0", recovery_point=0) as log:
        assert (log.log_start_offset, log.log_end_offset) == (2, 2)


def test_no_file_names_offsets_beyond_the_batches(tmp_path: Path) -> None:
    """A truncation inside a batch leaves the log end above the batches until the log is closed."""
    with klog.Log.open(tmp_path / "t-0") as log:
        log.append_batches(batch(10))
        log.append_batches(batch(10))
        log.flush()
        log.truncate_to(15)
        assert log.recovery_point == 10
        assert log.verify().problems == []
        log.flush()
        assert log.recovery_point == 10
        assert log.verify().problems == []
    assert names_in(log, ".snapshot") == ["00000000000000000010.snapshot"]
    assert klog.verify(tmp_path).problems == []
    with klog.Log.open(tmp_path / "t-0") as log:
        assert log.log_end_offset == 10


@pytest.mark.parametrize("rolled", [False, True])
def test_a_truncation_into_a_range_removed_by_a_cleaning(tmp_path: Path, rolled: bool) -> None:
    """No batch reaches the new log end: as in Kafka a load does not find it, unless a segment begins there."""
    with klog.Log.open(tmp_path / "t-0", config={"cleanup.policy": "compact"}) as log:
        for _ in range(3):
            log.append([(b"k", None)])
        log.roll()
        log.compact(roll=False)
        assert [record.offset for record in log.read()] == [2]
        log.truncate_to(2)
        assert log.log_end_offset == 2
        if rolled:
            log.roll()
    with klog.Log.open(tmp_path / "t-0", clean_shutdown=False) as log:
        assert log.log_end_offset == (2 if rolled else 0)
        assert log.verify().problems == []


def test_no_snapshot_is_above_the_batches_that_a_truncation_leaves(tmp_path: Path) -> None:
    """A clean stop wrote it, in the middle of a segment of which a cleaning then removed records around it."""
    with one_log(tmp_path, cleanup_policy="compact") as log:
        log.append([(b"a", b"1")])
        log.append([(b"k", b"1")])
        log.append([(b"k", b"2")])
    with one_log(tmp_path) as log:
        for value in (b"3", b"4"):
            log.append([(b"k", value)])
        log.roll()
        log.compact(roll=False)
        assert [record.offset for record in log.read()] == [0, 4]
        log.truncate_to(4)
        assert log.verify().problems == []


def test_records_that_a_truncation_leaves_have_a_leader_epoch(tmp_path: Path) -> None:
    """A crash loses a log start that a leader has raised. leader-epoch-checkpoint then begins above records that are there
    again."""
    log = klog.Log.open(tmp_path / "t-0", config={})
    log.append([(b"k", b"1"), (b"k", b"2")])
    log.append([(b"k", b"3")])
    assert log.maybe_increment_log_start_offset(2, "leader_offset_incremented")
    abandon(log)
    with klog.Log.open(tmp_path / "t-0", config={}) as log:
        assert (log.log_start_offset, log.leader_epochs) == (0, [(0, 2)])
        assert log.truncate_to(2)
        assert log.leader_epochs == [(0, 0)]
        assert log.verify().ok
    with klog.Log.open(tmp_path / "t-0") as log:
        assert log.leader_epochs == [(0, 0)]


def test_a_truncation_lowers_a_managed_high_watermark(tmp_path: Path) -> None:
    """W3: readers of the high watermark must not see offsets beyond the log end."""
    with one_log(tmp_path) as log:
        fill(log, 6)
        log.update_high_watermark(5)
        log.truncate_to(3)
        assert log.high_watermark == 3
        fill(log, 4)
        assert log.high_watermark == 3


def test_a_truncation_forgets_the_producers_of_removed_records(tmp_path: Path) -> None:
    """R1: a producer continues with the state at the new log end."""
    with one_log(tmp_path) as log:
        for sequence in range(4):
            log.append_batches(produced(7, 0, sequence))
        log.truncate_to(2)
        assert log.producers[7].last_sequence == 1
        assert log.append_batches(produced(7, 0, 2)).first_offset == 2
