from klog._c.batch cimport kl_batch_t
from klog.record._table cimport BatchTable
from libc.stdint cimport int32_t, int64_t


cdef class LeaderPolicy:
    cdef object config              # keeps the config alive, so that no other object can get its id()
    cdef object level
    cdef int codec
    cdef int64_t before_max
    cdef int64_t after_max
    cdef bint stamps
    cdef bint compacts


cdef class ValidatedBatch(BatchTable):  # one batch of magic 2, in memory that kl_pool_give() takes
    cdef size_t capacity
    cdef kl_batch_t header              # position is 0
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t log_append_time
    cdef readonly int64_t temporary_memory_bytes
    cdef readonly int64_t source_size           # of the whole batches that were sent
    cdef int source_codec
    cdef readonly int32_t conversion_count
    cdef readonly bint message_size_maybe_changed

    cdef int allocate(self, Py_ssize_t size) except -1
    cdef str codec_sent(self)


cdef LeaderPolicy policy_of(object config)
cdef ValidatedBatch leaders_batch(buffer, LeaderPolicy policy, int64_t offset, int64_t now, str origin,
                                  int32_t leader_epoch, int64_t size_max)
