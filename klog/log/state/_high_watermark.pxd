cdef class HighWatermark:
    cdef readonly object mark
    cdef readonly object listener
