"""Batches that a closed segment has lost from its end, or all of them, as far as its indexes still have their entries.

  E1  an offset entry shows it if both its offset and its position lie beyond the end of the .log
  E2  a time entry shows it if its offset lies beyond the end, and no batch has a timestamp as large as its own
  E3  both lie below the next segment's base offset. So one wrong bit in an index never looks like a lost batch, and
      neither do the offsets whose records a compaction has removed

Nothing shows the loss of batches after the last entry of both indexes.
"""

from __future__ import annotations

from klog.disk import LogFile
from klog.segment._index import IndexPair
from klog.segment._scan import scan_headers, start_of, youngest
from klog.values import NamedTuple

_TIMESTAMP_MAX = 2**63 - 1


class LostEnd(NamedTuple):
    """The offset after the last batch that is left, and the entry of one that was there."""

    end: int
    entry: str


def lost_end(file: LogFile, index: IndexPair, size: int, next_offset: int) -> LostEnd | None:
    """What a closed segment has lost: `size` bytes are left, and the next one begins at next_offset. None if no entry
    shows a loss, or if damage hides the end of the batches, which readers report."""
    beyond, (timestamp, offset) = index.beyond, index.time_floor(_TIMESTAMP_MAX)
    if beyond is not None and beyond[1] < size:
        beyond = None  # in the copy of an index of a segment that has grown since
    if beyond is None and timestamp < 0:
        return None
    end = index.base_offset
    if size:
        scan = scan_headers(file, start_of(file, index, size, next_offset), size, 0)
        if scan.reason:
            return None
        end = max(scan.next_offset, end)
    if beyond is not None and end <= beyond[0] < next_offset:
        return LostEnd(end, f".index has an entry of offset {beyond[0]} at byte {beyond[1]}")
    if end <= offset < next_offset and youngest(file, 0, size)[0] < timestamp:
        return LostEnd(end, f".timeindex has an entry of offset {offset}")
    return None
