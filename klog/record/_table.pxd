from klog._c.batch cimport kl_batch_t
from libc.stdint cimport uint8_t


cdef class BatchTable:
    cdef uint8_t *bytes_at               # nbytes bytes, whole batches back to back; the subclass defines their owner
    cdef readonly Py_ssize_t nbytes
    cdef kl_batch_t *batches            # n entries; position is the byte in data
    cdef readonly Py_ssize_t n


cdef int raise_frame(int status, const uint8_t *at, Py_ssize_t position) except -1
