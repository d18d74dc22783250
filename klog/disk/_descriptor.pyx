# cython: auto_pickle=False
"""One descriptor with one owner, for the locks."""

cimport cython

import os


@cython.final
cdef class Descriptor:
    """A descriptor of a file or directory. A signal handler that raises comes before or after a call here, never inside:
    it is closed once, and with its last reference at the latest. Raises OSError."""

    def __cinit__(self, str path not None, int flags, int mode=0o640):
        self.number = -1
        self.number = os.open(path, flags | os.O_CLOEXEC, mode)

    def fileno(self):
        """Its number, -1 after close()."""
        return self.number

    def close(self):
        """Close it; closing twice is allowed."""
        cdef int number = self.number
        self.number = -1
        if number >= 0:
            os.close(number)

    def __dealloc__(self):
        self.close()
