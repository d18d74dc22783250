"""The memory, threads and descriptors that a process has."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple


def open_descriptors() -> set[tuple[int, str]]:
    """The descriptors of this process, each with the target that it refers to. If an object with a descriptor is no
    longer used, a garbage collection closes it at any moment, also during a test: compare with <=."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            found.add((int(name), os.readlink(f"/proc/self/fd/{name}")))
    return found


def threads_and_descriptors() -> set[threading.Thread | tuple[int, str]]:
    """The threads and descriptors of this process. A call must not add any: compare with <= with the state before
    it."""
    return {*threading.enumerate(), *open_descriptors()}


def resident_bytes(pid: int | None = None) -> int:
    """The resident memory of this process, or of another one."""
    with open(f"/proc/{pid or 'self'}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def memory_limit(spare: int) -> Iterator[None]:
    """In this block the process can map `spare` bytes more than it has mapped, and memory allocations above that
    fail."""
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + spare, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in [
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        ]
    ]


def allocated_bytes() -> int:
    """Bytes that malloc has allocated and not freed; 0 if the C library does not report it (glibc before 2.33, and
    under a sanitizer with another malloc)."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return 0
    mallinfo.restype = _Mallinfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)


class Growth(NamedTuple):
    resident: int  # bytes, including free memory that allocators keep: noisy
    allocated: int  # bytes of malloc: C's own, and Python's objects above 512 bytes
    blocks: int  # Python's


def growth(work: Callable[[], object], times: int) -> Growth:
    """The memory that `times` calls leak, after earlier calls have filled every cache and pool."""
    for _ in range(times // 4):
        work()
    gc.collect()
    before = resident_bytes(), allocated_bytes(), sys.getallocatedblocks()
    for _ in range(times):
        work()
    gc.collect()
    blocks = sys.getallocatedblocks()
    return Growth(resident_bytes() - before[0], allocated_bytes() - before[1], blocks - before[2])


def held(source: bytearray) -> bool:
    """Whether the bytearray is exported as a buffer: then it cannot be resized, which is tried here."""
    try:
        source.append(0)
    except BufferError:
        return True
    source.pop()
    return False
