"""Reports how much of a file is in the page cache, how much of that is dirty, and which ranges are hot.

    cachestat(2)   since Linux 6.5: counts cached, dirty and write-back pages, and evicted ones
    mincore(2)     otherwise: counts cached pages, on a mapping of the file that is never touched

Queries load no page and change no file. Both are correct only for processes that may write the file: to others
cachestat gives an error, and mincore reports every page as cached, so klog raises PermissionError instead.

The kernel counts whole pages, and so do the numbers here: they are memory, not bytes of the file.
"""

from __future__ import annotations

import errno
import itertools
import mmap
import os
from collections.abc import Iterable
from typing import Literal

from klog import values
from klog.disk._io import LogFile
from klog.disk._residency import cached_pages, stat_range
from klog.disk.faults import naming_the_next_step

PAGE = mmap.PAGESIZE
Source = Literal["cachestat", "mincore"]
# Also EPERM: from a sandbox that does not know the call. From the kernel it means that this process has no permission.
_NO_CACHESTAT = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)


@values.dataclass(frozen=True, slots=True)
class Residency:
    """The residency of a range of a file in the page cache, or of several ranges together.

    size: bytes of the range. memory_bytes: its size in whole pages. dirty_bytes: cached and not on disk yet;
    writeback_bytes: being written now. evicted_bytes: cached before, evicted since; recently_evicted_bytes: evicted so
    recently that more memory would have kept it. None: not reported by mincore.
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
        """The share that is cached, 0 to 1; 1 for an empty range, because no read of it has to wait."""
        return self.cached_bytes / self.memory_bytes if self.memory_bytes else 1.0

    @property
    def source(self) -> Source:
        """The system call that the numbers come from."""
        return "mincore" if self.dirty_bytes is None else "cachestat"

    def to_dict(self) -> dict[str, int | float | None]:
        """Return its fields and share, for JSON."""
        return {**values.asdict(self), "share": round(self.share, 6)}


_FIELDS = tuple(field.name for field in values.fields(Residency))


def total(parts: Iterable[Residency]) -> Residency:
    """Return the sum of several; a field that is None in one of them is None in the sum."""
    sums: list[int | None] = [0] * len(_FIELDS)
    for part in parts:
        for number, name in enumerate(_FIELDS):
            value, before = getattr(part, name), sums[number]
            sums[number] = None if value is None or before is None else before + value
    return Residency(*sums)  # type: ignore[arg-type]


def residency(file: LogFile, position: int = 0, size: int | None = None) -> Residency:
    """Return what of [position, position + size) is cached; size None: to the end of the file. Bytes after the end do
    not count. Raises PermissionError if the kernel reports nothing to this user, OSError, ValueError."""
    end = file.length()
    if position < 0 or (size is not None and size < 0):
        raise ValueError(f"position={position}, size={size}: must not be negative")
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
    """Split the range into at most `cells` equal parts of a page or more; return the cached share of each, 0 to 1.
    Raises as residency() does."""
    if cells < 1:
        raise ValueError(f"cells={cells}: must be at least one")
    end = file.length()
    end = end if size is None else min(end, position + size)
    first, pages = position // PAGE, -(-end // PAGE) - position // PAGE
    cells = min(cells, max(pages, 0))
    bounds = [(first + pages * number // cells) * PAGE for number in range(cells + 1)] if cells else []
    return [residency(file, low, high - low).share for low, high in itertools.pairwise(bounds)]


def _check_allowed(file: LogFile) -> None:
    """Check that this process may write the file: otherwise mincore would report every page as cached."""
    fd = file.fileno()
    with naming_the_next_step(file.path, reading=True):
        owner = os.fstat(fd).st_uid
    if owner != os.geteuid() and not os.access(f"/proc/self/fd/{fd}", os.W_OK, effective_ids=True):
        raise PermissionError(
            errno.EPERM,
            "the kernel reports what is in the page cache only to users that may write the file: run as its owner",
            file.path,
        )
