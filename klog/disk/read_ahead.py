"""Reads ahead for a sequential reader of a file: page-aligned, in windows that grow.

    read      [----)[----)[----)[----)
    asked for             [-------)[---------------)        64 KiB, then twice as much each time, up to the bound

  A1  a request needs two reads in sequence: the second begins where the first one ended, or inside it. Any other read
      starts a new sequence
  A2  no byte is requested twice in a sequence of reads, and none from `end` on
  A3  a request never waits for the disk: it is advice (POSIX_FADV_WILLNEED), given without the GIL

The kernel reads ahead on its own, by the device's setting (/sys/block/*/queue/read_ahead_kb), and with larger folios
than advice gets. This class is for devices where that window is small compared with the reads.
"""

from __future__ import annotations

import os

from klog.disk._io import LogFile

WINDOW_MIN = 64 << 10
_PAGE = 4096


class ReadAhead:
    """Read-ahead of one reader of a file. end: it reads no byte from there on. bound: the largest window in bytes. One
    thread."""

    def __init__(self, file: LogFile, end: int, bound: int) -> None:
        self._file = file
        self._end = end
        self._bound = max(bound, WINDOW_MIN)
        self._last = (0, -1)  # the previous read: its first byte, and its end
        self._asked = 0  # the end of what has been requested
        self._window = WINDOW_MIN

    def before(self, position: int, size: int) -> None:
        """Call it before each read, of `size` bytes at `position`. Requests the next window if the reads are in
        sequence."""
        (start, stop), self._last = self._last, (position, position + size)
        if not start < position <= stop:  # a batch that was cut off is read again, so reads may overlap
            self._asked, self._window = position + size, WINDOW_MIN
            return
        if position + size + self._window // 2 <= self._asked:
            return  # half of what was requested is still ahead
        start = -(-max(self._asked, position + size) // _PAGE) * _PAGE
        stop = min(-(-(start + self._window) // _PAGE) * _PAGE, self._end)
        if stop > start:
            self._file.advise(start, stop - start, os.POSIX_FADV_WILLNEED)
            self._asked = stop
            self._window = min(2 * self._window, self._bound)
