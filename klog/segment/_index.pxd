from libc.stdint cimport int32_t, int64_t

from klog._c.index cimport kl_indexer_t
from klog.disk._handles cimport Reusable
from klog.disk._mapping cimport Mapping
from klog.record._table cimport BatchTable


cdef enum:
    NEWEST = 64


ctypedef struct batch_position_t:
    int64_t position
    int64_t base_offset
    int64_t last_offset
    int64_t size


cdef class IndexPair(Reusable):
    cdef kl_indexer_t x
    cdef Mapping offsets
    cdef Mapping times
    cdef readonly str offsets_path
    cdef readonly str times_path
    cdef readonly bint writable
    cdef object __weakref__
    # A ring buffer of the positions of the last batches that add() has added; NULL before the first one.
    cdef batch_position_t *newest
    cdef int64_t added      # batches in it, also those that were overwritten
    cdef readonly object beyond     # (offset, position) of the first entry that limit() has dropped, or None

    cpdef reserve(self, int32_t batches)
    cpdef bint must_roll(self, BatchTable batches, int64_t last_offset, int64_t max_timestamp, int64_t size,
                         int64_t segment_bytes, int64_t segment_ms, int64_t waited_ms) except -1
    cpdef add(self, BatchTable group, int32_t first, int32_t stop, int64_t position)
    cdef int attach(self, int32_t offsets=*, int32_t times=*) except -1
    cdef int check_one(self, Mapping map, str path, int64_t entries, int width, str kind) except -1
    cdef bint find_newest(self, int64_t offset, batch_position_t *found) noexcept
    cdef int clear_tail(self, int32_t offsets, int32_t times) except -1
    cdef int keep(self, kl_indexer_t *before) except -1
