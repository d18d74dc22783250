from libc.stdint cimport int64_t


cdef class Counters:
    cdef public int64_t bytes_in
    cdef public int64_t messages_in
    cdef public int64_t replicated_bytes_in

    cdef int64_t appended(self) noexcept
