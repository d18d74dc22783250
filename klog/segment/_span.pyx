"""Measures how far whole batches reach, by their length fields alone. All formats begin with offset:i64 length:i32,
followed by length bytes."""

from klog._c.batch cimport KL_BATCH_PREFIX, kl_batch_last_offset, kl_batch_next, kl_batch_size
from klog._c.bytes cimport kl_load_u32
from klog._c.index cimport KL_OFFSET_ENTRY, kl_offset_index_position
from klog._c.status cimport KL_OK
from klog.disk._io cimport LogFile
from klog.segment._index cimport IndexPair
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

cdef enum:
    SMALL = 1024          # batches below this size are read many at a time, larger ones only if the limit is near
    LITTLE = 64           # the part of a span that is left out rather than scanned
    EXACT = 16384         # bytes: of a span up to this size nothing is left out

ctypedef struct window_t:
    uint8_t bytes[WINDOW]
    int64_t at
    int64_t size


cdef int read_window(LogFile file, window_t *window, int64_t at, int64_t size) except -1:
    window.at, window.size = at, 0
    window.size = file.read_at(window.bytes, <size_t>size, at)
    return 0


cdef int64_t scan(LogFile file, window_t *window, int64_t at, int64_t end, int64_t limit, int64_t size,
                  int64_t *first, int64_t *next_offset, kl_batch_t *after) except -1:
    """Return the end of the last whole batch from byte `at` on that ends at or before byte limit <= end. An impossible
    length ends the scan before it.

    size: bytes of the batch before `at`; 0: not known. first: bytes of the batch at `at`, also beyond limit; 0: there
    is no whole batch. next_offset: the offset that the batch at `at` begins with; set to the one after the last batch,
    -1 unless the batches and the one after them follow each other, in bytes and in offsets. after: the header of that
    one, if next_offset is not -1 and the result is below `end`.
    """
    cdef int64_t skip
    first[0] = 0
    while at + KL_BATCH_PREFIX <= end:
        skip = at - window.at
        if skip < 0 or (skip + KL_BATCH_HEADER > window.size and window.at + window.size < end):
            read_window(file, window, at, min(
                min(end, max(at, limit) + KL_BATCH_HEADER) - at,
                <int64_t>(WINDOW if size <= SMALL or limit - at <= NEAR else KL_BATCH_HEADER)))
            skip = 0
        if skip + KL_BATCH_PREFIX > window.size:
            break
        # By the length alone, whatever the format: readers report anything else that is wrong with a batch.
        size = kl_batch_size(window.bytes + skip)
        if size < 0 or size > end - at:
            next_offset[0] = -1
            break
        if first[0] == 0:
            first[0] = size
        if next_offset[0] >= 0 and (
            kl_batch_next(window.bytes + skip, <size_t>(window.size - skip), <size_t>(end - at), after) != KL_OK
            or after.base_offset != next_offset[0]
        ):
            next_offset[0] = -1
        if at + size > limit:
            return at
        if next_offset[0] >= 0:
            next_offset[0] = kl_batch_last_offset(after) + 1
        at += size
    if at != end:
        next_offset[0] = -1
    return at


cdef int64_t reach(LogFile file, IndexPair index, int64_t at, int64_t end, int64_t limit, int64_t size,
                   int64_t *next_offset, kl_batch_t *after) except -1:
    """scan(), but if limit is far away, by the last index entry before it: up to that if little is left, else on from
    it. An entry that does not describe its batch is not used."""
    cdef window_t window
    cdef int64_t entry, start, first
    cdef int32_t slot = -1
    cdef bint close
    window.at = window.size = 0
    if limit - at > NEAR and index.x.offset_count:
        slot = kl_offset_index_position(index.offsets.data, index.x.offset_count, <int32_t>min(limit, INT32_MAX)) - 1
    if slot >= 0:
        entry = index.x.base_offset + kl_load_u32(index.offsets.data + <int64_t>slot * KL_OFFSET_ENTRY)
        start = kl_load_u32(index.offsets.data + <int64_t>slot * KL_OFFSET_ENTRY + 4)
        if at < start and end - start >= KL_BATCH_HEADER:
            close = limit - at > EXACT and (limit - start) * LITTLE <= limit - at
            read_window(file, &window, start, min(end - start, <int64_t>KL_BATCH_HEADER if close or limit - start > NEAR
                                           else limit - start + KL_BATCH_HEADER))
            if kl_batch_next(window.bytes, <size_t>window.size, <size_t>(end - start), after) == KL_OK and \
                    kl_batch_last_offset(after) == entry and after.base_offset >= next_offset[0]:
                at, next_offset[0] = start, after.base_offset
                if close:
                    return at
    return scan(file, &window, at, end, limit, size, &first, next_offset, after)


def span(LogFile file, int64_t position, int64_t end, int64_t bytes_max, IndexPair index=None):
    """Return (bytes of the first batch at `position`, bytes of whole batches from there, at most bytes_max of them),
    below byte `end`. (0, 0): there is no whole batch. An impossible length ends the span before it. index: of the
    segment, to jump over most of a long span; one of more than 16 KiB may then end up to 1.6 % before bytes_max."""
    cdef window_t window
    cdef kl_batch_t after
    cdef int64_t first, stop, next_offset = -1
    cdef int64_t limit = end if bytes_max >= end - position else position + bytes_max
    window.at = window.size = 0
    stop = scan(file, &window, position, end, limit if index is None or limit == end else position, 0, &first,
                &next_offset, &after)
    if index is not None and limit != end and 0 < first <= limit - position:
        next_offset = -1
        stop = reach(file, index, position + first, end, limit, first, &next_offset, &after)
    return first, stop - position
