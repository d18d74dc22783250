from libc.stdint cimport int32_t, int64_t

from klog._c.batch cimport kl_batch_t
from klog.log.state._fields cimport ProducerFields
from klog.log.state._log_core cimport LogCore
from klog.record._builder cimport BatchGroup
from klog.record._table cimport BatchTable
from klog.segment._index cimport IndexPair
from klog.segment._state cimport ActiveState, SegmentState


cdef class Tail:
    cdef object config
    cdef object entries
    cdef ProducerFields producers
    cdef SegmentState segment
    cdef ActiveState active
    cdef IndexPair index
    cdef int64_t segment_bytes
    cdef int64_t segment_ms
    cdef int64_t created_ms
    cdef int64_t flush_messages
    cdef int64_t flush_ms
    cdef int64_t flush_bytes    # 0 for no limit
    cdef int32_t epoch

    cdef bint write(self, LogCore log, BatchTable batches, int64_t last_offset, int64_t max_timestamp,
                    dict entries, int64_t now) except -1
    cdef bint write_group(self, LogCore log, BatchGroup group, int64_t now) except -1
    cdef dict entries_after(self, BatchTable batches, bint client)
    cdef bint takes(self, LogCore log, BatchTable batches, int64_t size, int64_t next_offset) except -1
    cdef int64_t waited(self, int64_t now) noexcept


cdef Tail tail_of(LogCore log)
