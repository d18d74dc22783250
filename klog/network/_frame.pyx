"""The body of a request that arrives in parts.

  F1  its memory is at most twice what has arrived, or FIRST_BYTES: never what the size prefix announces
  F2  it has one owner, its request, and is never used again for another one: views of it stay valid as long as they
      exist
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

cdef enum:
    FIRST_BYTES = 4096


@cython.final
cdef class Frame:
    """Bytes of one request. One thread fills it; after that it does not change."""

    def __cinit__(self, Py_ssize_t size):
        self.size = size

    def __dealloc__(self):
        PyMem_RawFree(self.data)

    cdef int grow(self) except -1:
        """Get memory for at least one more byte."""
        cdef Py_ssize_t wanted
        cdef uint8_t *moved
        if self.filled < self.capacity:
            return 0
        wanted = min(self.size, max(<Py_ssize_t>FIRST_BYTES, 2 * self.filled))
        moved = <uint8_t *>PyMem_RawRealloc(self.data, wanted)
        if moved == NULL:
            raise MemoryError
        self.data = moved
        self.capacity = wanted
        return 0

    cdef int append(self, const uint8_t *data, Py_ssize_t size) except -1:
        """Add bytes, at most as many as are missing."""
        cdef Py_ssize_t part
        while size > 0:
            self.grow()
            part = min(size, self.capacity - self.filled)
            memcpy(self.data + self.filled, data, part)
            self.filled += part
            data += part
            size -= part
        return 0

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.filled, 1, flags)

    def __len__(self):
        return self.filled
