# cython: auto_pickle=False
"""The fields of a log that its hot paths use at each call: struct members here, attributes for Python code."""


cdef class LogState:
    """Base of LogView, which describes the fields, and of Log."""

    def __cinit__(self, *_, **__):
        self._closed = True
        self._written_end = -1
