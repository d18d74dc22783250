"""When a log begins a new segment, and the state of the old segment's files after that."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import SegmentOffsetOverflow
from klog.log.state import segments as questions
from klog.record import encode
from tests.support.batches import batch, produced
from tests.support.crash_files import CrashFiles
from tests.support.groups import BATCH
from tests.support.logs import NOW, bases, one_log, rows, values
from tests.support.reseal import reseal

X = [(None, None)]  # one batch of BATCH bytes


def test_a_roll_by_size_is_exact_to_the_byte(tmp_path: Path) -> None:
    """UL23: a segment made for ten appends rolls on the eleventh."""
    with one_log(tmp_path, segment_bytes=10 * BATCH) as log:
        for _ in range(10):
            log.append(X)
        assert bases(log) == [0]
        log.append(X)
        assert bases(log) == [0, 10]
        assert [segment.size for segment in log.segments] == [10 * BATCH, BATCH]
        assert [segment.next_offset for segment in log.segments] == [10, 11]
    with one_log(tmp_path, topic="less", segment_bytes=10 * BATCH - 1) as log:
        for _ in range(10):
            log.append(X)
        assert bases(log) == [0, 9]


def test_one_append_may_roll_many_times(tmp_path: Path) -> None:
    with one_log(tmp_path, segment_bytes=3 * BATCH, max_message_bytes=BATCH) as log:
        log.append(X)
        log.append(X * 10)
        assert bases(log) == [0, 3, 6, 9]
        assert len(rows(log)) == 11


def test_a_roll_by_record_timestamps(tmp_path: Path) -> None:
    """UL20: only record timestamps count once the first batch has one, whatever the wall clock does."""
    clock = ManualClock(NOW)
    with one_log(tmp_path, clock, segment_ms=1000) as log:
        log.append([(None, b"a", NOW)])
        clock.advance(100_000)
        log.append([(None, b"b", NOW + 1000)])
        assert bases(log) == [0]
        log.append([(None, b"c", NOW + 1001)])
        assert bases(log) == [0, 2]
        log.append([(None, b"old", 5)])  # an older timestamp never rolls
        log.append([(None, b"d", NOW + 2001)])
        assert bases(log) == [0, 2]
        log.append([(None, b"e", NOW + 2002)])
        assert bases(log) == [0, 2, 5]


def test_a_roll_by_the_clock_while_records_have_no_timestamp(tmp_path: Path) -> None:
    """UL18: an empty segment never rolls, however old; the next append does."""
    clock = ManualClock(NOW)
    with one_log(tmp_path, clock, segment_ms=1000) as log:
        clock.advance(1001)
        log.append([(None, b"a", -1)])
        assert bases(log) == [0]  # an empty segment is never too old
        log.append([(None, b"b", -1)])
        assert bases(log) == [0, 1]  # counted from its creation
        clock.advance(1000)
        log.append([(None, b"c", -1)])
        assert bases(log) == [0, 1]
        clock.advance(1)
        log.append([(None, b"d", NOW + 100_000)])
        assert bases(log) == [0, 1, 3]


@pytest.mark.parametrize("first", [-1, -2, -(2**63)])
def test_a_first_batch_with_a_negative_timestamp_has_none(tmp_path: Path, first: int) -> None:
    """Followers store a leader's batches as they are."""
    with one_log(tmp_path, segment_ms=1000) as log:
        for offset, newest in enumerate((first, NOW, NOW + 5000)):
            data = bytearray(batch(base_offset=offset, leader_epoch=0))
            struct.pack_into(">q", data, 35, newest)
            log.append_batches(reseal(bytes(data)), origin="replication")
        assert bases(log) == [0]


