# cython: auto_pickle=False
"""Finds which part of a file is in the page cache: from the kernel, page by page, or by sampling reads that do not
wait.

Queries load nothing into the cache. A small range is counted under the GIL, because taking it back is expensive. A
larger one is counted without the GIL, because the kernel walks over every cached page.
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from klog._c.osio cimport kl_cached_t, kl_cachestat, kl_mincore, kl_pread_cached
from klog.disk._io cimport AlignedBuffer, LogFile
from libc.errno cimport EAGAIN, EINVAL, ENOSYS, EOPNOTSUPP
from libc.stdint cimport int64_t

import os

from klog.disk.faults import os_error

cdef enum:
    WINDOW_PAGES = 1 << 16    # pages mapped at a time for mincore: 256 MiB of address space
    SAMPLED_READS = 16        # one of this many reads is sampled
    HOLD_BYTES = 262144       # copied out of the page cache under the GIL: about 15 microseconds
    STAT_HOLD_BYTES = 8 << 20  # counted under the GIL: about 20 microseconds

cdef int64_t PAGE = os.sysconf("SC_PAGESIZE")


def stat_range(LogFile file, int64_t position, int64_t size):
    """Return (cached, dirty, in write-back, evicted, recently evicted) pages of a non-empty range, by cachestat(2).

    Raises OSError: ENOSYS before Linux 6.5, EOPNOTSUPP if the file system has no page cache, EPERM if this process may
    not write the file by owner or mode.
    """
    cdef kl_cached_t found
    cdef int fd = file.fileno(), status
    if position < 0 or size <= 0:  # the kernel takes 0 as "to the end of the file"
        raise ValueError("a range must have at least one byte")
    if size <= STAT_HOLD_BYTES:
        status = kl_cachestat(file.io, fd, position, size, &found)
    else:
        with nogil:
            status = kl_cachestat(file.io, fd, position, size, &found)
    if status < 0:
        raise os_error(-status, file.path)
    return found.cached, found.dirty, found.writeback, found.evicted, found.recently_evicted


def cached_pages(LogFile file, int64_t position, int64_t size):
    """Return how many pages of a range are in the page cache, by mincore(2); correct only for files that this process
    may write.

    The range must lie in the file. It is mapped for the duration of the call, in parts, and never touched.
    """
    cdef int fd = file.fileno(), status = 0
    cdef int64_t at = position - position % PAGE, end = position + size, count = 0, part, page
    cdef unsigned char *pages
    if position < 0 or size <= 0:
        raise ValueError("a range must have at least one byte")
    pages = <unsigned char *>PyMem_Malloc(WINDOW_PAGES)
    if pages == NULL:
        raise MemoryError()
    try:
        with nogil:
            while at < end and status == 0:
                part = min(end - at, WINDOW_PAGES * PAGE)
                status = kl_mincore(file.io, fd, at, part, pages)
                if status == 0:
                    for page in range((part + PAGE - 1) // PAGE):
                        count += pages[page] & 1
                at += part
        if status < 0:
            raise os_error(-status, file.path)
        return count
    finally:
        PyMem_Free(pages)


@cython.final
cdef class ReadSampler:
    """Estimates how many of the bytes read came from memory, by sampling one read in sixteen. Any thread.

    A sampled read first takes what is available without waiting (RWF_NOWAIT) and counts it, then reads the rest
    normally. Nothing is read twice. The count is exact for sampled reads, because it comes from the read itself.
    """

    def __cinit__(self):
        self.supported = True

    def read(self, LogFile file, int64_t position, Py_ssize_t size):
        """Return file.read(position, size), and count it if it is sampled. Raises ReadFailed."""
        cdef AlignedBuffer buffer
        cdef int64_t got, rest
        if not self.is_sampled(file):
            return file.read(position, size)
        buffer = AlignedBuffer(size)
        got = self.read_cached(file, buffer.data, size, position)
        if got < 0:
            return file.read(position, size)
        rest = file.read_at(buffer.data + got, size - got, position + got) if got < size else 0
        buffer.size = got + rest
        self.sampled_bytes += got + rest
        self.cached_bytes += got
        return buffer

    cpdef void probe(self, LogFile file, int64_t position, int64_t size) noexcept:
        """Count a slice that is read elsewhere or sent by the kernel, all of it as its first byte."""
        cdef char byte
        cdef int64_t got
        if self.is_sampled(file):
            got = self.read_cached(file, &byte, 1, position)
            if got >= 0:
                self.sampled_bytes += size
                self.cached_bytes += size * got

    cdef bint is_sampled(self, LogFile file) noexcept:
        """Is this read sampled? Only files of the kernel are: a simulated file has no page cache."""
        if not self.supported or type(file) is not LogFile or file.fd < 0:
            return False
        self.reads += 1
        return self.reads % SAMPLED_READS == 0

    cdef int64_t read_cached(self, LogFile file, void *buf, size_t size, int64_t position) noexcept:
        """Return the bytes read without waiting; -1 if unknown. A disk error is left to the normal read to report."""
        cdef int64_t got
        if size <= HOLD_BYTES:
            got = kl_pread_cached(file.io, file.fd, buf, size, position)
        else:
            with nogil:
                got = kl_pread_cached(file.io, file.fd, buf, size, position)
        if got == -EAGAIN:
            return 0
        if got in (-EOPNOTSUPP, -EINVAL, -ENOSYS):
            self.supported = False  # not supported by this file, and will not be
        return got if got >= 0 else -1
