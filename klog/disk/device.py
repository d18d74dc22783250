"""The disk below a directory: its file system, its block device, and what the device has done since boot.

    /proc/self/mountinfo          which file system, from which source, with which options
    /proc/diskstats               one line for each block device: major minor name and 11 or more counters
    /sys/dev/block/MAJOR:MINOR    queue/scheduler, queue/rotational; those of a partition are in its parent

proc_root and sys_root are /proc and /sys, or a test's replacements. What does not exist (a container, a network file
system) or cannot be parsed is None. Only disk_space() raises.
"""

from __future__ import annotations

import os
import re

from klog.disk.proc import PROC, bytes_of, text_of
from klog.values import dataclass

SYS = "/sys"
_SECTOR = 512  # the unit of /proc/diskstats, also for devices with larger sectors
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Space and inodes of a file system: in total, and free for users other than root. Inodes are None if the file
    system has no fixed number of them."""

    total_bytes: int
    free_bytes: int
    total_inodes: int | None
    free_inodes: int | None


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo. options: those of the mount, then those of the file system."""

    point: str
    file_system: str
    source: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeviceCounters:
    """What a block device has done since boot. busy_ms: time with at least one request; its growth per time is the
    utilisation. queue_ms: the sum of the waiting times of all requests; its growth per time is the mean queue length.
    in_flight: requests now."""

    name: str
    reads: int
    read_bytes: int
    writes: int
    written_bytes: int
    in_flight: int
    busy_ms: int
    queue_ms: int


def disk_space(path: str) -> DiskSpace:
    """Return the space of the file system that holds a path. Raises OSError."""
    found = os.statvfs(path)
    inodes = (found.f_files, found.f_favail) if found.f_files else (None, None)
    return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, *inodes)


def mount_of(path: str, proc_root: str = PROC) -> Mount | None:
    """Return the mount that holds a path: the last one with the longest mount point above it. None if it is unknown."""
    real, best = os.path.realpath(path), None
    for line in os.fsdecode(bytes_of(os.path.join(proc_root, "self", "mountinfo"))).split("\n"):
        left, dash, right = line.partition(" - ")
        here, there = left.split(" "), right.split(" ")
        if not dash or len(here) < 6 or len(there) < 3:
            continue
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), here[4])
        holds = real == point or real.startswith(point.rstrip("/") + "/")
        if holds and (best is None or len(point) >= len(best.point)):
            options = tuple(dict.fromkeys([*here[5].split(","), *there[2].split(",")]))
            best = Mount(point, there[0], there[1], options)
    return best


def device_number(path: str) -> tuple[int, int] | None:
    """Return (major, minor) of the device below a path; None if it does not exist."""
    try:
        number = os.stat(path).st_dev
    except OSError:
        return None
    return os.major(number), os.minor(number)


def device_counters(number: tuple[int, int] | None, proc_root: str = PROC) -> DeviceCounters | None:
    """Return the counters of a block device; None for a file system without one."""
    for line in text_of(os.path.join(proc_root, "diskstats")).splitlines() if number is not None else ():
        words = line.split()
        if len(words) < 14 or words[:2] != [str(part) for part in number or ()]:
            continue
        try:
            reads, _, read, _, writes, _, written, _, in_flight, busy, queue = map(int, words[3:14])
        except ValueError:
            return None
        return DeviceCounters(words[2], reads, read * _SECTOR, writes, written * _SECTOR, in_flight, busy, queue)
    return None


def scheduler_of(number: tuple[int, int] | None, sys_root: str = SYS) -> str | None:
    """Return the I/O scheduler of a block device, such as `none` or `mq-deadline`; None if it is unknown."""
    found = re.search(r"\[([\w-]+)\]", _queue(number, "scheduler", sys_root))
    return found[1] if found else None


def is_rotational(number: tuple[int, int] | None, sys_root: str = SYS) -> bool | None:
    """Return True for a spinning disk, False for a solid-state one, None if it is unknown."""
    return {"0": False, "1": True}.get(_queue(number, "rotational", sys_root).strip())


def _queue(number: tuple[int, int] | None, name: str, sys_root: str) -> str:
    if number is None:
        return ""
    device = os.path.join(sys_root, "dev", "block", f"{number[0]}:{number[1]}")
    return text_of(os.path.join(device, "queue", name)) or text_of(os.path.join(device, "..", "queue", name))