def test_a_reopened_segment_keeps_its_first_timestamp(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with one_log(tmp_path, clock, segment_ms=1000) as log:
        log.append([(None, b"a", NOW)])
    with one_log(tmp_path, clock) as log:
        log.append([(None, b"b", NOW + 1000)])
        assert bases(log) == [0]
        log.append([(None, b"c", NOW + 1001)])
        assert bases(log) == [0, 2]


def test_log_append_time_rolls_by_the_clock(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with one_log(tmp_path, clock, segment_ms=1000, message_timestamp_type="LogAppendTime") as log:
        log.append([(None, b"a", 5)])
        clock.advance(1000)
        log.append([(None, b"b", 5)])
        assert bases(log) == [0]
        clock.advance(1)
        log.append([(None, b"c", 5)])
        assert bases(log) == [0, 2]


def test_jitter_takes_a_random_part_off_segment_ms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """UL22: it is drawn once per segment."""
    drawn: list[int] = []

    def randrange(stop: int) -> int:
        drawn.append(stop)
        return 300

    monkeypatch.setattr("random.randrange", randrange)
    with one_log(tmp_path, segment_ms=1000, segment_jitter_ms=400) as log:
        log.append([(None, b"a", NOW)])
        log.append([(None, b"b", NOW + 700)])
        assert bases(log) == [0]
        log.append([(None, b"c", NOW + 701)])
        assert bases(log) == [0, 2]
    assert set(drawn) == {400}
    drawn.clear()
    with one_log(tmp_path, topic="t", segment_ms=1000, segment_jitter_ms=10**12) as log:
        assert log.segments
    assert set(drawn) == {1000}  # never more than segment.ms itself


def test_jitter_is_drawn_anew_for_each_segment(tmp_path: Path) -> None:
    """With the clock stopped: 40 segments of 1 to 10 records each, not all alike."""
    with one_log(tmp_path, segment_ms=10, segment_jitter_ms=10) as log:
        for i in range(200):
            log.append([(None, b"x", NOW + i)])
        lengths = {segment.next_offset - segment.base_offset for segment in log.segments[:-1]}
    assert len(lengths) > 1
    assert lengths <= set(range(1, 12))


def test_compacted_topics_roll_at_max_compaction_lag(tmp_path: Path) -> None:
    with one_log(tmp_path, cleanup_policy="compact", segment_ms=1000, max_compaction_lag_ms=100) as log:
        log.append([(b"k", b"a", NOW)])
        log.append([(b"k", b"b", NOW + 101)])
        assert bases(log) == [0, 1]
    with one_log(tmp_path, topic="t", segment_ms=1000, max_compaction_lag_ms=100) as log:
        log.append([(b"k", b"a", NOW)])
        log.append([(b"k", b"b", NOW + 101)])
        assert bases(log) == [0]


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (-1, [0, 5, 10]),  # 4 offset entries in 32 bytes, none of them for the first batch
        (None, [0, 2, 4, 6, 8, 10]),  # 2 time entries in 32 bytes, one of which is the closing one
    ],
)
def test_a_full_index_rolls(tmp_path: Path, timestamp: int | None, expected: list[int]) -> None:
    with one_log(tmp_path, segment_index_bytes=32, index_interval_bytes=0) as log:
        for i in range(11):
            log.append([(None, None, timestamp if timestamp == -1 else NOW + i)])
        assert bases(log) == expected


@pytest.mark.parametrize(("together", "expected"), [(3, [0]), (4, [0, 10]), (20, [0, 10])])
def test_batches_that_are_appended_together_have_space_in_the_index(
    tmp_path: Path, together: int, expected: list[int]
) -> None:
    """A recovery has an entry for each of them, and Kafka's fails if the index has no space for all: twelve here. A
    segment may begin with more."""
    with one_log(tmp_path, segment_index_bytes=96, index_interval_bytes=0) as log:
        for _ in range(10):
            log.append([(None, b"v", NOW)])
        log.append_batches(
            b"".join(batch([b"v"], base_offset=10 + number) for number in range(together)),
            origin="replication",
        )
        assert bases(log) == expected
        assert len(rows(log)) == 10 + together


def test_an_index_too_small_for_one_entry_rolls(tmp_path: Path) -> None:
    """Two time entries fit nevertheless, or lookups by time would miss the segment once it is closed."""
    with one_log(tmp_path, segment_index_bytes=4, index_interval_bytes=0) as log:
        for i in range(4):
            log.append([(None, None, NOW + i)])
        assert bases(log) == [0, 2]
        assert log.verify().problems == []
    with one_log(tmp_path) as log:
        assert len(rows(log)) == 4
        assert log.offset_for_timestamp(NOW) == (NOW, 0)


