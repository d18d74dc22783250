"""Batches: the batches of a segment as one reader sees them, with the indexes that lead to them. What an index entry
leads to is compared with the batches, since neither entries nor base offsets have a checksum.

  sound_after     the next valid batch after a damaged one
  batch_of_entry  the batch of an entry of the time index, if the entry is right
  youngest_of     the largest timestamp, from the last time entry and the batches after it
"""

from __future__ import annotations

import itertools

from klog.disk import LogFile
from klog.errors import CorruptBatch
from klog.segment._index import IndexPair
from klog.segment._scan import (
    Header,
    HeaderIterator,
    find_offset,
    locate,
    scan_checked,
    scan_headers,
    search_batch,
    start_of,
    youngest,
)
from klog.values import NamedTuple

_TIMESTAMP_MAX = 2**63 - 1


class Batches(NamedTuple):
    """Those in the first `size` bytes of a file, with offsets of [base_offset, next_offset)."""

    file: LogFile
    indexes: IndexPair
    size: int
    base_offset: int
    next_offset: int

    def locate(self, offset: int) -> Header | None:
        """Return the header of the first batch whose last offset is at or above offset. Raises CorruptBatch."""
        return locate(self.file, self.indexes, self.size, offset, self.base_offset, self.next_offset)


# ---- past damage -----------------------------------------------------------------------------------------------------


def damage_before(batches: Batches, offset: int, stop: int) -> int | None:
    """Return the position of the first batch with a wrong checksum, searching from the index entry below offset to
    `stop`, which need not be the beginning of a batch; None if there is none."""
    start = start_of(batches.file, batches.indexes, batches.size, offset)
    scan = scan_checked(batches.file, start, stop, 0) if start < stop else None
    return None if scan is None or scan.reason in ("", "offset_order") else scan.end


def reaches_too_far(file: LogFile, header: Header, end: int) -> bool:
    """Is the last offset delta of a batch wrong? It is the count minus one, except after cleaning."""
    if header.magic < 2 or header.last_offset_delta + 1 == header.count:
        return False
    after = list(itertools.islice(HeaderIterator(file, header.position, end), 1, 2))
    return bool(after) and after[0].base_offset <= header.last_offset


def sound_after(file: LogFile, position: int, end: int, base_offset: int, offset: int) -> Header | None:
    """Return the first batch with a valid checksum after the damaged one at this byte, whose last offset is at or above
    offset; None if there is none. Further damaged batches on the way are skipped too."""
    while True:
        found = _next_sound(file, position, end, base_offset)
        if found is None or found.last_offset >= offset:
            return found
        headers = HeaderIterator(file, found.position, end)
        for header in headers:
            if header.last_offset >= offset:
                return header
        if not headers.reason:
            return None
        position = headers.position


def _next_sound(file: LogFile, position: int, end: int, base_offset: int) -> Header | None:
    """Return the next valid batch after a damaged one. If the damaged one's length leads to a valid batch, a batch
    inside it counts only if its offsets continue there: values may contain batches."""
    found = search_batch(file, position, end, base_offset, base_offset)
    headers = HeaderIterator(file, position, end)
    damaged = next(headers, None)
    if found is None or damaged is None or found.position >= headers.position:
        return found
    if found.base_offset >= damaged.next_offset:
        return found
    return search_batch(file, headers.position - 1, end, base_offset, base_offset) or found


# ---- entries of the time index ---------------------------------------------------------------------------------------


def batch_of_entry(batches: Batches, timestamp: int, offset: int) -> Header | None:
    """Return the batch of a time entry: it holds offset and reaches timestamp. None if the entry is wrong."""
    try:
        header = batches.locate(offset)
    except CorruptBatch:
        return None
    if header is None or header.max_timestamp != timestamp:
        return None
    # An old wrapper's header does not contain its base offset; known is only that it is the first to reach offset.
    return header if header.magic < 2 or header.base_offset <= offset else None


def batch_of_good_entry(batches: Batches, timestamp: int, offset: int) -> Header | None:
    """The same for what a search may leave out: also None if the first entry is wrong."""
    header = batch_of_entry(batches, timestamp, offset)
    return header if header is not None and _times_begin_in_time(batches) else None


def _times_begin_in_time(batches: Batches) -> bool:
    """Has no record before the first time entry a greater timestamp? Kafka makes a missing time index anew, empty, and
    its entries then count only what is appended from there on. Else the first one is near the start."""
    try:
        timestamp, offset = batches.indexes.time_entry(0)
    except IndexError:  # unmapped meanwhile (S5 of segment.py)
        return False
    after = find_offset(batches.file, 0, batches.size, offset + 1)
    return youngest(batches.file, 0, batches.size if after is None else after.position)[0] <= timestamp


def newest_entry(batches: Batches) -> tuple[tuple[int, int], Header | None]:
    """Return (timestamp, offset) of the last time entry, and its batch, None without an entry or if it is wrong."""
    newest = batches.indexes.time_floor(_TIMESTAMP_MAX)  # in one step: the index may be unmapped
    return newest, batch_of_good_entry(batches, *newest) if newest[0] >= 0 else None


def youngest_of(batches: Batches) -> tuple[int, int]:
    """Return (largest timestamp, last offset of the first batch with it), from the last time entry and the batches
    after it, which matter if the closing entry was lost."""
    newest, last = newest_entry(batches)
    timestamp, offset = youngest(batches.file, 0 if last is None else last.position, batches.size)
    if last is None and timestamp < newest[0] and scan_headers(batches.file, 0, batches.size, 0).reason:
        return newest  # damage hides the batches after it, but not the index
    return timestamp, offset if timestamp >= 0 else batches.base_offset
