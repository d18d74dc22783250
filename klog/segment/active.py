"""What a segment needs to take appends: its file opened as the policy says, blocks ahead of the end, write-back behind.

  |------- write-behind --------|---------- [size, end) ----------|
  0                        size: end of the last batch       allocated

A1  up to byte `stop` an append needs nothing but a write: one comparison for most of them
A2  of what make_room() does nothing can be read, but that a file with zeros ahead is longer than its batches
"""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass

from klog.config import IoPolicy, LogConfig
from klog.disk import BehindCounts, DirectFile, Files, LogFile, WriteBehind
from klog.segment._index import IndexPair

_PREALLOCATE_MIN = 64 << 10
_POSITION_MAX = 2**31 - 1


@dataclass(slots=True)
class WriteCounts(BehindCounts):
    """How a log's bytes took another way to the disk than the page cache. direct: bytes that went past it. fallbacks:
    files that were to be written past it, and could not."""

    direct: int = 0
    fallbacks: int = 0

    def include(self, file: LogFile) -> None:
        """Add what a file has counted."""
        self.fallbacks += file.fallback
        if isinstance(file, DirectFile):
            self.direct += file.direct_bytes_written


def open_to_write(files: Files, path: str, policy: IoPolicy) -> LogFile:
    """A segment's .log file, created if it is not there."""
    if policy.write == "direct":
        return files.open_direct(path, write=True, create=True)
    file = files.open(path, write=True, create=True)
    if policy.write == "dontcache":
        file.dont_cache()
    return file


class Active:
    """File and indexes of a segment that takes appends, and its bounds, worked out again when the log gets another
    config.

    allocated: below this byte it has blocks. stop: an append that ends beyond this byte needs make_room().
    """

    __slots__ = ("_behind", "_counts", "age_max_ms", "allocated", "config", "file", "index", "size_max", "stop")

    def __init__(self, file: LogFile, index: IndexPair, allocated: int, config: LogConfig, counts: WriteCounts) -> None:
        self.file = file
        self.index = index
        self.allocated = allocated
        self._counts = counts
        self.set_bounds(config)

    def set_bounds(self, config: LogConfig) -> None:
        """Where it must roll: jitter keeps the segments of many logs from rolling together."""
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        age_max_ms = min(config.segment_ms, config.max_compaction_lag_ms) if config.compacts else config.segment_ms
        self.age_max_ms = age_max_ms - (random.randrange(jitter_ms) if jitter_ms else 0)
        self.size_max = config.segment_size
        self.config = config
        self.stop = 0
        self._behind: WriteBehind | None = None

    def cut(self, size: int) -> None:
        """The file has this length now."""
        self.allocated = size
        self.stop = 0
        if self._behind is not None:
            self._behind.cut(size)

    def make_room(self, size: int, end: int) -> None:
        """Before an append that takes the file from `size` to `end`: write-back of what is there, blocks ahead of it.

        On a full disk there are no blocks ahead, and the write itself decides. WriteBackFailed is final.
        """
        policy = self.config.io
        self.stop = _POSITION_MAX
        if policy.write_behind_bytes:
            if self._behind is None:
                self._behind = WriteBehind(self.file, policy.write_behind_bytes, size, self._counts)
            self.stop = 0  # until it has gone well
            self._behind.advance(size)
            self.stop = self._behind.due
        if policy.preallocate == "none":
            return
        if end > self.allocated:
            self._preallocate(size, end, policy)
        self.stop = min(self.stop, self.allocated)

    def _preallocate(self, size: int, end: int, policy: IoPolicy) -> None:
        """Steps that double from 64 KiB on: small logs stay small, large ones lie in one piece."""
        self.allocated = max(self.allocated, size)  # it was written without steps: none of that may become zeros
        step = min(max(self.allocated, _PREALLOCATE_MIN), policy.preallocate_step_bytes)
        target = max(end, min(self.allocated + step, max(self.size_max, end)))
        try:
            self.file.preallocate(self.allocated, target - self.allocated, policy.preallocate == "zeros")
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            target = end
        self.allocated = target
