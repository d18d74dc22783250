"""One fetch: raw batches of one segment, as a slice of its file to read into memory or send to a socket.

  F1  the log's offsets are read before the bytes are located: the data never goes beyond the returned high watermark
  F2  a slice has nothing at or beyond the isolation's bound, and nothing of an unfinished append
  F3  a slice holds whole batches. The first may begin below the requested offset: consumers skip those records
  F4  from the bound up to the log end a fetch is empty and not an error: the consumer fetches again

Without a lock, any thread. Kafka: UnifiedLog.read, LocalLog.read, FetchDataInfo. In Kafka a slice may end inside a
batch, and may be a part of the first batch (firstEntryIncomplete). Servers replace that by an empty slice, and so does
klog.
"""

from __future__ import annotations

from collections.abc import Sequence

from klog.arguments import LONG_MAX, flag
from klog.errors import OffsetOutOfRange
from klog.log.read._fetch import FetchData
from klog.log.read.aborted_transactions import aborted_in_slice
from klog.log.read.isolation import Isolation, last_stable_offset, unknown_isolation
from klog.log.read.positions import whole_number
from klog.log.read.steady import noting
from klog.log.state._log_core import LogCore
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.segments import number_of
from klog.segment import Segment, span


def fetch_counted(log: LogCore, offset: int, max_bytes: int, isolation: Isolation, min_one: bool) -> FetchData:
    """fetch() with arguments of any types, repeated if the writer changes the log meanwhile, and counted in the
    metrics."""
    log.check_open()
    if type(offset) is not int or type(max_bytes) is not int or type(min_one) is not bool:
        offset, max_bytes = whole_number("offset", offset), whole_number("max_bytes", max_bytes)
        min_one = flag("min_one_message", min_one)
    counters, clock = log.counters, log.clock
    began = counters.fetch_begins(clock)
    try:
        found: FetchData = noting(log, offset, lambda: fetch(log, offset, max_bytes, isolation, min_one))
    except Exception:
        counters.count_failed_fetch()
        raise
    counters.fetch_ends(began, found.size, clock)
    return found


def fetch(log: LogCore, offset: int, max_bytes: int, isolation: Isolation, min_one: bool) -> FetchData:
    """Fetch batches from an offset on, at most max_bytes; with min_one at least one whole batch."""
    if not 0 <= max_bytes <= LONG_MAX:
        raise ValueError(f"max_bytes={max_bytes}: must be from 0 to 2^63-1")
    if not isinstance(isolation, str):
        raise unknown_isolation(isolation)
    # F1. The log end is read first: later appends are beyond it.
    start, end = log.log_start_offset, log.log_end_offset
    high_watermark = min(log.high_watermark, end)
    stable = (
        min(last_stable_offset(log), high_watermark) if isolation == "read_committed" or not log.read_only else None
    )
    bounds = {"log_end": end, "high_watermark": high_watermark, "read_committed": stable}
    bound = bounds.get(isolation)
    if bound is None:
        raise unknown_isolation(isolation)
    if not start <= offset <= end:
        raise OffsetOutOfRange(offset, start, end, log.name)
    found = FetchData(offset, high_watermark, stable, start, end, OffsetMetadata(offset), log=log)
    segments = log.segments
    read_up_to(found, segments, place_of(segments, bound, end), max_bytes, min_one)
    if found._file is not None and log.directory.segment_dir is not None:
        log.directory.segment_dir.sampler.probe(found._file, found.position.position, found.size)
    if isolation == "read_committed" and found.size:
        found.aborted_transactions = tuple(aborted_in_slice(log, segments, found.position, found.size, end))
    return found


def read_up_to(
    found: FetchData, segments: Sequence[Segment], bound: OffsetMetadata, max_bytes: int, min_one: bool
) -> None:
    """Set the slice of found.offset, from these segments and below the bound.

    If the bound has no position, the slice is empty. Kafka: LocalLog.read.
    """
    offset = found.offset
    if offset == bound.offset:
        found.position = bound
        return
    if offset > bound.offset:
        found.position = place_of(segments, offset, found.log_end_offset)
        return
    for segment in segments[number_of(segments, offset) :]:
        size = segment.size
        if bound.is_message_only or segment.base_offset > bound.segment_base_offset:
            break
        limit = size if segment.base_offset < bound.segment_base_offset else min(bound.position, size)
        header = segment.locate(offset) if size else None
        if header is None:
            if segment is not segments[-1]:
                segment.check_end()
            continue
        found.position = OffsetMetadata(offset, segment.base_offset, header.position)
        if header.position < limit:
            file = segment.file
            first, found.size = span(file, header.position, limit, max_bytes, segment.index)
            if found.size == 0 and first:
                found.first_entry_incomplete = not min_one
                found.size = first if min_one else 0
            found._keep(file if found.size else None)
        return
    found.position = place_of(segments, offset, found.log_end_offset)


def place_of(segments: Sequence[Segment], offset: int, end: int) -> OffsetMetadata:
    """The position of the first batch that reaches `offset`; if there is none, the end of the last batch."""
    for segment in segments[number_of(segments, offset) :]:
        size = segment.size  # read before next_offset: an append sets them in the other order
        if size and segment.next_offset > offset:
            header = segment.locate(offset)
            if header is not None:
                return OffsetMetadata(offset, segment.base_offset, header.position)
        if segment is segments[-1] and offset <= end:
            return OffsetMetadata(offset, segment.base_offset, size)
    return OffsetMetadata(offset)
