"""Short kernel calls under the GIL: append and pread on one open file, and the aligned buffers that reads fill.

A call releases the GIL only if it moves more than HOLD_BYTES: taking the GIL back beside a busy Python thread costs
milliseconds, a short write microseconds. A read of at most READ_HOLD_BYTES first asks the kernel, under the GIL, for
what is available without waiting. It releases the GIL for the part that must come from the disk. Calls that wait for
the disk are in _sync and in files.py, over cffi.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport ENOSYS, EOPNOTSUPP, ESPIPE
from libc.errno cimport errno as c_errno
from libc.stdint cimport int64_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from posix.fcntl cimport O_CREAT, O_RDONLY, O_RDWR
from posix.stat cimport fstat, struct_stat
from posix.types cimport dev_t
from posix.unistd cimport close

from klog._c.osio cimport (
    KL_DONTCACHE,
    iovec,
    kl_fadvise,
    kl_fallocate,
    kl_io_libc,
    kl_io_t,
    kl_pread,
    kl_pread_cached,
    kl_pwrite,
    kl_pwritev,
    kl_write_behind,
    kl_write_zeros,
)

from klog.disk._handles cimport open_regular

import errno

from klog.disk._sync import failed_sync
from klog.disk.faults import os_error, read_error

cdef extern from "stdlib.h" nogil:
    int posix_memalign(void **out, size_t alignment, size_t size)

cdef enum:
    HOLD_BYTES = 65536
    READ_HOLD_BYTES = 262144      # about 15 microseconds out of the page cache
    PAGE = 4096
    POOL_SLOTS = 8
    POOL_BYTES = 1 << 20


# Buffers of exactly POOL_BYTES are kept for the next read: fresh memory costs a page fault per 4 KiB. This, and the
# device below, are the only state of this module. It is used under the GIL; the build declares that the module needs
# it.
cdef void *_pool[POOL_SLOTS]
cdef int _pooled = 0
cdef dev_t _no_nowait = 0     # the last file system that was found not to support RWF_NOWAIT


@cython.final
cdef class AlignedBuffer:
    """size bytes that begin on a page boundary, with the read-only buffer protocol.

    64 bytes of any content follow the end, so that C may read a little past a record. exact: for one of many buffers;
    it uses no more memory than needed and begins at a multiple of 64.
    """

    def __cinit__(self, Py_ssize_t size, bint exact=False):
        global _pooled
        cdef void *memory = NULL
        if size < 0:
            raise ValueError("the size of a buffer must not be negative")
        self.size = size
        self.capacity = size + 64 if size > POOL_BYTES else POOL_BYTES + 64
        if exact or size < PAGE:
            self.capacity = size + 64
        elif size <= POOL_BYTES and _pooled > 0:
            _pooled -= 1
            self.data = <uint8_t *>_pool[_pooled]
            return
        if posix_memalign(&memory, 64 if exact else PAGE, self.capacity) != 0:
            raise MemoryError()
        self.data = <uint8_t *>memory

    def __dealloc__(self):
        global _pooled
        if self.data == NULL:
            return
        if self.capacity == POOL_BYTES + 64 and <uintptr_t>self.data % PAGE == 0 and _pooled < POOL_SLOTS:
            _pool[_pooled] = self.data
            _pooled += 1
        else:
            free(self.data)

    def __len__(self):
        return self.size

    @property
    def held_bytes(self):
        """Bytes of memory in use, which may be far more than its size: reads take buffers from a pool."""
        return self.capacity

    def to_keep(self):
        """Return a buffer fit for long storage: itself, or a copy if it holds a quarter more memory than it needs."""
        cdef AlignedBuffer copy
        if self.capacity - self.size <= self.size // 4:
            return self
        copy = AlignedBuffer(self.size, True)
        memcpy(copy.data, self.data, self.size)
        memset(copy.data + self.size, 0, 64)
        return copy

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)

    def __releasebuffer__(self, Py_buffer *view):
        pass


cdef class LogFile(Reusable):
    """One open file. Any thread may read, one may write. Closed when the last reference is dropped.

    table: address of the kl_io_t for its calls; 0 is the kernel itself.
    """

    def __cinit__(self):    # without arguments, so that it cannot fail and __dealloc__ never closes descriptor 0
        self.fd = -1
        self.inode = self.size = -1

    def __init__(self, int fd, str path, bint writable=False, uintptr_t table=0):
        self.path = path
        self.writable = writable
        self.io = <const kl_io_t *>table if table else &kl_io_libc
        self.real = table == 0
        self.fd = fd

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)

    @staticmethod
    def open(str path, bint writable=False, bint create=False, uintptr_t table=0):
        """Open a regular file. Raises OSError, also for FIFOs, directories and symlinks."""
        cdef struct_stat found
        cdef int fd = open_regular(path, (O_RDWR if writable else O_RDONLY) | (O_CREAT if create else 0), &found)
        cdef LogFile file = LogFile(fd, path, writable, table)
        file.inode, file.size, file.device = <int64_t>found.st_ino, found.st_size, found.st_dev
        file.no_nowait = file.real and found.st_dev == _no_nowait
        return file

    @property
    def opened_as(self):
        """Its inode number, and its size when it was opened."""
        cdef struct_stat found
        if self.inode < 0:
            if fstat(self.fileno(), &found) < 0:
                raise os_error(c_errno, self.path, reading=True)
            return <int64_t>found.st_ino, found.st_size
        return self.inode, self.size

    def length(self):
        """Return the file's length now, in bytes. Raises OSError; ValueError once closed."""
        cdef struct_stat found
        if fstat(self.fileno(), &found) < 0:
            raise os_error(c_errno, self.path, reading=True)
        return found.st_size

    @property
    def table(self):
        return <uintptr_t>self.io

    def close(self):
        """Close now; closing twice is allowed."""
        if self.fd >= 0:
            close(self.fd)
            self.fd = -1

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def fileno(self):
        """The descriptor. Raises ValueError once closed."""
        if self.fd < 0:
            raise ValueError(f"{self.path} is closed")
        return self.fd

    cdef int64_t read_at(self, void *buf, size_t size, int64_t position) except -1:
        cdef int64_t got = 0, more
        if self.fd < 0:
            raise ValueError(f"{self.path} is closed")
        if size <= READ_HOLD_BYTES and not self.no_nowait:
            got = kl_pread_cached(self.io, self.fd, buf, size, position)
            if got == <int64_t>size:
                return got
            if got == -errno.EOPNOTSUPP:  # some file systems do not support RWF_NOWAIT
                self.note_no_nowait()
            got = max(got, 0)
        if self.no_nowait and size <= HOLD_BYTES // 4:
            more = kl_pread(self.io, self.fd, buf, size, position)
        else:
            with nogil:
                more = kl_pread(self.io, self.fd, <uint8_t *>buf + got, size - got, position + got)
        if more < 0:
            raise read_error(<int>-more, self.path, position)
        return got + more

    cdef void note_no_nowait(self) noexcept:
        global _no_nowait
        self.no_nowait = True
        if self.real and self.inode >= 0:
            _no_nowait = self.device

    def read(self, int64_t position, Py_ssize_t size):
        """Read up to size bytes at position, as an AlignedBuffer; shorter only at the end of the file. Raises
        ReadFailed; ValueError once closed."""
        cdef AlignedBuffer buffer = AlignedBuffer(size)
        cdef int64_t got = self.read_at(buffer.data, size, position)
        buffer.size = got
        return buffer

    def write(self, data, int64_t position):
        """Write all of data at position. Raises OSError, after which any part of it may have been written."""
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            self.write_at(view.buf, <size_t>view.len, position)
        finally:
            PyBuffer_Release(&view)

    cdef int write_at(self, const void *data, size_t size, int64_t position) except -1:
        cdef int status
        if self.fd < 0:
            raise ValueError(f"{self.path} is closed")
        if self.flags:
            return self.write_flagged(data, size, position)
        if size <= HOLD_BYTES:
            status = kl_pwrite(self.io, self.fd, data, size, position)
        else:
            with nogil:
                status = kl_pwrite(self.io, self.fd, data, size, position)
        return self.check(status)

    cdef int write_flagged(self, const void *data, size_t size, int64_t position) except -1:
        cdef iovec one
        one.iov_base, one.iov_len = <void *>data, size
        return self.write_vector(&one, 1, size, position)

    def dont_cache(self):
        """From now on writes leave nothing in the page cache (RWF_DONTCACHE), and the disk starts writing at once.
        If the kernel or the file system does not support it, the first write sets `fallback`."""
        self.flags = KL_DONTCACHE

    def write_parts(self, parts, int64_t position):
        """Write these buffers one after the other, in as few calls as the kernel allows. Returns the number of bytes.
        After an OSError any part of them may have been written."""
        cdef list given = list(parts)
        cdef Py_ssize_t n = len(given), held = 0, number
        cdef int64_t size = 0
        cdef Py_buffer *views = <Py_buffer *>calloc(n + 1, sizeof(Py_buffer))
        cdef iovec *vector = <iovec *>calloc(n + 1, sizeof(iovec))
        try:
            if views == NULL or vector == NULL:
                raise MemoryError()
            for number in range(n):
                PyObject_GetBuffer(given[number], &views[number], PyBUF_SIMPLE)
                held += 1
                vector[number].iov_base, vector[number].iov_len = views[number].buf, <size_t>views[number].len
                size += views[number].len
            self.write_vector(vector, <int>n, size, position)
        finally:
            for number in range(held):
                PyBuffer_Release(&views[number])
            free(views)
            free(vector)
        return size

    cdef int write_vector(self, iovec *vector, int n, int64_t size, int64_t position) except -1:
        cdef int status, flags = self.flags
        if self.fd < 0:
            raise ValueError(f"{self.path} is closed")
        if size <= HOLD_BYTES and flags == 0:
            status = kl_pwritev(self.io, self.fd, vector, n, position, &flags)
        else:
            with nogil:
                status = kl_pwritev(self.io, self.fd, vector, n, position, &flags)
        if flags != self.flags:
            self.flags = flags
            self.fallback = True
        return self.check(status)

    cdef int check(self, int status) except -1:
        if status < 0:
            raise os_error(-status, self.path)
        return 0

    def preallocate(self, int64_t position, int64_t size, bint zeros=False):
        """Allocate blocks for a range after the end.

        The file's length stays the same. If the file system does not support it, nothing happens. zeros: write zeros
        instead, which every file system supports; the length then includes the range. Raises OSError.
        """
        cdef int status
        with nogil:
            if zeros:
                status = kl_write_zeros(self.io, self.fd, position, size)
            else:
                status = kl_fallocate(self.io, self.fd, 1, position, size)
        self.check(status)

    def write_behind(self, int64_t position, int64_t size, bint wait=False):
        """Start writing the dirty pages of a range to the disk. wait: return when they are there. Raises FailedSync,
        which is final as that of an fsync, because no later call reports it; OSError if the file system does not
        support it.
        """
        cdef int status
        with nogil:
            status = kl_write_behind(self.io, self.fd, position, size, wait)
        if status < 0:
            if -status in (ENOSYS, ESPIPE, EOPNOTSUPP):    # not supported by this file system: nothing has been started
                raise os_error(-status, self.path)
            raise failed_sync(-status, self.path)

    def advise(self, int64_t position, int64_t size, int advice):
        """posix_fadvise(2) with an os.POSIX_FADV_* advice. size 0: to the end of the file. Failures are ignored."""
        with nogil:
            kl_fadvise(self.io, self.fd, position, size, advice)
