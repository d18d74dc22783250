from cpython.object cimport PyObject
from klog._c.batch cimport kl_batch_t
from klog._c.encode cimport kl_record_in_t
from klog._c.rows cimport kl_rows_end_t, kl_rows_out_t, kl_rows_rules_t
from klog.record._rows cimport Rows, RowSource
from klog.record._table cimport BatchTable
from libc.stdint cimport int32_t, int64_t, uint8_t


ctypedef struct arena_t:
    uint8_t *data           # 64-byte aligned, of the pool
    size_t size
    size_t capacity


cdef class BatchGroup(BatchTable):      # 64-byte aligned; base_offset counts from 0 until assign()
    cdef readonly int64_t count         # offsets that the group takes
    cdef readonly int64_t max_timestamp
    cdef int64_t first_offset
    cdef size_t capacity                # of bytes_at
    cdef size_t table_capacity          # of batches, in bytes

    cdef int own(self, arena_t *out, arena_t *table) except -1
    cdef int number(self, int64_t first_offset, int32_t leader_epoch) except -1
    cdef int set_append_time(self, int64_t log_append_time) except -1


cdef class RecordInput:
    cdef object sequence                # a list or a tuple of records; None at its end
    cdef object iterator                # of records, or None
    cdef object keys
    cdef object values
    cdef object stamps_list             # timestamps are here, or in stamps, or nowhere
    cdef object headers_list
    cdef Py_buffer stamps
    cdef bint stamps_held
    cdef Py_ssize_t count               # of values
    cdef PyObject *held                 # a tuple with key and value, if they are plain bytes
    cdef object key                     # otherwise they are owned one by one
    cdef object value
    cdef Py_buffer key_view
    cdef Py_buffer value_view
    cdef bint key_held
    cdef bint value_held
    cdef bint loaded                    # a record is loaded that is not in a batch yet
    cdef bint has_timestamp
    cdef int64_t timestamp
    cdef int64_t offset                 # of a Record, -1 for a tuple
    cdef int64_t number                 # of the record, from 0, for messages
    cdef kl_record_in_t fields
    cdef arena_t headers

    cdef int take_lists(self, object lists) except -1
    cdef PyObject *listed(self, object sequence) except NULL
    cdef bint advance_lists(self) except -1
    cdef bint advance(self) except -1
    cdef void drop(self) noexcept
    cdef bint take_tuple(self, PyObject *item) noexcept
    cdef int load(self, object item) except -1
    cdef int load_timestamp(self, object timestamp) except -1
    cdef int load_headers(self, object headers) except -1
    cdef int point(self) except -1
    cdef int view(self, object value, str name, Py_buffer *into) except -1


ctypedef struct rows_run_t:
    kl_batch_t batch                    # the one being written
    size_t start                        # its position
    kl_rows_out_t space
    int64_t bytes_max                   # of the group
    int64_t count                       # records of the batches before
    bint is_open


cdef class Encoder:
    cdef RecordInput records            # None if they come as rows
    cdef RowSource source
    cdef Rows rows                      # the rows being written
    cdef int64_t row                    # the next one of them
    cdef kl_rows_rules_t rules
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

    cdef int begin(self, object records, int codec, object level, int64_t batch_bytes_max, int64_t message_bytes_max,
                   bint key_required) except -1
    cdef void use_times(self, int64_t timestamp_default, int64_t timestamp_min, int64_t timestamp_max,
                        int64_t log_append_time) noexcept
    cdef BatchGroup take_group(self, int64_t bytes_max)
    cdef int64_t record_timestamp(self) except? -2
    cdef int build(self, arena_t *out, kl_batch_t *b) except -1
    cdef int build_rows(self, arena_t *out, arena_t *table, int64_t bytes_max) except -1
    cdef kl_rows_end_t run_rows(self, rows_run_t *run, arena_t *out, arena_t *table) noexcept nogil
    cdef int close_rows(self, rows_run_t *run, arena_t *out, arena_t *table) except -1
    cdef void finish_header(self, kl_batch_t *b) noexcept nogil


cdef class BatchBuilder:
    cdef kl_batch_t blank               # initial header of every batch of this builder
    cdef kl_batch_t header              # of the batch that is being built
    cdef arena_t out
    cdef RecordInput one                # for records that are not plain
    cdef int codec
    cdef object level
    cdef int64_t log_append_time
    cdef bint base_given
    cdef bint busy
    cdef int64_t next_delta             # of offsets

    cdef int begin(self) except -1
    cdef int add(self, kl_record_in_t *fields, int64_t timestamp, int64_t delta) except -1
    cdef int add_records(self, RecordInput source, bint keep_offsets) except -1
    cdef int add_rows(self, RowSource source) except -1
    cdef int add_all(self, object records, bint keep_offsets) except -1
    cdef int finish(self, object last_offset_delta, object max_timestamp) except -1
    cdef int enter(self) except -1
