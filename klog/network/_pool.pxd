from libc.stdint cimport int64_t


cdef class MemoryPool:
    cdef readonly int64_t limit
    cdef readonly int64_t available
    cdef readonly int64_t refused
    cdef object waiting
    cdef double depleted_at
    cdef double depleted_seconds
    cdef object clock

    cdef bint take(self, int64_t size, waiter) except -1
    cdef int give(self, int64_t size) except -1
    cdef int wake(self) except -1
