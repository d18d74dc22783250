"""Views of a .log file without a copy: mapped memory that stays what it is, even when the file is shortened.

  V1  a view covers bytes that were in the file when it was made, and only those: touching it is never a SIGBUS
  V2  whoever shortens a file calls begin_cut() first: what is mapped of the part to go is exchanged for a copy of it,
      at the same addresses, so that views which somebody holds keep their bytes
  V3  between begin_cut() and end_cut() no view of that part can be made
  V4  who gives up a log's lock calls let_go() first, and a fork does so for every map: from then on another process may
      shorten the file. What views cover, rounded up by at most WINDOW for each, is memory of our own afterwards

This holds for cuts by this process, so only the process that holds a log's lock may map it; a reader beside another
process's writer copies, and so does who asks once the log is closed. A page that the disk cannot give is a signal, as with every map. One map per open file, as
large as the file may soon be: it goes with the last view of it and with the file.
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
    PAGE = 4096
    WINDOW = 4 << 20      # views cut out of one FileView lie within so much of the file, if they are no larger
    SPARE = 1 << 20       # at least so much is mapped: appends go on behind what is there now

# Files are the machine's, whoever in the process has them open, so this is of the whole process. Other threads may run
# wherever Python allocates or is called: the maps are linked in C, so that none comes or goes while they are listed.
cdef void *_newest = NULL  # FileMap, which link to each other
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
    """The first `size` bytes of a file and of what it will grow by. `valid` of them are known to be in the file."""

    cdef uint8_t *data
    cdef int64_t size, valid
    cdef dev_t device
    cdef ino_t inode
    cdef int64_t own_from  # from this byte on it is memory of our own
    cdef bint cut          # views made from now on need another map
    cdef void *newest      # FileView, which link to each other and go out of the list when nobody has a view of them
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
        self.learn(file)  # again: who cuts it just now may not know of this map, who does so from here on exchanges it

    cdef int learn(self, LogFile file) except -1:
        """How long is the file, or will be at once? A cut that comes meanwhile is seen by `cut`."""
        cdef struct_stat status
        about_to_be = _cuts.get((self.device, self.inode))  # first: the cut may be through when we have the length
        if fstat(file.fd, &status) != 0:
            raise OSError(errno.EIO, "fstat failed", file.path)
        self.device, self.inode, self.valid = status.st_dev, status.st_ino, status.st_size
        if about_to_be is not None:
            self.valid = min(self.valid, <int64_t>about_to_be)
        return 0

    cdef int exchange(self, int64_t start, int64_t end) except -1:
        """From here on bytes [start, end) are memory of our own with the same content. A second cut may go further."""
        cdef int64_t low = start & ~(PAGE - 1), high
        cdef void *copy
        end = min(end, self.own_from)
        high = (end + PAGE - 1) & ~(PAGE - 1)
        self.cut = True
        if self.data == NULL or end <= start:
            return 0
        copy = mmap(NULL, high - low, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if copy == MAP_FAILED:
            raise MemoryError("no memory to keep what readers hold of a log that is to be cut")
        memcpy(copy, self.data + low, end - low)
        if mremap(copy, high - low, high - low, MREMAP_MAYMOVE | MREMAP_FIXED, self.data + low) == MAP_FAILED:
            munmap(copy, high - low)
            raise MemoryError("what readers hold of a log that is to be cut could not be kept")
        self.own_from = low
        return 0

    cdef int own(self) except -1:
        """Nothing of the file any more: what views cover is memory of our own, what none covers reads as zeros."""
        cdef FileView view
        cdef void *each = self.newest
        cdef void *copy
        self.cut = True
        if self.data == NULL or self.own_from == 0:
            return 0
        copy = mmap(NULL, self.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        if copy == MAP_FAILED:
            raise MemoryError("no memory to keep what readers hold of a log")
        while each != NULL:
            view = <FileView>each
            if view.high > view.low:
                memcpy(<uint8_t *>copy + view.low, self.data + view.low, view.high - view.low)
            each = view.older
        if mremap(copy, self.size, self.size, MREMAP_MAYMOVE | MREMAP_FIXED, self.data) == MAP_FAILED:
            munmap(copy, self.size)
            raise MemoryError("what readers hold of a log could not be kept")
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
    """What of a map was in the file when this was made, with the read-only buffer protocol. It keeps the map.

    [low, high): what views of it were given out. The map knows it as long as it lives.
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
    """A memoryview of size bytes of the file, not copied; None if they are not in it, or not in a file of the kernel's.
    """
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
        if not map.cut:  # from here on whoever cuts the file or gives it up knows of this view
            return part(whole, position, size)  # sooner made than a view of an object of its own


cdef bint within(FileView view, int64_t position, int64_t end):
    """May this view be cut out of that one? It is counted in, if so."""
    position = min(position, view.low)
    end = max(end, view.high)
    if end - position > WINDOW and view.high > view.low:
        return False
    view.low = position
    view.high = end
    return True


cdef object part(object whole, Py_ssize_t position, Py_ssize_t size):
    """whole[position:position + size] of a view of bytes one after the other, without the slice and the two numbers that
    it would be asked by: half the time. Nobody else has the new view yet, and its flags stay true of any part."""
    cdef object made = PyMemoryView_FromObject(whole)
    cdef Py_buffer *view = PyMemoryView_GET_BUFFER(made)
    view.buf = <uint8_t *>view.buf + position
    view.len = view.shape[0] = size
    return made


def begin_cut(int fd, int64_t size):
    """Before a file is shortened to size bytes: V2, V3. What it returns is for end_cut(). MemoryError: do not cut."""
    cdef struct_stat status
    cdef FileMap map
    if fstat(fd, &status) != 0 or size >= status.st_size:
        return None
    key = status.st_dev, status.st_ino
    _cuts[key] = size  # first: a map that is not listed below learns of it
    try:
        for map in all_maps():
            if map.device == status.st_dev and map.inode == status.st_ino:
                map.exchange(size, status.st_size)
    except BaseException:
        del _cuts[key]
        raise
    return key


def end_cut(key):
    """The file has its new length, or has kept the old one."""
    _cuts.pop(key, None)


def let_go(directory):
    """V4, of the files in this directory, for which this process is about to give up the lock. No view is made of them
    any more: FetchData sees to that. MemoryError: some may be maps of files still."""
    cdef FileMap map
    maps = all_maps()
    if not maps:
        return
    device = os.stat(directory).st_dev
    with os.scandir(directory) as entries:
        inodes = {entry.inode() for entry in entries}
    for map in maps:
        if map.device == device and map.inode in inodes:
            map.own()


def _before_fork():
    """V4. In the parent, so that the child has what was copied, whatever becomes of the file while it begins."""
    cdef FileMap map
    for map in all_maps():
        map.own()


os.register_at_fork(before=_before_fork)
