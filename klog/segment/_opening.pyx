"""What opening a log reads of its segments: how each begins, and how the last one ends after a clean stop.

  Q1  settled_end() only confirms. It returns an end if every check that the loader makes of a cleanly closed segment
      succeeds on it; anything else is left to the loader, which repairs, or raises
  Q2  files are closed on return, and no index is mapped: an open log that is not used needs neither
  Q3  closed segments are read without read-ahead: 8 bytes each
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.errno cimport errno as c_errno
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uintptr_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy
from posix.fcntl cimport O_CLOEXEC, O_NONBLOCK, O_RDONLY, open
from posix.stat cimport S_ISREG, fstat, struct_stat
from posix.unistd cimport close, pread

from klog._c.batch cimport KL_BATCH_HEADER, kl_batch_last_offset, kl_batch_next, kl_batch_t
from klog._c.bytes cimport kl_load_u32, kl_load_u64
from klog._c.index cimport (
    KL_OFFSET_ENTRY,
    KL_TIME_ENTRY,
    kl_offset_index_floor,
    kl_offset_index_valid,
    kl_time_index_valid,
)
from klog._c.osio cimport kl_cached_t, kl_cachestat, kl_fadvise, kl_io_libc, kl_io_t, kl_pread
from klog._c.status cimport KL_OK
from klog.disk._path cimport encode_path

import errno

from klog.disk.faults import NOT_REGULAR, os_error, read_error
from klog.segment import names

cdef extern from "<fcntl.h>" nogil:
    int O_NOFOLLOW
    int POSIX_FADV_RANDOM
    int POSIX_FADV_DONTNEED

cdef enum:
    AT_ONCE = 64           # segments examined between two checks for signals
    PATH = 4096
    NAME = 32              # "/", 20 digits, ".timeindex", NUL
    PAGE = 4096
    GRAIN = 65536          # as in drop_behind
    WINDOW = 8192
    INDEX_MAX = 64 << 20
    OPEN_FAILED = 1
    READ_FAILED = 2
    NO_FILE = 3            # not a regular file


# ---- how segments begin --------------------------------------------------------------------------------------------

cdef struct Head:
    int64_t size
    int64_t inode
    int64_t first          # the first 8 bytes, a base offset; -1 if the file is shorter
    int failed             # OPEN_FAILED, READ_FAILED or NO_FILE
    int number             # errno


cdef int open_for_reading(const char *path) noexcept nogil:
    """Return a descriptor, or -errno."""
    cdef int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
    return fd if fd >= 0 else -c_errno


cdef void read_head(const kl_io_t *io, const char *path, bint drop, Head *head) noexcept nogil:
    cdef uint8_t buffer[8]
    cdef struct_stat found
    cdef kl_cached_t cached
    cdef int64_t got
    cdef int fd = open_for_reading(path)
    head.failed, head.number, head.first = 0, 0, -1
    if fd < 0:
        head.failed, head.number = OPEN_FAILED, -fd
        return
    if fstat(fd, &found) < 0:
        head.failed, head.number = OPEN_FAILED, c_errno
    elif not S_ISREG(found.st_mode):
        head.failed = NO_FILE
    else:
        head.size, head.inode = found.st_size, <int64_t>found.st_ino
        if head.size > 0:
            drop = drop and kl_cachestat(io, fd, 0, GRAIN, &cached) == 0 and cached.cached == 0
            kl_fadvise(io, fd, 0, 0, POSIX_FADV_RANDOM)
            got = kl_pread(io, fd, buffer, 8, 0)
            if got < 0:
                head.failed, head.number = READ_FAILED, <int>-got
            elif got == 8:
                head.first = <int64_t>kl_load_u64(buffer)
            if drop:
                kl_fadvise(io, fd, 0, GRAIN, POSIX_FADV_DONTNEED)
    close(fd)


def read_heads(str directory, list base_offsets, bint drop, uintptr_t table=0):
    """Return (size, inode number, first 8 bytes as a number) of each .log file; the last is -1 for a shorter file.

    drop: drop the pages that this reads from the page cache again. Raises OSError, with its path.
    """
    cdef const kl_io_t *io = <const kl_io_t *>table if table else &kl_io_libc
    cdef bytes encoded = encode_path(directory)
    cdef const char *folder = encoded
    cdef char path[PATH]
    cdef Head heads[AT_ONCE]
    cdef int64_t bases[AT_ONCE]
    cdef Py_ssize_t at, total = len(base_offsets)
    cdef int i, n
    cdef list found = []
    if len(encoded) + NAME > PATH:
        raise os_error(errno.ENAMETOOLONG, directory)
    for at in range(0, total, AT_ONCE):
        n = <int>min(total - at, AT_ONCE)
        for i in range(n):
            bases[i] = base_offsets[at + i]
        with nogil:
            for i in range(n):
                snprintf(path, PATH, "%s/%020lld.log", folder, <long long>bases[i])
                read_head(io, path, drop, &heads[i])
                if heads[i].failed:
                    break
        for i in range(n):
            if heads[i].failed:
                raise failure(names.file_path(directory, bases[i], names.LOG), &heads[i])
            found.append((heads[i].size, heads[i].inode, heads[i].first))
        PyErr_CheckSignals()
    return found


cdef object failure(str path, const Head *head):
    if head.failed == NO_FILE:
        return OSError(errno.EINVAL, NOT_REGULAR, path)
    return read_error(head.number, path, 0) if head.failed == READ_FAILED else os_error(head.number, path, reading=True)


# ---- how the last one ends -----------------------------------------------------------------------------------------

cdef struct Index:
    uint8_t first[PAGE]
    uint8_t *data          # first, or memory of its own
    int64_t size


cdef bint read_index(const char *path, Index *index) noexcept nogil:
    """Read an index file whole. A FIFO fails: it has no positions."""
    cdef struct_stat found
    cdef int64_t got
    cdef int fd = open_for_reading(path)
    cdef bint whole = False
    index.data, index.size = index.first, 0
    if fd < 0:
        return False
    got = pread(fd, index.first, PAGE, 0)
    if 0 <= got < PAGE:
        index.size, whole = got, True
    elif got == PAGE and fstat(fd, &found) == 0 and S_ISREG(found.st_mode) and found.st_size <= INDEX_MAX:
        index.data = <uint8_t *>PyMem_RawMalloc(found.st_size)
        if index.data != NULL:
            index.size = found.st_size
            memcpy(index.data, index.first, PAGE)
            whole = kl_pread(&kl_io_libc, fd, index.data + PAGE, index.size - PAGE, PAGE) == index.size - PAGE
    close(fd)
    return whole


cdef void free_index(Index *index) noexcept nogil:
    if index.data != index.first:
        PyMem_RawFree(index.data)


cdef struct Tail:
    const kl_io_t *io
    int fd
    int64_t base_offset
    int64_t size
    int64_t inode
    int64_t next_offset
    int32_t epoch
    int64_t window_at
    int64_t window_size
    uint8_t window[WINDOW]


cdef bint header(Tail *tail, int64_t at, kl_batch_t *b) noexcept nogil:
    """Parse the header of the whole batch of magic 2 at this byte; False if there is none."""
    cdef int64_t got
    if tail.size - at < KL_BATCH_HEADER:
        return False
    if not tail.window_at <= at <= tail.window_at + tail.window_size - KL_BATCH_HEADER:
        got = min(tail.size - at, WINDOW)
        tail.window_at, tail.window_size = at, 0
        if kl_pread(tail.io, tail.fd, tail.window, got, at) != got:
            return False
        tail.window_size = got
    b.position = at
    at -= tail.window_at
    return kl_batch_next(tail.window + at, tail.window_size - at, tail.size - b.position, b) == KL_OK


cdef bint scan_tail(Tail *tail, const Index *offsets, const Index *times) noexcept nogil:
    """Do the headers from the last index entry on reach the end of the file, in order, and do both last entries match
    their batches?"""
    cdef kl_batch_t b
    cdef int32_t entries = <int32_t>(offsets.size // KL_OFFSET_ENTRY)
    cdef const uint8_t *last = offsets.data + offsets.size - KL_OFFSET_ENTRY
    cdef const uint8_t *newest = times.data + times.size - KL_TIME_ENTRY
    cdef int64_t timestamp = <int64_t>kl_load_u64(newest)
    cdef int64_t timed = tail.base_offset + kl_load_u32(newest + 8)     # the last offset of the batch with this time
    cdef int64_t start = kl_load_u32(last + 4) if entries else 0, at = start
    cdef bint before, found
    tail.next_offset = tail.base_offset
    if not header(tail, at, &b):
        return False
    if entries and kl_batch_last_offset(&b) - tail.base_offset != kl_load_u32(last):
        return False
    found = before = timed < b.base_offset
    while True:
        if b.base_offset < tail.next_offset or kl_batch_last_offset(&b) - tail.base_offset > INT32_MAX:
            return False
        tail.next_offset = kl_batch_last_offset(&b) + 1
        if not found and timed < tail.next_offset:
            if b.max_timestamp != timestamp or b.base_offset > timed:
                return False
            found = True
        tail.epoch = b.leader_epoch
        at += b.size
        if at == tail.size:
            return youngest_before(tail, offsets, start, timed, timestamp) if before else found
        if not header(tail, at, &b):
            return False


cdef bint youngest_before(Tail *tail, const Index *offsets, int64_t stop, int64_t offset,
                          int64_t timestamp) noexcept nogil:
    """Has the batch of this offset, which begins before byte `stop`, this timestamp? Scans from the index entry
    below the offset, as locate() does."""
    cdef kl_batch_t b
    cdef int32_t entries = <int32_t>(offsets.size // KL_OFFSET_ENTRY)
    cdef int32_t slot = kl_offset_index_floor(offsets.data, entries, <int32_t>(offset - tail.base_offset) - 1)
    cdef int64_t at = kl_load_u32(offsets.data + slot * KL_OFFSET_ENTRY + 4) if slot >= 0 else 0
    cdef int64_t before = tail.base_offset
    while at < stop and header(tail, at, &b) and b.base_offset >= before:
        before = kl_batch_last_offset(&b) + 1
        if offset < before:
            return b.base_offset <= offset and b.max_timestamp == timestamp
        at += b.size
    return False


cdef bint confirm(Tail *tail, const char *folder, Index *offsets, Index *times) noexcept nogil:
    cdef char path[PATH]
    cdef uint8_t first[8]
    cdef struct_stat found
    cdef long long base = tail.base_offset
    cdef int32_t entries, timed
    snprintf(path, PATH, "%s/%020lld.log", folder, base)
    tail.fd = open_for_reading(path)
    if tail.fd < 0 or fstat(tail.fd, &found) < 0 or not S_ISREG(found.st_mode):
        return False
    tail.size, tail.inode = found.st_size, <int64_t>found.st_ino
    if not 0 < tail.size <= INT32_MAX:
        return False
    snprintf(path, PATH, "%s/%020lld.index", folder, base)
    if not read_index(path, offsets):
        return False
    snprintf(path, PATH, "%s/%020lld.timeindex", folder, base)
    if not read_index(path, times):
        return False
    if offsets.size % KL_OFFSET_ENTRY or times.size % KL_TIME_ENTRY or times.size == 0:
        return False
    entries, timed = <int32_t>(offsets.size // KL_OFFSET_ENTRY), <int32_t>(times.size // KL_TIME_ENTRY)
    if kl_offset_index_valid(offsets.data, entries) != entries or kl_time_index_valid(times.data, timed) != timed:
        return False
    if entries == 0 or tail.size <= WINDOW:  # the window will begin with the first batch
        tail.window_size = min(tail.size, WINDOW)
        if kl_pread(tail.io, tail.fd, tail.window, tail.window_size, 0) != tail.window_size or tail.window_size < 8:
            return False
        memcpy(first, tail.window, 8)
    elif kl_pread(tail.io, tail.fd, first, 8, 0) != 8:
        return False
    return <int64_t>kl_load_u64(first) == tail.base_offset and scan_tail(tail, offsets, times)


@cython.final
cdef class SettledEnd:
    """The end of a segment after a clean stop. leader_epoch: of its last batch."""

    cdef readonly int64_t size
    cdef readonly int64_t inode
    cdef readonly int64_t next_offset
    cdef readonly int32_t leader_epoch


def settled_end(str directory, int64_t base_offset, uintptr_t table=0):
    """Return the SettledEnd of a segment whose .log and indexes are as a clean stop leaves them; None if anything is
    different, or cannot be read.

    That is: .log begins with its base offset. Both indexes have only valid entries, the time index at least one, and
    their last entries match their batches. From the last entry on, whole batches of magic 2 with rising offsets reach
    the end of the file, and no offset is out of the segment's range. Checksums are not verified.
    """
    cdef Tail tail
    cdef Index offsets, times
    cdef bytes encoded = encode_path(directory)
    cdef const char *folder = encoded
    cdef SettledEnd end
    cdef bint settled
    if len(encoded) + NAME > PATH:
        return None
    tail.io = <const kl_io_t *>table if table else &kl_io_libc
    tail.base_offset = base_offset
    tail.window_at = tail.window_size = 0
    offsets.data, times.data = offsets.first, times.first
    with nogil:
        settled = confirm(&tail, folder, &offsets, &times)
        if tail.fd >= 0:
            close(tail.fd)
        free_index(&offsets)
        free_index(&times)
    if not settled:
        return None
    end = SettledEnd.__new__(SettledEnd)
    end.size, end.inode, end.next_offset, end.leader_epoch = tail.size, tail.inode, tail.next_offset, tail.epoch
    return end
