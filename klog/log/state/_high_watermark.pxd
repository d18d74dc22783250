from libc.stdint cimport int64_t


cdef class HighWatermark:
    cdef readonly object metadata
    cdef readonly int64_t offset
    cdef readonly object listener
