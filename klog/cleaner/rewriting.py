"""One segment anew, from closed ones: what a round and a purge have in common.

Source           what is read, as it was when it was looked at
index_for        room for the new one's index entries
write_segment    the .cleaned files, synced
swap_in          in the place of their sources, where nothing has changed meanwhile
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klog.cleaner.footprint import Written
from klog.cleaner.swap import check_uncut, replace_locked
from klog.segment import AbortedTransaction, Home, IndexPair, Segment

if TYPE_CHECKING:
    from klog.log import Log

_OFFSET_ENTRY, _TIME_ENTRY = 8, 12


@dataclass(frozen=True, slots=True)
class Source:
    """A segment that is to be rewritten, with what it is now."""

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
        return cls(segment, size, limit, index.entries * _OFFSET_ENTRY, index.time_entries * _TIME_ENTRY, modified)


class Nowhere:
    """Takes what a dry run would write."""

    def write(self, data: object, position: int) -> None:
        pass


def index_for(log: Log, sources: Sequence[Source]) -> IndexPair:
    """Room for the entries of a segment of these sources, in memory.

    Where sources meet, one entry more may be due than they had: each had none for its first batch. There is no more
    room than segment.index.bytes for all that: Kafka's cleaner fails at a larger index, now and in every later round.
    What has no room is left out, except the last timestamp, which has its own.
    """
    interval = log.config.index_interval_bytes
    largest = sum(source.size for source in sources)
    there = (max(source.index_bytes, source.time_index_bytes) for source in sources)  # under another configuration
    bound = max(log.config.segment_index_bytes, *there)
    room = (largest // max(interval, 61) + 2) * _TIME_ENTRY
    base = sources[0].base_offset
    return IndexPair("", "", base, writable=True, capacity=min(room, bound), interval=interval)


def write_segment(
    cleaned: Segment,
    index: IndexPair,
    fill: Callable[[object], Iterable[AbortedTransaction]],
    modified_ms: int,
    *,
    drop: bool = False,
) -> None:
    """The .cleaned files, synced, as old as the last of their sources. fill writes the .log and notes it in index; the
    entries of the transaction index. drop: nothing of the .log stays in memory."""
    home: Home = cleaned.home
    cleaned.delete_files()  # of a cleaning that was stopped
    _, offsets_path, times_path, _ = cleaned.paths
    out = home.files.open(cleaned.path, write=True, create=True)
    try:
        written = Written(out, drop=drop)
        aborted = fill(written)
        home.files.fsync(out)
        written.synced()
    finally:
        out.close()
    index.close_entries()
    index.store(offsets_path, times_path, home.files.table)
    for path in (offsets_path, times_path):
        file = home.files.open(path, write=True)
        try:
            home.files.fsync(file)
        finally:
            file.close()
    for entry in aborted:
        cleaned.txn_index.append(entry)
    cleaned.txn_index.sync()
    modified = modified_ms * 1_000_000
    os.utime(cleaned.path, ns=(modified, modified))


def swap_in(log: Log, cleaned: Segment, sources: Sequence[Source], rewritten: int, what: str) -> None:
    """The end of a rewriting: a written segment takes the place of its sources, durably. rewritten: log._rewritten when
    they were looked at; what: who calls, for a thread that comes over itself. Overtaken: nothing has been done."""
    log._cleaning.check()
    with log._lock:
        log._check_idle(what)
        check_uncut(log, rewritten)
        replace_locked(log, cleaned, [source.segment for source in sources], [source.size for source in sources])
