"""Rewrites closed segments into one new segment: the common part of a round and a purge.

Source           a segment to read, as it was when it was examined
index_for        memory for the new segment's index entries
write_segment    writes the .cleaned files and syncs them
swap_in          puts them in place of their sources, if nothing has changed meanwhile
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from klog.cleaner.footprint import Written
from klog.cleaner.swap import check_uncut, replace_locked
from klog.disk import naming_the_next_step
from klog.log.core import LogCore
from klog.record import decode
from klog.segment import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    AbortedTransaction,
    IndexPair,
    Segment,
    SegmentDir,
    index_bytes_needed,
)
from klog.values import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """A segment to be rewritten, and its current state."""

    segment: Segment
    size: int
    limit: int  # where the next segment begins
    index_bytes: int
    time_index_bytes: int
    modified_ms: int

    @property
    def base_offset(self) -> int:
        return self.segment.base_offset

    @classmethod
    def of(cls, segment: Segment, limit: int) -> Source:
        index = segment.index
        size, modified = segment.size, segment.modified_ms
        return cls(segment, size, limit, index.entries * OFFSET_ENTRY, index.time_entries * TIME_ENTRY, modified)


class NullOutput:
    """The output of a dry run: discards what is written. records_below: how many data records were below an offset, the
    log start."""

    def __init__(self, offset: int = 0) -> None:
        self._offset, self._passed = offset, False
        self.records_below = 0

    def write(self, data: memoryview, position: int) -> None:
        if self._passed:
            return
        for batch in decode(data, file_position=position, lazy=True):
            if batch.base_offset >= self._offset:
                self._passed = True
                return
            if not batch.is_control:
                self.records_below += sum(1 for record in batch if record.offset < self._offset)


def index_for(log: LogCore, sources: Sequence[Source]) -> IndexPair:
    """Return an empty index, in memory, for a segment made of these sources.

    The result may need one entry more than two adjacent sources had: neither had one for its first batch. The
    capacity never exceeds segment.index.bytes: Kafka's cleaner fails at a larger index, now and in every later round.
    Entries that do not fit are left out, except the last timestamp, which has reserved space.
    """
    interval = log.config.index_interval_bytes
    existing = (max(source.index_bytes, source.time_index_bytes) for source in sources)  # of an older configuration
    bound = max(log.config.segment_index_bytes, *existing)
    capacity = min(index_bytes_needed(sum(source.size for source in sources), interval), bound)
    return IndexPair("", "", sources[0].base_offset, writable=True, capacity=capacity, interval=interval)


def write_segment(
    cleaned: Segment,
    index: IndexPair,
    fill: Callable[[object], Iterable[AbortedTransaction]],
    modified_ms: int,
    *,
    drop: bool = False,
) -> None:
    """Write the .cleaned files, synced, with the modification time of their last source. fill writes the .log, adds its
    index entries, and returns the entries of the transaction index. drop: the .log leaves the page cache."""
    segment_dir: SegmentDir = cleaned.segment_dir
    cleaned.delete_files()  # left by an interrupted cleaning
    _, offsets_path, times_path, _ = cleaned.paths
    with segment_dir.files.open(cleaned.path, write=True, create=True) as out:
        written = Written(out, drop=drop)
        aborted = fill(written)
        segment_dir.files.fsync(out)
        written.synced()
    index.close_entries()
    index.store(offsets_path, times_path, segment_dir.files.table)
    for path in (offsets_path, times_path):
        with segment_dir.files.open(path, write=True) as file:
            segment_dir.files.fsync(file)
    for entry in aborted:
        cleaned.txn_index.append(entry)
    cleaned.txn_index.sync()
    modified = modified_ms * 1_000_000
    with naming_the_next_step(cleaned.path):
        os.utime(cleaned.path, ns=(modified, modified))


def swap_in(log: LogCore, cleaned: Segment, sources: Sequence[Source], rewritten: int, what: str) -> None:
    """Put a written segment in place of its sources, durably. rewritten: log.rewritten when they were examined. what:
    names the caller in a ReentrantCall. Raises Overtaken if the log has changed; then nothing has been done."""
    log.cleaning.check()
    with log.lock:
        log.check_idle(what)
        check_uncut(log, rewritten)
        replace_locked(log, cleaned, [source.segment for source in sources], [source.size for source in sources])
