# cython: auto_pickle=False
"""Encodes records into batches: an iterable is read once, and each record is written directly into a growing buffer.

  W1  memory is bounded by the requested group and one batch, whatever the iterable is.
  W2  a batch is sealed last: header, codec stream and checksum are complete before any byte of it is visible.
  W3  base offsets and leader epoch lie outside the checksum: BatchGroup.assign() sets them when the log knows them.
  W4  buffers for batches come from a pool and return to it: with the last view of the group, or immediately if encode()
      has copied them to bytes.

Timestamps and offsets are written as deltas to the first record of their batch. Kafka: MemoryRecordsBuilder,
LogValidator.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_ND, PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from klog._c.batch cimport (
    KL_ATTR_CONTROL, KL_ATTR_DELETE_HORIZON, KL_ATTR_LOG_APPEND_TIME, KL_ATTR_TRANSACTIONAL, KL_BATCH_HEADER,
    kl_batch_header_store, kl_batch_seal, kl_batch_t,
)
from klog._c.encode cimport kl_header_write, kl_record_body_size, kl_record_write
from klog._c.pool cimport KL_POOL_BUFFER_MIN, kl_pool_give, kl_pool_t, kl_pool_take, kl_pool_take_largest
from klog._c.rows cimport (
    KL_ROWS_DONE, KL_ROWS_EARLY, KL_ROWS_FULL, KL_ROWS_HEADER_KEY, KL_ROWS_KEY, KL_ROWS_NEGATIVE, KL_ROWS_OVERFLOW,
    KL_ROWS_SIZE, KL_ROWS_SPACE, KL_ROWS_TIMESTAMP, kl_rows_at, kl_rows_bytes, kl_rows_end_t, kl_rows_out_t,
    kl_rows_write,
)
from klog._c.varint cimport KL_VARINT_MAX, kl_varlong_size
from klog.codec._kept cimport decompressed_bytes_max
from klog.record._arguments cimport flag_of, long_of, whole_of
from klog.record._batch cimport RecordBatch
from klog.record._record cimport FLAG_TIMESTAMP, Record, own_fields
from klog.record._rows cimport Rows, RowSource
from klog.record._table cimport BatchTable
from libc.stdint cimport (
    INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint64_t,
)
from libc.string cimport memcpy, memset

import operator

from klog.codec import compress, parse_compression
from klog.errors import InvalidRecord, InvalidTimestamp, RecordTooLarge
from klog.record._rows import is_arrow
from klog.record.lists import Lists
from klog.record.timestamps import TimestampType

# With plain pointers: Cython's own declarations would count a reference at every access.
cdef extern from "Python.h":
    PyObject *Py_None
    bint PyTuple_CheckExact(PyObject *)
    Py_ssize_t PySequence_Fast_GET_SIZE(object)
    PyObject *PySequence_Fast_GET_ITEM(object, Py_ssize_t)
    Py_ssize_t PyTuple_GET_SIZE(PyObject *)
    PyObject *PyTuple_GET_ITEM(PyObject *, Py_ssize_t)
    bint PyBytes_CheckExact(PyObject *)
    char *PyBytes_AS_STRING(PyObject *)
    Py_ssize_t PyBytes_GET_SIZE(PyObject *)
    bint PyLong_CheckExact(PyObject *)
    long long PyLong_AsLongLongAndOverflow(PyObject *, int *overflow)
    PyObject *PyIter_Next(object iterator) except? NULL
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size)
    void PyErr_Clear()

cdef enum:
    TABLE_MIN = KL_POOL_BUFFER_MIN
    ARENA_MIN = 1 << 16
    CRC_NOGIL_MIN = 1 << 20
    ROWS_NOGIL_MIN = 1 << 19    # bytes of rows that take about 50 µs
    GROUP_SPACE = 8 << 20        # the largest space to allocate ahead


# Memory ---------------------------------------------------------------------------------------------------------------

cdef kl_pool_t pool


cdef int reserve(arena_t *arena, size_t more, bint batches=False) except -1:
    """Make space for `more` bytes after arena.size; the bytes may move. batches: the arena will take megabytes, so use
    the largest buffer of the pool."""
    cdef size_t wanted, capacity = 0
    cdef void *memory
    if arena.capacity - arena.size >= more:
        return 0
    wanted = max(max(arena.size + more, 2 * arena.capacity), <size_t>(ARENA_MIN if batches else TABLE_MIN))
    memory = kl_pool_take_largest(&pool, wanted, &capacity) if batches else kl_pool_take(&pool, wanted, &capacity)
    if memory == NULL:
        raise MemoryError(f"{wanted} bytes for record batches")
    if arena.size != 0:
        memcpy(memory, arena.data, arena.size)
    give(arena)
    arena.data = <uint8_t *>memory
    arena.capacity = capacity
    return 0


cdef inline void give(arena_t *arena) noexcept:
    if arena.data != NULL:
        kl_pool_give(&pool, arena.data, arena.capacity)
    arena.data = NULL
    arena.capacity = 0


# Records in -----------------------------------------------------------------------------------------------------------

cdef inline bint point_at(PyObject *field, const uint8_t **at, int64_t *size) noexcept:
    """Get the address of a field's bytes; NULL and -1 for None. False for any other type."""
    if PyBytes_CheckExact(field):
        at[0] = <const uint8_t *>PyBytes_AS_STRING(field)
        size[0] = PyBytes_GET_SIZE(field)
    elif field is Py_None:
        at[0] = NULL
        size[0] = -1
    else:
        return False
    return True


