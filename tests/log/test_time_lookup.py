"""offset_for_timestamp: the first record at or above a time, for any order of times and state of indexes."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.record import encode
from klog.segment import Segment
from tests.support.damage import flip
from tests.support.logs import NOW, bases, one_log


def brute_force(timestamps: list[int], ms: int, start: int = 0) -> tuple[int, int] | None:
    return next(((t, offset) for offset, t in enumerate(timestamps) if offset >= start and t >= ms), None)


def test_a_lookup_in_an_empty_log_finds_nothing(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        assert log.offset_for_timestamp(0) is None


def test_kafkas_example(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0", log_start_offset=40, config={"index.interval.bytes": 0}) as log:
        for offset in range(40, 50, 2):
            log.append([(None, b"x", offset * 10), (None, b"x", offset * 10 + 10)])
        wanted = {420: 42, 421: 43, 430: 43, 431: 44, 401: 41, 399: 40}
        found = {ms: log.offset_for_timestamp(ms) for ms in wanted}
        assert {ms: hit and hit.offset for ms, hit in found.items()} == wanted
        assert log.offset_for_timestamp(491) is None
        assert log.offset_for_timestamp(421) == klog.TimestampOffset(430, 43)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_the_result_equals_a_brute_force_search_over_unordered_times(tmp_path: Path, compression: str) -> None:
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


def test_a_record_below_the_log_start_is_not_found(tmp_path: Path) -> None:
    timestamps = [10, 50, 20, 60, 30]
    with one_log(tmp_path) as log:
        for t in timestamps:
            log.append([(None, b"x", t)])
    with klog.Log.open(tmp_path / "events-0", log_start_offset=2) as log:
        for ms in (5, 15, 25, 50, 55, 61):
            assert log.offset_for_timestamp(ms) == brute_force(timestamps, ms, 2), ms


def test_a_segment_without_a_match_above_the_log_start_does_not_end_the_search(tmp_path: Path) -> None:
    """The only newer record of the first segment lies below the log start."""
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
    """Kafka replaces a missing file by an empty one, and then trusts it."""
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


def test_a_wrong_offset_in_the_time_index_changes_no_result(tmp_path: Path) -> None:
    """Each bit of the entries' offsets is flipped. Many batches have equal times: an entry may then lead to a later batch
    of the same time."""
    directory = tmp_path / "t-0"
    timestamps = [NOW + n // 5 for n in range(30)]
    with klog.Log.open(directory, config={"index.interval.bytes": 0}) as log:
        for t in timestamps:
            log.append([(None, b"x", t)])
        log.roll()
    path = directory / f"{0:020d}.timeindex"
    data = path.read_bytes()
    entries = range(0, len(data), 12)
    assert len(entries) == 6
    for at, bit in [(entry + 11, bit) for entry in entries for bit in range(5)]:
        path.write_bytes(flip(data, at, bit))
        with klog.Log.open(directory, read_only=True, clean_shutdown=True) as log:
            for ms in range(NOW, timestamps[-1] + 2):
                assert log.offset_for_timestamp(ms) == brute_force(timestamps, ms), (at, bit, ms)


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


# ---- named positions and Kafka's special timestamps ------------------------------------------------------------------


def test_nothing_is_found_in_an_empty_log(tmp_path: Path) -> None:
    """UL89: no record by time, none with the greatest time; the ends are returned, without an epoch."""
    with one_log(tmp_path) as log:
        assert log.list_offset(0) is None and log.list_offset("max_timestamp") is None
        assert log.list_offset("earliest") == log.list_offset("latest") == (-1, 0, -1)


def test_lookups_return_the_epoch(tmp_path: Path) -> None:
    """UL89: a record's own epoch, the first epoch for the earliest offset and the newest one for the latest."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    data = encode([(None, b"a", NOW)], leader_epoch=0) + encode([(None, b"b", NOW + 5)], base_offset=1, leader_epoch=1)
    (directory / f"{0:020d}.log").write_bytes(data)
    with klog.Log.open(directory) as log:
        assert log.list_offset(NOW) == (NOW, 0, 0) and log.list_offset(NOW + 1) == (NOW + 5, 1, 1)
        assert log.list_offset(NOW + 6) is None
        assert log.list_offset("earliest") == log.list_offset("earliest_local") == (-1, 0, 0)
        assert log.list_offset("latest") == (-1, 2, 1)
        log._core.epochs.assign(2, 2)
        latest = log.list_offset("latest")
        assert latest == (-1, 2, 2) and latest is not None and latest.leader_epoch == 2


