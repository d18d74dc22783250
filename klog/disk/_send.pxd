from libc.stdint cimport int64_t

from klog.disk._io cimport LogFile


cdef class SendCounts:
    cdef public int64_t sendfile
    cdef public int64_t splice
    cdef public int64_t copied


cpdef int check_target(target) except -1
cpdef int64_t send_slice(target, LogFile file, int64_t position, int64_t size, SendCounts counts) except -1


cdef class Target:
    cdef readonly int fd
    cdef readonly object timeout    # seconds, None: no limit
    cdef int64_t wait_ns

    cdef int failed(self, int status, int64_t sent, str path) except -1
