from libc.stdint cimport int64_t, uint8_t


cdef class Result:
    cdef uint8_t *data
    cdef size_t capacity
    cdef Py_ssize_t size
    cdef bint finished


# Memory for a result of at most size bytes.
cdef Result result_of(int64_t size)

# The first size bytes of it, for a caller to keep: K2.
cdef object finish(Result result, int64_t size)

cpdef int64_t decompressed_bytes_max(int64_t payload_size) noexcept nogil
