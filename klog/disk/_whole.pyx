"""Reads small files whole: three system calls for a file of less than 4 KiB."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EINTR, EISDIR, ELOOP, ENOENT, ESPIPE, errno as c_errno
from libc.stdint cimport int64_t
from posix.fcntl cimport O_CLOEXEC, O_NONBLOCK, O_RDONLY, open
from posix.stat cimport S_ISDIR, S_ISREG, fstat, struct_stat
from posix.unistd cimport close, pread

from klog.disk._path cimport encode_path

import errno

from klog.disk.faults import NOT_REGULAR, os_error

cdef extern from "<fcntl.h>" nogil:
    int O_NOFOLLOW

cdef enum:
    FIRST = 4096
    STEP = 1 << 20
    MOST = 1 << 28      # bytes; a checkpoint of more than 5 million partitions, a snapshot of as many producers


def read_whole(str path, int64_t most=MOST):
    """Return the bytes of a file. Of one that is larger than `most` about that many, by default 256 MiB: a checkpoint or
    a snapshot of that size is damaged, and its parser refuses them.

    Raises OSError, such as FileNotFoundError; one of ELOOP for a link that leads nowhere; and for a FIFO instead of
    waiting for its writer: pread(2) fails there.
    fstat(2) is called only for an empty file and for one of 4 KiB or more."""
    cdef bytes encoded = encode_path(path)
    cdef const char *at = encoded
    cdef char buffer[FIRST]
    cdef int fd, number = 0
    cdef int64_t got = 0
    cdef bint linked
    with nogil:
        fd = open(at, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW)
        linked = fd < 0 and c_errno == ELOOP
        if linked:
            fd = open(at, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        if fd >= 0:
            got = read_at(fd, buffer, FIRST, 0)
            if 0 < got < FIRST:
                close(fd)
        else:
            number = c_errno
            if linked and number == ENOENT:
                number = ELOOP  # leads nowhere: the caller would take it for no file, and use defaults
    if fd < 0:
        raise os_error(number, path, reading=True)
    if 0 < got < FIRST:
        return PyBytes_FromStringAndSize(buffer, got)
    try:
        if got < 0 and got != -ESPIPE:
            raise os_error(<int>-got, path, reading=True)
        check_regular(fd, path)
        return rest(fd, path, [PyBytes_FromStringAndSize(buffer, max(got, 0))], most)
    finally:
        close(fd)


cdef int64_t read_at(int fd, void *buffer, size_t size, int64_t position) noexcept nogil:
    """Return the number of bytes read, or -errno."""
    cdef int64_t got = pread(fd, buffer, size, position)
    while got < 0 and c_errno == EINTR:
        got = pread(fd, buffer, size, position)
    return got if got >= 0 else -<int64_t>c_errno


cdef int check_regular(int fd, str path) except -1:
    cdef struct_stat found
    if fstat(fd, &found) < 0:
        raise os_error(c_errno, path, reading=True)
    if not S_ISREG(found.st_mode):
        raise os_error(EISDIR, path) if S_ISDIR(found.st_mode) else OSError(errno.EINVAL, NOT_REGULAR, path)
    return 0


cdef bytes rest(int fd, str path, list pieces, int64_t most):
    """Read on to the end of the file, which may grow meanwhile, or to `most` bytes and a part of a step."""
    cdef int64_t position = len(pieces[0]), got = position
    cdef bytes piece
    cdef char *at
    while got > 0 and position < most:
        piece = PyBytes_FromStringAndSize(NULL, STEP)
        at = piece
        with nogil:
            got = read_at(fd, at, STEP, position)
        if got < 0:
            raise os_error(<int>-got, path, reading=True)
        pieces.append(piece[:got])
        position += got
    return b"".join(pieces)
