"""One file with two descriptors: large reads and writes use O_DIRECT, small or unaligned ones use the page cache.

    write   head: up to the next page, by the cache | whole pages, direct | tail: the rest, by the cache

  D1  no page is written both directly and through the cache, as long as writes only extend the file: a page that the
      head of a write shares is one with the tail of another. So all readers see the same bytes, by the cache, by maps
      or directly
  D2  the file's length is exactly the end of what was written
  D3  when a write returns, its bytes are in the page cache or on the disk; they are durable only after an fsync
  D4  if the file system refuses direct I/O (EINVAL: tmpfs, encrypted directories, odd block sizes), all I/O uses the
      cache, and `fallback` is True

Fewer than DIRECT_MIN bytes use the cache: a direct call waits for the disk.
"""

cimport cython
from klog._c.osio cimport KL_DIRECT_ALIGN, iovec, kl_pread_direct, kl_pwrite, kl_pwrite_direct
from klog.disk._io cimport AlignedBuffer, LogFile
from libc.stdint cimport int64_t, uint8_t, uintptr_t
from libc.string cimport memcpy
from posix.unistd cimport close

from klog.disk.faults import read_error

cdef enum:
    DIRECT_MIN = 65536
    STAGE = 1 << 20


cdef void take(iovec **parts, uint8_t *to, int64_t size) noexcept nogil:
    """Copy the next size bytes out of the parts, and advance the parts past them."""
    cdef int64_t some
    while size > 0:
        some = min(size, <int64_t>parts[0].iov_len)
        memcpy(to, parts[0].iov_base, some)
        parts[0].iov_base = <uint8_t *>parts[0].iov_base + some
        parts[0].iov_len -= some
        to += some
        size -= some
        if parts[0].iov_len == 0 and size > 0:
            parts[0] += 1


@cython.final
cdef class DirectFile(LogFile):
    """A LogFile with a second descriptor opened with O_DIRECT; -1 if the file system does not support it."""

    cdef int direct             # -1: not used, or not any more
    cdef int direct_fd          # open until the file is closed, because a reader may be in a call with it
    cdef readonly int64_t direct_bytes_written
    cdef readonly int64_t direct_bytes_read

    def __cinit__(self):
        self.direct = self.direct_fd = -1

    def __init__(self, int fd, str path, bint writable=False, uintptr_t table=0, *, int direct=-1):
        LogFile.__init__(self, fd, path, writable, table)
        self.direct = self.direct_fd = direct
        self.fallback = direct < 0

    def __dealloc__(self):
        if self.direct_fd >= 0:
            close(self.direct_fd)

    def close(self):
        """Close both descriptors now; closing twice is allowed."""
        if self.direct_fd >= 0:
            close(self.direct_fd)
        self.direct = self.direct_fd = -1
        LogFile.close(self)

    cdef int write_at(self, const void *data, size_t size, int64_t position) except -1:
        cdef iovec one
        if self.direct < 0 or size < DIRECT_MIN:
            return LogFile.write_at(self, data, size, position)
        one.iov_base, one.iov_len = <void *>data, size
        return self.write_vector(&one, 1, size, position)

    cdef int write_vector(self, iovec *vector, int n, int64_t size, int64_t position) except -1:
        cdef int64_t head = -position & (KL_DIRECT_ALIGN - 1), pages = (size - head) & ~(KL_DIRECT_ALIGN - 1), some
        cdef AlignedBuffer stage
        cdef uint8_t *given
        if self.direct < 0 or pages < DIRECT_MIN:
            return LogFile.write_vector(self, vector, n, size, position)
        stage = AlignedBuffer(STAGE)
        self.through(&vector, stage, head, position)
        position += head
        size -= head + pages
        while pages > 0:
            given = <uint8_t *>vector.iov_base
            if <uintptr_t>given % KL_DIRECT_ALIGN == 0 and <int64_t>vector.iov_len >= pages:
                self.past(given, pages, position)
                vector.iov_base = given + pages
                vector.iov_len -= pages
                position += pages
                break
            some = min(pages, <int64_t>STAGE)
            with nogil:
                take(&vector, stage.data, some)
            self.past(stage.data, some, position)
            position += some
            pages -= some
        return self.through(&vector, stage, size, position)

    cdef int through(self, iovec **vector, AlignedBuffer stage, int64_t size, int64_t position) except -1:
        """Write less than a page through the cache."""
        cdef int status
        if size == 0:
            return 0
        take(vector, stage.data, size)
        status = kl_pwrite(self.io, self.fd, stage.data, <size_t>size, position)
        return self.check(status)

    cdef int past(self, const void *data, int64_t size, int64_t position) except -1:
        """Write whole pages, direct where the file system supports it."""
        cdef int64_t done
        cdef int status
        if self.direct < 0:
            return LogFile.write_at(self, data, <size_t>size, position)
        with nogil:
            done = kl_pwrite_direct(self.io, self.direct, self.fd, data, <size_t>size, position)
        status = <int>done if done < 0 else 0
        self.check(status)
        self.direct_bytes_written += done
        if done < size:
            self.direct = -1
            self.fallback = True
        return 0

    cdef int64_t read_at(self, void *buf, size_t size, int64_t position) except -1:
        cdef int64_t low = position & ~(KL_DIRECT_ALIGN - 1), skip = position - low, done = 0, some, got
        cdef int64_t requested
        cdef AlignedBuffer stage
        cdef int direct = self.direct   # for all parts: a write in another thread may set it to -1
        if direct < 0 or size < DIRECT_MIN:
            return LogFile.read_at(self, buf, size, position)
        if skip == 0 and (<uintptr_t>buf | size) % KL_DIRECT_ALIGN == 0:
            return self.read_pages(direct, buf, size, position)
        stage = AlignedBuffer(STAGE)
        while done < <int64_t>size:
            requested = min(
                <int64_t>STAGE, (skip + <int64_t>size - done + KL_DIRECT_ALIGN - 1) & ~(KL_DIRECT_ALIGN - 1))
            if self.direct_fd < 0:
                raise ValueError(f"{self.path} is closed")
            got = self.read_pages(direct, stage.data, <size_t>requested, low)
            some = min(got - skip, <int64_t>size - done)
            if some <= 0:
                break
            with nogil:
                memcpy(<uint8_t *>buf + done, stage.data + skip, some)
            done += some
            if got < requested:
                break
            low += got
            skip = 0
        return done

    cdef int64_t read_pages(self, int direct, void *buf, size_t size, int64_t position) except -1:
        cdef int64_t got
        with nogil:
            got = kl_pread_direct(self.io, direct, self.fd, buf, size, position)
        if got < 0:
            raise read_error(<int>-got, self.path, position)
        self.direct_bytes_read += got
        return got
