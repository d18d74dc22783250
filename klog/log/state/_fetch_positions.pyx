# cython: auto_pickle=False
"""Where the last slices of a log ended: a consumer fetches on from there, and its next slice needs no search."""

cimport cython
from libc.stdint cimport int64_t, uint64_t


@cython.final
cdef class FetchPositions:
    """The position of the next batch for a few offsets, one for each of as many consumers.

    Positions change only with the log's segments, generation, rewritten and taken_back: then all are forgotten.
    """

    def __cinit__(self):
        self.forget()

    cdef void forget(self) noexcept:
        cdef int i
        for i in range(SLOTS):
            self.ends[i].offset = -1

    cdef void follow(self, object segments, int64_t generation, int64_t rewritten, int64_t taken_back) noexcept:
        """Before each use: the state of the log now. The segments and the generation change one after the other."""
        if self.segments != <void *>segments or self.generation != generation or self.rewritten != rewritten or \
                self.taken_back != taken_back:
            self.segments, self.generation = <void *>segments, generation
            self.rewritten, self.taken_back = rewritten, taken_back
            self.forget()

    cdef const end_t *find(self, int64_t offset, int64_t base_offset) noexcept:
        """Return the end of a slice at offset in the segment of base_offset, NULL if unknown."""
        cdef const end_t *end = &self.ends[slot_of(offset)]
        return end if end.offset == offset and end.base_offset == base_offset else NULL

    cdef void keep(self, const end_t *end) noexcept:
        self.ends[slot_of(end.offset)] = end[0]


cdef inline int slot_of(int64_t offset) noexcept:
    """Consumers of one log read the same batches at different times: neighbours must not share a slot."""
    return <int>(<uint64_t>offset * <uint64_t>0x9E3779B97F4A7C15 >> 61)
