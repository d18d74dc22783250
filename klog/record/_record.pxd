from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport PyObject
from klog._c.batch cimport kl_batch_t, kl_record_t
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

cdef enum:
    FLAG_TIMESTAMP = 1      # a timestamp was given; without it, "now" at append
    FLAG_TRANSACTIONAL = 2
    FLAG_CONTROL = 4
    FLAG_READ = 8           # from bytes, so that every field is known

cdef list ORIGINS               # (topic, partition) by Record.origin

cdef tuple TIMESTAMP_TYPES      # by kind + 1


cdef class Record:
    # A reference each, or NULL in all three: own_fields() provides them.
    cdef PyObject *own_key
    cdef PyObject *own_value
    cdef PyObject *own_headers
    cdef readonly int64_t offset
    cdef readonly int64_t producer_id
    cdef int64_t timestamp_ms
    cdef readonly int32_t leader_epoch
    cdef readonly int32_t sequence
    cdef int32_t origin             # number in ORIGINS
    cdef readonly int16_t producer_epoch
    cdef int8_t kind                # of timestamp
    cdef uint8_t flags


# Make sure that the record has its own key, value and headers, before own_key, own_value or own_headers is used.
cdef int own_fields(Record record) except -1

# Return the number of a (topic, partition) in ORIGINS, of None 0. Raises TypeError for anything else.
cdef int32_t origin_number(object origin) except -1

# Make a record of r, which ends at `end`. pin: what holds the bytes, for a lazy record; None for one with copies.
cdef Record make_record(
    const kl_record_t *r, const uint8_t *end, const kl_batch_t *b, int64_t offset, int32_t origin, object pin
)


cdef inline object bytes_or_none(const uint8_t *at, int32_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char *>at, size)
