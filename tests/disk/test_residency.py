"""klog's reports about the page cache, compared with mincore(2); and sampled reads."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.disk import LogFile, ReadSampler, RealFiles
from klog.disk._residency import cached_pages, stat_range
from klog.disk.residency import Residency, heat, residency, total
from tests.support.crash_files import CrashFiles
from tests.support.faulty_io import FaultyIo
from tests.support.page_cache import PAGE, make_cold, make_hot, resident_pages

PAGES = 64


@pytest.fixture
def kernel() -> Iterator[FaultyIo]:
    with FaultyIo() as io:
        yield io


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(os.urandom(PAGES * PAGE - 100))
    make_cold(path)
    return path


def opened(path: Path, table: int = 0) -> LogFile:
    return RealFiles(table).open(str(path))


# ---- residency -----------------------------------------------------------------------------------------------------


def test_cached_pages_equal_mincores_and_checking_caches_none(path: Path) -> None:
    file = opened(path)
    assert residency(file).cached_bytes == 0 and residency(file).share == 0.0
    make_hot(path, 10 * PAGE, 3 * PAGE)
    pages = resident_pages(path)
    assert sum(pages) == 3
    found = residency(file)
    assert (found.size, found.memory_bytes) == (PAGES * PAGE - 100, PAGES * PAGE)
    assert (found.cached_bytes, found.dirty_bytes, found.writeback_bytes) == (3 * PAGE, 0, 0)
    assert found.source == "cachestat" and found.share == 3 / PAGES
    assert resident_pages(path) == pages
    make_hot(path)
    assert residency(file).share == 1.0


def test_ranges_count_the_pages_they_touch(path: Path) -> None:
    make_hot(path, 10 * PAGE, 3 * PAGE)
    file = opened(path)
    assert residency(file, 10 * PAGE, PAGE).cached_bytes == PAGE
    assert residency(file, 9 * PAGE + 5, PAGE) == Residency(PAGE, 2 * PAGE, PAGE)
    assert residency(file, 13 * PAGE, 1).cached_bytes == 0
    assert residency(file, 12 * PAGE + 4095, 2) == Residency(2, 2 * PAGE, PAGE)
    tail = residency(file, (PAGES - 1) * PAGE, 100 * PAGE)
    assert (tail.size, tail.memory_bytes) == (PAGE - 100, PAGE)  # bytes after the end do not count


@pytest.mark.parametrize(("position", "size"), [(0, 0), (5, 0), (PAGES * PAGE, None), (1 << 40, 10)])
def test_an_empty_range_is_not_the_whole_file(path: Path, position: int, size: int | None) -> None:
    """To the kernel, 0 bytes means up to the end of the file."""
    make_hot(path)
    assert residency(opened(path), position, size) == Residency()
    assert residency(opened(path), position, size).share == 1.0


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "e").touch()
    assert residency(opened(tmp_path / "e")) == Residency()
    assert heat(opened(tmp_path / "e"), 8) == []


def test_negative_ranges_raise(path: Path) -> None:
    file = opened(path)
    for position, size in ((-1, 5), (0, -1)):
        with pytest.raises(ValueError, match="must not be negative"):
            residency(file, position, size)
    for asked in (stat_range, cached_pages):
        with pytest.raises(ValueError, match="at least one byte"):
            asked(file, 0, 0)
    file.close()
    with pytest.raises(ValueError, match="is closed"):
        residency(file)


def test_dirty_pages_until_they_are_synced(tmp_path: Path) -> None:
    files = RealFiles()
    file = files.open(str(tmp_path / "d"), write=True, create=True)
    for _ in range(5):  # the kernel may write it back at any moment, but hardly five times
        file.write(bytes(8 * PAGE), 0)
        found = residency(file)
        if (found.dirty_bytes or 0) + (found.writeback_bytes or 0) == 8 * PAGE:
            break
    else:
        pytest.fail(f"{found}")
    assert found.cached_bytes == 8 * PAGE
    files.fdatasync(file)
    assert residency(file) == Residency(8 * PAGE, 8 * PAGE, 8 * PAGE)


def test_hot_and_cold_ranges(path: Path) -> None:
    file = opened(path)
    assert heat(file, 4) == [0.0] * 4
    make_hot(path, 0, 16 * PAGE)
    make_hot(path, 32 * PAGE, 8 * PAGE)
    assert heat(file, 4) == [1.0, 0.0, 0.5, 0.0]
    assert heat(file, 2, 32 * PAGE, 16 * PAGE) == [1.0, 0.0]
    assert heat(file, 1000) == [1.0] * 16 + [0.0] * 16 + [1.0] * 8 + [0.0] * 24  # no bucket is smaller than a page
    assert len(heat(file, 7)) == 7
    with pytest.raises(ValueError, match="at least one"):
        heat(file, 0)


@pytest.mark.parametrize("refusal", [errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM])
def test_mincore_is_used_without_cachestat(path: Path, kernel: FaultyIo, refusal: int) -> None:
    kernel.rule("cachestat", error=refusal)
    make_hot(path, 3 * PAGE, 2 * PAGE)
    pages = resident_pages(path)
    file = opened(path, kernel.table)
    found = residency(file)
    assert found == Residency(PAGES * PAGE - 100, PAGES * PAGE, 2 * PAGE, None, None, None, None)
    assert found.source == "mincore"
    assert residency(file, 4 * PAGE + 1, PAGE).cached_bytes == PAGE
    assert heat(file, PAGES) == [float(page) for page in pages]
    assert resident_pages(path) == pages
    assert kernel.calls("mincore") == 2 + PAGES


def test_mincore_counts_over_several_windows(tmp_path: Path, kernel: FaultyIo) -> None:
    kernel.rule("cachestat", error=errno.ENOSYS)
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(600 << 20)
        file.seek(300 << 20)
        file.write(bytes(2 * PAGE))
    make_hot(path, 599 << 20, PAGE)
    found = residency(opened(path, kernel.table), 100 << 20)
    assert found.cached_bytes == 3 * PAGE
    assert kernel.calls("mincore") == 2


def test_residency_raises_without_write_permission(
    path: Path, kernel: FaultyIo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For other users mincore reports every page as cached."""
    kernel.rule("cachestat", error=errno.EPERM)
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(path).st_uid + 1)
    file = opened(path, kernel.table)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    with pytest.raises(PermissionError, match="run as its owner") as caught:
        residency(file)
    assert caught.value.filename == str(path)
    assert kernel.calls("mincore") == 0


