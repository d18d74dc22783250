"""Bring files into the page cache (hot) or out of it (cold), whole or in part, and check that with mincore(2), without
klog's own calls.

On request the kernel drops only clean pages that are not mapped. By itself it may drop any page at any time, and with
DAMON it does so even with plenty of memory: a test that does not check at once needs kept_hot(). Because of large
folios a cold range begins and ends at 2 MiB where it must be exact; make_hot() of a page reads only that page, without
read-ahead.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mmap.restype = ctypes.c_void_p
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.mlock2.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
_ATTEMPTS = 50


def make_cold(path: str | os.PathLike[str], position: int = 0, size: int = 0) -> None:
    """Write the file to the disk and drop the range from the page cache; size 0: to its end. AssertionError if pages
    stay.

    Pages that were only just read wait in a per-CPU list, and a busy kernel may be moving some, from where it does not
    drop them: so the call is repeated, after longer and longer pauses.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(fd)
        for attempt in range(_ATTEMPTS):
            if attempt == 10 and _on_tmpfs(path):
                pytest.skip("needs: a temporary directory on a disk: tmpfs files are always in memory")
            time.sleep(attempt // 10 / 100)
            os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)
            if not any(_pages_of(fd)[position // PAGE : -(-(position + size) // PAGE) if size else None]):
                return
    finally:
        os.close(fd)
    raise AssertionError(f"{os.fspath(path)} stays in the page cache: is it mapped?")


def make_hot(path: str | os.PathLike[str], position: int = 0, size: int = 0) -> None:
    """Read only this range into the page cache; size 0: to the end of the file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        end = position + size if size else os.fstat(fd).st_size
        for at in range(position, end, 1 << 20):
            os.pread(fd, min(1 << 20, end - at), at)
    finally:
        os.close(fd)


@contextmanager
def kept_hot(path: str | os.PathLike[str], position: int = 0, size: int = 0) -> Iterator[None]:
    """make_hot, and the range stays hot while the block runs: locked, as far as this user may lock memory."""
    make_hot(path, position, size)
    size = size or os.stat(path).st_size - position
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with _mapped(fd, position, size) as start:
            _libc.madvise(start, size, mmap.MADV_RANDOM)  # an evicted page is read back without read-ahead
            _libc.mlock2(start, size, 0)  # not mlock, which the sanitizers disable
            yield
    finally:
        os.close(fd)


def resident_pages(path: str | os.PathLike[str]) -> list[bool]:
    """For each page of the file, whether it is in the page cache. The check itself caches no page."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _pages_of(fd)
    finally:
        os.close(fd)


def resident_below(directory: str | os.PathLike[str]) -> dict[str, list[bool]]:
    """{path: its pages} of every file in a tree."""
    return {str(path): resident_pages(path) for path in sorted(Path(directory).rglob("*")) if path.is_file()}


def _on_tmpfs(path: str | os.PathLike[str]) -> bool:
    """Whether the path is on tmpfs, by the longest mount point that contains it."""
    real, best, kind = os.path.realpath(path), "", ""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        place, found = line.split()[1:3]
        if (real == place or real.startswith(place.rstrip("/") + "/")) and len(place) >= len(best):
            best, kind = place, found
    return kind in ("tmpfs", "ramfs")


def _pages_of(fd: int) -> list[bool]:
    size = os.fstat(fd).st_size
    if size == 0:
        return []
    pages = ctypes.create_string_buffer(-(-size // PAGE))
    with _mapped(fd, 0, size) as start:
        if _libc.mincore(start, size, pages) < 0:
            raise OSError(ctypes.get_errno(), "mincore")
    return [bool(page & 1) for page in pages.raw[: -(-size // PAGE)]]


@contextmanager
def _mapped(fd: int, position: int, size: int) -> Iterator[int]:
    """The mapping of the range; touches no page."""
    start = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, position)
    if start == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mmap")
    try:
        yield start
    finally:
        _libc.munmap(start, size)
