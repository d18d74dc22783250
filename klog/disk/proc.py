"""What /proc says about memory: sizes, counters, and the limits of dirty pages. In bytes, where it counts anything.

    /proc/meminfo            name: number kB
    /proc/vmstat             name number           nr_* are gauges in pages, the others count from boot
    /proc/sys/vm/dirty_*     one number

root is /proc, or what a test has put in its place. A file that is not there (a container, another kernel) or says
something else gives no number: None, or a name that is missing. Nothing here raises.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

PROC = "/proc"
_BYTES_MAX = 1 << 20  # /proc/vmstat has 4 KiB
_DIGITS_MAX = 20  # of 2^64


@dataclass(frozen=True, slots=True)
class DirtyLimits:
    """From how many dirty bytes on the kernel writes in the background, and from how many on it makes writers wait.

    The kernel takes dirty_bytes where it is not 0, else dirty_ratio, in percent of the memory that could hold dirty
    pages; and likewise for the background. threshold and background_threshold are what it makes of them now.
    """

    ratio: int | None
    bytes: int | None
    background_ratio: int | None
    background_bytes: int | None
    expire_centisecs: int | None
    writeback_centisecs: int | None
    threshold: int | None
    background_threshold: int | None


@dataclass(frozen=True, slots=True)
class SystemMemory:
    """The machine's memory in bytes: in all, free, usable without swapping, page cache, dirty, being written."""

    total: int | None
    free: int | None
    available: int | None
    cached: int | None
    dirty: int | None
    writeback: int | None


def read_vmstat(root: str = PROC) -> dict[str, int]:
    """/proc/vmstat as it is."""
    return _numbers(os.path.join(root, "vmstat"))


def read_meminfo(root: str = PROC) -> dict[str, int]:
    """/proc/meminfo by its names, in bytes; lines without a unit as they are."""
    return _numbers(os.path.join(root, "meminfo"))


def read_memory(root: str = PROC) -> SystemMemory:
    """How much memory there is, and what for."""
    found = read_meminfo(root)
    names = ("MemTotal", "MemFree", "MemAvailable", "Cached", "Dirty", "Writeback")
    return SystemMemory(*(found.get(name) for name in names))


def read_dirty_limits(root: str = PROC, vmstat: dict[str, int] | None = None) -> DirtyLimits:
    """The vm.dirty_* settings, and what they come to. vmstat: if it has just been read."""

    def setting(name: str) -> int | None:
        words = _text(os.path.join(root, "sys", "vm", name)).split()
        return _number(words[0]) if len(words) == 1 else None

    found = read_vmstat(root) if vmstat is None else vmstat
    pages = [found.get("nr_dirty_threshold"), found.get("nr_dirty_background_threshold")]
    return DirtyLimits(
        setting("dirty_ratio"),
        setting("dirty_bytes"),
        setting("dirty_background_ratio"),
        setting("dirty_background_bytes"),
        setting("dirty_expire_centisecs"),
        setting("dirty_writeback_centisecs"),
        *(None if count is None else count * mmap.PAGESIZE for count in pages),
    )


def _numbers(path: str) -> dict[str, int]:
    """Lines `name number`, `name: number` or `name: number kB`; any other says nothing."""
    found = {}
    for line in _text(path).splitlines():
        words = line.split()
        value = _number(words[1]) if len(words) in (2, 3) else None
        if value is None or (len(words) == 3 and words[2] != "kB"):
            continue
        found[words[0].removesuffix(":")] = value * 1024 if len(words) == 3 else value
    return found


def _number(word: str) -> int | None:
    return int(word) if word.isdigit() and len(word) <= _DIGITS_MAX else None


def _text(path: str) -> str:
    """The start of a file, as text with nothing but ASCII digits in it; nothing of one that is not there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        pieces = []
        left = _BYTES_MAX
        while left > 0 and (piece := os.read(fd, left)):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)
