from libc.stdint cimport int64_t

from klog.disk._handles cimport Holder


cdef class SegmentState(Holder):
    cdef public int64_t base_offset
    cdef public int64_t next_offset
    cdef public int64_t size
    cdef public object _active


cdef Py_ssize_t number_of(tuple segments, int64_t offset) noexcept
