"""A scan drops the pages that it brought into the page cache; pages cached before stay."""

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
def test_a_scan_leaves_the_page_cache_as_it_was(path: Path, stop: int) -> None:
    """D1, also for a scan that stops in the middle, with the pages of the kernel's own read-ahead."""
    make_cold(path)
    make_hot(path, 5 * MIB, MIB)
    make_hot(path, SIZE - 2 * MIB, 2 * MIB)
    before = resident_pages(path)
    file = RealFiles().open(str(path))
    with DropBehind(file, 0, SIZE) as behind:
        for position in range(0, stop, MIB):
            file.read(position, MIB)
            behind.passed(position)
        assert stop < SIZE or not any(resident_pages(path)[: MIB // 4096])  # dropping does not wait for the end
    assert_as_before(path, before)


def assert_as_before(path: Path, before: list[bool]) -> None:
    """The pages are as before, except those that the kernel evicted for lack of memory, which it counts (drops by
    advice are not counted). A page evicted before the first check and read again by the scan lies beside cached ones:
    D1."""
    after = resident_pages(path)
    lost = sum(was and not now for was, now in zip(before, after, strict=True))
    come = [number for number, (was, now) in enumerate(zip(before, after, strict=True)) if now and not was]
    assert lost <= residency(RealFiles().open(str(path))).evicted_bytes // 4096, f"{lost} pages were dropped"
    assert not [number for number in come if not any(before[number // 16 * 16 : number // 16 * 16 + 16])]


def test_pages_still_being_read_are_dropped_too(path: Path) -> None:
    """The kernel ignores advice on pages still being read, and its read-ahead may still run when a scan stops."""
    make_cold(path)
    before = resident_pages(path)
    file = RealFiles().open(str(path))
    advised = list[tuple[int, int]]()

    class Busy(DropBehind):
        def _drop(self, start: int, stop: int) -> None:
            if advised:
                super()._drop(start, stop)
            advised.append((start, stop))  # the first call drops nothing, as if every page was being read

    with Busy(file, 0, SIZE) as behind:
        for position in range(0, 3 * MIB, MIB):
            file.read(position, MIB)
            behind.passed(position)
        make_hot(path, 2 * MIB, 3 * MIB)
        make_cold(path, 0, 2 * MIB)
    assert len(advised) == 2
    assert_as_before(path, before)


def test_nothing_is_dropped_if_residency_is_unknown(path: Path, kernel: FaultyIo) -> None:
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
    """Five closed segments and an active one, all on disk and in the page cache."""
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


def test_a_scan_keeps_the_cached_tail_and_adds_nothing(directory: Path) -> None:
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
        assert len(hot_bytes(directory)) > 5  # a plain read keeps all pages


def test_without_drop_behind_scanned_pages_stay(directory: Path) -> None:
    with klog.Log.open(directory, read_only=True, config={"klog.io.scan.drop.behind": False}) as log:
        cool(directory)
        assert sum(1 for _ in log.read(scan=True).chunks()) > 5
        assert len(hot_bytes(directory)) > 5


def test_recovery_keeps_only_the_newest_segment_cached(directory: Path) -> None:
    cool(directory)
    with klog.Log.open(directory, clean_shutdown=False, recovery_point=0) as log:
        assert log.recovery.segments_scanned == 6
        assert [name for name in hot_bytes(directory) if name.endswith(".log")] == [Path(log.segments[-1].path).name]
