"""Directories: their identity, and one pass by getdents64(2) over the names of the entries, without a stat(2) of any.

A pass makes no Python object per entry and takes 32 KiB of memory, however many entries there are.
"""

cimport cython
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.errno cimport EINTR, ENOENT, ENOTDIR
from libc.errno cimport errno as c_errno
from libc.stdint cimport int64_t
from posix.fcntl cimport O_CLOEXEC, O_DIRECTORY, O_RDONLY, open
from posix.stat cimport S_ISDIR, lstat, stat, struct_stat
from posix.unistd cimport close

from klog.disk._path cimport encode_path

from klog.disk.faults import os_error

cdef extern from * nogil:
    """
    #include <fcntl.h>
    #include <stdint.h>
    #include <sys/syscall.h>
    #include <unistd.h>

    struct kl_dirent { uint64_t d_ino; int64_t d_off; uint16_t d_reclen; uint8_t d_type; char d_name[]; };

    static inline int64_t kl_getdents(int fd, void *buffer, unsigned size) {
        return syscall(SYS_getdents64, fd, buffer, size);
    }

    /* By its number: older C libraries have no renameat2(2). 2 is RENAME_EXCHANGE. */
    static inline int kl_exchange(const char *path, const char *other) {
        return (int)syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, other, 2);
    }
    """
    struct kl_dirent:
        unsigned short d_reclen
        char d_name[1]
    int64_t kl_getdents(int fd, void *buffer, unsigned size)
    int kl_exchange(const char *path, const char *other)

cdef enum:
    BUFFER = 32768


def identity_of(str path, *, bint links=True):
    """Return device and inode, which a directory keeps when it is renamed; None if there is no directory. links: follow
    a symbolic link, else a link is not a directory. Raises OSError if the kernel reports another error."""
    cdef bytes encoded = encode_path(path)
    cdef const char *at = encoded
    cdef struct_stat found
    cdef int status
    with nogil:
        status = stat(at, &found) if links else lstat(at, &found)
    if status < 0 and c_errno not in (ENOENT, ENOTDIR):
        raise os_error(c_errno, path, reading=True)
    return (found.st_dev, found.st_ino) if status == 0 and S_ISDIR(found.st_mode) else None


def exchange(str path, str other):
    """Exchange two names of one file system in one step. Raises OSError: EINVAL or ENOSYS if it cannot do that."""
    cdef bytes encoded = encode_path(path), encoded_other = encode_path(other)
    cdef const char *at = encoded
    cdef const char *other_at = encoded_other
    cdef int status
    with nogil:
        status = kl_exchange(at, other_at)
    if status < 0:
        raise os_error(c_errno, path)


@cython.final
cdef class DirectoryPass:
    """The entries of a directory except `.` and `..`, in the order of the file system. Raises OSError."""

    def __cinit__(self):    # without arguments, so that it cannot fail and __dealloc__ never closes descriptor 0
        self.fd = -1

    def __init__(self, str path):
        cdef bytes encoded = encode_path(path)
        cdef const char *at = encoded
        self.path = path
        self.buffer = <char *>PyMem_RawMalloc(BUFFER)
        if self.buffer == NULL:
            raise MemoryError()
        with nogil:
            self.fd = open(at, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        if self.fd < 0:
            raise os_error(c_errno, path, reading=True)

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)
        PyMem_RawFree(self.buffer)

    cdef int64_t fill(self) except -1:
        """Read the next entries. Returns the number of bytes, 0 at the end."""
        cdef int number = EINTR
        with nogil:
            while number == EINTR:
                self.filled = kl_getdents(self.fd, self.buffer, BUFFER)
                number = c_errno if self.filled < 0 else 0
        if number:
            raise os_error(number, self.path, reading=True)
        self.at = 0
        return self.filled

    cdef const char *next_name(self) except? NULL:
        """Return the next name, valid until the next call; NULL at the end, and the directory is closed."""
        cdef kl_dirent *entry
        while self.fd >= 0:
            if self.at >= self.filled and self.fill() == 0:
                close(self.fd)
                self.fd = -1
                break
            entry = <kl_dirent *>(self.buffer + self.at)
            self.at += entry.d_reclen
            if entry.d_name[0] == c'.' and (entry.d_name[1] == 0 or (entry.d_name[1] == c'.' and entry.d_name[2] == 0)):
                continue
            return entry.d_name
        return NULL
