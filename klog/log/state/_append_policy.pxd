from libc.stdint cimport int64_t

from klog.record._builder cimport BatchGroup, Encoder
from klog.record._leader cimport LeaderPolicy


cpdef AppendPolicy policy_of(object config)


cdef class AppendPolicy:
    cdef object config
    cdef LeaderPolicy of_leader         # for encoded batches
    cdef int64_t request_bytes_max      # of those
    cdef readonly bint stamps
    cdef int codec
    cdef object level
    cdef int64_t batch_bytes_max
    cdef int64_t message_bytes_max
    cdef int64_t before_max_ms
    cdef int64_t after_max_ms
    cdef bint key_required
    cdef bint segment_limits            # segment.bytes is below max.message.bytes

    cpdef Encoder encoder(self, object records, object compression, int64_t now)
    cdef void use_time(self, Encoder encoder, int64_t now) noexcept
    cpdef BatchGroup next_group(self, Encoder encoder, int64_t bytes_max)
