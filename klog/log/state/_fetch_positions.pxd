from libc.stdint cimport int64_t

cdef enum:
    SLOTS = 8


ctypedef struct end_t:
    int64_t offset          # of the first record after the slice
    int64_t base_offset     # of its segment
    int64_t position        # of its batch
    int64_t size            # of its batch, 0: not known
    int64_t next_offset     # after its batch, if the size is known
    bint certain            # its header has been read there, or the log ended there


cdef class FetchPositions:
    cdef end_t ends[SLOTS]
    cdef void *segments         # only compared
    cdef int64_t generation
    cdef int64_t rewritten
    cdef int64_t taken_back

    cdef void forget(self) noexcept
    cdef const end_t *find(self, int64_t offset, int64_t base_offset) noexcept
    cdef void keep(self, const end_t *end) noexcept
    cdef void follow(self, object segments, int64_t generation, int64_t rewritten, int64_t taken_back) noexcept