def test_the_greatest_timestamp(tmp_path: Path) -> None:
    """UL90: of times t, t + 1, t it is t + 1 at offset 1, in whichever segment that lies."""
    with one_log(tmp_path) as log:
        log.append([(None, b"a", NOW)])
        log.append([(None, b"b", NOW + 1)])
        log.append([(None, b"c", NOW)])
        assert log.list_offset("max_timestamp") == (NOW + 1, 1, 0)
        log.roll()
        log.append([(None, b"d", NOW + 1)])
        assert log.list_offset("max_timestamp") == (NOW + 1, 1, 0)
        log.append([(None, b"e", NOW + 2), (None, b"f", NOW + 2)])
        assert log.list_offset("max_timestamp") == (NOW + 2, 4, 0)


def test_without_tiers_nothing_is_tiered(tmp_path: Path) -> None:
    """UL91: LATEST_TIERED and EARLIEST_PENDING_UPLOAD are -1 with epoch -1, EARLIEST_LOCAL is EARLIEST."""
    with one_log(tmp_path) as log:
        log.append([(None, b"a")])
        assert log.list_offset("latest_tiered") == log.list_offset("earliest_pending_upload") == (-1, -1, -1)
        assert log.list_offset("earliest_local") == (-1, 0, 0)


def test_kafkas_special_timestamps_are_accepted(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"a", NOW), (None, b"b", NOW + 1)])
        words = ["latest", "earliest", "max_timestamp", "earliest_local", "latest_tiered", "earliest_pending_upload"]
        for number, word in enumerate(words, 1):
            assert log.list_offset(-number) == log.list_offset(word)
        for wrong in (-7, "newest"):
            with pytest.raises(ValueError, match="'max_timestamp'"):
                log.list_offset(wrong)


def test_records_hidden_by_the_isolation_are_not_found(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"a", NOW), (None, b"b", NOW + 1)])
    with klog.Log.open(tmp_path / "events-0", read_only=True, high_watermark=1) as log:
        assert log.list_offset("latest", isolation="high_watermark") == (-1, 1, 0)
        assert log.list_offset(NOW, isolation="high_watermark") == (NOW, 0, 0)
        assert log.list_offset(NOW + 1, isolation="high_watermark") is None
        assert log.list_offset("max_timestamp", isolation="read_committed") is None
        assert log.list_offset("max_timestamp") == (NOW + 1, 1, 0)


def test_segments_by_the_time_of_their_files(tmp_path: Path) -> None:
    """As the first version of ListOffsets asks: the newest first, the log end only for "latest" and its own time."""
    with one_log(tmp_path, ManualClock(NOW + 100_000)) as log:
        for i in range(3):
            log.append([(None, b"%d" % i)])
            log.roll()
        for i, segment in enumerate(log.segments):
            os.utime(segment.path, ns=(0, (NOW + i * 1000) * 1_000_000))
        assert bases(log) == [0, 1, 2, 3]
        assert log.legacy_fetch_offsets_before(-1, 10) == [3, 2, 1, 0]
        log.append([(None, b"more")])
        os.utime(log.segments[-1].path, ns=(0, (NOW + 3000) * 1_000_000))
        assert log.legacy_fetch_offsets_before(-1, 10) == [4, 3, 2, 1, 0]
        assert log.legacy_fetch_offsets_before(-1, 2) == [4, 3]
        assert log.legacy_fetch_offsets_before(-2, 10) == [0]
        assert log.legacy_fetch_offsets_before(NOW + 1999, 10) == [1, 0]
        assert log.legacy_fetch_offsets_before(NOW + 1999, 1) == [1]
        assert log.legacy_fetch_offsets_before(NOW - 1, 10) == []
        assert log.legacy_fetch_offsets_before(-1, 0) == []


