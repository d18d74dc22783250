"""What a scan brought into the page cache goes again behind it; what was there before stays."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

import klog
from klog.disk import RealFiles
from klog.disk.drop_behind import DropBehind, cold_ranges
from klog.disk.residency import residency
from tests.support.faulty_io import FaultyIo
from tests.support.page_cache import make_cold, make_hot, resident_below, resident_pages

MIB = 1 << 20
SIZE = 24 * MIB


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scan") / "f"
    path.write_bytes(bytes(SIZE))
    return path


@pytest.fixture
def kernel() -> Iterator[FaultyIo]:
    with FaultyIo() as io:
        yield io


def test_cold_ranges_are_found_to_64_kib(path: Path) -> None:
    make_cold(path)
    file = RealFiles().open(str(path))
    assert cold_ranges(file, 0, SIZE) == [(0, SIZE)]
    make_hot(path, 5 * MIB, 4096)
    make_hot(path, SIZE - MIB, MIB)
    assert cold_ranges(file, 0, SIZE) == [(0, 5 * MIB), (5 * MIB + 65536, SIZE - MIB)]
    assert cold_ranges(file, 5 * MIB, 5 * MIB + 1) == []
    assert cold_ranges(file, 7, 7) == []


@pytest.mark.parametrize("stop", [SIZE, 11 * MIB])
def test_a_scan_leaves_what_it_found(path: Path, stop: int) -> None:
    """D1, also of a scan that stops half-way, behind the kernel's own read-ahead."""
    make_cold(path)
    make_hot(path, 5 * MIB, MIB)
    make_hot(path, SIZE - 2 * MIB, 2 * MIB)
    before = resident_pages(path)
    file = RealFiles().open(str(path))
    with DropBehind(file, 0, SIZE) as behind:
        for position in range(0, stop, MIB):
            file.read(position, MIB)
            behind.passed(position)
        assert stop < SIZE or not any(resident_pages(path)[: MIB // 4096])  # it does not wait for the end
    assert_as_before(path, before)


def assert_as_before(path: Path, before: list[bool]) -> None:
    """But for what the kernel has evicted for want of memory meanwhile, which it notes; of advice it notes nothing. A
    page that it took before the first look, and the scan brought back, lies beside others that were there: D1."""
    after = resident_pages(path)
    lost = sum(was and not now for was, now in zip(before, after, strict=True))
    come = [number for number, (was, now) in enumerate(zip(before, after, strict=True)) if now and not was]
    assert lost <= residency(RealFiles().open(str(path))).evicted_bytes // 4096, f"{lost} pages were dropped"
    assert not [number for number in come if not any(before[number // 16 * 16 : number // 16 * 16 + 16])]


def test_pages_that_are_on_their_way_go_too(path: Path) -> None:
    """Advice leaves alone what is being read, and on a busy disk the kernel's read-ahead still is when a scan stops."""
    make_cold(path)
    before = resident_pages(path)
    file = RealFiles().open(str(path))
    advised = list[tuple[int, int]]()

    class Busy(DropBehind):
        def _drop(self, start: int, stop: int) -> None:
            if advised:
                super()._drop(start, stop)
            advised.append((start, stop))  # the first time nothing goes, as if all of it was being read

    with Busy(file, 0, SIZE) as behind:
        for position in range(0, 3 * MIB, MIB):
            file.read(position, MIB)
            behind.passed(position)
        make_hot(path, 2 * MIB, 3 * MIB)
        make_cold(path, 0, 2 * MIB)
    assert len(advised) == 2
    assert_as_before(path, before)


def test_nothing_is_dropped_where_nobody_says_what_is_there(path: Path, kernel: FaultyIo) -> None:
    """D2."""
    make_cold(path)
    kernel.rule("cachestat", error=errno.EPERM)
    file = RealFiles(kernel.table).open(str(path))
    with DropBehind(file, 0, SIZE) as behind:
        file.read(0, SIZE)
        behind.passed(SIZE)
    assert kernel.calls("fadvise") == 0
    assert all(resident_pages(path))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Five closed segments and an active one, all of it on the disk and in memory."""
    config = {"segment.bytes": 4 * MIB, "retention.ms": -1}
    with klog.Log.open(tmp_path / "t-0", config=config) as log:
        for _ in range(22):
            log.append([(b"k", bytes(1000))] * 1000)
        assert len(log.segments) == 6
    return tmp_path / "t-0"


def cool(directory: Path) -> None:
    for path in directory.iterdir():
        make_cold(path)


def hot_bytes(directory: Path) -> dict[str, int]:
    return {Path(name).name: 4096 * sum(pages) for name, pages in resident_below(directory).items() if any(pages)}


def test_a_cold_log_is_cold_after_verify(directory: Path) -> None:
    cool(directory)
    assert klog.verify(directory).problems == []
    assert hot_bytes(directory) == {}


def test_the_tail_stays_and_nothing_else_comes_with_a_scan(directory: Path) -> None:
    with klog.Log.open(directory, read_only=True) as log:
        tail = Path(log.segments[-1].path)
        cool(directory)
        make_hot(tail)
        before = hot_bytes(directory)
        assert before == {tail.name: -(-tail.stat().st_size // 4096) * 4096}
        assert sum(columns.num_rows for columns in log.read(scan=True).columns()) == 22_000
        after = {name: size for name, size in hot_bytes(directory).items() if name.endswith(".log")}
        assert after == before
        assert sum(columns.num_rows for columns in log.read().columns()) == 22_000
        assert len(hot_bytes(directory)) > 5  # who reads without saying so keeps it all


def test_a_log_that_is_told_not_to_drop_keeps_what_it_scans(directory: Path) -> None:
    with klog.Log.open(directory, read_only=True, config={"klog.io.scan.drop.behind": False}) as log:
        cool(directory)
        assert sum(1 for _ in log.read(scan=True).chunks()) > 5
        assert len(hot_bytes(directory)) > 5


def test_recovery_leaves_the_newest_segment_in_memory_and_no_other(directory: Path) -> None:
    cool(directory)
    with klog.Log.open(directory, clean_shutdown=False, recovery_point=0) as log:
        assert log.recovery.segments_scanned == 6
        assert [name for name in hot_bytes(directory) if name.endswith(".log")] == [Path(log.segments[-1].path).name]
