"""What a connection has still to send: bytes, and slices of files, in order.

Small parts are sent together, by one sendmsg; a slice is sent by sendfile. A call sends at most CALL_BYTES, so that a
fast reader does not stop the other connections of its loop. Kafka: NetworkSend, DefaultFileRegion.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t
from libc.string cimport memset

from klog._c.osio cimport iovec
from klog.disk._send cimport SendCounts, send_slice

import os
from collections import deque

from klog.disk import LogFile

cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t sendmsg(int fd, const msghdr *message, int flags)
    int MSG_MORE
    int MSG_NOSIGNAL

cdef enum:
    CALL_BYTES = 1 << 20
    LIGHT_BYTES = 65536     # of responses that wait to be sent together
    TLS_BYTES = 32768       # read and encrypted at once, as Kafka does
    PARTS_MAX = 64
    HOLD_BYTES = 65536      # a send of so much is too short to be worth taking the GIL back


@cython.final
cdef class FileSlice:
    """A part of a response: `size` bytes of an open file (klog.disk.LogFile) from `position` on."""

    def __cinit__(self, file, int64_t position, int64_t size):
        if not isinstance(file, LogFile):
            raise TypeError(f"file={file!r}: a klog.disk.LogFile expected, not {type(file).__name__}")
        if position < 0 or size < 0:
            raise ValueError(f"position={position}, size={size}: a slice of a file cannot be negative")
        self.file, self.position, self.size = file, position, size


@cython.final
cdef class Output:
    """The parts that are still to be sent. One thread: that of the connection's loop."""

    def __cinit__(self):
        self.parts = deque()

    cdef int add(self, part) except -1:
        """Append bytes or a FileSlice."""
        cdef int64_t size
        if type(part) is FileSlice:
            size = (<FileSlice>part).size
            self.slices += size > 0
        else:
            size = len(part)
        if size:
            self.parts.append(part)
            self.size += size
            self.added += size
        return 0

    cdef bint is_light(self) noexcept:
        """May the next request be handled before this has been sent, so that responses are sent together?"""
        return self.size <= LIGHT_BYTES and self.slices == 0

    cdef int clear(self) except -1:
        """Drop everything."""
        self.parts.clear()
        self.size = self.sent = self.slices = 0
        return 0

    cdef Flushed flush(self, sock, int fd, SendCounts counts) except *:
        """Send. Raises OSError; EOFError if a file ends before its slice."""
        cdef int64_t budget = CALL_BYTES, requested, written
        cdef FileSlice part
        while self.size > 0:
            if budget <= 0:
                return MORE
            if type(self.parts[0]) is FileSlice:
                part = self.parts[0]
                requested = min(budget, part.size - self.sent)
                written = send_slice(sock, part.file, part.position + self.sent, requested, counts)
                self.drop_sent(written)
                if written < requested:        # the socket is full
                    return BLOCKED
            else:
                written = self.send_bytes(fd)
                if written == 0:
                    return BLOCKED
            budget -= written
        return EMPTY

    cdef int64_t send_bytes(self, int fd) except -1:
        """Send bytes up to the next slice, by one call. Returns how many; 0: the socket takes no more."""
        cdef Py_buffer views[PARTS_MAX]
        cdef iovec vector[PARTS_MAX]
        cdef msghdr message
        cdef int count = 0, flags = MSG_NOSIGNAL, number
        cdef int64_t total = 0
        cdef ssize_t written
        try:
            for part in self.parts:
                if type(part) is FileSlice or count == PARTS_MAX or total >= CALL_BYTES:
                    flags |= MSG_MORE
                    break
                PyObject_GetBuffer(part, &views[count], PyBUF_SIMPLE)
                vector[count].iov_base = views[count].buf
                vector[count].iov_len = views[count].len
                count += 1
                total += views[count - 1].len
            vector[0].iov_base = <char *>views[0].buf + self.sent
            vector[0].iov_len -= self.sent
            memset(&message, 0, sizeof(message))
            message.msg_iov = vector
            message.msg_iovlen = count
            while True:
                if total <= HOLD_BYTES:
                    written = sendmsg(fd, &message, flags)
                else:
                    with nogil:
                        written = sendmsg(fd, &message, flags)
                if written >= 0 or errno != EINTR:
                    break
            if written < 0:
                if errno == EAGAIN:
                    return 0
                raise OSError(errno, os.strerror(errno))
        finally:
            for number in range(count):
                PyBuffer_Release(&views[number])
        self.drop_sent(written)
        return written

    cdef int drop_sent(self, int64_t written) except -1:
        """Drop what has been sent."""
        cdef int64_t left
        self.size -= written
        while written > 0:
            part = self.parts[0]
            left = (part.size if type(part) is FileSlice else len(part)) - self.sent
            if written < left:
                self.sent += written
                return 0
            written -= left
            self.sent = 0
            self.parts.popleft()
            self.slices -= type(part) is FileSlice
        return 0

    cdef object take(self):
        """Remove up to TLS_BYTES from the front, as bytes, to be encrypted. EOFError as above."""
        cdef int64_t left = TLS_BYTES, size
        cdef list taken = []
        while self.parts and left > 0:
            part = self.parts[0]
            if type(part) is FileSlice:
                size = min(left, part.size - self.sent)
                data = bytes(part.file.read(part.position + self.sent, size))
                if len(data) < size:
                    raise EOFError(f"the file ends {size - len(data)} bytes before the slice")
            else:
                data = bytes(memoryview(part)[self.sent : self.sent + left])
            taken.append(data)
            left -= len(data)
            self.drop_sent(len(data))
        return b"".join(taken)