@pytest.mark.parametrize(
    ("function", "before"), [("cachestat", None), ("mincore", errno.ENOSYS)], ids=["cachestat", "mincore"]
)
def test_errors_of_the_disk_name_the_file(path: Path, kernel: FaultyIo, function: str, before: int | None) -> None:
    if before is not None:
        kernel.rule("cachestat", error=before)
    kernel.rule(function, error=errno.EIO)
    with pytest.raises(OSError, match="Input/output") as caught:
        residency(opened(path, kernel.table))
    assert caught.value.filename == str(path)


def test_a_total_has_the_numbers_that_all_parts_have() -> None:
    known, other = Residency(10, PAGE, PAGE, PAGE, 0, 5, 1), Residency(20, 2 * PAGE, PAGE, 0, PAGE, 2, 1)
    assert total([known, other]) == Residency(30, 3 * PAGE, 2 * PAGE, PAGE, PAGE, 7, 2)
    counted = Residency(1, PAGE, 0, None, None, None, None)
    assert total([known, counted, other]) == Residency(31, 4 * PAGE, 2 * PAGE, None, None, None, None)
    assert total([]) == Residency()
    assert known.to_dict()["share"] == 1.0 and known.to_dict()["dirty_bytes"] == PAGE


# ---- sampled reads -------------------------------------------------------------------------------------------------

READ = 80 * PAGE  # more than a plain read tries from the page cache before it releases the GIL


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(2 * READ))
    make_cold(path)
    return path


def sixteen(sampler: ReadSampler, file: LogFile, position: int, size: int) -> list[bytes]:
    return [bytes(sampler.read(file, position, size)) for _ in range(16)]


