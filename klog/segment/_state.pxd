from libc.stdint cimport int32_t, int64_t

from klog.disk._handles cimport Holder
from klog.record._table cimport BatchTable


cdef class SegmentState(Holder):
    cdef public int64_t base_offset
    cdef public int64_t next_offset
    cdef public int64_t size
    cdef public object appended_ms
    cdef public object _active

    cdef int write_batches(self, BatchTable group, int32_t first, int32_t stop, int64_t now) except -1


cdef Py_ssize_t number_of(tuple segments, int64_t offset) noexcept
