"""The state that a segment needs for appends: its open file, by the I/O policy; blocks ahead of its end; write-behind.

  |------- write-behind --------|---------- [size, end) ----------|
  0                        size: end of the last batch       allocated

A1  up to byte `stop` an append needs only a write: most appends need one comparison
A2  extend() changes nothing that can be read, except that a file with zeros ahead is longer than its batches
"""

from __future__ import annotations

import errno

from klog.config import IoPolicy, LogConfig
from klog.disk import BehindCounts, DirectFile, Files, LogFile, WriteBehind
from klog.segment._index import IndexPair
from klog.segment._state import ActiveState
from klog.values import dataclass

_PREALLOCATE_MIN = 64 << 10
POSITION_MAX = 2**31 - 1


@dataclass(slots=True)
class WriteCounts(BehindCounts):
    """Counts of a log's bytes that did not go through the page cache. direct: bytes written directly. fallbacks: files
    for which the policy required direct writes, but that could not use them."""

    direct: int = 0
    fallbacks: int = 0

    def include(self, file: LogFile) -> None:
        """Add a file's counts."""
        self.fallbacks += file.fallback
        if isinstance(file, DirectFile):
            self.direct += file.direct_bytes_written


def open_to_write(files: Files, path: str, policy: IoPolicy, *, create: bool) -> LogFile:
    """Open a segment's .log file for writing. create: if it does not exist."""
    if policy.write == "direct":
        return files.open_direct(path, write=True, create=create)
    file = files.open(path, write=True, create=create)
    if policy.write == "dontcache":
        file.dont_cache()
    return file


class Active(ActiveState):
    """File and indexes of a segment that takes appends, and its bounds, recomputed when the log's config changes.

    allocated: below this byte it has blocks. stop: an append that ends beyond this byte needs extend().
    """

    __slots__ = ("_behind", "_counts", "age_max_ms", "allocated", "config", "size_max")

    def __init__(self, file: LogFile, index: IndexPair, allocated: int, config: LogConfig, counts: WriteCounts) -> None:
        self.file = file
        self.index = index
        self.allocated = allocated
        self._counts = counts
        self.set_bounds(config)

    def set_bounds(self, config: LogConfig) -> None:
        """Compute where it must roll: jitter keeps the segments of many logs from rolling at the same time."""
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        age_max_ms = min(config.segment_ms, config.max_compaction_lag_ms) if config.compacts else config.segment_ms
        if jitter_ms:
            import random  # loads the checksums of hashlib; few configurations need it

            age_max_ms -= random.randrange(jitter_ms)
        self.age_max_ms = age_max_ms
        self.size_max = config.segment_size
        self.config = config
        self.stop = 0
        self._behind: WriteBehind | None = None

    def cut(self, size: int) -> None:
        """Set the file's new length after a truncation."""
        self.allocated = size
        self.stop = 0
        if self._behind is not None:
            self._behind.cut(size)

    def extend(self, size: int, end: int) -> None:
        """Prepare an append that extends the file from `size` to `end`: write-back of old bytes, blocks for new ones.

        On a full disk no blocks are allocated ahead, and the write itself fails or not. WriteBackFailed is final.
        """
        policy = self.config.io
        self.stop = POSITION_MAX
        if policy.write_behind_bytes:
            if self._behind is None:
                self._behind = WriteBehind(self.file, policy.write_behind_bytes, size, self._counts)
            self.stop = 0  # until it has succeeded
            self._behind.advance(size)
            self.stop = self._behind.due
        if policy.preallocate == "none":
            return
        if end > self.allocated:
            self._preallocate(size, end, policy)
        self.stop = min(self.stop, self.allocated)

    def _preallocate(self, size: int, end: int, policy: IoPolicy) -> None:
        """Allocate in steps that double from 64 KiB on: small logs stay small, large ones are contiguous."""
        self.allocated = max(self.allocated, size)  # bytes written without steps must not become zeros
        step = min(max(self.allocated, _PREALLOCATE_MIN), policy.preallocate_step_bytes)
        target = max(end, min(self.allocated + step, max(self.size_max, end)))
        try:
            self.file.preallocate(self.allocated, target - self.allocated, policy.preallocate == "zeros")
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            target = end
        self.allocated = target
