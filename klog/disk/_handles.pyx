"""Which files and indexes of closed segments stay open for reuse. The CLOCK algorithm, an approximation of LRU.

  H1  a holder refers to its file and to its index, so finding one needs no look-up. Each is in at most one cache
  H2  a cache owns no reference: a value leaves it when its holder is deleted
  H3  an evicted value is closed when its last reference is dropped, so one in use stays open
  H4  the caches of a process share its descriptors and maps. When it has no descriptor left, those held here are closed

The values of a cache are a ring. `hand` is the next candidate for eviction: if it was used, it is marked unused and the
hand moves on; otherwise it is evicted. A new value is the last candidate. Any thread: each call is one step under the
GIL, and a value is released when the ring is consistent again.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR, EINVAL, EMFILE, ENFILE
from libc.errno cimport errno as c_errno
from libc.stdint cimport INT64_MAX, int64_t
from posix.fcntl cimport O_CLOEXEC, O_NONBLOCK, O_RDWR, O_WRONLY, open
from posix.resource cimport RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, rlimit
from posix.stat cimport S_ISREG, fstat, struct_stat
from posix.unistd cimport close

from klog.disk._path cimport encode_path

from klog.disk import faults

cdef extern from "<fcntl.h>" nogil:
    int O_NOFOLLOW

cdef enum:
    FILES_MIN = 16
    FILES_MAX = 16384          # 2 KiB of memory each, nearly all the kernel's; and at most one map of the usual 65,530
    RAISED = 8192              # descriptors; the usual limit of a process is 1,024
    RESERVE = 4096
    CHECK_EVERY = 64           # values kept between two checks of the limit
    INDEX_BYTES_MAX = 64 << 20


cdef class Reusable:
    """Base of what a cache may hold: open files and indexes."""

    def __dealloc__(self):
        if self.holder != NULL:
            (<Handles>self.cache).take_out(self)


@cython.no_gc_clear     # it removes its values from their cache first; its own fields are in no reference cycle
cdef class Holder:
    """Base of what may have a file and an index open: a closed segment."""

    def __dealloc__(self):
        if self.kept_file is not None and self.kept_file.holder == <void *>self:
            (<Handles>self.kept_file.cache).take_out(self.kept_file)
        if self.kept_index is not None and self.kept_index.holder == <void *>self:
            (<Handles>self.kept_index.cache).take_out(self.kept_index)


def share(int64_t allowed):
    """Return how many files may be held open for reuse by a process that may have this many descriptors: a quarter of
    them. If its limit was raised, a quarter of them, at least RESERVE, is left for other uses."""
    if allowed < RAISED:
        return max(FILES_MIN, allowed // 4)
    return min(FILES_MAX, allowed - max(RESERVE, allowed // 4))


@cython.final
cdef class Handles:
    """The files, or the indexes, that are held for reuse. limit: the largest sum of their weights; a file weighs 1, an
    index its bytes. -1: the process's cache, which follows its limits."""

    cdef bint of_files
    cdef bint follows
    cdef void *hand
    cdef Py_ssize_t count
    cdef int64_t weight
    cdef readonly int64_t limit
    cdef int since          # values kept since the last check of the limit

    def __cinit__(self, bint of_files, int64_t limit=-1):
        if limit == 0 or limit < -1:
            raise ValueError(f"limit={limit}: must be at least 1")
        self.of_files = of_files
        self.follows = limit < 0 and of_files
        self.limit = INDEX_BYTES_MAX if limit < 0 else limit
        if self.follows:
            self.follow()

    def __dealloc__(self):
        while self.hand != NULL:
            self.take_out(<Reusable>self.hand)

    def __len__(self):
        return self.count

    cdef void follow(self) noexcept:
        """Read the process's limit, which may change at any time."""
        cdef rlimit found
        self.since = 0
        if getrlimit(RLIMIT_NOFILE, &found) == 0:
            self.limit = share(INT64_MAX if found.rlim_cur == RLIM_INFINITY else <int64_t>found.rlim_cur)

    cdef void take_out(self, Reusable value) noexcept:
        """Remove a value from the ring; its holder still refers to it."""
        if value.newer == <void *>value:
            self.hand = NULL
        else:
            (<Reusable>value.newer).older = value.older
            (<Reusable>value.older).newer = value.newer
            if self.hand == <void *>value:
                self.hand = value.newer
        value.holder = value.cache = value.newer = value.older = NULL
        self.weight -= value.weight
        self.count -= 1

    cdef void put_last(self, Reusable value) noexcept:
        cdef Reusable hand
        if self.hand == NULL:
            self.hand = value.newer = value.older = <void *>value
        else:
            hand = <Reusable>self.hand
            value.newer, value.older = self.hand, hand.older
            (<Reusable>hand.older).newer = <void *>value
            hand.older = <void *>value
        self.weight += value.weight
        self.count += 1

    cdef Reusable release(self, Reusable value):
        """Remove a value from the ring and from its holder. Returns it: the caller drops the last reference."""
        cdef Holder holder = <Holder>value.holder
        self.take_out(value)
        if self.of_files:
            holder.kept_file = None
        else:
            holder.kept_index = None
        return value

    cdef Reusable evict(self):
        cdef Reusable value = <Reusable>self.hand
        while value.used:
            value.used = False
            self.hand = value.newer
            value = <Reusable>self.hand
        return self.release(value)

    def find(self, Holder holder not None):
        """Return the value that the holder has open, None if it has none."""
        return found_file(holder) if self.of_files else found_index(holder)

    def keep(self, Holder holder not None, Reusable value not None, int64_t weight=1):
        """Hold a value of this weight from now on. Returns it, or the one that another thread has stored first. Raises
        ValueError if the value is held for another segment."""
        cdef Reusable kept = holder.kept_file if self.of_files else holder.kept_index
        cdef list evicted = []
        if kept is not None:
            return kept
        if value.holder != NULL:
            raise ValueError("the value is already held for another segment")
        self.since += 1
        if self.follows and self.since >= CHECK_EVERY:
            self.follow()
        value.weight, value.used = weight, False
        value.holder, value.cache = <void *>holder, <void *>self
        if self.of_files:
            holder.kept_file = value
        else:
            holder.kept_index = value
        self.put_last(value)
        while self.weight > self.limit and self.count > 1:
            evicted.append(self.evict())
        return value

    def drop(self, Holder holder not None):
        """Stop holding the value that the holder has open, if it has one."""
        cdef Reusable value = holder.kept_file if self.of_files else holder.kept_index
        if value is None:
            return
        if value.cache != NULL:     # else its cache has been deleted
            (<Handles>value.cache).take_out(value)
        if self.of_files:
            holder.kept_file = None
        else:
            holder.kept_index = None

    def clear(self):
        """Stop holding all values."""
        while self.hand != NULL:
            self.release(<Reusable>self.hand)


