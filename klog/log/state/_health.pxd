from libc.stdint cimport int64_t


cdef class Health:
    cdef readonly str name
    cdef readonly bint read_only
    cdef readonly bint closed
    cdef readonly bint handlers_closed
    cdef readonly bint forked
    cdef readonly bint deleted
    cdef readonly object offline
    cdef readonly bint undoing
    cdef readonly object unreadable
    cdef readonly int64_t pid
    cdef readonly int64_t reads_failed

    cdef bint takes_appends(self) noexcept
    cdef bint takes_reads(self) noexcept
    cpdef void read_worked(self) noexcept
