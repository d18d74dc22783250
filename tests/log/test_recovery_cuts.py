"""Bytes that recovery cuts never reappear. They are removed in an order in which a second crash cannot cause a gap. No
durable record is cut."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import LogFile
from klog.errors import CorruptLog
from klog.record import encode
from tests.support.batches import NOW
from tests.support.crash_files import CrashFiles
from tests.support.logs import values


def opened(path: Path, **options: Any) -> klog.Log:
    return klog.Log.open(path / "t-0", clock=ManualClock(NOW), **options)


def four_batches(path: Path, roll_at: int | None = None) -> tuple[Path, int]:
    """A log of four batches of equal size. Returns its first .log, and the size of a batch."""
    with opened(path) as log:
        for number in range(4):
            if number == roll_at:
                log.roll()
            log.append([(b"k", b"value-%d" % number)])
        file = Path(log.segments[0].path)
        return file, log.segments[0].size // (4 if roll_at is None else roll_at)


def flip(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


def test_records_after_a_cut_do_not_come_back(tmp_path: Path) -> None:
    """S8, P3: a new batch with the size of the damaged one is written at its position, so that the old batches after it
    would continue the log."""
    file, size = four_batches(tmp_path)
    flip(file, 2 * size - 1)
    with opened(tmp_path, recovery="kafka", clean_shutdown=False) as log:
        assert log.log_end_offset == 1
        log.append([(b"k", b"value-x")])
    with opened(tmp_path, recovery="kafka", clean_shutdown=False) as log:
        assert values(log) == [b"value-0", b"value-x"]


def test_a_tail_that_a_clean_stop_has_left_is_cut_on_disk(tmp_path: Path) -> None:
    """S8: as in a directory of a broker that did not sync."""
    file, _ = four_batches(tmp_path)
    file.write_bytes(file.read_bytes() + bytes(100))
    disk = CrashFiles()
    disk.keep(tmp_path)
    with opened(tmp_path, recovery="kafka", clean_shutdown=True, files=disk) as log:
        assert log.recovery.bytes_truncated == 100
        assert disk.is_synced(str(file))


class CutLast(CrashFiles):
    """Checks that the later segments are durably gone before the .log is cut."""

    cuts = 0

    def truncate(self, file: LogFile, size: int) -> None:
        if file.path.endswith(".log"):
            later = [name for name in self.durable_names if name.endswith(".log") and name > file.path]
            assert later == [], "once the cut is on disk, nothing shows that these are invalid"
            self.cuts += 1
        super().truncate(file, size)


def test_later_segments_go_durably_before_the_damaged_one_is_cut(tmp_path: Path) -> None:
    """S6, P3"""
    file, size = four_batches(tmp_path, roll_at=2)
    flip(file, 2 * size - 1)
    disk = CutLast()
    disk.keep(tmp_path)
    with opened(tmp_path, recovery="kafka", clean_shutdown=False, recovery_point=0, files=disk) as log:
        assert values(log) == [b"value-0"]
    assert disk.cuts >= 1
    assert [os.path.basename(name) for name in disk.durable_names if name.endswith(".log")] == [f"{0:020}.log"]


@pytest.mark.parametrize("point", [3, 4])
def test_the_last_durable_batch_is_not_cut(tmp_path: Path, point: int) -> None:
    """C3: the batch of offset 3 is durable if the recovery point is 4, and may be torn if it is 3."""
    file, size = four_batches(tmp_path)
    flip(file, 4 * size - 1)
    if point == 4:
        with pytest.raises(CorruptLog, match="below the recovery point 4"):
            opened(tmp_path, clean_shutdown=False, recovery_point=point)
        assert file.stat().st_size == 4 * size
        return
    with opened(tmp_path, clean_shutdown=False, recovery_point=point) as log:
        assert log.log_end_offset == 3


@pytest.mark.parametrize("byte", [0x11, 0xEE])
def test_a_durable_batch_that_was_overwritten_is_not_cut(tmp_path: Path, byte: int) -> None:
    """C3: these bytes look like a base offset above the recovery point, but not like one of this segment."""
    file, size = four_batches(tmp_path)
    data = file.read_bytes()[: 3 * size] + bytes([byte]) * size
    file.write_bytes(data)
    with pytest.raises(CorruptLog, match="below the recovery point 4"):
        opened(tmp_path, clean_shutdown=False, recovery_point=4)
    assert file.read_bytes() == data


def test_three_bytes_at_the_recovery_point_are_cut(tmp_path: Path) -> None:
    """C3: an append that wrote no more was not durable."""
    file, size = four_batches(tmp_path)
    file.write_bytes(file.read_bytes() + bytes(3))
    with opened(tmp_path, clean_shutdown=False, recovery_point=4) as log:
        assert (log.log_end_offset, log.recovery.bytes_truncated) == (4, 3)
    assert file.stat().st_size == 4 * size


def test_a_torn_batch_after_a_truncation_inside_a_batch_is_cut(tmp_path: Path) -> None:
    """C3: the batch before it ends below the recovery point, that of a broker after a flush, but it begins there."""
    with opened(tmp_path) as log:
        file = Path(log.segments[0].path)
        for _ in range(2):
            log.append([(b"k", b"v")] * 3)
        log.truncate_to(5)
        size = log.segments[0].size
        log.append([(b"k", b"torn")])
    os.truncate(file, file.stat().st_size - 1)
    with opened(tmp_path, clean_shutdown=False, recovery_point=5) as log:
        assert (values(log), log.segments[0].size) == ([b"v"] * 3, size)


@pytest.mark.parametrize(("base", "point"), [(7, 2), (3, 4)])
def test_a_whole_batch_at_the_end_stays(tmp_path: Path, base: int, point: int) -> None:
    """C4: one that begins one bit away from the expected offset is invalid only if it crosses the recovery point, and
    one that crosses it is invalid only if it does not begin where it should."""
    with opened(tmp_path) as log:
        for offset in (0, base):
            log.append_batches(encode([(b"k", b"v", NOW)] * 3, base_offset=offset), origin="replication")
    with opened(tmp_path, clean_shutdown=False, recovery_point=point) as log:
        assert (log.log_end_offset, log.recovery.bytes_truncated) == (base + 3, 0)


def test_a_cut_removes_all_later_segments(tmp_path: Path) -> None:
    """C2: the report counts their bytes."""
    with opened(tmp_path) as log:
        for _ in range(4):
            log.append([(b"k", b"v")])
            log.roll()
        file, size = Path(log.segments[0].path), log.segments[0].size
    flip(file, size - 1)
    with opened(tmp_path, recovery="kafka", clean_shutdown=False, recovery_point=0) as log:
        found = log.recovery
        assert ([segment.base_offset for segment in log.segments], log.log_end_offset) == ([0], 0)
    assert (found.segments_scanned, found.bytes_scanned, found.bytes_truncated) == (1, size, 4 * size)
    assert found.reason == (
        f"{file}: a batch with an invalid checksum at byte 0, {size} bytes cut, log ends at 0, 4 later segments deleted"
    )


def test_a_load_syncs_closed_segments_that_a_broker_has_not_synced(tmp_path: Path) -> None:
    """S9: a broker syncs the segments that it rolls in the background; it may die before."""
    four_batches(tmp_path, roll_at=2)
    disk = CrashFiles()
    with opened(tmp_path, clean_shutdown=False, recovery_point=0, files=disk) as log:
        assert log.recovery_point == 0
        assert f"fsync {0:020}.log" in disk.log
        log.append([(b"k", b"next")])
        log.flush()
        assert log.recovery_point == 5


def test_a_load_syncs_the_indexes_that_it_rebuilds(tmp_path: Path) -> None:
    """F1: once the recovery point is above a closed segment, no load rebuilds its indexes again."""
    file, _ = four_batches(tmp_path, roll_at=2)
    indexes = [file.with_suffix(suffix) for suffix in (".index", ".timeindex")]
    for index in indexes:
        index.unlink()
    disk = CrashFiles()
    disk.keep(tmp_path)
    with opened(tmp_path, clean_shutdown=False, recovery_point=0, files=disk) as log:
        log.flush()
        assert log.recovery_point == 4
        assert [path for path in map(str, indexes) if not disk.is_synced(path)] == []


def test_a_segment_after_a_gap_has_its_producer_snapshot(tmp_path: Path) -> None:
    """R1: a snapshot has the name of the segment that begins there, so that recovery of that segment finds it."""
    with opened(tmp_path) as log:
        log.append([(b"k", b"v")])
        log.roll(10)
        assert (tmp_path / "t-0" / f"{10:020}.snapshot").exists()
        assert not (tmp_path / "t-0" / f"{1:020}.snapshot").exists()


SECTOR = 512


def three_batches(path: Path, left: int) -> tuple[Path, bytes, bytes, bytes]:
    """A log whose second batch has `left` bytes in the sector where it begins. Returns the .log, and the batches."""
    with opened(path) as log:
        file = Path(log.segments[0].path)
    sizes = range(100, 100 + SECTOR)
    first = next(data for size in sizes if len(data := encode([(None, b"a" * size)])) % SECTOR == SECTOR - left)
    return file, first, encode([(None, b"b")], base_offset=1), encode([(None, b"c")], base_offset=2)


def test_a_sector_that_write_back_left_out_ends_the_log(tmp_path: Path) -> None:
    """C1: the rest of the header and the next batch are in sectors that it has written."""
    file, first, second, third = three_batches(tmp_path, 20)
    file.write_bytes(first + bytes(20) + second[20:] + third)
    with opened(tmp_path, clean_shutdown=False, recovery_point=0) as log:
        assert (log.log_end_offset, log.recovery.bytes_truncated) == (1, len(second + third))


def test_the_zeros_of_an_offset_are_no_sector_that_write_back_left_out(tmp_path: Path) -> None:
    """C1: the sector where the batch begins has only the upper bytes of its offset."""
    file, first, second, third = three_batches(tmp_path, 4)
    file.write_bytes(first + second + third)
    flip(file, len(first + second) - 1)
    with pytest.raises(CorruptLog, match="valid ones after it"):
        opened(tmp_path, clean_shutdown=False, recovery_point=0)
