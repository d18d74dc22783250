from libc.stdint cimport int64_t


cdef class SegmentList:
    cdef readonly tuple segments
    cdef readonly int64_t generation
    cdef readonly int64_t rewritten
    cdef readonly int64_t taken_back
    cdef object known_sizes
    cdef object tail

    cdef void keep_tail(self, tail) noexcept
    cdef int put(self, tuple segments) except -1
