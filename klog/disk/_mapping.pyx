"""A file mapped into memory, for the indexes. Never for .log: a failing store is a signal there, not an error.

  M1  stores go only to blocks that reserve() has allocated: a full disk is an OSError here, never a SIGBUS
  M2  the file is never shortened below its mapped part: resize() shrinks the map first
  M3  a map keeps no descriptor, because there may be more segments than descriptors. Calls that need one open the file
      again and check that it is the same file
One writer, many readers. Readers use the map under the GIL. resize() releases the GIL around ftruncate(2), and the map
stays whole during that time.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.errno cimport errno as c_errno
from libc.stdint cimport int64_t, uint8_t, uintptr_t
from libc.string cimport memcmp, memcpy
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, MAP_SHARED, MS_SYNC, PROT_READ, PROT_WRITE, mmap, msync, munmap
from posix.unistd cimport close

from klog._c.osio cimport kl_fallocate, kl_fsync, kl_ftruncate, kl_io_libc, kl_io_t, kl_pread, kl_pwrite

import errno
import os

from klog.disk._sync import failed_sync
from klog.disk.faults import naming_the_next_step, os_error

cdef enum:
    AHEAD = 65536
    COPY_STEP = 65536
    PAGE = 4096
    ENTRIES = 24          # whole entries of either index


@cython.final
cdef class Mapping:
    """The first `size` bytes of a file. writable: stores reach the file. found: the file's length when it was opened.

    copy: the bytes up to the first page of zeros, copied into private memory. An empty path: memory without a file.
    """

    def __cinit__(self, str path, bint writable=False, int64_t size=-1, uintptr_t table=0, bint copy=False):
        cdef int fd = -1
        self.path = path
        self.writable = writable
        self.io = <const kl_io_t *>table if table else &kl_io_libc
        if not path:
            self.anonymous(size)
            return
        fd = self.open(os.O_CREAT if writable else 0)
        try:
            status = os.fstat(fd)
            if (status.st_mode & 0o170000) != 0o100000:
                raise OSError(errno.EINVAL, "not a regular file", path)
            self.device, self.inode = status.st_dev, status.st_ino
            self.found = status.st_size
            if copy:
                self.read_in(fd)
                return
            if writable and size >= 0 and size != status.st_size:
                self.shape(fd, size)
            self.map(fd, size if writable and size >= 0 else status.st_size)
        finally:
            close(fd)

    cdef int open(self, int more) except -1:
        flags = (os.O_RDWR if self.writable else os.O_RDONLY) | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        with naming_the_next_step(self.path, not self.writable):
            return os.open(self.path, flags | more, 0o640)

    cdef int shape(self, int fd, int64_t size) except -1:
        cdef int status
        with nogil:
            status = kl_ftruncate(self.io, fd, size)
        if status < 0:
            raise os_error(-status, self.path)
        return 0

    cdef int reopen(self) except -1:
        """Return a descriptor of the mapped file. The caller closes it."""
        cdef int fd
        if self.inode == 0:
            raise ValueError("only a mapped file has a length to change")
        fd = self.open(0)
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != (self.device, self.inode):
            close(fd)
            raise OSError(errno.ESTALE, "another file has replaced the one that is mapped", self.path)
        return fd

    def moved(self, str path):
        """Set the file's new path after its directory was renamed."""
        self.path = path

    cdef int map(self, int fd, int64_t size) except -1:
        """Map the first size bytes in place of the old map. One step under the GIL: readers never find it unmapped."""
        cdef void *memory = NULL
        if size > 0:
            memory = mmap(NULL, size, PROT_READ | PROT_WRITE if self.writable else PROT_READ, MAP_SHARED, fd, 0)
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

    def read_in(self, int fd):
        """Read the file's bytes up to the first page of zeros: a live index consists mostly of zero pages."""
        cdef bytearray piece = bytearray(COPY_STEP)
        cdef int64_t got
        data = bytearray()
        while len(data) < self.found:
            got = kl_pread(self.io, fd, PyByteArray_AS_STRING(piece), COPY_STEP, len(data))
            if got < 0:
                raise os_error(<int>-got, self.path)
            del piece[got:]
            data += piece
            if len(piece) < COPY_STEP or not piece[-PAGE:].strip(b"\0"):
                break
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

    cdef int reserve(self, int64_t upto) except -1:
        """Allocate blocks for [0, upto), 64 KiB ahead."""
        cdef int64_t want
        cdef int status, fd
        if upto <= self.blocks:
            return 0
        if upto > self.size:
            raise ValueError(f"{self.path}: {upto} bytes requested, {self.size} mapped")
        want = min(self.size, (upto + AHEAD - 1) // AHEAD * AHEAD)
        fd = self.reopen()
        status = kl_fallocate(self.io, fd, 0, self.blocks, want - self.blocks)
        close(fd)
        if status < 0:
            raise os_error(-status, self.path)
        self.blocks = want
        return 0

    def resize(self, int64_t size):
        """Change the file's length and map it again."""
        cdef int fd = self.reopen()
        try:
            if size == self.size and os.fstat(fd).st_size == size:
                return
            if size < self.size:
                self.map(fd, size)
                self.shape(fd, size)
            else:
                self.shape(fd, size)
                self.map(fd, size)
        finally:
            close(fd)

    def sync(self):
        """Write the stores to disk and wait. OSError is final for the directory."""
        cdef int status = 0, fd = self.reopen()
        try:
            if self.data != NULL:
                with nogil:
                    status = msync(self.data, self.size, MS_SYNC)
                    if status != 0:
                        status = -c_errno
            if status == 0:
                with nogil:
                    status = kl_fsync(self.io, fd)
            if status < 0:
                raise failed_sync(-status, self.path)
        finally:
            close(fd)

    def close(self):
        """Unmap; closing twice is allowed."""
        self.unmap()


cdef int store(str path, const uint8_t *data, int64_t size, const kl_io_t *io) except -1:
    """Make the file at path hold exactly these bytes. A file that already holds them is not touched. A file that cannot
    be kept is emptied first, so that it never holds a mixture of old and new bytes."""
    cdef int fd = -1, status = 0
    cdef bytearray there
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with naming_the_next_step(path):
        fd = os.open(path, flags, 0o640)
    try:
        found = os.fstat(fd)
        if (found.st_mode & 0o170000) != 0o100000:
            raise OSError(errno.EINVAL, "not a regular file", path)
        if found.st_size == size:
            there = bytearray(size)
            if kl_pread(io, fd, PyByteArray_AS_STRING(there), size, 0) == size and \
                    memcmp(PyByteArray_AS_STRING(there), data, size) == 0:
                return 0
        status = kl_ftruncate(io, fd, 0)
        if status == 0:
            status = kl_pwrite(io, fd, data, size, 0)
        if status < 0:
            raise os_error(-status, path)
    finally:
        close(fd)
    return 0