# no_gc_clear: Cython's tp_clear would drop views without releasing them. A cycle through the records is broken
# elsewhere.
@cython.final
@cython.freelist(8)
@cython.no_gc_clear
cdef class RecordInput:
    """Reads an iterable one record at a time, as pointers that stay valid until the next advance()."""

    def __cinit__(self, records):
        self.number = -1
        if type(records) is list or type(records) is tuple:
            self.sequence = records
        elif isinstance(records, (str, bytes, bytearray, memoryview, dict)):
            raise TypeError(f"records must be an iterable of klog.Record or tuples, not {type(records).__name__}")
        elif type(records) is Lists:
            self.take_lists(records)
        else:
            try:
                self.iterator = iter(records)
            except TypeError as error:
                if hasattr(type(records), "__iter__"):      # raised by the iterable itself
                    raise TypeError(f"records cannot be iterated: {error}") from error
                raise TypeError(
                    f"records must be an iterable of klog.Record or tuples, not {type(records).__name__}") from None

    def __dealloc__(self):
        self.drop()
        if self.stamps_held:
            PyBuffer_Release(&self.stamps)
        give(&self.headers)

    cdef void drop(self) noexcept:
        cdef PyObject *held = self.held
        self.loaded = False
        if held is not NULL:
            self.held = NULL
            Py_DECREF(<object>held)
        if self.key_held:
            self.key_held = False
            PyBuffer_Release(&self.key_view)
        if self.value_held:
            self.value_held = False
            PyBuffer_Release(&self.value_view)

    cdef int take_lists(self, object lists) except -1:
        self.keys, self.values, self.headers_list = lists.keys, lists.values, lists.headers
        self.count = PySequence_Fast_GET_SIZE(self.values)
        stamps = lists.timestamps
        if stamps is None or isinstance(stamps, (list, tuple)):
            self.stamps_list = stamps
            return 0
        PyObject_GetBuffer(stamps, &self.stamps, PyBUF_FORMAT | PyBUF_ND)
        self.stamps_held = True     # Lists has checked its format; its length may have changed since
        if self.stamps.itemsize != sizeof(int64_t) or self.stamps.len != self.count * <Py_ssize_t>sizeof(int64_t):
            raise ValueError(f"{self.count} values, but {self.stamps.len} bytes of timestamps")
        return 0

    cdef PyObject *listed(self, object sequence) except NULL:
        """Return its entry for this record, borrowed. Other threads may have shortened a list."""
        if PySequence_Fast_GET_SIZE(sequence) != self.count:
            raise ValueError(f"record {self.number}: a list changed its length while it was read")
        return PySequence_Fast_GET_ITEM(sequence, self.number)

    cdef bint advance_lists(self) except -1:
        if self.number + 1 >= self.count:
            return False
        self.number += 1
        self.key = None if self.keys is None else <object>self.listed(self.keys)
        self.value = <object>self.listed(self.values)
        self.offset = -1
        self.fields.header_count = 0
        self.headers.size = 0
        if self.stamps_held:
            self.timestamp = (<int64_t *>self.stamps.buf)[self.number]
            self.has_timestamp = True
        else:
            self.has_timestamp = False
            if self.stamps_list is not None:
                timestamp = <object>self.listed(self.stamps_list)
                if timestamp is not None:
                    self.load_timestamp(timestamp)
        if self.headers_list is not None:
            headers = <object>self.listed(self.headers_list)
            if headers is not None:
                self.load_headers(headers)
        self.point()
        self.loaded = True
        return True

    cdef bint advance(self) except -1:
        """Load the next record; False at the end."""
        cdef PyObject *item
        self.drop()
        if self.values is not None:
            return self.advance_lists()
        if self.sequence is not None:
            if self.number + 1 >= PySequence_Fast_GET_SIZE(self.sequence):  # other threads may have shortened a list
                self.sequence = None
                return False
            item = PySequence_Fast_GET_ITEM(self.sequence, self.number + 1)
            Py_INCREF(<object>item)
        elif self.iterator is not None:
            item = PyIter_Next(self.iterator)
            if item is NULL:
                self.iterator = None    # some iterators continue after their end
                return False
        else:
            return False
        self.number += 1
        if self.take_tuple(item):
            self.held = item
        else:
            try:
                self.load(<object>item)
            finally:
                Py_DECREF(<object>item)
        self.loaded = True
        return True

    cdef bint take_tuple(self, PyObject *item) noexcept:
        """Load the most common form fast: a tuple of bytes or None, and an int or None. No code of the caller can run
        here, and the tuple holds its items. False without an exception: load() must handle it."""
        cdef PyObject *key
        cdef PyObject *value
        cdef PyObject *timestamp = NULL
        cdef Py_ssize_t n
        cdef int overflow = 0
        if not PyTuple_CheckExact(item):
            return False
        n = PyTuple_GET_SIZE(item)
        if n != 3 and (n < 2 or n > 4 or (n == 4 and PyTuple_GET_ITEM(item, 3) is not Py_None)):
            return False
        key = PyTuple_GET_ITEM(item, 0)
        value = PyTuple_GET_ITEM(item, 1)
        if n > 2 and PyTuple_GET_ITEM(item, 2) is not Py_None:
            timestamp = PyTuple_GET_ITEM(item, 2)
            if not PyLong_CheckExact(timestamp):
                return False
            self.timestamp = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
            if overflow != 0:
                return False
        if not point_at(value, &self.fields.value, &self.fields.value_size):
            return False
        if not point_at(key, &self.fields.key, &self.fields.key_size):
            return False
        self.has_timestamp = timestamp is not NULL
        self.offset = -1
        self.fields.header_count = 0
        self.fields.headers_size = 0
        return True

    cdef int load(self, object item) except -1:
        cdef Record record
        cdef Py_ssize_t n
        self.fields.header_count = 0
        self.headers.size = 0
        self.has_timestamp = False
        self.offset = -1
        if isinstance(item, Record):
            record = item
            own_fields(record)
            self.key = <object>record.own_key
            self.value = <object>record.own_value
            self.offset = record.offset
            self.timestamp = record.timestamp_ms
            self.has_timestamp = record.flags & FLAG_TIMESTAMP
            headers = <tuple>record.own_headers
            if len(<tuple>headers) != 0:
                self.load_headers(headers)
        elif isinstance(item, (tuple, list)):
            n = len(item)
            if not 2 <= n <= 4:
                raise TypeError(
                    f"record {self.number} has {n} fields; (key, value), (key, value, timestamp) or "
                    f"(key, value, timestamp, headers)"
                )
            # Take references before anything below can run the caller's code, which might empty a list.
            self.key = item[0]
            self.value = item[1]
            timestamp = item[2] if n > 2 else None
            headers = item[3] if n > 3 else None
            if timestamp is not None:
                self.load_timestamp(timestamp)
            if headers is not None:
                self.load_headers(headers)
        else:
            raise TypeError(
                f"record {self.number} must be a klog.Record or a tuple (key, value[, timestamp[, headers]]), "
                f"not {type(item).__name__}; " + (
                    "append() makes bytes of a dict by serializer='json': [(None, {...})]" if isinstance(item, dict)
                    else "a single record goes into a list, [(key, value)]")
            )
        return self.point()

    cdef int point(self) except -1:
        """Set the pointers to key, value and headers, last of all: no code of the caller runs after this."""
        if not point_at(<PyObject *>self.key, &self.fields.key, &self.fields.key_size):
            self.view(self.key, "key", &self.key_view)
            self.key_held = True
            self.fields.key = <const uint8_t *>self.key_view.buf
            self.fields.key_size = self.key_view.len
        if not point_at(<PyObject *>self.value, &self.fields.value, &self.fields.value_size):
            self.view(self.value, "value", &self.value_view)
            self.value_held = True
            self.fields.value = <const uint8_t *>self.value_view.buf
            self.fields.value_size = self.value_view.len
        self.fields.headers = self.headers.data
        self.fields.headers_size = <int64_t>self.headers.size
        return 0

    cdef int view(self, object value, str name, Py_buffer *into) except -1:
        if isinstance(value, str):
            raise TypeError(f"record {self.number}: the {name} is str, not bytes; use .encode()")
        try:
            PyObject_GetBuffer(value, into, PyBUF_SIMPLE)
        except (TypeError, BufferError):
            argument = "serializer" if name == "value" else "key_serializer"
            hint = "" if PyObject_CheckBuffer(value) else f"; append() makes bytes of objects by {argument}='json'"
            raise TypeError(
                f"record {self.number}: the {name} must be bytes or None, not {type(value).__name__}{hint}") from None
        return 0

    cdef int load_timestamp(self, object timestamp) except -1:
        try:
            if isinstance(timestamp, bool):
                raise TypeError
            self.timestamp = operator.index(timestamp)
        except TypeError:
            raise TypeError(
                f"record {self.number}: the timestamp must be an int of milliseconds since 1970 or None, "
                f"not {type(timestamp).__name__}"
            ) from None
        except OverflowError:
            raise InvalidTimestamp(f"record {self.number}: timestamp {timestamp} does not fit into 64 bits") from None
        self.has_timestamp = True
        return 0

    cdef int load_headers(self, object headers) except -1:
        cdef const char *text
        cdef Py_ssize_t size = 0
        cdef Py_buffer view
        cdef uint8_t *end
        cdef object encoded
        if (isinstance(headers, (dict, str, bytes, bytearray, memoryview)) or not hasattr(headers, "__iter__")
                or getattr(headers, "ndim", 1) == 0):
            raise TypeError(
                f"record {self.number}: headers must be pairs of str and bytes, not {type(headers).__name__}"
                f"{'; use .items()' if isinstance(headers, dict) else ''}"
            )
        for header in headers:
            if not isinstance(header, (tuple, list)) or len(header) != 2:
                raise TypeError(
                    f"record {self.number}: a header must be a pair of str and bytes or None, not {header!r}")
            key, value = header
            if not isinstance(key, str):
                raise TypeError(f"record {self.number}: a header key must be str, not {type(key).__name__}")
            encoded = None
            text = PyUnicode_AsUTF8AndSize(key, &size)
            if text is NULL:    # surrogates: bytes that were not UTF-8 when they were read
                PyErr_Clear()
                encoded = key.encode("utf-8", "surrogateescape")
                text = PyBytes_AS_STRING(<PyObject *>encoded)
                size = PyBytes_GET_SIZE(<PyObject *>encoded)
            if value is None:
                reserve(&self.headers, size + 2 * KL_VARINT_MAX)
                end = kl_header_write(self.headers.data + self.headers.size, <const uint8_t *>text, size, NULL, -1)
            else:
                self.view(value, "value of a header", &view)
                try:
                    if size > INT32_MAX or view.len > INT32_MAX:
                        raise RecordTooLarge(f"record {self.number}: a header of 2 GiB or more")
                    reserve(&self.headers, size + view.len + 2 * KL_VARINT_MAX)
                    end = kl_header_write(
                        self.headers.data + self.headers.size, <const uint8_t *>text, size,
                        <const uint8_t *>view.buf, view.len,
                    )
                finally:
                    PyBuffer_Release(&view)
            self.headers.size = end - self.headers.data
            self.fields.header_count += 1
        return 0


