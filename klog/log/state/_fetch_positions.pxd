from libc.stdint cimport int64_t

cdef enum:
    SLOTS = 8


ctypedef struct end_t:
    int64_t offset
    int64_t base_offset
    int64_t position
    bint certain


cdef class FetchPositions:
    cdef end_t ends[SLOTS]
    cdef void *segments         # only compared
    cdef int64_t generation
    cdef int64_t rewritten
    cdef int64_t taken_back

    cdef void forget(self) noexcept
    cdef int64_t find(self, int64_t offset, int64_t base_offset, bint *certain) noexcept
    cdef void keep(self, int64_t offset, int64_t base_offset, int64_t position, bint certain) noexcept
    cdef void follow(self, object segments, int64_t generation, int64_t rewritten, int64_t taken_back) noexcept
