from libc.stdint cimport int32_t, int64_t

from klog.disk._handles cimport Holder
from klog.disk._io cimport LogFile
from klog.disk._residency cimport ReadSampler
from klog.record._table cimport BatchTable
from klog.segment._index cimport IndexPair


cdef class ActiveState:
    cdef public LogFile file
    cdef public IndexPair index
    cdef public int64_t stop


cdef class SegmentDirState:
    cdef public ReadSampler sampler


cdef class TxnIndexState:
    cdef public bint checked
    cdef public tuple _entries


cdef class SegmentState(Holder):
    cdef public int64_t base_offset
    cdef public int64_t next_offset
    cdef public int64_t size
    cdef int64_t appended       # appended_ms, NEVER for None
    cdef public ActiveState _active
    cdef public TxnIndexState _txn_index
    cdef public int64_t plain_from
    cdef public int64_t plain_to

    cdef int write_batches(self, BatchTable group, int32_t first, int32_t stop, int64_t now) except -1


cdef Py_ssize_t number_of(tuple segments, int64_t offset) noexcept
