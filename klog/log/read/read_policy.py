"""How readers get stored batches from the disk: the reading half of a log's IoPolicy.

R1  a chunk from the cache equals what a read of the file would give. Its key is its segment, its position and the log's
    generation, which a truncation increments before it cuts. It is kept only if all of it is below the log end, so
    that the cache never has bytes of an append that may be undone
R2  the key of decompressed records is the checksum, size and position of their batch: the reader has that batch and has
    verified its checksum
R3  bounds belong to the reader: cached data has no high watermark, and each reader applies its own
R4  a scan caches nothing and drops its pages from the page cache after use: it does not return to them
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from klog.disk import AlignedBuffer
from klog.disk.drop_behind import DropBehind
from klog.disk.read_ahead import ReadAhead
from klog.disk.read_cache import CacheCounts, ReadCache
from klog.log.state._log_core import LogCore
from klog.segment import Segment

_NO_COUNTS = CacheCounts(0, 0, 0, 0, 0, 0)


class Payloads:
    """Cached decompressed records of one segment's batches. klog.record looks here before it decompresses (R2)."""

    __slots__ = ("_cache", "_segment")

    def __init__(self, cache: ReadCache, segment: Segment) -> None:
        self._cache = cache
        self._segment = segment

    def find(self, position: int, size: int, crc: int) -> Any:
        """The records of the batch at this position of the file, None if they are not cached."""
        return self._cache.find(self._segment, (position, size, crc))

    def keep(self, position: int, size: int, crc: int, plain: Any) -> None:
        """Cache the records of a batch: a copy, since they may lie in pooled memory."""
        self._cache.keep(self._segment, (position, size, crc), bytes(plain), len(plain))


class Reading:
    """The state that the readers of one log share. Any thread."""

    _cache: ReadCache | None = None
    _limits = (0, 0)  # bytes and ms of the cache
    _of: tuple[int, object] = (0, ())  # the generation and segments of the cached values

    def drop_behind(self, log: LogCore, segment: Segment) -> DropBehind | None:
        """A DropBehind for a scan, made before it searches its position in a segment: the search brings pages in."""
        io = log.config.io
        if not io.scan_drop_behind or io.read == "direct":
            return None
        return DropBehind(segment.file, 0, segment.size)

    def cache(self, log: LogCore) -> ReadCache | None:
        """The read cache, without data of removed segments; None if the policy has no cache."""
        io = log.config.io
        limits = io.read_cache_bytes, io.read_cache_ms
        if limits != self._limits:
            self._cache = ReadCache(*limits, log.clock) if limits[0] else None
            self._limits = limits
        cache = self._cache
        if cache is not None and self._of != (of := (log.generation, log.segments)):
            if of[0] != self._of[0]:
                cache.clear()
            cache.retain(set(log.segments))
            self._of = of
        return cache

    def counts(self, log: LogCore) -> CacheCounts:
        """The counters of the cache."""
        cache = self.cache(log)
        return _NO_COUNTS if cache is None else cache.counts()


class SegmentReader:
    """One reader in one segment: reads chunks in order. A context manager; one thread. drop_behind: the result of
    Reading.drop_behind() for the segment."""

    def __init__(self, log: LogCore, segment: Segment, scan: bool, drop_behind: DropBehind | None) -> None:
        io = log.config.io
        self._log = log
        self._segment = segment
        self._generation = log.generation
        self._cache: ReadCache | None = None if scan else log.reading.cache(log)
        self._read: Callable[[int, int], AlignedBuffer] | None = None
        self._ahead: ReadAhead | None = None
        self._drop_behind = drop_behind
        if io.read == "direct":
            self._read = segment.open_direct().read
            return
        if io.read_ahead_bytes:
            self._ahead = ReadAhead(segment.file, segment.size, io.read_ahead_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._drop_behind is not None:
            self._drop_behind.finish()

    @property
    def payloads(self) -> Payloads | None:
        """The cache of decompressed records, None if the policy has no cache."""
        return None if self._cache is None else Payloads(self._cache, self._segment)

    def chunk(self, position: int, max_bytes: int) -> tuple[AlignedBuffer, int]:
        """Whole batches from a position on, and the offset after them: Segment.read_chunk through the cache."""
        if self._drop_behind is not None:
            self._drop_behind.passed(position)
        if self._ahead is not None:
            self._ahead.before(position, min(max_bytes, self._segment.size - position))
        if self._read is None or self._cache is None:  # without direct I/O the page cache keeps chunks better
            return self._segment.read_chunk(position, max_bytes, self._read)
        key = self._generation, position, max_bytes
        found: tuple[AlignedBuffer, int] | None = self._cache.find(self._segment, key)
        if found is None or 2 * len(found[0]) < min(max_bytes, self._segment.size - position):
            # Not cached, or a short chunk: it was the end of the segment, which has grown since.
            found = self._segment.read_chunk(position, max_bytes, self._read)
            if found[1] <= self._log.log_end_offset and self._log.generation == self._generation:
                kept = found[0].to_keep()
                self._cache.keep(self._segment, key, (kept, found[1]), kept.held_bytes)
        return found
