"""A file mapped into memory, for the indexes. Never for .log: a store that fails there is a signal, not an error.

  M1  a store goes only to blocks that reserve() has allocated: a full disk is an OSError here, never a SIGBUS
  M2  nobody shortens the file below what is mapped of it: resize() gives up the end of the map first
One writer, many readers. A reader looks at the map under the GIL; resize() lets go of it around ftruncate(2), and keeps
the map whole there.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memcpy
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, MAP_SHARED, MS_SYNC, PROT_READ, PROT_WRITE, mmap, msync, munmap
from posix.unistd cimport close

from klog._c.osio cimport kl_fallocate, kl_io_libc, kl_io_t

import errno
import os

cdef enum:
    AHEAD = 65536
    COPY_STEP = 65536
    PAGE = 4096
    ENTRIES = 24          # whole entries of either index


@cython.final
cdef class Mapping:
    """The first `size` bytes of a file. writable: stores reach the file. found: the file's length when it was opened.

    copy: the bytes up to the first page of zeros, read into memory of our own. An empty path: memory without a file.
    """

    def __cinit__(self, str path, bint writable=False, int64_t size=-1, uintptr_t table=0, bint copy=False):
        self.fd = -1
        self.path = path
        self.writable = writable
        self.io = <const kl_io_t *>table if table else &kl_io_libc
        if not path:
            self.anonymous(size)
            return
        flags = (os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY) | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self.fd = os.open(path, flags, 0o640)
        try:
            status = os.fstat(self.fd)
            if (status.st_mode & 0o170000) != 0o100000:
                raise OSError(errno.EINVAL, "not a regular file", path)
            self.found = status.st_size
            if copy:
                self.read_in()
                return
            if writable and size >= 0 and size != status.st_size:
                os.ftruncate(self.fd, size)
            self.map(size if writable and size >= 0 else status.st_size)
        except BaseException:
            close(self.fd)
            self.fd = -1
            raise

    def map(self, int64_t size):
        """Map the first size bytes in place of what was mapped. One step under the GIL: no reader meets a gap."""
        cdef void *memory = NULL
        if size > 0:
            memory = mmap(NULL, size, PROT_READ | PROT_WRITE if self.writable else PROT_READ, MAP_SHARED, self.fd, 0)
            if memory == MAP_FAILED:
                raise OSError(errno.ENOMEM, "cannot map; raise vm.max_map_count or open fewer segments", self.path)
        self.unmap()
        self.data = <uint8_t *>memory
        self.size = size
        self.blocks = 0

    def anonymous(self, int64_t size):
        cdef void *memory
        if size > 0:
            memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
            if memory == MAP_FAILED:
                raise MemoryError()
            self.data = <uint8_t *>memory
        self.size = self.found = self.blocks = max(size, 0)

    def read_in(self):
        """The file's bytes, until a page of zeros says that nothing follows: a live index is mostly such pages."""
        cdef bytes piece
        data = bytearray()
        while len(data) < self.found:
            piece = os.pread(self.fd, COPY_STEP, len(data))
            data += piece
            if len(piece) < COPY_STEP or not piece[-PAGE:].strip(b"\0"):
                break
        close(self.fd)
        self.fd = -1
        size, found = len(data) // ENTRIES * ENTRIES if len(data) < self.found else len(data), self.found
        self.anonymous(size)
        self.found = found
        if size:
            memcpy(self.data, PyByteArray_AS_STRING(data), size)

    def unmap(self):
        if self.data != NULL:
            munmap(self.data, self.size)
            self.data = NULL
        self.size = 0

    def __dealloc__(self):
        if self.data != NULL:
            munmap(self.data, self.size)
        if self.fd >= 0:
            close(self.fd)

    cdef int reserve(self, int64_t upto) except -1:
        """Allocate blocks for [0, upto), 64 KiB ahead."""
        cdef int64_t want
        cdef int status
        if upto <= self.blocks:
            return 0
        if upto > self.size:
            raise ValueError(f"{self.path}: {upto} bytes asked for, {self.size} mapped")
        want = min(self.size, (upto + AHEAD - 1) // AHEAD * AHEAD)
        status = kl_fallocate(self.io, self.fd, 0, self.blocks, want - self.blocks)
        if status < 0:
            raise OSError(-status, os.strerror(-status), self.path)
        self.blocks = want
        return 0

    def resize(self, int64_t size):
        """Give the file another length and map it anew."""
        if self.fd < 0:
            raise ValueError("only a mapped file has a length to change")
        if size == self.size and os.fstat(self.fd).st_size == size:
            return
        if size < self.size:
            self.map(size)
            os.ftruncate(self.fd, size)
        else:
            os.ftruncate(self.fd, size)
            self.map(size)

    def sync(self):
        """Write the stores to disk and wait. OSError is final for the directory."""
        if self.data != NULL and msync(self.data, self.size, MS_SYNC) != 0:
            raise OSError(errno.EIO, "msync failed", self.path)
        os.fsync(self.fd)

    def close(self):
        """Unmap and close; a second time is no error."""
        self.unmap()
        if self.fd >= 0:
            close(self.fd)
            self.fd = -1
