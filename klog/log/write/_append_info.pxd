from libc.stdint cimport int32_t, int64_t

from klog.record._builder cimport BatchGroup
from klog.record._encoded cimport EncodedBatches
from klog.record._leader cimport ValidatedBatch


cdef class AppendInfo:
    cdef readonly int64_t first_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t count
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t log_append_time
    cdef readonly int64_t shallow_offset_of_max_timestamp
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t valid_bytes
    cdef readonly int64_t last_offset_of_first_batch
    cdef readonly int32_t last_leader_epoch
    cdef readonly bint is_duplicate
    cdef readonly str source_compression

    cdef tuple what(self)


cdef AppendInfo led(ValidatedBatch batch, int32_t epoch, int64_t log_start_offset)
cdef AppendInfo followed(EncodedBatches batches, int64_t log_start_offset)
cpdef AppendInfo nothing(int64_t end, int64_t log_start_offset)
cdef AppendInfo grouped(BatchGroup group, int64_t log_append_time, int64_t log_start_offset)
