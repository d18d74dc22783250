"""Measures how far whole batches reach, by their length fields alone. All formats begin with offset:i64 length:i32,
followed by length bytes."""

from klog.disk._io cimport LogFile
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef enum:
    HEAD = 12
    BODY_MIN = 14         # every message format has at least this many bytes after its length
    WINDOW = 4096
    SMALL = 1024          # batches below this size are read many at a time

cdef inline int64_t load_length(const uint8_t *at) noexcept:
    return HEAD + <int64_t><int32_t>(<uint32_t>at[8] << 24 | <uint32_t>at[9] << 16 | <uint32_t>at[10] << 8 | at[11])


def span(LogFile file, int64_t position, int64_t end, int64_t bytes_max):
    """Return (bytes of the first batch at `position`, bytes of whole batches from there, at most bytes_max of them),
    below byte `end`. (0, 0): there is no whole batch. An impossible length ends the span before it."""
    cdef uint8_t window[WINDOW]
    cdef int64_t at = position, size = 0, first = 0, got = 0, window_at = position
    cdef int64_t limit = min(end, position + bytes_max)
    while at + HEAD <= end:
        if at < window_at or at + HEAD > window_at + got:
            window_at = at
            got = file.read_at(window, <size_t>min(end - at, WINDOW if size <= SMALL else HEAD), at)
            if got < HEAD:
                break
        size = load_length(window + (at - window_at))
        if size < HEAD + BODY_MIN or at + size > end:
            break
        if first == 0:
            first = size
        if at + size > limit:
            break
        at += size
    return first, at - position
