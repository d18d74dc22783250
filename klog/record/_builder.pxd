from cpython.object cimport PyObject
from klog._c.batch cimport kl_batch_t
from klog._c.encode cimport kl_record_in_t
from libc.stdint cimport int32_t, int64_t, uint8_t


ctypedef struct arena_t:
    uint8_t *data           # 64-byte aligned, of the pool
    size_t size
    size_t capacity


cdef class BatchGroup:
    cdef uint8_t *data                  # nbytes bytes, whole batches back to back, 64-byte aligned
    cdef readonly Py_ssize_t nbytes
    cdef kl_batch_t *batches            # n entries; position is the byte in data, base_offset counts from 0 until assign()
    cdef readonly Py_ssize_t n
    cdef readonly int64_t count         # offsets that the group takes
    cdef readonly int64_t max_timestamp
    cdef int64_t first_offset
    cdef size_t capacity                # of data
    cdef size_t table_capacity          # of batches, in bytes

    cpdef assign(self, int64_t first_offset, int32_t leader_epoch)


cdef class RecordInput:
    cdef object iterator
    cdef PyObject *held                 # a tuple that key and value are in, where they are just bytes
    cdef object key                     # otherwise they are owned one by one
    cdef object value
    cdef Py_buffer key_view
    cdef Py_buffer value_view
    cdef bint key_held
    cdef bint value_held
    cdef bint loaded                    # a record is here that no batch has taken yet
    cdef bint has_timestamp
    cdef int64_t timestamp
    cdef int64_t offset                 # of a Record, -1 for a tuple
    cdef int64_t number                 # of the record, from 0, for messages
    cdef kl_record_in_t fields
    cdef arena_t headers

    cdef bint advance(self) except -1
    cdef void drop(self) noexcept
    cdef bint take_tuple(self, PyObject *item) noexcept
    cdef int load(self, object item) except -1
    cdef int load_timestamp(self, object timestamp) except -1
    cdef int load_headers(self, object headers) except -1
    cdef int point(self) except -1
    cdef int view(self, object value, str name, Py_buffer *into) except -1


cdef class Encoder:
    cdef RecordInput records
    cdef int codec
    cdef object level
    cdef int64_t batch_bytes_max
    cdef int64_t message_bytes_max
    cdef int64_t timestamp_default
    cdef int64_t timestamp_min
    cdef int64_t timestamp_max
    cdef int64_t log_append_time
    cdef bint key_required
    cdef bint busy

    cdef int64_t record_timestamp(self) except? -2
    cdef int build(self, arena_t *out, kl_batch_t *b) except -1
