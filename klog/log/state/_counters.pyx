# cython: auto_pickle=False
"""The counters that every append moves: struct members for the hot paths, attributes for Python code."""

from libc.stdint cimport int64_t


cdef class Counters:
    """The counters of appends. Under the log's lock."""

    cdef int64_t appended(self) noexcept:
        return self.bytes_in + self.replicated_bytes_in
