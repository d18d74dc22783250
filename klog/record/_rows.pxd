from klog._c.arrow cimport ArrowArray, ArrowArrayStream, ArrowSchema
from klog._c.rows cimport kl_rows_t
from libc.stdint cimport int64_t


cdef class Rows:
    cdef ArrowArray array               # owned, unless the rows are some of those of `whole`
    cdef kl_rows_t rows
    cdef Rows whole
    cdef readonly int64_t first         # number of row 0 among all rows of the source, for messages
    cdef int64_t *picked

    cdef Rows pick(self, int64_t n)


cdef class RowSource:
    cdef ArrowArrayStream stream
    cdef Rows only                      # the rows of an array, which are all
    cdef kl_rows_t layout
    cdef int64_t taken
    cdef bint busy

    cdef Rows next_rows(self)
    cdef int bind(self, const ArrowSchema *schema) except -1
    cdef int point(self, Rows rows) except -1
    cdef int refuse(self, int status, const char *message) except -1
    cdef int fail(self, int status) except -1
