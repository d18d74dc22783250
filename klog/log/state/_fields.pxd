from libc.stdint cimport int64_t

from klog.segment._state cimport SegmentDirState, SegmentState, TxnIndexState


cdef class ProducerFields:
    cdef public int64_t end_offset
    cdef public dict entries
    cdef public TransactionFields _transactions
    cdef public int64_t unstable_at     # the high watermark that _transactions takes into account, -1: none yet

    cdef int appended(self, int64_t end, dict entries) except -1


cdef class TransactionFields:
    cdef public object first_unstable


cdef class EpochFields:
    cdef public list entries


cdef class DirectoryFields:
    cdef public SegmentDirState segment_dir


cdef class FinderFields:
    cdef public tuple _known
    cdef public bint shown

    cdef bint knows_none(self, tuple segments, Py_ssize_t number, int64_t position, int64_t size) except -1
