"""When a log begins a new segment, and what the old one then looks like on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.record import encode
from tests.support.groups import BATCH
from tests.support.logs import NOW, bases, one_log, rows, values

X = [(None, None)]  # one batch of BATCH bytes


def test_by_size_to_the_byte(tmp_path: Path) -> None:
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


def test_by_time_between_records(tmp_path: Path) -> None:
    """Record timestamps alone count once the first batch has one: the wall clock may do what it likes."""
    clock = ManualClock(NOW)
    with one_log(tmp_path, clock, segment_ms=1000) as log:
        log.append([(None, b"a", NOW)])
        clock.advance(100_000)
        log.append([(None, b"b", NOW + 1000)])
        assert bases(log) == [0]
        log.append([(None, b"c", NOW + 1001)])
        assert bases(log) == [0, 2]
        log.append([(None, b"old", 5)])  # going back never rolls
        log.append([(None, b"d", NOW + 2001)])
        assert bases(log) == [0, 2]
        log.append([(None, b"e", NOW + 2002)])
        assert bases(log) == [0, 2, 5]


def test_by_the_clock_while_records_have_no_timestamp(tmp_path: Path) -> None:
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


def test_a_reopened_segment_remembers_its_first_timestamp(tmp_path: Path) -> None:
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
    drawn: list[int] = []

    def randrange(stop: int) -> int:
        drawn.append(stop)
        return 300

    monkeypatch.setattr("klog.segment.segment.random.randrange", randrange)
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
    """Without the clock's help: 40 segments of 1 to 10 records each, not all alike."""
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
def test_by_a_full_index(tmp_path: Path, timestamp: int | None, expected: list[int]) -> None:
    with one_log(tmp_path, segment_index_bytes=32, index_interval_bytes=0) as log:
        for i in range(11):
            log.append([(None, None, timestamp if timestamp == -1 else NOW + i)])
        assert bases(log) == expected


def test_by_an_index_without_room_for_a_single_entry(tmp_path: Path) -> None:
    """Two time entries have room all the same, or lookups by time would lose the segment once it is closed."""
    with one_log(tmp_path, segment_index_bytes=4, index_interval_bytes=0) as log:
        for i in range(4):
            log.append([(None, None, NOW + i)])
        assert bases(log) == [0, 2]
        assert log.verify().problems == []
    with one_log(tmp_path) as log:
        assert len(rows(log)) == 4
        assert log.offset_for_timestamp(NOW) == (NOW, 0)


def test_by_offsets_beyond_31_bits_of_the_base(tmp_path: Path) -> None:
    """A log that compaction has left with a hole: the next records are too far from the segment's base."""
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


def test_a_log_that_begins_high_writes_relative_index_entries(tmp_path: Path) -> None:
    start = 2**31 + 1000
    config = {"index.interval.bytes": 0}
    with klog.Log.open(tmp_path / "t-0", log_start_offset=start, config=config) as log:
        assert (log.log_start_offset, log.log_end_offset, bases(log)) == (start, start, [start])
        log.append(X)
        log.append(X)
    name = f"{start:020d}"
    assert (tmp_path / "t-0" / f"{name}.index").read_bytes() == bytes([0, 0, 0, 1, 0, 0, 0, BATCH])


def test_by_hand(tmp_path: Path) -> None:
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


def test_reads_go_on_over_many_segments(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        for i in range(40):
            log.append([(b"k%d" % i, b"v%d" % i, NOW + i)])
            log.roll()
        assert rows(log) == [(i, b"k%d" % i, b"v%d" % i, NOW + i) for i in range(40)]
        assert rows(log, 37, 39) == [(i, b"k%d" % i, b"v%d" % i, NOW + i) for i in (37, 38)]
