# cython: auto_pickle=False
"""The numbers of a segment that each append and each fetch needs: struct members here, attributes for Python code."""

cdef class SegmentState:
    """Base of Segment, its only writer.

    base_offset, next_offset    of the segment: its offsets are in [base_offset, next_offset)
    size                        the end of its last whole batch
    _active                     the state for appends, None in a closed segment
    """


cdef Py_ssize_t number_of(tuple segments, int64_t offset) noexcept:
    """Index of the segment of an offset: the last one that begins at or below it, else the first."""
    cdef Py_ssize_t low = 0, high = len(segments), middle
    if high and (<SegmentState>segments[high - 1]).base_offset <= offset:   # the newest one, in most calls
        return high - 1
    while low < high:
        middle = (low + high) // 2
        if (<SegmentState>segments[middle]).base_offset <= offset:
            low = middle + 1
        else:
            high = middle
    return low - 1 if low else 0