# Batches --------------------------------------------------------------------------------------------------------------

cdef inline int append_record(arena_t *out, kl_record_in_t *fields, int64_t body_size) except -1:
    if out.capacity - out.size < <size_t>body_size + KL_VARINT_MAX:
        reserve(out, <size_t>body_size + KL_VARINT_MAX, True)
    out.size = kl_record_write(out.data + out.size, fields, body_size) - out.data
    return 0


cdef int seal(arena_t *out, size_t start, kl_batch_t *b, int codec, object level, int64_t message_bytes_max) except -1:
    """Make a batch of the header's space and the records at out[start..]: codec stream, size, checksum, header."""
    cdef size_t plain_size = out.size - start - KL_BATCH_HEADER
    cdef size_t payload_size
    cdef Py_buffer view
    if codec != 0 and plain_size != 0:
        payload = compress(
            codec, PyMemoryView_FromMemory(<char *>out.data + start + KL_BATCH_HEADER, plain_size, PyBUF_READ), level
        )
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            payload_size = <size_t>view.len
            # Random bytes can grow under a codec: if a batch fits only uncompressed, it stays uncompressed. So does one
            # that readers would refuse as a bomb.
            if (<int64_t>payload_size + KL_BATCH_HEADER <= message_bytes_max or payload_size < plain_size) and \
                    <int64_t>plain_size <= decompressed_bytes_max(<int64_t>payload_size):
                out.size = start + KL_BATCH_HEADER
                reserve(out, payload_size, True)
                memcpy(out.data + out.size, view.buf, payload_size)
                out.size += payload_size
                b.attributes |= <int16_t>codec
        finally:
            PyBuffer_Release(&view)
    if <int64_t>(out.size - start) > message_bytes_max:
        raise RecordTooLarge(
            f"a batch of {b.count} records makes {out.size - start} bytes, more than max.message.bytes = "
            f"{message_bytes_max}; raise it for this topic, or send smaller records"
        )
    if out.size - start >= CRC_NOGIL_MIN:
        with nogil:
            seal_plain(out, start, b)
    else:
        seal_plain(out, start, b)
    return 0