FILES = Handles(True)
INDEXES = Handles(False)


def open_fd(str path, int flags):
    """Open a regular file and return its descriptor. Raises OSError, also for FIFOs, directories and symlinks."""
    cdef struct_stat found
    return open_regular(path, flags, &found)


cdef int open_regular(str path, int flags, struct_stat *found) except -1:
    """Open a regular file and return its descriptor and its status. Raises OSError, also for FIFOs, directories and
    symlinks. When no descriptor is free, those held for reuse are closed."""
    cdef bytes encoded = encode_path(path)
    cdef const char *name = encoded
    cdef int fd, status, number
    cdef bint reading = flags & (O_RDWR | O_WRONLY) == 0, cleared = False
    flags |= O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK
    while True:
        with nogil:
            fd = open(name, flags, 0o640)
            number = c_errno
            status = -1 if fd < 0 else fstat(fd, found)
            if fd >= 0 and status < 0:
                number = c_errno
                close(fd)
        if status == 0:
            break
        if number == EINTR:
            PyErr_CheckSignals()
        elif number in (EMFILE, ENFILE) and not cleared:
            FILES.clear()
            cleared = True
        else:
            raise faults.os_error(number, path, reading=reading)
    if not S_ISREG(found.st_mode):
        close(fd)
        raise OSError(EINVAL, faults.NOT_REGULAR, path)
    return fd
