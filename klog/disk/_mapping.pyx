"""A file mapped into memory, for the indexes. Never for a .log: a store that fails is a signal, not an error.

  M1  stores go only to blocks that reserve() has allocated: on a full disk reserve() raises OSError, and no store
      causes a SIGBUS
  M2  the file is never shortened below its mapped part: resize() shrinks the map first
  M3  a map keeps no descriptor, because there may be more segments than descriptors. Calls that need one open the file
      again and check that it is the same file
  M4  a new index is a hole of segment.index.bytes: without MADV_RANDOM the first store in a page would fill the
      page cache with zeros, as much as the device's read-ahead

One writer, many readers. Readers use the map under the GIL. resize() releases the GIL around ftruncate(2), and the map
stays whole during that time.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.errno cimport errno as c_errno
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uintptr_t
from libc.string cimport memcmp, memcpy
from posix.fcntl cimport O_CREAT, O_RDONLY, O_RDWR
from posix.mman cimport (
    MADV_RANDOM,
    MAP_ANONYMOUS,
    MAP_FAILED,
    MAP_PRIVATE,
    MAP_SHARED,
    MS_SYNC,
    PROT_READ,
    PROT_WRITE,
    madvise,
    mmap,
    msync,
    munmap,
)
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close

from klog._c.osio cimport kl_fallocate, kl_fsync, kl_ftruncate, kl_io_libc, kl_io_t, kl_pread, kl_pwrite

from klog.disk._handles cimport open_regular

import errno

from klog.disk._sync import failed_sync
from klog.disk.faults import os_error
from klog.errors import CorruptIndex

cdef enum:
    AHEAD = 65536
    COPY_STEP = 65536
    PAGE = 4096
    ENTRIES = 24          # both entry sizes, 8 and 12 bytes, divide it


cdef bint zeros(const uint8_t *page) noexcept:
    return page[0] == 0 and memcmp(page, page + 1, PAGE - 1) == 0


cdef int write_again(const kl_io_t *io, int fd, const uint8_t *data, int64_t at, int64_t end) noexcept:
    """Allocate blocks for [at, end) on a file system without fallocate(2): write the bytes that are mapped there.
    Returns 0 or -errno."""
    cdef uint8_t page[PAGE]
    cdef int64_t size
    cdef int status = 0
    while at < end and status == 0:
        size = min(<int64_t>PAGE, end - at)
        memcpy(page, data + at, size)   # the write locks the page in the cache: it must not read that page from the map
        status = kl_pwrite(io, fd, page, <size_t>size, at)
        at += size
    return status


@cython.final
cdef class Mapping:
    """The first `size` bytes of a file. writable: stores reach the file. found: the file's length when it was opened.

    copy: only the bytes up to the first page of zeros, copied into private memory. A file of at most a page that is not
    writable is copied too, in a fifth of the time of a map, and with less memory. An empty path: memory without a file.

    Raises OSError; CorruptIndex for a file that is larger than segment.index.bytes can be, unless size is given.
    """

    def __cinit__(self, str path, bint writable=False, int64_t size=-1, uintptr_t table=0, bint copy=False):
        cdef struct_stat status
        cdef int fd
        self.path = path
        self.writable = writable
        self.io = <const kl_io_t *>table if table else &kl_io_libc
        if not path:
            self.anonymous(size)
            return
        fd = self.open(O_CREAT if writable else 0, &status)
        try:
            self.found = status.st_size
            self.device, self.inode = status.st_dev, status.st_ino
            if self.found > INT32_MAX and not (writable and size >= 0):
                raise CorruptIndex(f"{self.found} bytes, more than an index can have", path=path)
            if copy or (not writable and self.found <= PAGE):
                self.read_in(fd)
                return
            if writable and size >= 0 and size != self.found:
                self.shape(fd, size)
            self.map(fd, size if writable and size >= 0 else self.found)
        finally:
            close(fd)

    cdef int open(self, int more, struct_stat *found) except -1:
        return open_regular(self.path, (O_RDWR if self.writable else O_RDONLY) | more, found)

    cdef int shape(self, int fd, int64_t size) except -1:
        cdef int status
        with nogil:
            status = kl_ftruncate(self.io, fd, size)
        if status < 0:
            raise os_error(-status, self.path)
        return 0

    cdef int reopen(self) except -1:
        """Return a descriptor of the mapped file. The caller closes it."""
        cdef struct_stat found
        cdef int fd
        if self.inode == 0:
            raise ValueError("only a mapped file has a length to change")
        fd = self.open(0, &found)
        if found.st_dev != self.device or found.st_ino != self.inode:
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
            if self.writable:
                madvise(memory, size, MADV_RANDOM)  # M4; if the kernel refuses, the map is still right
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

    cdef int read_in(self, int fd) except -1:
        """Read the file's bytes up to the first page of zeros: a live index consists mostly of zero pages."""
        cdef int64_t got = 0, held = 0, more = 0
        cdef uint8_t *grown
        self.copied = True
        while held < self.found:
            more = min(self.found - held, COPY_STEP)
            grown = <uint8_t *>PyMem_Realloc(self.data, held + more)
            if grown == NULL:
                raise MemoryError()
            self.data = grown
            got = kl_pread(self.io, fd, grown + held, more, held)
            if got < 0:
                raise os_error(<int>-got, self.path)
            held += got
            if got < more or (held < self.found and zeros(grown + held - PAGE)):
                break
        self.size = held if held == self.found else held // ENTRIES * ENTRIES
        return 0

    def unmap(self):
        if self.copied:
            PyMem_Free(self.data)
        elif self.data != NULL:
            munmap(self.data, self.size)
        self.data = NULL
        self.size = 0
        self.copied = False

    def __dealloc__(self):
        self.unmap()

    @property
    def is_map(self):
        """Is it a map of the file, rather than memory?"""
        return self.inode != 0 and not self.copied

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
        if status > 0:
            status = write_again(self.io, fd, self.data, self.blocks, want)
        close(fd)
        if status < 0:
            raise os_error(-status, self.path)
        self.blocks = want
        return 0

    def resize(self, int64_t size):
        """Change the file's length and map it again."""
        cdef struct_stat found
        cdef int fd = self.reopen()
        try:
            if fstat(fd, &found) < 0:
                raise os_error(c_errno, self.path, reading=True)
            if size == self.size == found.st_size:
                return
            if size < self.size:
                self.map(fd, size)
                self.shape(fd, size)
            else:
                if size != found.st_size:
                    self.shape(fd, size)
                self.map(fd, size)
        finally:
            close(fd)

    def sync(self):
        """Write the stores to disk and wait. Raises FailedSync, which is final for the directory; OSError."""
        cdef int status = 0, fd = self.reopen()
        try:
            if self.data != NULL and not self.copied:
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
    """Make the file at path hold exactly these bytes. A file that already holds them is not touched. Any other
    file is emptied first, so that it never holds a mixture of old and new bytes."""
    cdef struct_stat found
    cdef int fd, status = 0
    cdef bytearray there
    fd = open_regular(path, O_RDWR | O_CREAT, &found)
    try:
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
