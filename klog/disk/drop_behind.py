"""A scan leaves the page cache as it was: what it brought in goes again behind it, what was there before stays.

  D1  a range that was in memory, in whole or in part, before the scan came is never dropped
  D2  where the kernel does not tell what is in memory (before Linux 6.5, or of a file that this user may not write),
      nothing is dropped
  D3  a page that is being read, as the kernel's read-ahead leaves some where a scan stops, is waited for, and goes
  D4  a page that somebody has mapped, or that is not on the disk yet, stays anyway: advice takes clean pages only

What is in memory is asked once, when the scan begins: the kernel's own read-ahead runs before the scan later on. What
others have brought in meanwhile may go with the rest.
"""

from __future__ import annotations

import os

from klog.disk._io import LogFile
from klog.disk._residency import stat_range

_GRAIN = 64 << 10  # a range of this size is cold only if no page of it is in memory
_STEP = 8 << 20  # dropped together
_AHEAD = 16 << 20  # so far the kernel may have read ahead of a scan that stops
_PAGE = 4096
_WAITS = 3


def cold_ranges(file: LogFile, start: int, stop: int) -> list[tuple[int, int]]:
    """The parts of [start, stop) of which nothing is in memory, to 64 KiB; none where the kernel does not say."""
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
    """What one scan of [start, stop) of a file brings into the page cache. A context manager; one thread."""

    def __init__(self, file: LogFile, start: int, stop: int) -> None:
        self._file = file
        self._cold = cold_ranges(file, start, stop)
        self._done = start
        self._reached = start

    @property
    def cold_bytes(self) -> int:
        """Of what was not in memory when the scan began."""
        return sum(high - low for low, high in self._cold)

    def __enter__(self) -> DropBehind:
        return self

    def __exit__(self, *error: object) -> None:
        self.finish()

    def passed(self, position: int) -> None:
        """The scan needs nothing below this byte any more."""
        self._reached = max(self._reached, position)
        if self._reached - self._done >= _STEP:
            self._drop(self._done, self._reached)
            self._done = self._reached

    def moved(self, count: int) -> None:
        """The scan has gone so many bytes further."""
        self.passed(self._reached + count)

    def finish(self) -> None:
        """The scan is over, wherever it stopped. The file is still open."""
        if self._cold:
            end = self._reached + _AHEAD
            self._drop(0, end)  # once more: folios that lay across a step, pages just read
            for _ in range(_WAITS):
                if not self._wait_for_read_ahead(end):
                    break
                self._drop(self._reached, end)
            self._cold = []

    def _wait_for_read_ahead(self, end: int) -> bool:
        """Pages that are on their way from the disk stay, whatever advice says, and on a busy disk many are: so wait
        for the last of them. Was there any?"""
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
