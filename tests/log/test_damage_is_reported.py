"""Damage is reported, never hidden: strict recovery cuts only bytes that a crash can have torn. Readers of a batch with
a wrong base offset get the correct one or an error, never fewer records."""

from __future__ import annotations

from pathlib import Path

import pytest

import klog
from klog import Log
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.errors import CorruptBatch, CorruptCheckpoint, CorruptLog
from klog.log.read.reader import LogReader
from klog.record import encode
from klog.segment import nul_page_within, scan_checked
from tests.support.reseal import reseal

T = 1_700_000_000_000


def write(path: Path, *values: bytes, config: dict | None = None) -> list[int]:
    """A log of one batch per value; returns the positions of the batches, of a log of one segment."""
    positions = []
    with Log.open(path, clock=ManualClock(T), config=config) as log:
        for value in values:
            positions.append(log.size)
            log.append([(b"k", value)])
    return positions


def flip(path: Path, position: int, bits: int) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes((byte ^ bits,)))


def log_file(path: Path, base: int = 0) -> Path:
    return path / f"{base:020d}.log"


def values(path: Path, start: int | None = None) -> list[bytes]:
    with Log.open(path, read_only=True) as log:
        return [record.value for record in log.read(start)]


def test_zeros_in_a_valid_batch_do_not_make_an_invalid_one_before_it_a_torn_tail(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    write(path, b"x" * 100, bytes(20_000), b"last")
    flip(log_file(path), 90, 1)
    with pytest.raises(CorruptLog):
        Log.open(path, clean_shutdown=False)
    assert log_file(path).stat().st_size > 20_000


def test_zeros_at_the_start_of_a_base_offset_are_not_an_unwritten_page(tmp_path: Path) -> None:
    """Two batches, the second of which begins 5 bytes before a page's end."""
    path = tmp_path / "t-0"
    fill = 4096 - 5 - write(path, b"", b"")[1] - 2
    for file in path.iterdir():
        file.unlink()
    positions = write(path, b"x" * fill, b"y" * 100, b"z")
    assert positions[1] == 4096 - 5
    flip(log_file(path), positions[1] + 80, 1)
    with pytest.raises(CorruptLog):
        Log.open(path, clean_shutdown=False)


def test_an_unwritten_page_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    positions = write(path, b"x" * 100, b"y" * 10_000, b"z")
    with open(log_file(path), "r+b") as file:
        file.seek(4096)
        file.write(bytes(4096))
    with Log.open(path, clean_shutdown=False, recovery_point=0) as log:
        assert log.log_end_offset == 1 and log.size == positions[1]


def three_batches(path: Path, before: int) -> list[int]:
    """The positions of the batches: the second one begins so many bytes before a page's end."""
    overhead = write(path, b"x" * 1000, b"")[1] - 1000
    for file in path.iterdir():
        file.unlink()
    positions = write(path, b"x" * (4096 - before - overhead), b"y" * 300, b"z")
    assert positions[1] == 4096 - before
    return positions


@pytest.mark.parametrize("before", [8, 9, 11, 12, 13, 30, 60, 61, 100])
def test_an_unwritten_page_may_begin_inside_a_header(tmp_path: Path, before: int) -> None:
    """An older state of the page that ends there was written, and then the next page."""
    path = tmp_path / "t-0"
    positions = three_batches(path, before)
    with open(log_file(path), "r+b") as file:
        file.seek(positions[1])
        file.write(bytes(before))
    with Log.open(path, clean_shutdown=False, recovery_point=0) as log:
        assert log.log_end_offset == 1 and log.size == positions[1]


@pytest.mark.parametrize("before", [3, 7])
def test_an_unwritten_page_may_begin_inside_a_base_offset(tmp_path: Path, before: int) -> None:
    path = tmp_path / "t-0"
    positions, start = three_batches(path, before), 1 << 8 * (8 - before)
    file = log_file(path)
    stored = bytearray(file.read_bytes())
    for number, position in enumerate(positions):
        stored[position : position + 8] = (start + number).to_bytes(8)
    for other in path.iterdir():
        other.unlink()
    stored[positions[1] : 4096] = bytes(before)
    file = log_file(path, start)
    file.write_bytes(stored)
    with Log.open(path, clean_shutdown=False, recovery_point=0) as log:
        assert log.log_end_offset == start + 1 and log.size == positions[1]


@pytest.mark.parametrize(("before", "position"), [(12, 11), (12, 80), (61, 11), (61, 20), (61, 80)])
def test_a_flipped_bit_before_an_unwritten_page_is_still_damage(tmp_path: Path, before: int, position: int) -> None:
    path = tmp_path / "t-0"
    positions = three_batches(path, before)
    flip(log_file(path), positions[1] + position, 1)
    with pytest.raises(CorruptLog):
        Log.open(path, clean_shutdown=False)


@pytest.mark.parametrize(
    ("at", "data", "position", "end", "found"),
    [
        (0, bytes(4096), 0, 4096, 0),
        (0, b"x" + bytes(8191), 1, 8192, 1),
        (0, b"x" * 4090 + bytes(4102), 4090, 8192, 4096),
        (0, b"x" * 4090 + bytes(4000), 4090, 8090, -1),
        (0, b"x" * 4090 + bytes(6) + b"x" * 4096, 4090, 8192, -1),
        (2 << 20, bytes(4096), 5, (2 << 20) + 4096, 2 << 20),
        (2 << 20, bytes(4096), 5, (2 << 20) + 4095, -1),
    ],
)
def test_pages_of_zeros_are_found(tmp_path: Path, at: int, data: bytes, position: int, end: int, found: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * at + data)
    assert nul_page_within(RealFiles().open(str(path)), position, end) == found


def test_a_scan_of_a_shortened_file_ends_at_its_new_end(tmp_path: Path) -> None:
    """The end of a batch of several chunks is cut after the file's size was read."""
    batch = encode([(b"k", b"v" * 3_000_000)])
    path = tmp_path / "file"
    path.write_bytes(batch[:2_000_000])
    scan = scan_checked(RealFiles().open(str(path)), 0, len(batch), 0)
    assert (scan.reason, scan.end) == ("truncated", 0)


# ---- base offsets lie outside the checksum -------------------------------------------------------------------------

PAIR = {"segment.bytes": 160}  # two batches of one record to a segment


def test_a_first_batch_with_too_large_a_base_offset(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    write(path, b"a", b"b", b"c", b"d", config=PAIR)
    flip(log_file(path, 2), 7, 1)
    assert values(path) == [b"a", b"b", b"c", b"d"] and values(path, 2) == [b"c", b"d"]


def test_a_last_batch_that_overlaps_the_next_segment(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    position = write(path, b"a", b"b", b"c", b"d", config=PAIR)[1]
    flip(log_file(path), position + 7, 2)
    assert values(path) == [b"a", b"b", b"c", b"d"]


def test_a_batch_with_several_possible_base_offsets_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    position = write(path, b"a", b"b", b"c", b"d", config=PAIR)[1]
    log_file(path, 2).rename(log_file(path, 5))
    for suffix in ("index", "timeindex"):
        (path / f"{2:020d}.{suffix}").unlink()
    flip(log_file(path), position + 7, 16)
    with Log.open(path, read_only=True, recovery="kafka") as log, pytest.raises(CorruptBatch) as caught:
        list(log.read())
    assert (caught.value.kind, caught.value.position) == ("offset_order", position)


def test_a_batch_that_overlaps_the_chunk_before_it_is_an_error(tmp_path: Path) -> None:
    """The damaged batch ends its chunk, so that no chunk holds both it and the batch that contradicts it."""
    path = tmp_path / "t-0"
    positions = write(path, b"a" * 600_000, b"b" * 600_000, b"c" * 600_000, b"d", config={"max.message.bytes": 10**6})
    flip(log_file(path), positions[0] + 7, 2)
    with Log.open(path, read_only=True) as log, pytest.raises(CorruptBatch) as caught:
        list(log.read())
    assert (caught.value.kind, caught.value.position, caught.value.offset) == ("offset_order", positions[1], 1)


@pytest.mark.parametrize("first", [0, 1])
def test_a_batch_that_claims_offsets_of_the_next_ones_and_of_the_next_segment(tmp_path: Path, first: int) -> None:
    """Its checksum is valid, as a faulty writer would store it. Later records are not skipped without an error."""
    path = tmp_path / "t-0"
    positions = write(path, b"0", b"1", b"2", b"3")
    with Log.open(path) as log:
        log.roll()
        log.append([(b"k", b"4")])
    data = bytearray(log_file(path).read_bytes())
    at = positions[1]
    data[at + 23 : at + 27] = (2050).to_bytes(4)
    log_file(path).write_bytes(reseal(bytes(data)))
    with Log.open(path) as log:
        for of in (iter, LogReader.pairs, LogReader.batches, LogReader.columns):
            with pytest.raises(CorruptBatch) as caught:
                list(of(log.read(first)))
            assert (caught.value.kind, caught.value.position) == ("offset_order", at)
            assert caught.value.next_offset == 2
        assert [record.value for record in log.read(2)] == [b"2", b"3", b"4"]


def test_a_last_batch_with_a_far_end_in_a_recovered_segment(tmp_path: Path) -> None:
    """The result of that segment's scan must not hide the segments after it."""
    path = tmp_path / "t-0"
    position = write(path, b"a", b"b", b"c", b"d", config=PAIR)[1]
    flip(log_file(path), position, 1)
    with pytest.raises(CorruptLog):
        Log.open(path, recovery_point=0, clean_shutdown=False)
    with Log.open(path, recovery_point=0, clean_shutdown=False, recovery="kafka") as log:
        assert [record.value for record in log.read()] == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("options", [{"clean_shutdown": True}, {"clean_shutdown": False}, {"read_only": True}])
@pytest.mark.parametrize("count", [1, 3])
def test_a_last_batch_beyond_the_offset_range_of_a_segment(tmp_path: Path, options: dict, count: int) -> None:
    path = tmp_path / "t-0"
    position = write(path, *[b"v"] * count)[-1]
    flip(log_file(path), position + 2, 1)
    with pytest.raises(CorruptLog) as caught:
        Log.open(path, **options)
    assert (caught.value.kind, caught.value.position) == ("offset_order", position)
    with Log.open(path, recovery="kafka", **options) as log:
        assert log.log_end_offset == count + 2**40


def test_a_segment_that_does_not_begin_with_a_batch(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    write(path, b"a", b"b", b"c", b"d", config=PAIR)
    flip(log_file(path, 2), 8, 128)
    with pytest.raises(CorruptLog) as caught:  # a valid batch follows: a log that ends here would be too short
        Log.open(path, read_only=True)
    assert (caught.value.position, caught.value.offset) == (0, 2)
    with Log.open(path, read_only=True, recovery="kafka") as log:
        assert log.log_end_offset == 2 and "a batch with an invalid length at byte 0" in log.recovery.reason
    flip(log_file(path, 2), 8, 128)
    flip(log_file(path, 0), 8, 128)
    with Log.open(path, read_only=True) as log:
        with pytest.raises(CorruptBatch) as damage:
            list(log.read(0))
        assert damage.value.next_offset == 1
        assert [record.value for record in log.read(1)] == [b"b", b"c", b"d"]
        assert [record.value for record in log.read(2)] == [b"c", b"d"]


def test_a_batch_below_the_base_offset_of_its_segment(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    write(path, b"a", b"b", b"c", b"d", b"e", b"f", config=PAIR)
    flip(log_file(path, 2), 7, 2)
    with Log.open(path, read_only=True) as log:
        assert [record.value for record in log.read(3)] == [b"d", b"e", b"f"]
        with pytest.raises(CorruptBatch) as caught:
            list(log.read(2, 3))
    assert (caught.value.kind, caught.value.position) == ("offset_order", 0)


# ---- wrong caches ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("kept", [0, 1, 5])
def test_a_time_index_without_its_last_entries(tmp_path: Path, kept: int, read_only: bool) -> None:
    path = tmp_path / "t-0"
    config = {"segment.bytes": 1000, "index.interval.bytes": 100}
    with Log.open(path, clock=ManualClock(T), config=config) as log:
        for number in range(30):
            log.append([(b"k", b"v" * 20, T + number)])
    for file in path.glob("*.timeindex"):
        file.write_bytes(file.read_bytes()[: kept * 12])
    with Log.open(path, clock=ManualClock(T), config=config, clean_shutdown=True, read_only=read_only) as log:
        assert [log.offset_for_timestamp(T + number) for number in range(30)] == [
            (T + number, number) for number in range(30)
        ]


def test_indexes_larger_than_a_later_configuration(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with Log.open(path, clock=ManualClock(T), config={"index.interval.bytes": 100}) as log:
        for number in range(30):
            log.append([(b"k", b"v" * 40, T + number)])
        entries = log.segments[0].index.time_entries
    config = {"index.interval.bytes": 100, "segment.index.bytes": 24}
    with Log.open(path, clock=ManualClock(T), config=config, clean_shutdown=True) as log:
        assert log.segments[0].index.time_entries == entries and log.segments[0].max_timestamp == T + 29
        log.append([(b"k", b"v", T + 30)])
        assert log.offset_for_timestamp(T + 29) == (T + 29, 29)


def test_damage_after_a_range_is_not_reported(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    positions = write(path, b"0", b"1", b"2")
    flip(log_file(path), positions[2] + 65, 1)  # a chunk has all three batches
    with Log.open(path, read_only=True) as log:
        assert [batch.base_offset for batch in log.read(0, 2).batches()] == [0, 1]
        assert [record.offset for record in log.read(0, 2)] == [0, 1]
        with pytest.raises(CorruptBatch):
            list(log.read(0, 3).batches())


@pytest.mark.parametrize("clean", [False, True])
def test_an_older_empty_snapshot_is_deleted(tmp_path: Path, clean: bool) -> None:
    path = tmp_path / "t-0"
    write(path, b"a", b"b", b"c", b"d", b"e", config=PAIR)
    (path / f"{2:020d}.snapshot").write_bytes(b"")  # the newest is that of offset 5
    with Log.open(path, clean_shutdown=clean) as log:
        assert [problem for problem in log.verify().problems if problem.kind == "snapshot"] == []


def test_deeply_nested_topics_json_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "klog-topics.json").write_bytes(b"[" * 200_000)
    with pytest.raises(CorruptCheckpoint):
        klog.open(tmp_path)


@pytest.mark.parametrize("later", [0, 1, 3])
def test_count_with_a_flipped_base_offset_beyond_the_log_end(tmp_path: Path, later: int) -> None:
    """One flipped bit makes its base offset 32 read as 48: the last batch, or just below a batch appended later."""
    path = tmp_path / "t-0"
    with Log.open(path) as log:
        for number in range(24):
            log.append([(b"k", b"%d" % number), (b"k", b"again")])
        segment = Path(log.segments[0].path)
    data = bytearray(segment.read_bytes())
    at = next(batch.position for batch in klog.record.decode(data) if batch.base_offset == 32)
    data[at + 7] ^= 16
    segment.write_bytes(data)
    with Log.open(path, clean_shutdown=True) as log:
        for _ in range(later):
            log.append([(b"k", b"later")])
        assert log.count() == len(list(log.read())) == 48 + later
        assert log.count(40, 47) == 7
