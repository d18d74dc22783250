from libc.stdint cimport int64_t


cdef int64_t monotonic_ns(clock) except? -1


cdef class Durations:
    cdef readonly int64_t count
    cdef int64_t total_ns, longest_ns
    cdef int64_t *_classes

    cdef int make(self) except -1
    cdef int note_ns(self, int64_t ns) except -1