def test_the_newest_record_lies_above_the_log_start(tmp_path: Path) -> None:
    """Whatever the maximum of the log start's batch, or of a segment below it."""
    with one_log(tmp_path) as log:
        log.append([(None, b"x", NOW)])
        log.append([(None, b"x", NOW - 50)])
        log.append([(None, b"x", t) for t in (NOW - 10, NOW - 70, NOW - 60)])
        log.append([(None, b"x", NOW - 65)])
        log.roll()
        log.append([(None, b"x", NOW - 90)])
        log.roll()
        log.append([(None, b"x", NOW - 80)])
        wanted = [(0, 0), (10, 2), (10, 2), (60, 4), (60, 4), (65, 5), (80, 7), (80, 7)]
        for start, (ago, offset) in enumerate(wanted):
            log.delete_records(start)
            listed = log.list_offset("max_timestamp")
            assert listed is not None
            assert (start, listed.timestamp, listed.offset) == (start, NOW - ago, offset)
        log.delete_records(8)
        assert log.list_offset("max_timestamp") is None


def test_the_newest_record_is_none_of_an_emptied_batch(tmp_path: Path) -> None:
    """The cleaner keeps the last batch of a producer, with its timestamp, also if it removes its records."""
    with one_log(tmp_path, ManualClock(NOW), cleanup_policy="compact") as log:
        log.append([(b"other", b"x", NOW - 20)])
        log.append_batches(encode([(b"k", b"x", NOW)], producer_id=7, producer_epoch=0, base_sequence=0))
        log.append([(b"k", b"y", NOW - 10)])
        log.compact(roll=True)
        assert [batch.count for batch in log.read().batches()] == [1, 0, 1]
        assert log.list_offset("max_timestamp") == (NOW - 10, 2, 0)
        log.append([(b"last", b"z", NOW - 30)])
        assert log.list_offset("max_timestamp") == (NOW - 10, 2, 0)


def test_a_lookup_reads_few_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    newest = Segment.max_timestamp.__get__

    def counted(segment: Segment) -> int:
        searched.append(segment.base_offset)
        return int(newest(segment))

    with one_log(tmp_path) as log:
        for number in range(60):
            log.append([(None, b"x", 1000 + number)])
            log.roll()
        assert log.offset_for_timestamp(1059) == (1059, 59)
        monkeypatch.setattr(Segment, "max_timestamp", property(counted))
        for ms in (1, 1000, 1031, 1059):
            assert log.offset_for_timestamp(ms) == (max(ms, 1000), max(ms - 1000, 0))
        assert searched == [0, 0, 31, 59]


def test_cached_timestamps_of_segments_are_dropped_with_them(tmp_path: Path) -> None:
    """A truncated segment that takes appends again may get newer records, the next one older ones."""
    random_ = random.Random(5)
    timestamps: list[int] = []
    start = 0
    with one_log(tmp_path, segment_bytes=400, retention_ms=-1) as log:
        for _ in range(300):
            part = [random_.randrange(1, 500) for _ in range(random_.randrange(1, 3))]
            log.append([(None, b"x" * 20, t) for t in part])
            timestamps += part
            if random_.random() < 0.2:
                cut = len(timestamps) - random_.randrange(min(30, len(timestamps) - start))
                log.truncate_to(cut)
                end = max(log.segments[-1].next_offset, start)
                del timestamps[end:]
                log.append([(None, b"x" * 20, 7)] * (cut - end) or [])
                timestamps += [7] * (log.log_end_offset - end)
            if random_.random() < 0.1:
                start = log.delete_records(random_.randrange(start, len(timestamps)))
                log.apply_retention()
            ms = random_.randrange(500)
            assert log.offset_for_timestamp(ms) == brute_force(timestamps, ms, start), ms
