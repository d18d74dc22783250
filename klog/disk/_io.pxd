from libc.stdint cimport int64_t, uint8_t

from posix.types cimport dev_t

from klog._c.osio cimport iovec, kl_io_t
from klog.disk._handles cimport Reusable


cdef class AlignedBuffer:
    cdef uint8_t *data
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t capacity


cdef class LogFile(Reusable):
    cdef const kl_io_t *io
    cdef readonly int fd
    cdef int64_t inode    # these three: when it was opened; -1 if not known
    cdef int64_t size
    cdef dev_t device
    cdef readonly str path
    cdef readonly bint writable
    cdef int flags        # of pwritev2, 0 for a plain pwrite
    cdef readonly bint fallback  # direct or uncached writes were requested, but the file system does not support them
    cdef bint real        # its calls go to the kernel itself
    cdef bint no_nowait   # its file system does not support RWF_NOWAIT
    cdef object map       # the FileMap for new views, or None
    cdef object mapped    # memoryview of the part of the map that is known to be in the file
    cdef void note_no_nowait(self) noexcept
    cdef int write_at(self, const void *data, size_t size, int64_t position) except -1
    cdef int64_t read_at(self, void *buf, size_t size, int64_t position) except -1
    cdef int write_vector(self, iovec *vector, int n, int64_t size, int64_t position) except -1
    cdef int check(self, int status) except -1
    cdef int write_flagged(self, const void *data, size_t size, int64_t position) except -1
