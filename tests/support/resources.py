"""How much this process holds."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(work: Callable[[], object], times: int) -> tuple[int, int]:
    """(resident bytes, Python blocks) that `times` calls leave behind, once others have warmed every cache and pool."""
    for _ in range(times // 4):
        work()
    gc.collect()
    resident, blocks = resident_bytes(), sys.getallocatedblocks()
    for _ in range(times):
        work()
    gc.collect()
    return resident_bytes() - resident, sys.getallocatedblocks() - blocks
