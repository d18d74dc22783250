"""offset_for_timestamp: the first record at or above a time, whatever the order of times and the state of indexes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from tests.support.logs import NOW, bases, one_log


def brute_force(timestamps: list[int], ms: int, start: int = 0) -> tuple[int, int] | None:
    return next(((t, offset) for offset, t in enumerate(timestamps) if offset >= start and t >= ms), None)


def test_an_empty_log_has_none(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        assert log.offset_for_timestamp(0) is None


def test_kafka_s_example(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0", log_start_offset=40, config={"index.interval.bytes": 0}) as log:
        for offset in range(40, 50, 2):
            log.append([(None, b"x", offset * 10), (None, b"x", offset * 10 + 10)])
        wanted = {420: 42, 421: 43, 430: 43, 431: 44, 401: 41, 399: 40}
        found = {ms: log.offset_for_timestamp(ms) for ms in wanted}
        assert {ms: hit and hit.offset for ms, hit in found.items()} == wanted
        assert log.offset_for_timestamp(491) is None
        assert log.offset_for_timestamp(421) == klog.TimestampOffset(430, 43)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_it_is_the_brute_force_answer_over_times_in_no_order(tmp_path: Path, compression: str) -> None:
    random_ = random.Random(11)
    timestamps: list[int] = []
    config = {"segment_bytes": 1500, "index_interval_bytes": 100, "segment_ms": 10**12}
    with one_log(tmp_path, **config) as log:
        while len(timestamps) < 600:
            part = [random_.choice([-1, random_.randrange(1, 5000)]) for _ in range(random_.randrange(1, 12))]
            log.append([(None, b"x" * 20, t) for t in part], compression=compression)
            timestamps += part
        assert len(bases(log)) > 5
        probes = [0, 1, 4999, 5000, *random_.sample(range(5000), 200)]
        for ms in probes:
            assert log.offset_for_timestamp(ms) == brute_force(timestamps, ms), ms
    with klog.open(tmp_path, read_only=True) as logs:
        for ms in probes:
            assert logs.log("events").offset_for_timestamp(ms) == brute_force(timestamps, ms), ms


def test_a_record_below_the_log_start_is_no_answer(tmp_path: Path) -> None:
    timestamps = [10, 50, 20, 60, 30]
    with one_log(tmp_path) as log:
        for t in timestamps:
            log.append([(None, b"x", t)])
    with klog.Log.open(tmp_path / "events-0", log_start_offset=2) as log:
        for ms in (5, 15, 25, 50, 55, 61):
            assert log.offset_for_timestamp(ms) == brute_force(timestamps, ms, 2), ms


def test_a_segment_that_promises_a_hit_and_has_none_does_not_end_the_search(tmp_path: Path) -> None:
    """The only young record of the first segment lies below the log start."""
    with one_log(tmp_path) as log:
        log.append([(None, b"x", 900)])
        log.append([(None, b"x", 10)])
        log.roll()
        log.append([(None, b"x", 800)])
    with klog.Log.open(tmp_path / "events-0", log_start_offset=1) as log:
        assert log.offset_for_timestamp(500) == (800, 2)


def test_a_record_of_1970_is_found_after_reopening(tmp_path: Path) -> None:
    """Its closing entry, time 0 at relative offset 0, has the bytes of an empty slot."""
    with one_log(tmp_path) as log:
        log.append([(None, b"x", 0)])
        assert log.offset_for_timestamp(0) == (0, 0)
    with one_log(tmp_path) as log:
        assert log.offset_for_timestamp(0) == (0, 0)
        assert log.offset_for_timestamp(1) is None


def test_an_emptied_time_index_hides_nothing(tmp_path: Path) -> None:
    """What Kafka makes of a missing file: an empty one, which it then believes."""
    with one_log(tmp_path) as log:
        log.append([(None, b"no time", -1)])
        log.append([(None, b"x", 50)])
        log.roll()
        log.append([(None, b"x", 70)])
    for path in (tmp_path / "events-0").glob("*.timeindex"):
        path.write_bytes(b"")
    for read_only in (True, False):
        with klog.open(tmp_path, read_only=read_only) as logs:
            log = logs.log("events")
            assert log.offset_for_timestamp(40) == (50, 1)
            assert log.offset_for_timestamp(60) == (70, 2)
            assert [segment.max_timestamp for segment in log.segments] == [50, 70]


def test_log_append_time_counts_as_the_records_time(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with one_log(tmp_path, clock, message_timestamp_type="LogAppendTime") as log:
        for _ in range(3):
            log.append([(None, b"a", 1), (None, b"b", 2)])
            clock.advance(10)
        assert log.offset_for_timestamp(NOW) == (NOW, 0)
        assert log.offset_for_timestamp(NOW + 1) == (NOW + 10, 2)
        assert log.offset_for_timestamp(NOW + 20) == (NOW + 20, 4)
        assert log.offset_for_timestamp(NOW + 21) is None
