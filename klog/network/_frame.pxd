from libc.stdint cimport uint8_t


cdef class Frame:
    cdef uint8_t *data
    cdef readonly Py_ssize_t size       # announced
    cdef readonly Py_ssize_t filled
    cdef readonly Py_ssize_t capacity

    cdef int grow(self) except -1
    cdef int append(self, const uint8_t *data, Py_ssize_t size) except -1
