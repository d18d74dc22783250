from klog.disk._io cimport LogFile
from libc.stdint cimport int64_t


cdef class ReadSampler:
    cdef readonly int64_t reads, sampled_bytes, cached_bytes
    cdef bint supported
    cpdef void probe(self, LogFile file, int64_t position, int64_t size) noexcept
    cdef bint is_sampled(self, LogFile file) noexcept
    cdef int64_t read_cached(self, LogFile file, void *buf, size_t size, int64_t position) noexcept