def test_one_read_in_sixteen_is_sampled_and_all_return_the_same_bytes(large: Path, kernel: FaultyIo) -> None:
    file, content = opened(large, kernel.table), large.read_bytes()
    sampler = ReadSampler()
    assert set(sixteen(sampler, file, 5, READ)) == {content[5 : 5 + READ]}
    assert (sampler.reads, sampler.sampled_bytes, sampler.cached_bytes) == (16, READ, READ)
    assert (kernel.calls("preadv2"), kernel.calls("pread")) == (1, 15)
    assert set(sixteen(sampler, file, len(content) - 10, READ)) == {content[-10:]}  # shorter at the end of the file
    assert set(sixteen(sampler, file, 1 << 30, READ)) == {b""}
    assert (sampler.sampled_bytes, sampler.cached_bytes) == (READ + 10, READ + 10)


def test_an_uncached_read_is_a_miss(large: Path) -> None:
    content = large.read_bytes()
    file, sampler = opened(large), ReadSampler()
    for _ in range(15):
        sampler.read(file, 0, 1)
    make_cold(large)
    make_hot(large, 0, 2 * PAGE)
    assert bytes(sampler.read(file, 0, READ)) == content[:READ]
    assert sampler.sampled_bytes == READ
    assert sampler.cached_bytes == 2 * PAGE


def test_a_read_that_would_block_continues_as_a_plain_read(large: Path, kernel: FaultyIo) -> None:
    content, file, sampler = large.read_bytes(), opened(large, kernel.table), ReadSampler()
    kernel.rule("preadv2", error=errno.EINTR, times=1)
    kernel.rule("preadv2", error=errno.EAGAIN, nth=2, times=1)
    kernel.rule("preadv2", at_most=100, nth=3, times=1)
    assert set(sixteen(sampler, file, 0, READ)) == {content[:READ]}
    assert (sampler.sampled_bytes, sampler.cached_bytes) == (READ, 0)
    assert set(sixteen(sampler, file, 0, READ)) == {content[:READ]}
    assert (sampler.sampled_bytes, sampler.cached_bytes) == (2 * READ, 100)


def test_a_file_system_without_support_is_tried_once(large: Path, kernel: FaultyIo) -> None:
    content, file, sampler = large.read_bytes(), opened(large, kernel.table), ReadSampler()
    kernel.rule("preadv2", error=errno.EOPNOTSUPP)
    for _ in range(4):
        assert set(sixteen(sampler, file, 0, READ)) == {content[:READ]}
    assert kernel.calls("preadv2") == 1
    assert (sampler.sampled_bytes, sampler.cached_bytes) == (0, 0)


def test_a_disk_error_is_raised_by_the_plain_read(large: Path, kernel: FaultyIo) -> None:
    content, file, sampler = large.read_bytes(), opened(large, kernel.table), ReadSampler()
    kernel.rule("preadv2", error=errno.EIO, times=1)
    assert set(sixteen(sampler, file, 0, READ)) == {content[:READ]}
    kernel.rule("preadv2", error=errno.EAGAIN)
    kernel.rule("pread", error=errno.EIO, nth=16)
    with pytest.raises(OSError, match="Input/output"):
        sixteen(sampler, file, 0, READ)


def test_a_slice_counts_as_its_first_byte(large: Path, kernel: FaultyIo) -> None:
    file, sampler = opened(large, kernel.table), ReadSampler()
    make_cold(large)
    make_hot(large, 5 * PAGE, PAGE)
    for _ in range(16):
        sampler.probe(file, 5 * PAGE, 1000)
    assert (sampler.sampled_bytes, sampler.cached_bytes) == (1000, 1000)
    for _ in range(15):
        sampler.probe(file, 5 * PAGE, 500)
    kernel.rule("preadv2", error=errno.EAGAIN)  # a real cold page might be read in meanwhile
    sampler.probe(file, 40 * PAGE, 500)
    assert (sampler.sampled_bytes, sampler.cached_bytes) == (1500, 1000)


def test_a_simulated_disk_is_not_sampled(tmp_path: Path) -> None:
    file = CrashFiles().open(str(tmp_path / "s"), write=True, create=True)
    file.write(b"abc", 0)
    sampler = ReadSampler()
    assert set(sixteen(sampler, file, 0, 3)) == {b"abc"}
    assert sampler.reads == 0
