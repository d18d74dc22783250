"""Write-behind and drop-behind: long writes to a log neither fill the page cache nor reach the kernel's dirty limit.

    |---- dropped ----|------ window ------|-- step --|
    0              dropped               begun       end of what is written

Bytes [dropped, begun) are in the page cache, and on disk or being written to it. Bytes before them are on disk and no
longer in the cache. Bytes after them are dirty, and fewer than a step.

  B1  only what has been waited for is dropped
  B2  a failed wait is a failed fsync, and later fsyncs no longer report the error: WriteBackFailed is final for the
      directory
  B3  only an fsync makes bytes durable: the wait covers neither the file's length nor the disk's cache

One writer, under its lock. Kafka has no counterpart.
"""

from __future__ import annotations

import errno
import os

from klog.disk._io import LogFile
from klog.disk.faults import FailedSync
from klog.values import dataclass

_PAGE = 4096
_FOLIO_MAX = 2 << 20  # the kernel drops only whole folios: one across the end of a drop goes with the next drop
_STEP_MAX = 8 << 20
_NEVER = 2**62


class WriteBackFailed(FailedSync):
    """Written bytes have not reached the disk. The kernel reports it only once."""


@dataclass(slots=True)
class BehindCounts:
    """Bytes, over all files of a log. written: their write-back was started. dropped: from the page cache."""

    written: int = 0
    dropped: int = 0


class WriteBehind:
    """The window of one growing file, from byte `start` on."""

    __slots__ = ("_begun", "_counts", "_dropped", "_file", "_step", "_window", "due")

    def __init__(self, file: LogFile, window: int, start: int, counts: BehindCounts) -> None:
        self._file = file
        self._window = window
        self._step = min(max(window // 8 & -_PAGE, _PAGE), _STEP_MAX)
        self._counts = counts
        self._begun = self._dropped = start & -_PAGE
        self.due = self._begun + self._step
        """The file length from which advance() has something to do."""

    def advance(self, end: int) -> None:
        """Start writing the bytes up to `end`, the file's length, and drop those before the window.

        Waits for the disk if it lags by more than the window. Raises WriteBackFailed, which is final.
        """
        if end < self.due:
            return
        end &= -_PAGE
        drop = (end - self._window) & -_PAGE
        try:
            self._file.write_behind(self._begun, end - self._begun)
            if drop > self._dropped:
                self._file.write_behind(self._dropped, drop - self._dropped, wait=True)
        except OSError as error:
            if error.errno in (errno.ENOSYS, errno.ESPIPE, errno.EOPNOTSUPP):
                self.due = _NEVER  # not supported by this file system
                return
            raise WriteBackFailed(error.errno, f"write-behind: {error.strerror}", error.filename) from error
        self._counts.written += end - self._begun
        if drop > self._dropped:
            start = max(0, self._dropped - _FOLIO_MAX)
            self._file.advise(start, drop - start, os.POSIX_FADV_DONTNEED)
            self._counts.dropped += drop - self._dropped
            self._dropped = drop
        self._begun = end
        self.due = end + self._step

    def cut(self, size: int) -> None:
        """Follow a truncation of the file to this length."""
        if size < self._begun:
            self._begun = size & -_PAGE
            self._dropped = min(self._dropped, self._begun)
            self.due = self._begun + self._step
