"""Keeps a scan from changing the page cache: pages that the scan loaded are dropped again, earlier ones stay.

  D1  a range that was partly or fully in memory before the scan began is never dropped
  D2  if the kernel does not report what is in memory (before Linux 6.5, or for a file that this user may not write),
      nothing is dropped
  D3  a page that is still being read when the scan stops, such as one of the kernel's read-ahead, is dropped once it
      is read
  D4  a mapped page, or one that is not on disk yet, stays: POSIX_FADV_DONTNEED drops only clean, unmapped pages

The kernel is asked once what is in memory, when the scan begins: later answers would include the pages that its
read-ahead has loaded for the scan. Pages that other readers load during the scan may be dropped too.
"""

from __future__ import annotations

import os

from klog.disk._io import LogFile
from klog.disk._residency import stat_range

_GRAIN = 64 << 10  # a range of this size is cold only if no page of it is in memory
_STEP = 8 << 20  # bytes dropped together
_AHEAD = 16 << 20  # how far the kernel may have read ahead of a scan that stops
_PAGE = 4096
_WAITS = 3


def cold_ranges(file: LogFile, start: int, stop: int) -> list[tuple[int, int]]:
    """Return the parts of [start, stop) with no page in memory, in units of 64 KiB; [] if the kernel does not
    report it."""
    found: list[tuple[int, int]] = []
    waiting = [(start // _GRAIN * _GRAIN, stop)] if stop > start else []
    try:
        while waiting:
            low, high = waiting.pop()
            cached = stat_range(file, low, high - low)[0]
            if cached == 0:
                if found and found[-1][1] == low:
                    low = found.pop()[0]
                found.append((low, high))
            elif high - low > _GRAIN and cached < -(-high // _PAGE) - low // _PAGE:
                middle = low + max((high - low) // 2 // _GRAIN, 1) * _GRAIN
                waiting += [(middle, high), (low, middle)]
    except OSError:
        return []
    return found


class DropBehind:
    """The pages that one scan of [start, stop) of a file loads into the cache. A context manager; one thread."""

    def __init__(self, file: LogFile, start: int, stop: int) -> None:
        self._file = file
        self._cold = cold_ranges(file, start, stop)
        self._done = start
        self._reached = start

    @property
    def cold_bytes(self) -> int:
        """Bytes that were not in memory when the scan began."""
        return sum(high - low for low, high in self._cold)

    def __enter__(self) -> DropBehind:
        return self

    def __exit__(self, *error: object) -> None:
        self.finish()

    def passed(self, position: int) -> None:
        """Report that the scan no longer needs the bytes before `position`. Drops them, 8 MiB or more at a time."""
        self._reached = max(self._reached, position)
        if self._reached - self._done >= _STEP:
            self._drop(self._done, self._reached)
            self._done = self._reached

    def moved(self, count: int) -> None:
        """Report that the scan has advanced by `count` bytes."""
        self.passed(self._reached + count)

    def finish(self) -> None:
        """End the scan, wherever it stopped. The file must still be open."""
        if self._cold:
            end = self._reached + _AHEAD
            self._drop(0, end)  # again: folios that crossed a step, and pages that were being read
            for _ in range(_WAITS):
                if not self._wait_for_read_ahead(end):
                    break
                self._drop(self._reached, end)
            self._cold = []

    def _wait_for_read_ahead(self, end: int) -> bool:
        """Wait for the last page that is still being read, because advice does not drop such pages. Returns whether
        there was one."""
        for low, high in reversed(self._cold):
            low, high = max(low, self._reached // _GRAIN * _GRAIN), min(high, end)
            if low < high and (now := cold_ranges(self._file, low, high)) != [(low, high)]:
                last = now[-1][0] if now and now[-1][1] == high else high
                self._file.read((last - 1) // _PAGE * _PAGE, 1)
                return True
        return False

    def _drop(self, start: int, stop: int) -> None:
        for low, high in self._cold:
            low, high = max(low, start), min(high, stop)
            if low < high:
                self._file.advise(low, high - low, os.POSIX_FADV_DONTNEED)
