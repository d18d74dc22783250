from libc.stdint cimport int64_t, uint8_t, uint64_t

from posix.stat cimport struct_stat

from klog._c.osio cimport kl_io_t


cdef class Mapping:
    cdef uint8_t *data
    cdef readonly int64_t size
    cdef readonly int64_t found
    cdef int64_t blocks
    cdef readonly str path
    cdef readonly bint writable
    cdef uint64_t device
    cdef uint64_t inode          # 0: no file, only memory
    cdef const kl_io_t *io
    cdef bint copied             # data is memory of its own
    cdef int open(self, int more, struct_stat *found) except -1
    cdef int read_in(self, int fd) except -1
    cdef int reopen(self) except -1
    cdef int shape(self, int fd, int64_t size) except -1
    cdef int map(self, int fd, int64_t size) except -1
    cdef int reserve(self, int64_t upto) except -1


cdef int store(str path, const uint8_t *data, int64_t size, const kl_io_t *io) except -1