def test_offsets_beyond_31_bits_of_the_base_roll(tmp_path: Path) -> None:
    """LS5: compaction has left a gap in the log: the next records are too far from the segment's base."""
    directory = tmp_path / "events-0"
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(
        encode([(b"a", b"first")]) + encode([(b"b", b"far")], base_offset=2**31 - 2)
    )
    with klog.Log.open(directory, config={"cleanup.policy": "compact"}) as log:
        assert log.log_end_offset == 2**31 - 1
        log.append([(b"c", b"the last that fits")])
        assert bases(log) == [0]
        log.append([(b"d", b"beyond")])
        assert bases(log) == [0, 2**31]
        assert [(offset, key) for offset, key, *_ in rows(log)] == [
            (0, b"a"),
            (2**31 - 2, b"b"),
            (2**31 - 1, b"c"),
            (2**31, b"d"),
        ]
        assert log.count() == 4


def test_a_batch_that_would_straddle_31_bits_begins_the_new_segment(tmp_path: Path) -> None:
    directory = tmp_path / "events-0"
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(encode([(b"b", b"far")], base_offset=2**31 - 3))
    with klog.Log.open(directory, config={"cleanup.policy": "compact"}) as log:
        log.append([(b"c", b"x")] * 5)
        assert bases(log) == [0, 2**31 - 2]
        assert log.log_end_offset == 2**31 + 3


def test_a_log_with_a_high_start_writes_relative_index_entries(tmp_path: Path) -> None:
    start = 2**31 + 1000
    config = {"index.interval.bytes": 0}
    with klog.Log.open(tmp_path / "t-0", log_start_offset=start, config=config) as log:
        assert (log.log_start_offset, log.log_end_offset, bases(log)) == (start, start, [start])
        log.append(X)
        log.append(X)
    name = f"{start:020d}"
    assert (tmp_path / "t-0" / f"{name}.index").read_bytes() == bytes([0, 0, 0, 1, 0, 0, 0, BATCH])


