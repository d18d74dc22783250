"""Records of a segment by their timestamps. Any thread may call these.

Base offsets and time entries have no checksum. So what the index finds is compared with the batches, and where they
contradict each other the segment is read.
"""

from __future__ import annotations

import itertools

from klog.disk import AlignedBuffer
from klog.errors import CorruptBatch
from klog.record import decode, iter_records
from klog.segment._scan import Header, HeaderIterator, find_timestamp, scan_headers, start_of, youngest
from klog.segment.batches import Batches, batch_of_good_entry, newest_entry
from klog.segment.segment import Segment
from klog.values import NamedTuple

_READ_BYTES = 1 << 20


class FoundByTime(NamedTuple):
    """A record found by its timestamp. leader_epoch: of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


def may_reach(segment: Segment, timestamp: int) -> bool:
    """May a record have this timestamp or a later one? True also if the time index is not that of the batches, or
    damage hides some of them: neither says then what the segment has."""
    batches = segment.batches(segment.index)
    newest, last = newest_entry(batches)
    if newest[0] >= timestamp or (newest[0] >= 0 and last is None):
        return True
    scan = scan_headers(batches.file, 0 if last is None else last.position, batches.size, 0)
    return bool(scan.reason) or scan.max_timestamp >= timestamp


def stamped_records(segment: Segment, limit: int) -> int:
    """Return how many records have a timestamp, counted up to limit."""
    count = position = 0
    while count < limit:
        header = find_timestamp(segment.file, position, segment.size, 0, 0)
        if header is None:
            break
        data = segment.file.read(header.position, header.size)
        for record in iter_records(data, include_control=True, path=segment.path, lazy=True):
            count += record.timestamp >= 0
            if count == limit:
                break
        position = header.position + header.size
    return count


def youngest_in(segment: Segment, start: int, end: int) -> int:
    """Return the largest timestamp of the records of [start, end), where a batch ends at `end` if any reaches it; -1 if
    there is none."""
    batches = segment.batches(segment.index)
    header = segment.locate(start) if batches.size else None
    if header is None or header.base_offset >= end:
        if not _in_order(batches):
            raise CorruptBatch("damage hides its largest timestamp: run `klog verify`", path=segment.path, offset=start)
        return -1
    after = segment.locate(end) if batches.next_offset > end else None
    position, newest, stop = header.position, -1, batches.size if after is None else after.position
    floor, floor_offset = batches.indexes.time_floor_below(end)
    if floor >= 0 and floor_offset >= start:  # no record up to there has a larger timestamp
        known = batch_of_good_entry(batches, floor, floor_offset)
        if known is not None and known.magic >= 2 and known.count and start <= known.base_offset:
            return max(floor, youngest(batches.file, known.position, stop, False)[0])
    if header.magic < 2 or header.base_offset < start:  # an old wrapper's header does not contain its base offset
        data = batches.file.read(position, header.size)
        records = iter_records(
            data, start=start, include_control=True, path=segment.path, file_position=position, lazy=True
        )
        newest = max((record.timestamp for record in records), default=-1)
        position += header.size
    return max(newest, youngest(batches.file, position, stop, False)[0])


def find_by_time(segment: Segment, timestamp: int, start: int) -> FoundByTime | None:
    """Return the first record at or above both; None if this segment has none.

    A result that other batches contradict is looked up again, as readers read. Raises CorruptBatch if the offset is
    not certain.
    """
    batches = segment.batches(segment.index)
    position, header, found = _by_headers(batches, segment.path, timestamp, start)
    if header is None or found is None:
        certain = _in_order(batches)
    else:
        certain = _in_order(batches, position, header.position) and _confirmed(batches, header, found.offset)
    if certain:
        return found
    return _by_reading(segment, timestamp, start)


def _confirmed(batches: Batches, header: Header, offset: int) -> bool:
    """Is this batch the one at `offset`, and does it end where the next one begins, or before?"""
    try:
        located = batches.locate(offset)
    except CorruptBatch:
        return False
    if located is None or located.position != header.position:
        return False
    after = next(itertools.islice(HeaderIterator(batches.file, header.position, batches.size), 1, 2), None)
    return header.next_offset <= (batches.next_offset if after is None or after.magic < 2 else after.base_offset)


def _in_order(batches: Batches, position: int = 0, end: int | None = None) -> bool:
    """Is every byte one of a batch, and do their offsets rise?"""
    end = batches.size if end is None else end
    scan = scan_headers(batches.file, position, end, 0 if position else batches.base_offset)
    return not scan.invalid and not scan.reason and scan.next_offset <= batches.next_offset


def _by_reading(segment: Segment, timestamp: int, start: int) -> FoundByTime | None:
    """The result of find_by_time(), by the offsets that readers return."""
    position, due = 0, segment.base_offset
    while position < segment.size:
        try:
            chunk, after = segment.read_chunk(position, _READ_BYTES)
        except CorruptBatch as error:
            # Any bytes may have been taken for a base offset.
            raise CorruptBatch(
                error.reason, path=segment.path, position=error.position, offset=due, kind=error.kind
            ) from None
        _check_rises(segment.path, chunk, position, due)
        due = after
        for batch in decode(chunk, path=segment.path, file_position=position, verify_crc=False):
            if batch.max_timestamp >= timestamp:
                for record in batch:
                    if record.timestamp >= timestamp and record.offset >= start:
                        return FoundByTime(record.timestamp, record.offset, record.leader_epoch)
        position += len(chunk)
    return None


def _check_rises(path: str, chunk: AlignedBuffer, position: int, due: int) -> None:
    if int.from_bytes(memoryview(chunk)[:8]) < due:
        raise CorruptBatch(
            f"a batch begins below offset {due}: run `klog verify` on the directory",
            path=path,
            position=position,
            offset=due,
            kind="offset_order",
        )


def _by_headers(
    batches: Batches, path: str, timestamp: int, start: int
) -> tuple[int, Header | None, FoundByTime | None]:
    """The result of find_by_time(), its batch, and where the search began."""
    file, index, size = batches.file, batches.indexes, batches.size
    # Not the entry of timestamp itself: a wrong bit in its offset may lead to a later batch of the same time.
    floor, floor_offset = index.time_floor(max(timestamp, 0) - 1)
    known = batch_of_good_entry(batches, floor, floor_offset) if floor >= 0 else None
    if known is not None and floor_offset >= start:
        position = known.position
    else:
        position = start_of(file, index, size, start)
    began = position
    while True:
        header = find_timestamp(file, position, size, timestamp, start)
        if header is None:
            return began, None, None
        data = file.read(header.position, header.size)
        for record in iter_records(
            data, start=start, include_control=True, path=path, file_position=header.position, lazy=True
        ):
            if record.timestamp >= timestamp:
                return began, header, FoundByTime(record.timestamp, record.offset, header.leader_epoch)
        position = header.position + header.size
