from libc.stdint cimport int64_t

from klog._c.batch cimport kl_batch_t


cdef class DataBatch:
    cdef readonly int64_t last_sequence
    cdef readonly int64_t last_offset
    cdef readonly int64_t offset_delta
    cdef readonly int64_t timestamp

    cdef tuple what(self)


cdef class ProducerEntry:
    cdef readonly int64_t producer_id
    cdef readonly int64_t epoch
    cdef readonly int64_t coordinator_epoch
    cdef readonly int64_t timestamp
    cdef public object txn_first_offset
    cdef readonly tuple batches             # the last five, oldest first

    cdef int take_epoch(self, int64_t epoch) except -1
    cdef DataBatch remembered(self, int64_t base_sequence, int64_t last_sequence)
    cpdef ProducerEntry copy(self)
    cpdef add(self, int64_t epoch, DataBatch batch)
    cdef bint continues(self, const kl_batch_t *b, bint client)
    cdef int take(self, const kl_batch_t *b) except -1
