"""How much this process holds."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable
from typing import NamedTuple


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
    """What malloc has given out and not got back, to the byte; 0 where the C library does not tell (glibc before 2.33, and
    under a sanitizer, whose malloc is another)."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return 0
    mallinfo.restype = _Mallinfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)


class Growth(NamedTuple):
    resident: int  # bytes, with all that the allocators keep for later: noisy
    allocated: int  # bytes of malloc: C's own, and of Python what is larger than 512 bytes
    blocks: int  # of Python's


def growth(work: Callable[[], object], times: int) -> Growth:
    """What `times` calls leave behind, once others have warmed every cache and pool."""
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
    """Is there an export of it? Asked by what an export forbids."""
    try:
        source.append(0)
    except BufferError:
        return True
    source.pop()
    return False
