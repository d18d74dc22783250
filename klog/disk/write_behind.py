"""Write-behind and drop-behind: a log that is written for long neither fills the page cache nor meets the dirty limit.

    |---- dropped ----|------ window ------|-- step --|
    0              dropped               begun       end of what is written

Bytes [dropped, begun) are on their way to the disk or there, and in the page cache; what lies before them is on disk
and out of the cache; what lies behind is dirty, and less than a step.

  B1  nothing is dropped that has not been waited for
  B2  a failed wait is that of an fsync, and takes the error away from every later fsync: WriteBackFailed is final for
      the directory
  B3  durable is only what an fsync says is: the wait knows nothing of the file's length, and no flush of the disk

One writer, under its lock. Kafka has nothing like it.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from klog.disk._io import LogFile
from klog.disk.faults import FailedSync

_PAGE = 4096
_FOLIO_MAX = 2 << 20  # the kernel drops no folio in part: the last drop may have left one that this one ends
_STEP_MAX = 8 << 20
_NEVER = 2**62


class WriteBackFailed(FailedSync):
    """What was written has not reached the disk. Nobody hears of it a second time."""


@dataclass(slots=True)
class BehindCounts:
    """Bytes, over all files of a log: begun to be written back; dropped."""

    written: int = 0
    dropped: int = 0


class WriteBehind:
    """The window of one file that grows, from byte `start` on."""

    __slots__ = ("_begun", "_counts", "_dropped", "_file", "_step", "_window", "due")

    def __init__(self, file: LogFile, window: int, start: int, counts: BehindCounts) -> None:
        self._file = file
        self._window = window
        self._step = min(max(window // 8 & -_PAGE, _PAGE), _STEP_MAX)
        self._counts = counts
        self._begun = self._dropped = start & -_PAGE
        self.due = self._begun + self._step
        """advance() has something to do once the file is so long."""

    def advance(self, end: int) -> None:
        """The file is `end` bytes long: begin to write what is new, drop what the window has left.

        Waits for the disk if that is further behind than the window. WriteBackFailed is final.
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
                self.due = _NEVER  # not on this file system
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
        """The file was shortened to this length."""
        if size < self._begun:
            self._begun = size & -_PAGE
            self._dropped = min(self._dropped, self._begun)
            self.due = self._begun + self._step