cdef void seal_plain(arena_t *out, size_t start, kl_batch_t *b) noexcept nogil:
    """Write size, checksum and header of a batch whose payload is complete."""
    b.size = <int32_t>(out.size - start)
    b.position = <int64_t>start
    b.magic = 2
    kl_batch_seal(out.data + start, b)


cdef void blank_header(kl_batch_t *b) noexcept nogil:
    memset(b, 0, sizeof(kl_batch_t))
    b.leader_epoch = -1
    b.producer_id = -1
    b.producer_epoch = -1
    b.base_sequence = -1
    b.base_timestamp = -1
    b.max_timestamp = -1


cdef inline void list_batch(arena_t *table, const kl_batch_t *b) noexcept nogil:
    """Add an entry to a table that has space for it."""
    (<kl_batch_t *>(table.data + table.size))[0] = b[0]
    table.size += sizeof(kl_batch_t)


cdef int refuse_keyless(int64_t number) except -1:
    raise InvalidRecord(f"Compacted topic cannot accept message without key: record {number}; give it one")


cdef int refuse_timestamp(int64_t number, int64_t timestamp, int64_t low, int64_t high) except -1:
    if timestamp < 0:
        raise InvalidTimestamp(f"record {number}: timestamp {timestamp} is negative; use -1 for no timestamp")
    raise InvalidTimestamp(
        f"record {number}: timestamp {timestamp} is outside [{low}, {high}], "
        f"the range that message.timestamp.before.max.ms and .after.max.ms allow"
    )


cdef int refuse_size(int64_t number, int64_t size, int64_t message_bytes_max) except -1:
    raise RecordTooLarge(
        f"record {number} makes a batch of {size} bytes, more than max.message.bytes = {message_bytes_max}; "
        f"raise it for this topic, or send a smaller record"
    )


cdef int refuse_row(kl_rows_end_t end, Rows rows, int64_t row, const kl_rows_rules_t *rules,
                    const kl_rows_out_t *space) except -1:
    """Raise the same error as for other forms of this record."""
    cdef int64_t number = rows.first + kl_rows_at(&rows.rows, row)
    if end == KL_ROWS_KEY:
        refuse_keyless(number)
    if end == KL_ROWS_NEGATIVE or end == KL_ROWS_TIMESTAMP:
        refuse_timestamp(number, space.timestamp, rules.timestamp_min, rules.timestamp_max)
    if end == KL_ROWS_OVERFLOW:
        raise InvalidTimestamp(f"record {number}: the timestamp does not fit into 64 bits of milliseconds")
    if end == KL_ROWS_EARLY:
        raise InvalidTimestamp(f"record {number}: the timestamp is before 1970; use null for no timestamp")
    if end == KL_ROWS_HEADER_KEY:
        raise InvalidRecord(f"record {number}: a header has no key; an empty key is allowed")
    return refuse_size(number, space.more, rules.message_bytes_max)


cdef size_t rows_space(Rows rows, int64_t row, int64_t bytes_max) noexcept:
    """Estimate the space that the remaining rows need as records, up to bytes_max."""
    cdef int64_t n = rows.rows.length - row
    return <size_t>max(<int64_t>0, min(kl_rows_bytes(&rows.rows, row) + 16 * n + 1024, bytes_max))


cdef bint takes_arrow(object records):
    """Should the records be read through Arrow? Not klog's own records, though they have that interface too: Arrow has
    text for header keys."""
    return not isinstance(records, (list, tuple, RecordBatch, Lists)) and is_arrow(records)


