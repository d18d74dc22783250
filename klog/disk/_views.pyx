"""Views of a .log file without a copy: mapped memory whose content stays the same, even if the file is shortened.

  V1  a view covers only bytes that were in the file when it was made: reading it is never a SIGBUS
  V2  code that shortens a file calls begin_cut() first: the mapped part that will be cut is replaced by a copy at the
      same addresses, so that existing views keep their bytes
  V3  between begin_cut() and end_cut() no view of that part can be made
  V4  code that releases a log's lock calls let_go() first, and a fork does the same for every map: after that another
      process may shorten the file. The bytes of views are then private memory, plus at most WINDOW for each

This holds for cuts by this process, so only the process that holds a log's lock may map its files. A reader
copies instead if another process writes the log, or if the log was closed. A page that the disk cannot deliver is a
signal, as with every map. There is one map per open file, as large as the file may soon be. It is released with the
last view of it and with the file.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from klog.disk._io cimport LogFile
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap
from posix.stat cimport fstat, struct_stat
from posix.types cimport dev_t, ino_t

import errno
import os

cdef extern from "sys/mman.h" nogil:
    void *mremap(void *old, size_t old_size, size_t new_size, int flags, void *new)
    int MREMAP_MAYMOVE
    int MREMAP_FIXED
    int MAP_NORESERVE

cdef enum:
    WINDOW = 4 << 20      # views cut out of one FileView lie within this much of the file, unless they are larger
    SPARE = 1 << 20       # mapped after the current end at least, because appends continue there

cdef int64_t PAGE = os.sysconf("SC_PAGESIZE")     # 16 or 64 KiB on some aarch64 kernels

# Other openers of the same file in this process matter too, so this state is global to the process. Other threads may
# run wherever Python allocates or is called: the maps are linked in C, so that the list does not change while
# all_maps() reads it.
cdef void *_newest = NULL  # FileMap, a linked list
cdef dict _cuts = {}      # (device, inode) -> the length that the file is about to get


cdef list all_maps():
    cdef list maps = []
    cdef void *each = _newest
    while each != NULL:
        maps.append(<FileMap>each)
        each = (<FileMap>each).older
    return maps


@cython.final
cdef class FileMap:
    """The first `size` bytes of a file, and of its expected growth. `valid` of them are known to be in the file."""

    cdef uint8_t *data
    cdef int64_t size, valid
    cdef dev_t device
    cdef ino_t inode
    cdef int64_t own_from  # from this byte on it is private memory
    cdef bint cut          # new views need another map
    cdef void *newest      # FileView, a linked list; one leaves it when it is deleted
    cdef void *older
    cdef void *newer

    def __cinit__(self, LogFile file, int64_t end):
        global _newest
        cdef void *memory
        cdef int64_t size = SPARE
        self.learn(file)
        if end > self.valid:
            return
        while size < self.valid:
            size *= 2
        memory = mmap(NULL, size, PROT_READ, MAP_SHARED, file.fd, 0)
        if memory == MAP_FAILED:
            raise OSError(errno.ENOMEM, "cannot map; raise vm.max_map_count", file.path)
        self.data = <uint8_t *>memory
        self.size = self.own_from = size
        self.older = _newest
        if _newest != NULL:
            (<FileMap>_newest).newer = <void *>self
        _newest = <void *>self
        self.learn(file)  # again: a cut under way may have missed this map; a later cut exchanges it

    cdef int learn(self, LogFile file) except -1:
        """Read the file's length, or the length it will have after a cut. `cut` is set if it is cut meanwhile."""
        cdef struct_stat status
        about_to_be = _cuts.get((self.device, self.inode))  # first: the cut may be complete when the length is read
        if fstat(file.fd, &status) != 0:
            raise OSError(errno.EIO, "fstat failed", file.path)
        self.device, self.inode, self.valid = status.st_dev, status.st_ino, status.st_size
        if about_to_be is not None:
            self.valid = min(self.valid, <int64_t>about_to_be)
        return 0

    cdef int exchange(self, int64_t start, int64_t end) except -1:
        """Replace bytes [start, end) by private memory with the same content. A later cut may start at a lower byte."""
        cdef int64_t low = start & ~(PAGE - 1), high
        cdef void *copy
        end = min(end, self.own_from)
        high = (end + PAGE - 1) & ~(PAGE - 1)
        self.cut = True
        if self.data == NULL or end <= start:
            return 0
        copy = mmap(NULL, high - low, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if copy == MAP_FAILED:
            raise MemoryError("not enough memory to keep the views of a log that is about to be truncated")
        memcpy(copy, self.data + low, end - low)
        if mremap(copy, high - low, high - low, MREMAP_MAYMOVE | MREMAP_FIXED, self.data + low) == MAP_FAILED:
            munmap(copy, high - low)
            raise MemoryError("could not keep the views of a log that is about to be truncated")
        self.own_from = low
        return 0

    cdef int own(self) except -1:
        """Detach from the file: the bytes of views become private memory, the rest reads as zeros."""
        cdef FileView view
        cdef void *each = self.newest
        cdef void *copy
        self.cut = True
        if self.data == NULL or self.own_from == 0:
            return 0
        copy = mmap(NULL, self.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        if copy == MAP_FAILED:
            raise MemoryError("not enough memory to keep the views of a log")
        while each != NULL:
            view = <FileView>each
            if view.high > view.low:
                memcpy(<uint8_t *>copy + view.low, self.data + view.low, view.high - view.low)
            each = view.older
        if mremap(copy, self.size, self.size, MREMAP_MAYMOVE | MREMAP_FIXED, self.data) == MAP_FAILED:
            munmap(copy, self.size)
            raise MemoryError("could not keep the views of a log")
        self.own_from = 0
        return 0

    def __dealloc__(self):
        global _newest
        if self.data == NULL:
            return
        if self.newer != NULL:
            (<FileMap>self.newer).older = self.older
        else:
            _newest = self.older
        if self.older != NULL:
            (<FileMap>self.older).newer = self.newer
        munmap(self.data, self.size)


@cython.final
@cython.no_gc_clear
cdef class FileView:
    """The part of a map that was in the file when this was made, with the read-only buffer protocol. It keeps the map.

    [low, high): the range of the views made of it. The map lists it while it lives.
    """

    cdef FileMap map
    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef int64_t low, high
    cdef void *older
    cdef void *newer

    def __cinit__(self, FileMap map):
        self.map = map
        self.data = map.data
        self.size = min(map.valid, map.size)
        self.low = self.size
        self.older = map.newest
        if self.older != NULL:
            (<FileView>self.older).newer = <void *>self
        map.newest = <void *>self

    def __dealloc__(self):
        if self.newer != NULL:
            (<FileView>self.newer).older = self.older
        elif self.map is not None:
            self.map.newest = self.older
        if self.older != NULL:
            (<FileView>self.older).newer = self.newer

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)

    def __releasebuffer__(self, Py_buffer *view):
        pass


def view_of(LogFile file, int64_t position, int64_t size):
    """Return a memoryview of size bytes of the file without a copy; None if they are not in the file, or if the file is
    not the kernel's."""
    cdef FileMap map
    cdef FileView view
    cdef int64_t end = position + size
    if position < 0 or size < 0 or file.fd < 0 or not file.real:
        return None
    while True:
        map = file.map
        if map is None or map.cut or end > map.size:
            map = FileMap(file, end)
            if map.data == NULL:
                return None
            file.map = map
        elif end > map.valid:
            map.learn(file)
        if end > map.valid:
            return None
        whole = file.mapped
        if whole is None or end > PyMemoryView_GET_BUFFER(whole).len \
                or PyMemoryView_GET_BUFFER(whole).buf != map.data \
                or not within(<FileView>PyMemoryView_GET_BUFFER(whole).obj, position, end):
            view = FileView.__new__(FileView, map)
            view.low = position
            view.high = end
            whole = file.mapped = PyMemoryView_FromObject(view)
        if not map.cut:  # from here on a cut or a let_go() finds this view
            return part(whole, position, size)  # cheaper than a view of a new FileView


cdef bint within(FileView view, int64_t position, int64_t end):
    """May this view be cut out of `view`? If so, it is counted there."""
    position = min(position, view.low)
    end = max(end, view.high)
    if end - position > WINDOW and view.high > view.low:
        return False
    view.low = position
    view.high = end
    return True


cdef object part(object whole, Py_ssize_t position, Py_ssize_t size):
    """Return whole[position:position + size] of a contiguous view of bytes, in half the time: without a slice and two
    int objects. The new view is not shared yet, and its flags hold for every part."""
    cdef object made = PyMemoryView_FromObject(whole)
    cdef Py_buffer *view = PyMemoryView_GET_BUFFER(made)
    view.buf = <uint8_t *>view.buf + position
    view.len = view.shape[0] = size
    return made


def begin_cut(int fd, int64_t size):
    """Prepare to shorten a file to size bytes: V2, V3. Pass the result to end_cut(). Raises MemoryError: do not shorten
    the file then."""
    cdef struct_stat status
    cdef FileMap map
    if fstat(fd, &status) != 0 or size >= status.st_size:
        return None
    key = status.st_dev, status.st_ino
    _cuts[key] = size  # first: a map that is not in the list below reads it
    try:
        for map in all_maps():
            if map.device == status.st_dev and map.inode == status.st_ino:
                map.exchange(size, status.st_size)
    except BaseException:
        del _cuts[key]
        raise
    return key


def end_cut(key):
    """Call it when the file has its new length, or has kept the old one."""
    _cuts.pop(key, None)


def let_go(directory):
    """Detach the views of the files in a directory (V4), before this process gives up its lock; of all files, if the
    directory cannot be listed. From then on FetchData makes no views of them. Raises MemoryError, after which some views
    may still be of the files."""
    cdef FileMap map
    maps = all_maps()
    if not maps:
        return
    try:
        device = os.stat(directory).st_dev
        with os.scandir(directory) as entries:
            inodes = {entry.inode() for entry in entries}
    except OSError:
        inodes = None
    for map in maps:
        if inodes is None or (map.device == device and map.inode in inodes):
            map.own()


def _before_fork():
    """V4, in the parent: the child then has the copies, also if the file is shortened while the child starts."""
    cdef FileMap map
    for map in all_maps():
        map.own()


os.register_at_fork(before=_before_fork)
