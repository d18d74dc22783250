"""Reads past the page cache: whole pages from an O_DIRECT descriptor into aligned memory, cut to what was asked for.

  R1  position, size and memory of each call are multiples of ALIGN, which suits every block size up to that
  R2  the kernel writes what is dirty of the range to the disk first: a buffered writer's bytes are seen, at the price of
      a wait for the disk
  R3  a call that ends inside a page has met the end of the file: nothing is asked for behind it
"""

from klog._c.osio cimport kl_pread_direct
from klog.disk._io cimport AlignedBuffer, LogFile
from libc.stdint cimport int64_t
from libc.string cimport memmove, memset

import errno
import os

from klog.errors import ReadFailed

cdef enum:
    ALIGN = 4096


def read_direct(LogFile file, int64_t position, int64_t size):
    """Up to size bytes from position, as an AlignedBuffer; shorter only at the end of the file.

    file: opened by open_direct(). Raises ReadFailed.
    """
    cdef int64_t start = position - position % ALIGN, skip = position % ALIGN, got
    cdef int64_t whole = (skip + size + ALIGN - 1) // ALIGN * ALIGN
    cdef int fd = file.fileno()
    cdef AlignedBuffer buffer
    if position < 0 or size < 0:
        raise ValueError(f"a read of {size} bytes from byte {position}")
    buffer = AlignedBuffer(whole)
    with nogil:
        got = kl_pread_direct(file.io, fd, buffer.data, <size_t>whole, start)
    if got < 0:
        raise ReadFailed(<int>-got, file.path, position)
    buffer.size = max(min(got - skip, size), 0)
    if skip and buffer.size:
        memmove(buffer.data, buffer.data + skip, buffer.size)
    memset(buffer.data + buffer.size, 0, 64)
    return buffer


def open_direct(str path, size_t table=0):
    """The file, for read_direct(); None where the file system has no O_DIRECT."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_DIRECT
    try:
        fd = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise
    return LogFile(fd, path, False, table)
