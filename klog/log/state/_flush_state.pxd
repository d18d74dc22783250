from libc.stdint cimport int64_t


cdef class FlushState:
    cdef object clock
    cdef int64_t since_ms       # of the last flush, by the monotonic clock
    cdef readonly int64_t recovery_point
    cdef readonly int64_t flushed_ms
    cdef readonly int64_t flushed_bytes
    cpdef bint has_waited(self, int64_t flush_ms) except -1
