# cython: auto_pickle=False
"""What of a file is in the page cache: asked of the kernel, page by page, or learned from reads that never wait.

Asking brings nothing in. Of a small range it is done under the GIL, which is dear to take back; of a larger one without:
the kernel walks over every page that is there.
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
    WINDOW_PAGES = 1 << 16    # that many pages are mapped at a time for mincore: 256 MiB of address space
    SAMPLED_READS = 16        # one read of so many is looked at
    HOLD_BYTES = 262144       # what is copied out of the page cache under the GIL: some 15 microseconds
    STAT_HOLD_BYTES = 8 << 20  # what is counted under it: some 20 microseconds

cdef int64_t PAGE = os.sysconf("SC_PAGESIZE")


def stat_range(LogFile file, int64_t position, int64_t size):
    """(cached, dirty, in write-back, evicted, recently evicted) pages of a range that is not empty, by cachestat(2).

    Raises OSError: ENOSYS before Linux 6.5, EOPNOTSUPP where a file system has no page cache, EPERM where neither owner
    nor mode lets this process write the file.
    """
    cdef kl_cached_t found
    cdef int fd = file.fileno(), status
    if position < 0 or size <= 0:  # 0 would be "to the end of the file" to the kernel
        raise ValueError("a range has at least one byte")
    if size <= STAT_HOLD_BYTES:
        status = kl_cachestat(file.io, fd, position, size, &found)
    else:
        with nogil:
            status = kl_cachestat(file.io, fd, position, size, &found)
    if status < 0:
        raise os_error(-status, file.path)
    return found.cached, found.dirty, found.writeback, found.evicted, found.recently_evicted


def cached_pages(LogFile file, int64_t position, int64_t size):
    """How many pages of a range are in the page cache, by mincore(2): true only of files that this process may write.

    The range lies in the file. It is mapped for as long as this takes, a part at a time, and never touched.
    """
    cdef int fd = file.fileno(), status = 0
    cdef int64_t at = position - position % PAGE, end = position + size, count = 0, part, page
    cdef unsigned char *pages
    if position < 0 or size <= 0:
        raise ValueError("a range has at least one byte")
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
    """Of the bytes that are read, how many come from memory? One read in sixteen is looked at. Any thread.

    A sampled read asks for what can be had without waiting (RWF_NOWAIT), counts that, and then reads the rest as any
    other does. Nothing is read twice, and what counts as a hit was one: it is the read itself, not a guess at it.
    """

    def __cinit__(self):
        self.answers = True

    def read(self, LogFile file, int64_t position, Py_ssize_t size):
        """file.read(position, size)."""
        cdef AlignedBuffer buffer
        cdef int64_t got, rest
        if not self.turn(file):
            return file.read(position, size)
        buffer = AlignedBuffer(size)
        got = self.look(file, buffer.data, size, position)
        if got < 0:
            return file.read(position, size)
        rest = file.read_at(buffer.data + got, size - got, position + got) if got < size else 0
        buffer.size = got + rest
        self.sampled_bytes += got + rest
        self.cached_bytes += got
        return buffer

    def probe(self, LogFile file, int64_t position, Py_ssize_t size):
        """A slice that others will read, or the kernel will send: it counts as its first byte does."""
        cdef char byte
        cdef int64_t got
        if self.turn(file):
            got = self.look(file, &byte, 1, position)
            if got >= 0:
                self.sampled_bytes += size
                self.cached_bytes += size * got

    cdef bint turn(self, LogFile file) noexcept:
        """Is this read looked at? Only the kernel's own files are: a simulated one knows no page cache."""
        if not self.answers or type(file) is not LogFile or file.fd < 0:
            return False
        self.reads += 1
        return self.reads % SAMPLED_READS == 0

    cdef int64_t look(self, LogFile file, void *buf, size_t size, int64_t position) noexcept:
        """Bytes that came without waiting; -1 if that cannot be told: a disk's error is the plain read's to tell."""
        cdef int64_t got
        if size <= HOLD_BYTES:
            got = kl_pread_cached(file.io, file.fd, buf, size, position)
        else:
            with nogil:
                got = kl_pread_cached(file.io, file.fd, buf, size, position)
        if got == -EAGAIN:
            return 0
        if got in (-EOPNOTSUPP, -EINVAL, -ENOSYS):
            self.answers = False  # nor will it the next time
        return got if got >= 0 else -1
