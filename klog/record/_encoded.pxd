from klog._c.batch cimport kl_batch_t
from klog.record._table cimport BatchTable
from libc.stdint cimport int32_t, int64_t

cdef enum:
    FEW = 2


cdef class EncodedBatches(BatchTable):
    cdef Py_buffer view                 # of the caller, held until release()
    cdef bint held
    cdef kl_batch_t few[FEW]            # the table, as long as it is large enough
    cdef Py_ssize_t capacity
    cdef readonly int64_t first_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t last_offset_of_first_batch
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t shallow_offset_of_max_timestamp
    cdef readonly int32_t last_leader_epoch
    cdef readonly bint one_leader_epoch
    cdef readonly bint has_producers
    cdef readonly bint has_legacy
    cdef int codec

    cdef int check(self, buffer, int64_t bytes_max, int64_t epoch_max, int64_t epoch) except -1
    cdef str codec_sent(self)
    cpdef release(self)
    cdef int take(self, const kl_batch_t *b, bint first_known) except -1
    cdef int grow(self) except -1
