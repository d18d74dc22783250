"""Reads memory statistics from /proc: sizes, counters, and the limits of dirty pages. Sizes are in bytes.

    /proc/meminfo            name: number kB
    /proc/vmstat             name number           nr_* are gauges in pages, the others count from boot
    /proc/sys/vm/dirty_*     one number

root is /proc, or a test's replacement. A number is None, or its name is missing, if the file
does not exist (a container, another kernel) or cannot be parsed. Nothing here raises.
"""

from __future__ import annotations

import mmap
import os

from klog.values import dataclass

PROC = "/proc"
_BYTES_MAX = 1 << 20  # /proc/vmstat has 4 KiB
_DIGITS_MAX = 20  # of 2^64


@dataclass(frozen=True, slots=True)
class DirtyLimits:
    """The amount of dirty bytes at which the kernel writes in the background, and that at which it makes writers wait.

    The kernel uses dirty_bytes if it is not 0, else dirty_ratio, in percent of the memory that could hold dirty pages;
    likewise for the background. threshold and background_threshold are the resulting limits now.
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
    """The machine's memory in bytes: total, free, available without swapping, page cache, dirty, in write-back."""

    total: int | None
    free: int | None
    available: int | None
    cached: int | None
    dirty: int | None
    writeback: int | None


def read_vmstat(root: str = PROC) -> dict[str, int]:
    """Return the numbers of /proc/vmstat, unchanged."""
    return _numbers(os.path.join(root, "vmstat"))


def read_meminfo(root: str = PROC) -> dict[str, int]:
    """Return /proc/meminfo by name, in bytes; lines without a unit unchanged."""
    return _numbers(os.path.join(root, "meminfo"))


def read_memory(root: str = PROC) -> SystemMemory:
    """Return how much memory there is, by use."""
    found = read_meminfo(root)
    names = ("MemTotal", "MemFree", "MemAvailable", "Cached", "Dirty", "Writeback")
    return SystemMemory(*(found.get(name) for name in names))


def read_dirty_limits(root: str = PROC, vmstat: dict[str, int] | None = None) -> DirtyLimits:
    """Return the vm.dirty_* settings and the resulting limits. vmstat: the result of read_vmstat(), if the
    caller has it."""
    found = read_vmstat(root) if vmstat is None else vmstat
    pages = [found.get("nr_dirty_threshold"), found.get("nr_dirty_background_threshold")]
    return DirtyLimits(
        read_setting("dirty_ratio", root),
        read_setting("dirty_bytes", root),
        read_setting("dirty_background_ratio", root),
        read_setting("dirty_background_bytes", root),
        read_setting("dirty_expire_centisecs", root),
        read_setting("dirty_writeback_centisecs", root),
        *(None if count is None else count * mmap.PAGESIZE for count in pages),
    )


def _numbers(path: str) -> dict[str, int]:
    """Parse lines `name number`, `name: number` or `name: number kB`; other lines are skipped."""
    found = {}
    for line in text_of(path).splitlines():
        words = line.split()
        value = _number(words[1]) if len(words) in (2, 3) else None
        if value is None or (len(words) == 3 and words[2] != "kB"):
            continue
        found[words[0].removesuffix(":")] = value * 1024 if len(words) == 3 else value
    return found


def _number(word: str) -> int | None:
    return int(word) if word.isdigit() and len(word) <= _DIGITS_MAX else None


def read_setting(name: str, root: str = PROC) -> int | None:
    """Return /proc/sys/vm/NAME."""
    words = text_of(os.path.join(root, "sys", "vm", name)).split()
    return _number(words[0]) if len(words) == 1 else None


def text_of(path: str, bytes_max: int = _BYTES_MAX) -> str:
    """Return the first bytes_max bytes of a file as ASCII text, other bytes replaced; "" if it cannot be read."""
    return bytes_of(path, bytes_max).decode("ascii", "replace")


def bytes_of(path: str, bytes_max: int = _BYTES_MAX) -> bytes:
    """Return the first bytes_max bytes of a file; b"" if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        pieces = []
        left = bytes_max
        while left > 0 and (piece := os.read(fd, left)):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    except OSError:
        return b""
    finally:
        os.close(fd)
