"""How much of a file is in the page cache, how much of that is not on the disk yet, and where the hot ranges are.

    cachestat(2)   since Linux 6.5: counts cached, dirty and write-back pages, and those that were evicted
    mincore(2)     otherwise: counts cached pages, on a mapping of the file that nobody touches

Asking brings no page in and changes no file. Both tell the truth only to those who may write the file: to others
cachestat refuses, and mincore calls every page cached, so that klog does not ask it then: PermissionError.

The kernel counts whole pages, and so do the numbers here: they are memory, not bytes of the file.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import mmap
import os
from collections.abc import Iterable
from typing import Literal

from klog.disk._io import LogFile
from klog.disk._residency import cached_pages, stat_range

PAGE = mmap.PAGESIZE
Source = Literal["cachestat", "mincore"]
# Also EPERM: from a sandbox that does not know the call. From the kernel itself it says whom it would tell.
_NO_CACHESTAT = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)


@dataclasses.dataclass(frozen=True, slots=True)
class Residency:
    """A range of a file in the page cache, or several together.

    size: bytes of the range. memory_bytes: what it takes when all of it is cached, whole pages. dirty_bytes: cached and
    not written to the disk yet; writeback_bytes: being written now. evicted_bytes: was cached, and made room for
    something else; recently_evicted_bytes: so lately that more memory would have kept it. None: mincore cannot say.
    """

    size: int = 0
    memory_bytes: int = 0
    cached_bytes: int = 0
    dirty_bytes: int | None = 0
    writeback_bytes: int | None = 0
    evicted_bytes: int | None = 0
    recently_evicted_bytes: int | None = 0

    @property
    def share(self) -> float:
        """Which part of it is cached, 0 to 1; 1 for nothing at all, which no read has to wait for."""
        return self.cached_bytes / self.memory_bytes if self.memory_bytes else 1.0

    @property
    def source(self) -> Source:
        """Which call has told."""
        return "mincore" if self.dirty_bytes is None else "cachestat"

    def to_dict(self) -> dict[str, int | float | None]:
        """Its fields and share, for JSON."""
        return {**dataclasses.asdict(self), "share": round(self.share, 6)}


_FIELDS = tuple(field.name for field in dataclasses.fields(Residency))


def total(parts: Iterable[Residency]) -> Residency:
    """Several together; what one of them does not know is not known of all."""
    sums: list[int | None] = [0] * len(_FIELDS)
    for part in parts:
        for number, name in enumerate(_FIELDS):
            value, before = getattr(part, name), sums[number]
            sums[number] = None if value is None or before is None else before + value
    return Residency(*sums)  # type: ignore[arg-type]


def residency(file: LogFile, position: int = 0, size: int | None = None) -> Residency:
    """What of [position, position + size) is cached; size None: to the end of the file. What lies behind the end does
    not count. Raises PermissionError, OSError."""
    end = os.fstat(file.fileno()).st_size
    if position < 0 or (size is not None and size < 0):
        raise ValueError(f"position={position}, size={size}: not negative")
    if size is not None:
        end = min(end, position + size)
    if end <= position:
        return Residency()
    size = end - position
    memory = (-(-end // PAGE) - position // PAGE) * PAGE
    try:
        found = stat_range(file, position, size)
    except OSError as error:
        if error.errno not in _NO_CACHESTAT:
            raise
        _check_allowed(file)
        return Residency(size, memory, cached_pages(file, position, size) * PAGE, None, None, None, None)
    return Residency(size, memory, *(pages * PAGE for pages in found))


def heat(file: LogFile, cells: int, position: int = 0, size: int | None = None) -> list[float]:
    """The range in at most `cells` equal parts, each a page at least: which share of each is cached."""
    if cells < 1:
        raise ValueError(f"cells={cells}: at least one")
    end = os.fstat(file.fileno()).st_size
    end = end if size is None else min(end, position + size)
    first, pages = position // PAGE, -(-end // PAGE) - position // PAGE
    cells = min(cells, max(pages, 0))
    bounds = [(first + pages * number // cells) * PAGE for number in range(cells + 1)] if cells else []
    return [residency(file, low, high - low).share for low, high in itertools.pairwise(bounds)]


def _check_allowed(file: LogFile) -> None:
    """May this process write the file? Otherwise mincore would call every page cached."""
    fd = file.fileno()
    if os.fstat(fd).st_uid != os.geteuid() and not os.access(f"/proc/self/fd/{fd}", os.W_OK, effective_ids=True):
        raise PermissionError(
            errno.EPERM,
            "the kernel tells what is in the page cache only to those who may write the file: run as its owner",
            file.path,
        )
