"""Parses the names of live segment files: 20 ASCII digits of a 64-bit offset, and a suffix."""

from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT64_MAX, int64_t
from libc.string cimport memcmp

cdef enum:
    DIGITS = 20

cdef tuple SUFFIXES = (None, ".log", ".index", ".timeindex", ".txnindex", ".snapshot")


cdef int live_kind(const char *name, size_t size, int64_t *offset) noexcept nogil:
    """Return the kind of a live file's name and its offset; NOT_LIVE for any other name."""
    cdef int64_t value = 0
    cdef int i, digit
    cdef const char *suffix = name + DIGITS
    if size < DIGITS + 4:
        return NOT_LIVE
    for i in range(DIGITS):
        digit = name[i] - c'0'
        if not 0 <= digit <= 9 or value > (INT64_MAX - digit) // 10:
            return NOT_LIVE
        value = value * 10 + digit
    offset[0] = value
    size -= DIGITS
    if size == 4 and memcmp(suffix, b".log", 4) == 0:
        return LOG_FILE
    if size == 6 and memcmp(suffix, b".index", 6) == 0:
        return OFFSET_INDEX
    if size == 10 and memcmp(suffix, b".timeindex", 10) == 0:
        return TIME_INDEX_FILE
    if size == 9 and memcmp(suffix, b".txnindex", 9) == 0:
        return TXN_INDEX_FILE
    if size == 9 and memcmp(suffix, b".snapshot", 9) == 0:
        return SNAPSHOT_FILE
    return NOT_LIVE


def parse_name(str name):
    """Return (offset, suffix) of a live file's name, or None for any other name."""
    cdef Py_ssize_t size
    cdef int64_t offset = 0
    cdef const char *at
    cdef int kind
    if not name.isascii():
        return None
    at = PyUnicode_AsUTF8AndSize(name, &size)
    kind = live_kind(at, <size_t>size, &offset)
    return None if kind == NOT_LIVE else (offset, SUFFIXES[kind])