@cython.final
cdef class BatchGroup(BatchTable):
    """Whole batches back to back, ready for one write; a read-only buffer.

    n batches of nbytes bytes take count offsets, numbered from 0 until assign() sets their offsets.
    """

    def __init__(self):
        raise TypeError("get batch groups from Encoder.next_group()")

    def __dealloc__(self):
        kl_pool_give(&pool, self.bytes_at, self.capacity)
        kl_pool_give(&pool, self.batches, self.table_capacity)

    cdef int own(self, arena_t *out, arena_t *table) except -1:
        """Take ownership of both arenas."""
        cdef Py_ssize_t i
        self.bytes_at = out.data
        self.capacity = out.capacity
        self.nbytes = <Py_ssize_t>out.size
        self.batches = <kl_batch_t *>table.data
        self.table_capacity = table.capacity
        self.n = <Py_ssize_t>(table.size // sizeof(kl_batch_t))
        self.count = 0
        self.max_timestamp = -1
        for i in range(self.n):
            self.count += self.batches[i].count
            self.max_timestamp = max(self.max_timestamp, self.batches[i].max_timestamp)
        self.first_offset = self.batches[0].base_offset if self.n != 0 else 0
        return 0

    def __len__(self):
        return self.n

    def assign(self, first_offset, leader_epoch):
        """Give the group's first record first_offset, and set the leader epoch; no checksum changes."""
        self.number(long_of("first_offset", first_offset),
                    <int32_t>whole_of("leader_epoch", leader_epoch, INT32_MIN, INT32_MAX))

    cdef int number(self, int64_t first_offset, int32_t leader_epoch) except -1:
        cdef Py_ssize_t i
        cdef kl_batch_t *b
        if first_offset < 0 or first_offset > INT64_MAX - self.count:
            raise ValueError(
                f"first_offset={first_offset}: {self.count} offsets from {first_offset} on do not fit into 63 bits")
        for i in range(self.n):
            b = &self.batches[i]
            b.base_offset += first_offset - self.first_offset
            b.leader_epoch = leader_epoch
            kl_batch_header_store(self.bytes_at + b.position, b)
        self.first_offset = first_offset
        return 0

    cdef int set_append_time(self, int64_t log_append_time) except -1:
        """Set the append time of all records, in place of the producers' timestamps. The checksums cover it and are
        computed again."""
        cdef Py_ssize_t i
        cdef kl_batch_t *b
        if log_append_time < 0:
            raise ValueError(f"log_append_time={log_append_time}: must not be negative")
        for i in range(self.n):
            b = &self.batches[i]
            b.attributes |= KL_ATTR_LOG_APPEND_TIME
            b.max_timestamp = log_append_time
            kl_batch_seal(self.bytes_at + b.position, b)
        self.max_timestamp = log_append_time
        return 0


def join_groups(list groups not None):
    """Join groups into one, a copy of their bytes, for one write. Their records are numbered consecutively."""
    cdef BatchGroup group, joined = BatchGroup.__new__(BatchGroup)
    cdef Py_ssize_t size = 0, n = 0, i
    cdef arena_t out, table
    cdef kl_batch_t *b
    for other in groups:
        if type(other) is not BatchGroup:
            raise TypeError(f"groups must be BatchGroups, not {type(other).__name__}")
    for group in groups:
        size += group.nbytes
        n += group.n
    memset(&out, 0, sizeof(out))
    memset(&table, 0, sizeof(table))
    try:
        reserve(&out, size)
        reserve(&table, n * sizeof(kl_batch_t))
        joined.count = 0
        for group in groups:
            memcpy(out.data + out.size, group.bytes_at, group.nbytes)
            for i in range(group.n):
                b = <kl_batch_t *>(table.data + table.size)
                b[0] = group.batches[i]
                b.position += <int64_t>out.size
                b.base_offset += joined.count - group.first_offset
                table.size += sizeof(kl_batch_t)
            out.size += group.nbytes
            joined.count += group.count
        joined.own(&out, &table)
    except BaseException:
        give(&out)
        give(&table)
        raise
    return joined


@cython.final
@cython.freelist(8)
cdef class Encoder:
    """Cuts an iterable of records into batches, group by group, for one append.

    Records are klog.Record or tuples (key, value[, timestamp[, headers]]). A batch holds at most batch_bytes_max
    uncompressed bytes unless a single record is larger, and none may take more than message_bytes_max
    (RecordTooLarge). A timestamp of None becomes timestamp_default. One outside [timestamp_min, timestamp_max] except
    -1, and any other negative one, is InvalidTimestamp. log_append_time >= 0 makes LogAppendTime batches: the
    producers' timestamps are kept but not used, so they are not checked. key_required: InvalidRecord for a null key.

    Any exception, also one of the iterable, ends the encoder; groups returned before stay valid. One thread at a time.
    """

    def __init__(
        self, records, *, compression=None, batch_bytes_max, message_bytes_max, timestamp_default, timestamp_min,
        timestamp_max, log_append_time=-1, key_required=False,
    ):
        codec, level = parse_compression(compression)
        self.begin(records, codec, level, long_of("batch_bytes_max", batch_bytes_max),
                   long_of("message_bytes_max", message_bytes_max), flag_of("key_required", key_required))
        self.use_times(long_of("timestamp_default", timestamp_default), long_of("timestamp_min", timestamp_min),
                       long_of("timestamp_max", timestamp_max), long_of("log_append_time", log_append_time))

    cdef int begin(self, object records, int codec, object level, int64_t batch_bytes_max, int64_t message_bytes_max,
                   bint key_required) except -1:
        """The body of __init__; use_times() follows."""
        self.codec, self.level = codec, level
        if takes_arrow(records):
            self.source = RowSource(records)
        else:
            self.records = RecordInput(records)
        self.batch_bytes_max = batch_bytes_max
        self.message_bytes_max = min(message_bytes_max, <int64_t>INT32_MAX)
        self.key_required = key_required
        self.rules.batch_bytes_max = batch_bytes_max
        self.rules.message_bytes_max = self.message_bytes_max if codec == 0 else <int64_t>INT32_MAX
        self.rules.key_required = key_required
        return 0

    cdef void use_times(self, int64_t timestamp_default, int64_t timestamp_min, int64_t timestamp_max,
                        int64_t log_append_time) noexcept:
        """Set the times for records that have not been read yet."""
        self.timestamp_default = self.rules.timestamp_default = timestamp_default
        self.timestamp_min = timestamp_min
        self.timestamp_max = timestamp_max
        self.log_append_time = log_append_time
        self.rules.timestamp_min = timestamp_min if log_append_time < 0 else INT64_MIN
        self.rules.timestamp_max = timestamp_max if log_append_time < 0 else INT64_MAX

    def next_group(self, bytes_max):
        """Return the next batches, about bytes_max bytes but at least one batch; None at the end of the records."""
        return self.take_group(long_of("bytes_max", bytes_max))

    cdef BatchGroup take_group(self, int64_t bytes_max):
        cdef BatchGroup group
        cdef arena_t out, table
        cdef kl_batch_t header
        if self.busy:
            raise ValueError("encoder already executing")
        if self.records is None and self.source is None:
            return None
        memset(&out, 0, sizeof(out))
        memset(&table, 0, sizeof(table))
        self.busy = True
        group = BatchGroup.__new__(BatchGroup)
        try:
            if self.source is not None:
                self.build_rows(&out, &table, bytes_max)
            else:
                while self.records.loaded or self.records.advance():
                    header.base_offset = group.count
                    self.build(&out, &header)
                    reserve(&table, sizeof(kl_batch_t))
                    list_batch(&table, &header)
                    group.count += header.count
                    if <int64_t>out.size >= bytes_max:
                        break
            group.own(&out, &table)
        except BaseException:
            self.records = self.source = self.rows = None
            give(&out)
            give(&table)
            raise
        finally:
            self.busy = False
        if group.n == 0:
            self.records = self.source = self.rows = None
            return None
        return group

    cdef int build_rows(self, arena_t *out, arena_t *table, int64_t bytes_max) except -1:
        """The same for rows of columns: without the GIL if there are many, as long as no codec is needed."""
        cdef rows_run_t run
        cdef kl_rows_end_t end
        cdef int64_t left
        memset(&run, 0, sizeof(run))
        run.bytes_max = bytes_max
        while True:
            if self.rows is None or self.row == self.rows.rows.length:
                self.rows = self.source.next_rows()
                self.row = 0
                if self.rows is None:
                    break
            left = min(<int64_t>rows_space(self.rows, self.row, 2 * GROUP_SPACE), bytes_max)
            reserve(out, <size_t>min(left, <int64_t>GROUP_SPACE) + KL_BATCH_HEADER, True)
            reserve(table, 64 * sizeof(kl_batch_t))
            if left >= ROWS_NOGIL_MIN and self.codec == 0:
                with nogil:
                    end = self.run_rows(&run, out, table)
            else:
                end = self.run_rows(&run, out, table)
            if end == KL_ROWS_SPACE:
                reserve(out, run.space.more, True)
            elif end == KL_ROWS_FULL:
                if run.is_open:
                    self.close_rows(&run, out, table)
                if <int64_t>out.size >= bytes_max:
                    return 0
            elif end != KL_ROWS_DONE:
                refuse_row(end, self.rows, self.row, &self.rules, &run.space)
        if run.is_open:
            self.close_rows(&run, out, table)
        return 0

    cdef kl_rows_end_t run_rows(self, rows_run_t *run, arena_t *out, arena_t *table) noexcept nogil:
        """Write batches from the rows until they end (an open batch continues with the next rows), memory or the group
        is full, or code with the GIL is needed: for a codec, or for an invalid row."""
        cdef kl_rows_end_t end
        while True:
            if not run.is_open:
                if out.capacity - out.size < KL_BATCH_HEADER or table.capacity - table.size < sizeof(kl_batch_t):
                    run.space.more = KL_BATCH_HEADER
                    return KL_ROWS_SPACE
                blank_header(&run.batch)
                run.batch.base_offset = run.count
                run.start = out.size
                out.size += KL_BATCH_HEADER
                run.is_open = True
            run.space.at = out.data + run.start
            run.space.size = out.size - run.start
            run.space.capacity = out.capacity - run.start
            end = kl_rows_write(&self.rows.rows, &self.rules, &self.row, &run.batch, &run.space)
            out.size = run.start + run.space.size
            if end != KL_ROWS_FULL or self.codec != 0:
                return end
            self.finish_header(&run.batch)
            seal_plain(out, run.start, &run.batch)
            list_batch(table, &run.batch)
            run.count += run.batch.count
            run.is_open = False
            if <int64_t>out.size >= run.bytes_max:
                return KL_ROWS_FULL

    cdef int close_rows(self, rows_run_t *run, arena_t *out, arena_t *table) except -1:
        self.finish_header(&run.batch)
        seal(out, run.start, &run.batch, self.codec, self.level, self.message_bytes_max)
        reserve(table, sizeof(kl_batch_t))
        list_batch(table, &run.batch)
        run.count += run.batch.count
        run.is_open = False
        return 0

    cdef void finish_header(self, kl_batch_t *b) noexcept nogil:
        b.last_offset_delta = b.count - 1
        if self.log_append_time >= 0:
            b.attributes = KL_ATTR_LOG_APPEND_TIME
            b.max_timestamp = self.log_append_time

    cdef int64_t record_timestamp(self) except? -2:
        cdef RecordInput records = self.records
        cdef int64_t timestamp = records.timestamp if records.has_timestamp else self.timestamp_default
        if timestamp == -1 or (timestamp >= 0 and self.log_append_time >= 0):
            return timestamp
        if timestamp < 0 or not self.timestamp_min <= timestamp <= self.timestamp_max:
            refuse_timestamp(records.number, timestamp, self.timestamp_min, self.timestamp_max)
        return timestamp

    cdef int build(self, arena_t *out, kl_batch_t *b) except -1:
        """Build one batch of the loaded record and those after it, as many as fit; the first that does not fit stays
        loaded. The caller sets b.base_offset."""
        cdef RecordInput records = self.records
        cdef kl_record_in_t *fields = &records.fields
        cdef size_t start = out.size
        cdef int64_t timestamp, body_size, size
        cdef int64_t base_offset = b.base_offset
        blank_header(b)
        b.base_offset = base_offset
        reserve(out, KL_BATCH_HEADER, True)
        out.size += KL_BATCH_HEADER
        while True:
            if self.key_required and fields.key_size < 0:
                refuse_keyless(records.number)
            timestamp = self.record_timestamp()
            if b.count == 0:
                b.base_timestamp = timestamp
            fields.timestamp_delta = timestamp - b.base_timestamp
            fields.offset_delta = b.count
            body_size = kl_record_body_size(fields)
            size = <int64_t>(out.size - start) + body_size + <int64_t>kl_varlong_size(body_size)
            if b.count != 0 and size > self.batch_bytes_max:
                break
            if size > (self.message_bytes_max if self.codec == 0 else <int64_t>INT32_MAX):
                refuse_size(records.number, size, self.message_bytes_max)
            append_record(out, fields, body_size)
            b.count += 1
            b.max_timestamp = max(b.max_timestamp, timestamp)
            if not records.advance():
                break
        self.finish_header(b)
        return seal(out, start, b, self.codec, self.level, self.message_bytes_max)


# One batch ------------------------------------------------------------------------------------------------------------

@cython.final
cdef class BatchBuilder:
    """Builds one batch, record by record or many at once; build() returns it, and the builder begins the next.

    The keywords are the header's fields, as in encode(). The batch has count records and size bytes with the header,
    before compression. A refused record leaves the batch unchanged. One thread at a time.
    """

    def __init__(
        self, *, base_offset=0, compression=None, leader_epoch=-1, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        is_transactional=False, is_control=False, timestamp_type=TimestampType.CREATE_TIME, log_append_time=-1,
        base_timestamp=None, delete_horizon_ms=None,
    ):
        cdef kl_batch_t *b = &self.blank
        self.codec, self.level = parse_compression(compression)
        blank_header(b)
        b.base_offset = long_of("base_offset", base_offset)
        b.leader_epoch = <int32_t>whole_of("leader_epoch", leader_epoch, INT32_MIN, INT32_MAX)
        b.producer_id = long_of("producer_id", producer_id)
        b.producer_epoch = <int16_t>whole_of("producer_epoch", producer_epoch, INT16_MIN, INT16_MAX)
        b.base_sequence = <int32_t>whole_of("base_sequence", base_sequence, INT32_MIN, INT32_MAX)
        if flag_of("is_transactional", is_transactional):
            b.attributes |= KL_ATTR_TRANSACTIONAL
        if flag_of("is_control", is_control):
            b.attributes |= KL_ATTR_CONTROL
        self.base_given = base_timestamp is not None or delete_horizon_ms is not None
        if base_timestamp is not None:
            b.base_timestamp = long_of("base_timestamp", base_timestamp)
        if delete_horizon_ms is not None:
            b.attributes |= KL_ATTR_DELETE_HORIZON
            b.base_timestamp = long_of("delete_horizon_ms", delete_horizon_ms)
        if timestamp_type is not TimestampType.CREATE_TIME:
            if long_of("timestamp_type", timestamp_type) == <int>TimestampType.LOG_APPEND_TIME:
                b.attributes |= KL_ATTR_LOG_APPEND_TIME
            elif timestamp_type != TimestampType.CREATE_TIME:
                raise ValueError(
                    f"timestamp_type={timestamp_type!r}: must be TimestampType.CREATE_TIME or LOG_APPEND_TIME")
        self.log_append_time = long_of("log_append_time", log_append_time)
        self.one = RecordInput(())
        self.begin()

    def __dealloc__(self):
        give(&self.out)

    @property
    def count(self):
        return self.header.count

    @property
    def size(self):
        return self.out.size

    def __len__(self):
        return self.header.count

    def append(self, key, value, timestamp=None, headers=None):
        """Add one record, like a tuple of the same four values."""
        cdef RecordInput one = self.one
        cdef kl_record_in_t *fields = &one.fields
        cdef int64_t stamp = -1
        cdef int overflow = 0
        if (
            not self.busy and headers is None and type(key) is bytes and type(value) is bytes
            and (timestamp is None or type(timestamp) is int)
        ):
            if timestamp is not None:
                stamp = PyLong_AsLongLongAndOverflow(<PyObject *>timestamp, &overflow)
            if overflow == 0:
                fields.key = <const uint8_t *>PyBytes_AS_STRING(<PyObject *>key)
                fields.key_size = PyBytes_GET_SIZE(<PyObject *>key)
                fields.value = <const uint8_t *>PyBytes_AS_STRING(<PyObject *>value)
                fields.value_size = PyBytes_GET_SIZE(<PyObject *>value)
                fields.header_count = 0
                fields.headers_size = 0
                self.add(fields, stamp, self.next_delta)
                return
        self.enter()
        try:
            one.number = self.next_delta
            one.load((key, value, timestamp, headers))
            self.add(fields, one.timestamp if one.has_timestamp else -1, self.next_delta)
        finally:
            one.drop()
            one.key = one.value = None
            self.busy = False

    def extend(self, records):
        """Add all records or, if one is refused, none; records as for encode()."""
        self.enter()
        try:
            self.add_all(records, False)
        finally:
            self.busy = False

    def build(self):
        """Return the batch as a BatchGroup of one, in pooled memory. Raises ValueError if it has no records."""
        cdef BatchGroup group
        cdef arena_t table
        if self.header.count == 0:
            raise ValueError("a batch without records: append some first")
        self.enter()
        memset(&table, 0, sizeof(table))
        try:
            self.finish(None, None)
            reserve(&table, sizeof(kl_batch_t))
            list_batch(&table, &self.header)
            group = BatchGroup.__new__(BatchGroup)
            group.own(&self.out, &table)
            memset(&self.out, 0, sizeof(self.out))
            self.begin()
            return group
        finally:
            self.busy = False

    cdef int enter(self) except -1:
        if self.busy:
            raise ValueError("builder already executing")
        self.busy = True
        return 0

    cdef int begin(self) except -1:
        self.header = self.blank
        self.next_delta = 0
        self.out.size = 0
        reserve(&self.out, KL_BATCH_HEADER, True)
        self.out.size = KL_BATCH_HEADER
        return 0

    cdef int add(self, kl_record_in_t *fields, int64_t timestamp, int64_t delta) except -1:
        cdef kl_batch_t *b = &self.header
        cdef int64_t body_size
        if timestamp < -1:
            raise InvalidTimestamp(
                f"record {self.header.count}: timestamp {timestamp} is negative; use -1 for no timestamp")
        if b.count == 0 and not self.base_given:
            b.base_timestamp = timestamp
        fields.timestamp_delta = <int64_t>(<uint64_t>timestamp - <uint64_t>b.base_timestamp)
        fields.offset_delta = <int32_t>delta
        body_size = kl_record_body_size(fields)
        if <int64_t>self.out.size + body_size > INT32_MAX - KL_VARINT_MAX:
            raise RecordTooLarge(f"record {self.header.count}: the batch exceeds 2 GiB")
        append_record(&self.out, fields, body_size)
        b.count += 1
        b.max_timestamp = max(b.max_timestamp, timestamp)
        self.next_delta = delta + 1
        return 0

    cdef int add_all(self, object records, bint keep_offsets) except -1:
        cdef kl_batch_t header = self.header
        cdef int64_t next_delta = self.next_delta
        cdef size_t size = self.out.size
        try:
            if takes_arrow(records):
                if keep_offsets:
                    raise ValueError("keep_offsets requires klog.Record: Arrow rows get consecutive offsets")
                self.add_rows(RowSource(records))
            else:
                self.add_records(RecordInput(records), keep_offsets)
        except BaseException:
            self.header = header
            self.next_delta = next_delta
            self.out.size = size
            raise
        return 0

    cdef int add_records(self, RecordInput source, bint keep_offsets) except -1:
        cdef int64_t delta
        while source.advance():
            delta = self.next_delta
            if keep_offsets:
                delta = source.offset - self.header.base_offset
                if not self.next_delta <= delta <= INT32_MAX:
                    raise ValueError(
                        f"record {source.number}: offset {source.offset} does not rise above "
                        f"{self.header.base_offset + self.next_delta - 1} in a batch at {self.header.base_offset}"
                    )
            self.add(&source.fields, source.timestamp if source.has_timestamp else -1, delta)
        return 0

    cdef int add_rows(self, RowSource source) except -1:
        cdef Rows rows
        cdef kl_rows_rules_t rules
        cdef kl_rows_out_t space
        cdef kl_rows_end_t end
        cdef int64_t row
        cdef size_t left
        memset(&rules, 0, sizeof(rules))
        rules.batch_bytes_max = INT64_MAX
        rules.message_bytes_max = INT32_MAX
        rules.timestamp_default = -1
        rules.timestamp_min = INT64_MIN
        rules.timestamp_max = INT64_MAX
        rules.base_given = self.base_given
        while (rows := source.next_rows()) is not None:
            row = 0
            while True:
                left = rows_space(rows, row, INT32_MAX)
                reserve(&self.out, left, True)
                space.at = self.out.data
                space.size = self.out.size
                space.capacity = self.out.capacity
                if left >= ROWS_NOGIL_MIN:
                    with nogil:
                        end = kl_rows_write(&rows.rows, &rules, &row, &self.header, &space)
                else:
                    end = kl_rows_write(&rows.rows, &rules, &row, &self.header, &space)
                self.out.size = space.size
                if end == KL_ROWS_DONE:
                    break
                if end == KL_ROWS_SIZE:
                    raise RecordTooLarge(f"record {rows.first + kl_rows_at(&rows.rows, row)}: the batch exceeds 2 GiB")
                if end != KL_ROWS_SPACE:
                    refuse_row(end, rows, row, &rules, &space)
                reserve(&self.out, space.more, True)
        self.next_delta = self.header.count
        return 0

    cdef int finish(self, object last_offset_delta, object max_timestamp) except -1:
        """Write header and checksum of the batch."""
        cdef kl_batch_t *b = &self.header
        cdef int64_t last = self.next_delta - 1
        if last_offset_delta is None:
            if b.count == 0:
                raise ValueError("a batch without records needs last_offset_delta")
            last_offset_delta = last
        b.last_offset_delta = <int32_t>whole_of("last_offset_delta", last_offset_delta, INT32_MIN, INT32_MAX)
        if b.last_offset_delta < last:
            raise ValueError(f"last_offset_delta={last_offset_delta} is below that of the last record, {last}")
        if b.base_offset < 0 or b.base_offset >= INT64_MAX - b.last_offset_delta:
            raise ValueError(f"base_offset: offsets {b.base_offset} to {b.base_offset + last_offset_delta} do not fit into 63 bits")
        if max_timestamp is not None:
            b.max_timestamp = long_of("max_timestamp", max_timestamp)
        elif b.attributes & KL_ATTR_LOG_APPEND_TIME and self.log_append_time != -1:
            b.max_timestamp = self.log_append_time
        return seal(&self.out, 0, b, self.codec, self.level, INT32_MAX)


def encode(
    records, *, base_offset=0, compression=None, leader_epoch=-1, producer_id=-1, producer_epoch=-1, base_sequence=-1,
    is_transactional=False, is_control=False, timestamp_type=TimestampType.CREATE_TIME, log_append_time=-1,
    base_timestamp=None, max_timestamp=None, delete_horizon_ms=None, last_offset_delta=None, keep_offsets=False,
):
    """Encode one batch as bytes. records as for append; the keywords are the header's fields.

    A timestamp of None is -1: this package has no clock. base_timestamp defaults to the first record's;
    delete_horizon_ms replaces it and sets attribute bit 6. max_timestamp defaults to the largest of the records', or
    log_append_time with TimestampType.LOG_APPEND_TIME. keep_offsets: records are klog.Record and keep their own
    offsets, which rise from base_offset on, gaps allowed, as in a compacted batch. last_offset_delta defaults to the
    last record's; a batch without records, such as the cleaner leaves, requires it and has no codec.
    """
    cdef BatchBuilder builder = BatchBuilder(
        base_offset=base_offset, compression=compression, leader_epoch=leader_epoch, producer_id=producer_id,
        producer_epoch=producer_epoch, base_sequence=base_sequence, is_transactional=is_transactional,
        is_control=is_control, timestamp_type=timestamp_type, log_append_time=log_append_time,
        base_timestamp=base_timestamp, delete_horizon_ms=delete_horizon_ms,
    )
    builder.busy = True     # no other code uses this builder
    builder.add_all(records, flag_of("keep_offsets", keep_offsets))
    builder.finish(last_offset_delta, max_timestamp)
    return PyBytes_FromStringAndSize(<char *>builder.out.data, <Py_ssize_t>builder.out.size)
