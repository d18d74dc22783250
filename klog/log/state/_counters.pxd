from libc.stdint cimport int64_t

from klog.durations cimport Durations


cdef class Counters:
    cdef public int64_t bytes_in
    cdef public int64_t messages_in
    cdef public int64_t replicated_bytes_in
    cdef public int64_t bytes_out
    cdef public int64_t appends
    cdef public int64_t failed_appends
    cdef public int64_t fetches
    cdef public int64_t failed_fetches
    cdef public Durations append_times
    cdef public Durations fetch_times
    cdef readonly object flush_times
    cdef readonly object roll_times
    cdef readonly dict refusals

    cpdef int64_t appended(self) noexcept
    cpdef int64_t append_begins(self, clock) except? -1
    cpdef int append_ends(self, int64_t began, clock) except -1
    cpdef int64_t fetch_begins(self, clock) except? -1
    cpdef int fetch_ends(self, int64_t began, int64_t size, clock) except -1
    cdef void count_led(self, int64_t count, int64_t size) noexcept
    cpdef void count_replicated(self, int64_t size) noexcept
    cpdef void count_failed_append(self) noexcept
    cpdef void count_failed_fetch(self) noexcept
