from libc.stdint cimport int64_t

from klog.disk._send cimport SendCounts

cdef enum Flushed:
    BLOCKED     # the socket takes no more now
    EMPTY       # everything has been sent
    MORE        # the socket may take more, but other connections are processed first


cdef class FileSlice:
    cdef readonly object file
    cdef readonly int64_t position
    cdef readonly int64_t size


cdef class Output:
    cdef object parts
    cdef readonly int64_t size      # bytes that are still to be sent
    cdef int64_t added              # bytes in all, since the connection began
    cdef int slices                 # of the parts
    cdef int64_t sent               # of the first part

    cdef int add(self, part) except -1
    cdef bint is_light(self) noexcept
    cdef int clear(self) except -1
    cdef Flushed flush(self, sock, int fd, SendCounts counts) except *
    cdef int64_t send_bytes(self, int fd) except -1
    cdef int drop_sent(self, int64_t written) except -1
    cdef object take(self)
