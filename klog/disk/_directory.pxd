from libc.stdint cimport int64_t


cdef class DirectoryPass:
    cdef int fd
    cdef char *buffer
    cdef int64_t filled
    cdef int64_t at
    cdef readonly str path
    cdef const char *next_name(self) except? NULL
    cdef int64_t fill(self) except -1