def test_a_roll_by_hand(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        assert log.roll().base_offset == 0  # an empty segment stays
        assert bases(log) == [0]
        log.append([(None, b"a")] * 3)
        assert log.roll().base_offset == 3
        assert log.roll().base_offset == 3
        assert bases(log) == [0, 3]
        assert rows(log, 3) == []
        log.append([(None, b"b")])
        assert values(log) == [b"a", b"a", b"a", b"b"]


def test_files_of_the_old_and_of_the_new_segment(tmp_path: Path) -> None:
    """The old one is trimmed and has its closing time entry; the new one's indexes have their full size."""
    with one_log(tmp_path, segment_index_bytes=1000) as log:
        log.append([(None, None, 7)])
        log.append([(None, None, 9)])
        log.roll()
        directory = Path(log.path)
        sizes = {path.name[17:]: path.stat().st_size for path in directory.iterdir() if path.name[0] == "0"}
        assert sizes == {
            "000.log": 2 * BATCH,
            "000.index": 0,
            "000.timeindex": 12,
            "002.log": 0,
            "002.index": 1000,
            "002.timeindex": 996,
            "002.snapshot": 10,
        }
        assert (directory / "00000000000000000000.timeindex").read_bytes() == (9).to_bytes(8) + (1).to_bytes(4)
        assert log.recovery_point == 2  # L3: durable before the new one began
    assert (directory / "00000000000000000002.index").stat().st_size == 0


def test_stale_files_of_the_new_base_are_removed(tmp_path: Path) -> None:
    with one_log(tmp_path, index_interval_bytes=0) as log:
        log.append([(None, b"x")] * 3)
        for suffix in ("index", "timeindex", "txnindex"):
            (Path(log.path) / f"00000000000000000003.{suffix}").write_bytes(b"\1" * 34)
        log.roll()
        log.append([(None, b"y")])
        log.append([(None, b"z")])
        assert values(log) == [b"x"] * 3 + [b"y", b"z"]
        assert log.aborted_transactions() == []
        assert not (Path(log.path) / "00000000000000000003.txnindex").exists()


def test_reads_continue_over_many_segments(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        for i in range(40):
            log.append([(b"k%d" % i, b"v%d" % i, NOW + i)])
            log.roll()
        assert rows(log) == [(i, b"k%d" % i, b"v%d" % i, NOW + i) for i in range(40)]
        assert rows(log, 37, 39) == [(i, b"k%d" % i, b"v%d" % i, NOW + i) for i in (37, 38)]


# ---- rolls by hand, and the empty segment ----------------------------------------------------------------------------


def test_a_timestamp_after_a_record_without_one_rolls_by_the_clock(tmp_path: Path) -> None:
    """UL19: this holds for any timestamp."""
    with one_log(tmp_path, segment_ms=1000) as log:
        log.append([(None, b"a", -1)])
        log.append([(None, b"b", NOW + 1_000_000)])
        assert bases(log) == [0]


def test_an_empty_append_does_not_roll(tmp_path: Path) -> None:
    """UL21: nor does it fail if an append of a record would have rolled."""
    clock = ManualClock(NOW)
    with one_log(tmp_path, clock, segment_ms=1000) as log:
        log.append([(None, b"a", -1)])
        clock.advance(5000)
        log.append([])
        log.append(iter([]))
        assert bases(log) == [0]


def test_an_empty_segment_is_recreated(tmp_path: Path) -> None:
    """UL24, LL2: one segment; the old indexes are marked for deletion, and appends continue at its offset."""
    clock = ManualClock(NOW)
    with one_log(tmp_path, clock, file_delete_delay_ms=1000) as log:
        first = log.segments[0]
        assert log.roll(0) is log.segments[0] is not first
        assert bases(log) == [0]
        deleted = sorted(path.name[20:] for path in Path(log.path).glob("*.deleted"))
        assert deleted == [".index.deleted", ".timeindex.deleted"]
        assert log.append(X).first_offset == 0
        log.append(X)
        clock.advance(1000)
        assert list(Path(log.path).glob("*.deleted")) == []
        assert len(rows(log)) == 2
        assert log.verify().problems == []


def test_a_crash_while_an_empty_segment_is_recreated_keeps_the_log_end(tmp_path: Path) -> None:
    """P3: its `.log` is the only file that names the log end, once the earlier segments are deleted."""
    ends: list[int] = []

    def cut() -> None:
        for _, state in disk.states(tmp_path / "run", tmp_path / f"states-{len(ends)}", len(ends)):
            with klog.Log.open(state / "events-0") as log:
                ends.append(log.log_end_offset)

    disk = CrashFiles()
    (tmp_path / "run").mkdir()
    with klog.Log.open(tmp_path / "run" / "events-0", files=disk, config={}) as log:
        log.append(X * 3)
        log.roll()
        log.delete_records(3)
        assert log.apply_retention() == 1
        disk.before_step = cut
        log.roll()
        disk.before_step = None
        cut()
    assert len(ends) > 5
    assert set(ends) == {3}


def test_an_empty_segment_whose_index_has_no_space_is_recreated(tmp_path: Path) -> None:
    """UL25: by the next append; no second segment, and an index that works."""
    with one_log(tmp_path, index_interval_bytes=0, file_delete_delay_ms=0) as log:
        first = log.segments[0]
        assert first.index.resize(0)
        assert first.index_full
        assert not first.index.resize(7)  # no space for an entry either
        for _ in range(3):
            log.append(X)
        assert bases(log) == [0]
        assert log.segments[0] is not first
        assert (log.segments[0].index.entries, log.segments[0].index_full) == (2, False)
        assert log.verify().problems == []


def test_a_failure_while_an_empty_segment_is_recreated_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with one_log(tmp_path, file_delete_delay_ms=0) as log:
        first = log.segments[0]
        with monkeypatch.context() as patch:
            patch.setattr(klog.segment.Segment, "activate", _no_space_once(klog.segment.Segment.activate))
            with pytest.raises(OSError, match="No space"):
                log.roll()
        assert log.offline is None
        assert log.segments == (first,)
        log.append(X)
        assert len(rows(log)) == 1
    with one_log(tmp_path) as log:
        assert len(rows(log)) == 1


def _no_space_once(activate: Callable[[Any], None]) -> Callable[[Any], None]:
    failed: list[bool] = []

    def failing(segment: Any) -> None:
        if not failed:
            failed.append(True)
            raise OSError(errno.ENOSPC, "No space left on device", segment.path)
        activate(segment)

    return failing


def test_a_new_segment_begins_at_the_log_end_or_beyond(tmp_path: Path) -> None:
    """LL14: at the log end if a lower offset is given, and never below the newest segment."""
    with one_log(tmp_path) as log:
        log.append(X * 2)
        assert log.roll(1).base_offset == 2
        log.append(X)
        assert log.roll(9).base_offset == 9
        assert (bases(log), log.log_end_offset, log.recovery_point) == ([0, 2, 9], 3, 3)
        with pytest.raises(ValueError, match="no segment can begin at 3"):
            log.roll(4 - 1)
        assert (bases(log), log.offline) == ([0, 2, 9], None)
        log.truncate_to(3)
    with one_log(tmp_path) as log:
        assert len(rows(log)) == 3


@pytest.mark.parametrize("kind", ["records", "batch", "producer", "follower"])
def test_nothing_is_written_below_the_base_of_a_segment(tmp_path: Path, kind: str) -> None:
    """A roll beyond the log end does not move the end: only replicated batches can use those offsets."""
    with one_log(tmp_path) as log:
        log.append(X * 4)
        log.roll(100)
        below: dict[str, Callable[[], object]] = {
            "records": lambda: log.append(X),
            "batch": lambda: log.append_batches(batch(1)),
            "producer": lambda: log.append_batches(produced(1, 0, 0)),
            "follower": lambda: log.append_batches(batch(1, base_offset=50, leader_epoch=0), origin="replication"),
        }
        with pytest.raises(SegmentOffsetOverflow):
            below[kind]()
        assert (log.log_end_offset, log.segments[-1].size, log.offline, log.leader_epochs) == (4, 0, None, [(0, 0)])
        log.append_batches(batch(1, base_offset=100, leader_epoch=0), origin="replication")
        log.append(X)
        log.append_batches(batch(1))
        expected = [0, 1, 2, 3, 100, 101, 102]
        assert [record.offset for record in log.read()] == expected
    with one_log(tmp_path) as log:
        assert [record.offset for record in log.read()] == expected and not log.verify().problems


def test_a_roll_with_a_failed_snapshot_does_not_move_the_recovery_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UL57: the recovery point stays, the roll has not happened, and the next one may succeed (F15)."""
    with klog.Log.open(tmp_path / "t-0") as log:
        log.append(X * 2)
        with monkeypatch.context() as patch:
            patch.setattr(log._core.producers, "take_snapshot", _fails)
            with pytest.raises(OSError, match="full"):
                log.roll()
        assert (log.recovery_point, bases(log), log.offline) == (0, [0], None)
        log.append(X)
        assert log.roll().base_offset == 3
        assert log.recovery_point == 3


def _fails() -> None:
    raise OSError(errno.ENOSPC, "full")


def test_a_segment_has_the_timestamp_of_its_first_batch(tmp_path: Path) -> None:
    """UL106: 2^63-1 while there is none; the batch's largest, of open and of closed segments."""
    with one_log(tmp_path) as log:
        assert log.segments[0].first_batch_timestamp == 2**63 - 1
        log.append([(None, b"a", 7), (None, b"b", 9)])
        log.append([(None, b"c", 3)])
        assert log.segments[0].first_batch_timestamp == 9
        log.roll()
        assert [segment.first_batch_timestamp for segment in log.segments] == [9, 2**63 - 1]
        log.append([(None, b"c", -1)])
        assert log.segments[1].first_batch_timestamp == -1


def test_preallocation_allocates_blocks_but_keeps_the_length(tmp_path: Path) -> None:
    """LS15: a segment reads as any other; closed, it has only the blocks that it needs, and appends continue."""
    size = 64 << 20
    with one_log(tmp_path, preallocate=True, segment_bytes=size) as log:
        path = Path(log.segments[0].path)
        log.append([(None, b"first")])
        assert path.stat().st_blocks * 512 >= size
        assert path.stat().st_size == log.size
        assert values(log) == [b"first"]
        log.roll()
        assert path.stat().st_blocks * 512 < 1 << 20
        assert Path(log.segments[1].path).stat().st_blocks * 512 >= size
    assert all(path.stat().st_blocks * 512 < 1 << 20 for path in path.parent.glob("*.log"))
    with one_log(tmp_path) as log:
        log.append([(None, b"second")])
        assert values(log) == [b"first", b"second"]


def test_segments_of_an_offset_or_a_range(tmp_path: Path) -> None:
    """UL28, LL11: by binary search over the segments."""
    with one_log(tmp_path) as log:
        for _ in range(2):
            log.append(X * 10)
            log.roll()
        segments = log.segments

        def between(start: int, stop: int) -> list[int]:
            return [segment.base_offset for segment in questions.between(segments, start, stop)]

        assert [between(0, 21), between(1, 5), between(13, 21), between(13, 17)] == [[0, 10, 20], [0], [10, 20], [10]]
        assert between(7, 7) == []
        with pytest.raises(ValueError, match="below the first"):
            between(10, 1)
        for offset, number in {-1: 0, 0: 0, 9: 0, 10: 1, 99: 2}.items():
            assert questions.number_of(segments, offset) == number
    with one_log(tmp_path, topic="six") as log:
        for _ in range(5):
            log.append(X)
            log.roll()

        def closed(offset: int) -> list[int]:
            return [segment.base_offset for segment in questions.closed_from(log.segments, offset)]

        assert [closed(0), closed(2), closed(5), closed(6)] == [[0, 1, 2, 3, 4], [2, 3, 4], [], []]
        assert questions.closed_from((), 0) == ()


def test_a_new_segments_name_is_on_disk_before_its_first_acknowledged_append(tmp_path: Path) -> None:
    """S9: also where the roll writes no producer snapshot, since the last stop has left one of the same offset."""
    disk = CrashFiles()
    path = tmp_path / "events-0"
    with klog.Log.open(path, durability="sync", files=disk) as log:
        log.append([(b"k", b"v" * 100)] * 20)
    with klog.Log.open(path, durability="sync", files=disk, config={"segment.bytes": 2000}) as log:
        log.append([(b"k", b"v")] * 2)
        assert bases(log) == [0, 20]
        assert log.segments[-1].path in disk.durable_names


def test_the_name_of_a_segment_that_a_load_makes_is_on_disk_before_its_first_acknowledged_append(
    tmp_path: Path,
) -> None:
    """S9: also where leader-epoch-checkpoint, whose replacement syncs the directory, does not change."""
    path = tmp_path / "events-0"
    with klog.Log.open(path) as log:
        log.append([(b"k", b"v")])
        log.delete_records(1)
    for file in path.glob("0*"):
        file.unlink()
    disk = CrashFiles()
    disk.keep(tmp_path)
    with klog.Log.open(path, durability="sync", files=disk, log_start_offset=1) as log:
        log.append([(b"k", b"v")])
        assert log.segments[-1].path in disk.durable_names


def test_a_smaller_segment_index_bytes_leaves_space_for_the_closing_entry(tmp_path: Path) -> None:
    config = {"index.interval.bytes": 100, "segment.index.bytes": 4096}
    with one_log(tmp_path, ManualClock(NOW), **config) as log:
        for number in range(20):
            log.append([(None, b"x", NOW + number)])
        log.update_config(klog.LogConfig({**config, "segment.index.bytes": 24}))
        for end in (16, 15):
            log.truncate_to(end)
            log.roll()
            assert log.verify().problems == []
