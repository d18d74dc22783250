from libc.stdint cimport int64_t


cdef class FlushState:
    cdef readonly int64_t recovery_point
    cdef readonly int64_t flushed_ms
    cdef readonly int64_t flushed_bytes
