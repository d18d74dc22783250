from libc.stdint cimport int64_t

cdef enum:
    NOT_LIVE = 0
    LOG_FILE = 1
    OFFSET_INDEX = 2
    TIME_INDEX_FILE = 3
    TXN_INDEX_FILE = 4
    SNAPSHOT_FILE = 5

cdef int live_kind(const char *name, size_t size, int64_t *offset) noexcept nogil
