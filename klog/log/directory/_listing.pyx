"""What a partition directory holds, from one pass over its names: every stage of a load uses the same pass.

Memory is that of the offsets and of the unfinished files' names. Files with other names are skipped.
"""

cimport cython
from libc.stdint cimport int64_t
from libc.string cimport memcmp, strlen

from klog.disk._directory cimport DirectoryPass
from klog.segment._names cimport (
    LOG_FILE,
    NOT_LIVE,
    OFFSET_INDEX,
    SNAPSHOT_FILE,
    TIME_INDEX_FILE,
    TXN_INDEX_FILE,
    live_kind,
)

from klog.segment import names

cdef extern from "Python.h":
    str PyUnicode_DecodeFSDefaultAndSize(const char *name, Py_ssize_t size)


cdef inline bint ends(const char *name, size_t size, const char *suffix, size_t length) noexcept nogil:
    return size >= length and memcmp(name + size - length, suffix, length) == 0


@cython.final
cdef class Listing:
    """The files of a partition directory when the object was made. A load that removes or renames files makes another.

    logs, snapshots: their offsets, ascending. indexes, time_indexes, txn_indexes: the same, in no order. unfinished:
    names that end in .deleted, .cleaned, .swap, those that Files.replace gives to temporary files; sorted.
    foreign_logs: names that end in .log but are not those of segments.

    Raises OSError. Names are decoded as os.listdir does.
    """

    cdef readonly str directory
    cdef readonly list logs
    cdef readonly list indexes
    cdef readonly list time_indexes
    cdef readonly list txn_indexes
    cdef readonly list snapshots
    cdef readonly list unfinished
    cdef readonly list foreign_logs

    def __cinit__(self, str directory):
        cdef DirectoryPass found = DirectoryPass(directory)
        cdef const char *name
        self.directory = directory
        self.logs, self.indexes, self.time_indexes, self.txn_indexes, self.snapshots = [], [], [], [], []
        self.unfinished, self.foreign_logs = [], []
        while True:
            name = found.next_name()
            if name == NULL:
                break
            self.take(name, strlen(name))
        self.logs.sort()
        self.snapshots.sort()
        self.unfinished.sort()

    def orphans(self):
        """The names of index files without a .log, sorted."""
        cdef set present = set(self.logs)
        cdef list found = []
        for suffix, offsets in ((names.INDEX, self.indexes), (names.TIME_INDEX, self.time_indexes),
                                (names.TXN_INDEX, self.txn_indexes)):
            if not present.issuperset(offsets):
                found += [names.file_name(offset, suffix) for offset in offsets if offset not in present]
        found.sort()
        return found

    cdef int take(self, const char *name, size_t size) except -1:
        cdef int64_t offset = 0
        cdef int kind = live_kind(name, size, &offset)
        cdef str text
        if kind == LOG_FILE:
            self.logs.append(offset)
        elif kind == OFFSET_INDEX:
            self.indexes.append(offset)
        elif kind == TIME_INDEX_FILE:
            self.time_indexes.append(offset)
        elif kind == TXN_INDEX_FILE:
            self.txn_indexes.append(offset)
        elif kind == SNAPSHOT_FILE:
            self.snapshots.append(offset)
        if kind != NOT_LIVE:
            return 0
        if ends(name, size, b".deleted", 8) or ends(name, size, b".cleaned", 8) or ends(name, size, b".swap", 5):
            self.unfinished.append(PyUnicode_DecodeFSDefaultAndSize(name, size))
        elif ends(name, size, b".tmp", 4):
            text = PyUnicode_DecodeFSDefaultAndSize(name, size)
            if names.is_temporary(text):
                self.unfinished.append(text)
        elif ends(name, size, b".log", 4):
            self.foreign_logs.append(PyUnicode_DecodeFSDefaultAndSize(name, size))
        return 0
