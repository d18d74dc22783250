"""Sends a slice of a file, or bytes, to any descriptor, with one call into C for as much as the target takes.

  G1  the GIL is released, except for a non-blocking target, at most HOLD_BYTES, and pages that are all in memory: such
      a send takes less than 50 microseconds, and taking the GIL back beside a busy thread takes milliseconds
  G2  signals are handled between two kernel calls: Ctrl-C ends a send to a slow peer
  G3  the bytes that a send has sent are in its counts, also when it raises

send_bytes is not for TLS: bytes sent by it bypass the encryption.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from klog._c.osio cimport kl_cached_t, kl_cachestat, kl_io_libc
from klog._c.send cimport (
    KL_BY_COPY,
    KL_BY_SENDFILE,
    KL_BY_SPLICE,
    KL_SEND_DONE,
    KL_SEND_END_OF_FILE,
    KL_SEND_NEEDS_MEMORY,
    kl_send,
    kl_send_bytes,
    kl_send_end,
    kl_send_t,
)
from klog.disk._io cimport AlignedBuffer, LogFile
from libc.stdint cimport int64_t
from libc.string cimport memset
from posix.fcntl cimport F_GETFL, O_NONBLOCK, fcntl

import errno
import os
from socket import socket

from klog.arguments import wrong_type
from klog.disk import tls
from klog.disk.faults import os_error
from klog.errors import PeerGone, SendTimeout

cdef enum:
    HOLD_BYTES = 65536
    PAGE = 4096
    POOL_BYTES = 1 << 20

cdef int EINTR = errno.EINTR, EAGAIN = errno.EAGAIN, ETIME = errno.ETIME
cdef object _GONE = frozenset({
    errno.EPIPE, errno.ECONNRESET, errno.ECONNABORTED, errno.ENOTCONN, errno.ESHUTDOWN, errno.ETIMEDOUT,
    errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN, errno.ENETRESET,
})
# Errors of the target: reading a file gives none of them, so the file's path would mislead.
cdef object _TARGET = frozenset({errno.EBADF, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOBUFS,
errno.EDESTADDRREQ})


@cython.final
cdef class SendCounts:
    """Bytes that have been sent, by method."""


cpdef int check_target(target) except -1:
    """Raise TypeError for an object without fileno(). A number is refused: it may be another file by now."""
    if not hasattr(target, "fileno"):
        raise wrong_type("target", target, "a socket, or anything with a fileno(),")
    return 0


@cython.final
@cython.freelist(8)
cdef class Target:
    """A target of sends: the descriptor of an object with fileno(), and how long a call may wait for it.

    A socket waits according to its timeout. Anything else waits, unless it was opened non-blocking.
    """

    def __cinit__(self, target):
        if type(target) is socket:
            self.fd, self.timeout = target.fileno(), target.gettimeout()
        else:
            check_target(target)
            self.fd = target.fileno()
            ask = getattr(target, "gettimeout", None)
            if ask is not None:
                self.timeout = ask()
            elif fcntl(self.fd, F_GETFL) & O_NONBLOCK:
                self.timeout = 0.0
        self.wait_ns = -1 if self.timeout is None else <int64_t>(<double>self.timeout * 1e9)

    cdef int failed(self, int status, int64_t sent, str path) except -1:
        number = -status
        if number == ETIME:
            raise SendTimeout(self.timeout, sent)
        if number in _GONE:
            raise PeerGone(number, sent)
        if path is None or number in _TARGET:
            raise OSError(number, f"{os.strerror(number)}: {sent} bytes had been sent")
        raise os_error(number, path)


cdef bint in_memory(LogFile file, int64_t position, int64_t size) noexcept:
    """Are all pages of a slice in memory? False if the kernel does not report it."""
    cdef kl_cached_t found
    if kl_cachestat(file.io, file.fd, position, size, &found) < 0:
        return False
    return <int64_t>found.cached * PAGE >= ((position & (PAGE - 1)) + size + PAGE - 1) & ~(<int64_t>PAGE - 1)


cpdef int64_t send_slice(target, LogFile file, int64_t position, int64_t size, SendCounts counts) except -1:
    """Send what the target takes of a slice: all of it, if the target blocks. Returns the number of bytes; 0 if the
    target takes none now.

    Uses sendfile, else splice, else a copy. A timeout bounds each wait. Raises PeerGone, SendTimeout, OSError; EOFError
    if the file ends before the slice.
    """
    if type(target) is not socket and tls.encrypts(target):
        return send_encrypted(target, file, position, size, counts)
    cdef Target to = Target(target)
    cdef AlignedBuffer buffer
    cdef kl_send_t send
    cdef int from_fd = file.fileno(), status
    if position < 0 or size < 0:
        raise ValueError("the position and size of a slice must not be negative")
    memset(&send, 0, sizeof(send))
    send.at = position
    send.left = size
    send.wait_ns = to.wait_ns
    try:
        while True:
            if to.wait_ns == 0 and size <= HOLD_BYTES and in_memory(file, send.at, send.left):
                status = kl_send(file.io, to.fd, from_fd, &send)
            else:
                with nogil:
                    status = kl_send(file.io, to.fd, from_fd, &send)
            if status == KL_SEND_NEEDS_MEMORY:
                buffer = AlignedBuffer(POOL_BYTES)
                send.memory = <char *>buffer.data
                send.memory_size = POOL_BYTES
            elif status == -EINTR:
                PyErr_CheckSignals()
            else:
                break
        if status == KL_SEND_END_OF_FILE:
            raise EOFError(f"the file ends {send.left} bytes before the slice, {size - send.left} had been sent")
        if status != KL_SEND_DONE and status != -EAGAIN:
            to.failed(status, size - send.left, None if send.from_target else file.path)
        PyErr_CheckSignals()  # G3: an exception from a handler after the return would lose the count
    except BaseException as error:
        error.sent = size - send.left
        raise
    finally:
        kl_send_end(&send)
        if counts is not None:
            counts.sendfile += send.sent[KL_BY_SENDFILE]
            counts.splice += send.sent[KL_BY_SPLICE]
            counts.copied += send.sent[KL_BY_COPY]
    return size - send.left


cdef int64_t send_encrypted(target, LogFile file, int64_t position, int64_t size, SendCounts counts) except -1:
    sent = 0
    try:
        sent = tls.send_slice(target, file, position, size)
    except BaseException as error:
        sent = getattr(error, "sent", 0)
        raise
    finally:
        if counts is not None:
            counts.copied += sent
    return sent


def send_bytes(target, data, bint more):
    """Send what the target takes of bytes in memory: all of them, if it blocks. Returns their number; `sent` of an
    error is that too. more: other bytes follow at once, so a partial packet may wait for them. Raises PeerGone,
    SendTimeout, OSError."""
    cdef Target to = Target(target)
    cdef Py_buffer view
    cdef size_t done = 0
    cdef int64_t waited = 0
    cdef int status
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while True:
            if to.wait_ns == 0 and view.len <= HOLD_BYTES:
                status = kl_send_bytes(&kl_io_libc, to.fd, <const char *>view.buf, view.len, &done, more, 0, &waited)
            else:
                with nogil:
                    status = kl_send_bytes(
                        &kl_io_libc, to.fd, <const char *>view.buf, view.len, &done, more, to.wait_ns, &waited
                    )
            if status != -EINTR:
                break
            PyErr_CheckSignals()
        if status != KL_SEND_DONE and status != -EAGAIN:
            to.failed(status, <int64_t>done, None)
        PyErr_CheckSignals()
    except BaseException as error:
        error.sent = <int64_t>done
        raise
    finally:
        PyBuffer_Release(&view)
    return <int64_t>done
