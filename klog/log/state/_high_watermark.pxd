cdef class HighWatermark:
    cdef readonly object metadata
    cdef readonly object listener
