from libc.stdint cimport uint8_t, int64_t

from klog._c.osio cimport kl_io_t


cdef class Mapping:
    cdef uint8_t *data
    cdef readonly int64_t size
    cdef readonly int64_t found
    cdef int64_t blocks
    cdef readonly str path
    cdef readonly bint writable
    cdef int fd
    cdef const kl_io_t *io
    cdef int reserve(self, int64_t upto) except -1
