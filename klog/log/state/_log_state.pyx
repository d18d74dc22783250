# cython: auto_pickle=False
"""The fields of a log that its hot paths use at each call: struct members here, attributes for Python code."""


cdef class LogState:
    """Base of LogView, which describes the fields, and of Log."""

    def __cinit__(self, *_, **__):
        self._closed = True
        self._written_end = -1
        self._applied = []

    cdef int64_t append_end(self) noexcept:
        """The offset of the next append: the log end or, in a commit, the end of what it has written."""
        return self._log_end_offset if self._written_end < 0 else self._written_end
