# cython: auto_pickle=False
"""Records into batches: an iterable is read once, each record written straight into a growing buffer of batches.

  W1  memory is bounded by the group asked for and one batch, whatever the iterable is.
  W2  a batch is sealed last: header, codec stream and checksum are all there before anybody sees a byte of it.
  W3  base offsets and leader epoch lie outside the checksum: BatchGroup.assign() sets them when the log knows them.
  W4  what batches are built in comes out of a pool and goes back to it: with the last view of the group, or right away
      where encode() has made bytes of it.

Timestamps and offsets are written as deltas to the first record of their batch. Kafka: MemoryRecordsBuilder,
LogValidator.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from klog._c.batch cimport (
    KL_ATTR_CONTROL, KL_ATTR_DELETE_HORIZON, KL_ATTR_LOG_APPEND_TIME, KL_ATTR_TRANSACTIONAL, KL_BATCH_HEADER,
    kl_batch_crc, kl_batch_header_store, kl_batch_t,
)
from klog._c.encode cimport kl_header_write, kl_record_body_size, kl_record_write
from klog._c.pool cimport kl_pool_give, kl_pool_t, kl_pool_take, kl_pool_take_largest
from klog._c.varint cimport KL_VARINT_MAX, kl_varlong_size
from klog.record._batch cimport FLAG_TIMESTAMP, Record
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

import operator

from klog.codec import compress, parse_compression
from klog.errors import InvalidRecord, InvalidTimestamp, RecordTooLarge
from klog.record.timestamps import TimestampType

# With plain pointers: Cython's own declarations would count a reference for every look.
cdef extern from "Python.h":
    PyObject *Py_None
    bint PyTuple_CheckExact(PyObject *)
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
    TABLE_MIN = 4096
    ARENA_MIN = 1 << 16
    CRC_NOGIL_MIN = 1 << 20


# Memory ---------------------------------------------------------------------------------------------------------------

cdef kl_pool_t pool


cdef int reserve(arena_t *arena, size_t more, bint batches=False) except -1:
    """Room for `more` bytes behind arena.size; the bytes may move. batches: this one will take megabytes, so let it have
    the largest buffer there is."""
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


cdef void give(arena_t *arena) noexcept:
    kl_pool_give(&pool, arena.data, arena.capacity)
    arena.data = NULL
    arena.capacity = 0


# Records in -----------------------------------------------------------------------------------------------------------

@cython.final
cdef class RecordInput:
    """One record at a time out of an iterable, as pointers that stay good until the next advance()."""

    def __cinit__(self, records):
        if isinstance(records, (str, bytes, bytearray, dict)):
            raise TypeError(f"records is an iterable of klog.Record or tuples, not {type(records).__name__}")
        self.iterator = iter(records)
        self.number = -1

    def __dealloc__(self):
        self.drop()
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

    cdef bint advance(self) except -1:
        """Load the next record; False at the end."""
        cdef PyObject *item
        self.drop()
        if self.iterator is None:
            return False
        item = PyIter_Next(self.iterator)
        if item is NULL:
            self.iterator = None    # some iterators would go on after their end
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
        """The short way for what most records are: a tuple of bytes or None, and an int or None. Nothing of the caller's
        can run here, and a tuple keeps what is in it. False, nothing raised: load() has to look at it."""
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
        if PyBytes_CheckExact(value):
            self.fields.value = <const uint8_t *>PyBytes_AS_STRING(value)
            self.fields.value_size = PyBytes_GET_SIZE(value)
        elif value is Py_None:
            self.fields.value = NULL
            self.fields.value_size = -1
        else:
            return False
        if PyBytes_CheckExact(key):
            self.fields.key = <const uint8_t *>PyBytes_AS_STRING(key)
            self.fields.key_size = PyBytes_GET_SIZE(key)
        elif key is Py_None:
            self.fields.key = NULL
            self.fields.key_size = -1
        else:
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
        if type(item) is Record:
            record = item
            self.key = record.key
            self.value = record.value
            self.offset = record.offset
            self.timestamp = record.timestamp_ms
            self.has_timestamp = record.flags & FLAG_TIMESTAMP
            if len(record.headers) != 0:
                self.load_headers(record.headers)
        elif isinstance(item, (tuple, list)):
            n = len(item)
            if not 2 <= n <= 4:
                raise TypeError(
                    f"record {self.number} has {n} fields; (key, value), (key, value, timestamp) or "
                    f"(key, value, timestamp, headers)"
                )
            # Owned before anything below can run code of the caller's, which might empty a list.
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
                f"record {self.number} is a klog.Record or a tuple (key, value[, timestamp[, headers]]), "
                f"not {type(item).__name__}"
            )
        return self.point()

    cdef int point(self) except -1:
        """Set the pointers to key, value and headers, last of all: nothing of the caller's runs behind them."""
        if type(self.key) is bytes:
            self.fields.key = <const uint8_t *>PyBytes_AS_STRING(<PyObject *>self.key)
            self.fields.key_size = PyBytes_GET_SIZE(<PyObject *>self.key)
        elif self.key is None:
            self.fields.key = NULL
            self.fields.key_size = -1
        else:
            self.view(self.key, "key", &self.key_view)
            self.key_held = True
            self.fields.key = <const uint8_t *>self.key_view.buf
            self.fields.key_size = self.key_view.len
        if type(self.value) is bytes:
            self.fields.value = <const uint8_t *>PyBytes_AS_STRING(<PyObject *>self.value)
            self.fields.value_size = PyBytes_GET_SIZE(<PyObject *>self.value)
        elif self.value is None:
            self.fields.value = NULL
            self.fields.value_size = -1
        else:
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
            raise TypeError(f"record {self.number}: the {name} is bytes or None, not {type(value).__name__}") from None
        return 0

    cdef int load_timestamp(self, object timestamp) except -1:
        try:
            self.timestamp = operator.index(timestamp)
        except TypeError:
            raise TypeError(
                f"record {self.number}: the timestamp is an int of milliseconds since 1970 or None, "
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
        if isinstance(headers, (dict, str, bytes)):
            raise TypeError(
                f"record {self.number}: headers are pairs of str and bytes, not {type(headers).__name__}"
                f"{'; use .items()' if isinstance(headers, dict) else ''}"
            )
        for header in headers:
            if not isinstance(header, (tuple, list)) or len(header) != 2:
                raise TypeError(f"record {self.number}: a header is a pair of str and bytes or None, not {header!r}")
            key, value = header
            if not isinstance(key, str):
                raise TypeError(f"record {self.number}: a header key is str, not {type(key).__name__}")
            encoded = None
            text = PyUnicode_AsUTF8AndSize(key, &size)
            if text is NULL:    # surrogates: bytes that were no UTF-8 when they were read
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
    """Turn the header's room and the records at out[start..] into a batch: codec stream, size, checksum, header."""
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
            # Random bytes can grow under a codec: what fits only as it is goes as it is.
            if <int64_t>payload_size + KL_BATCH_HEADER <= message_bytes_max or payload_size < plain_size:
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
    b.size = <int32_t>(out.size - start)
    b.position = <int64_t>start
    b.magic = 2
    kl_batch_header_store(out.data + start, b)
    if b.size >= CRC_NOGIL_MIN:
        with nogil:
            b.crc = kl_batch_crc(out.data + start, b.size)
    else:
        b.crc = kl_batch_crc(out.data + start, b.size)
    kl_batch_header_store(out.data + start, b)
    return 0


cdef void blank_header(kl_batch_t *b) noexcept:
    memset(b, 0, sizeof(kl_batch_t))
    b.leader_epoch = -1
    b.producer_id = -1
    b.producer_epoch = -1
    b.base_sequence = -1
    b.base_timestamp = -1
    b.max_timestamp = -1


@cython.final
cdef class BatchGroup:
    """Whole batches back to back, ready for one write; a read-only buffer.

    n batches of nbytes bytes take count offsets, from 0 on until assign() says where they stand.
    """

    def __init__(self):
        raise TypeError("batch groups come from Encoder.next_group()")

    def __dealloc__(self):
        kl_pool_give(&pool, self.data, self.capacity)
        kl_pool_give(&pool, self.batches, self.table_capacity)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.nbytes, 1, flags)

    def __len__(self):
        return self.n

    cpdef assign(self, int64_t first_offset, int32_t leader_epoch):
        """Let the group's first record have first_offset, and stamp the leader epoch; no checksum changes by it."""
        cdef Py_ssize_t i
        cdef kl_batch_t *b
        if first_offset < 0 or first_offset > INT64_MAX - self.count:
            raise ValueError(f"{self.count} offsets from {first_offset} on do not fit into 63 bits")
        for i in range(self.n):
            b = &self.batches[i]
            b.base_offset += first_offset - self.first_offset
            b.leader_epoch = leader_epoch
            kl_batch_header_store(self.data + b.position, b)
        self.first_offset = first_offset


@cython.final
cdef class Encoder:
    """Cuts an iterable of records into batches, group by group, for one append.

    Records are klog.Record or tuples (key, value[, timestamp[, headers]]). A batch holds at most batch_bytes_max
    uncompressed bytes unless a single record is larger, and none may take more than message_bytes_max
    (RecordTooLarge). A timestamp of None becomes timestamp_default; one outside [timestamp_min, timestamp_max] and not
    -1 is InvalidTimestamp, as is any other negative one. log_append_time >= 0 makes LogAppendTime batches, in which the
    producers' timestamps are kept but do not count, so they are not checked. key_required: InvalidRecord for a null key.

    Any exception, the iterable's too, ends the encoder; groups given out before it stay good. One thread at a time.
    """

    def __init__(
        self, records, *, compression=None, int64_t batch_bytes_max, int64_t message_bytes_max,
        int64_t timestamp_default, int64_t timestamp_min, int64_t timestamp_max, int64_t log_append_time=-1,
        bint key_required=False,
    ):
        self.codec, self.level = parse_compression(compression)
        self.records = RecordInput(records)
        self.batch_bytes_max = batch_bytes_max
        self.message_bytes_max = min(message_bytes_max, <int64_t>INT32_MAX)
        self.timestamp_default = timestamp_default
        self.timestamp_min = timestamp_min
        self.timestamp_max = timestamp_max
        self.log_append_time = log_append_time
        self.key_required = key_required

    def next_group(self, int64_t bytes_max):
        """The next batches, about bytes_max bytes of them (at least one batch); None when the records are at an end."""
        cdef BatchGroup group
        cdef arena_t out, table
        cdef kl_batch_t *b
        cdef kl_batch_t header
        if self.busy:
            raise ValueError("encoder already executing")
        if self.records is None:
            return None
        memset(&out, 0, sizeof(out))
        memset(&table, 0, sizeof(table))
        self.busy = True
        group = BatchGroup.__new__(BatchGroup)
        group.max_timestamp = -1
        try:
            while self.records.loaded or self.records.advance():
                header.base_offset = group.count
                self.build(&out, &header)
                reserve(&table, sizeof(kl_batch_t))
                b = <kl_batch_t *>(table.data + table.size)
                b[0] = header
                table.size += sizeof(kl_batch_t)
                group.n += 1
                group.count += header.count
                group.max_timestamp = max(group.max_timestamp, header.max_timestamp)
                if <int64_t>out.size >= bytes_max:
                    break
        except BaseException:
            self.records = None
            give(&out)
            give(&table)
            raise
        finally:
            self.busy = False
        if group.n == 0:
            self.records = None
            return None
        group.data = out.data
        group.capacity = out.capacity
        group.nbytes = <Py_ssize_t>out.size
        group.batches = <kl_batch_t *>table.data
        group.table_capacity = table.capacity
        return group

    cdef int64_t record_timestamp(self) except? -2:
        cdef RecordInput records = self.records
        cdef int64_t timestamp = records.timestamp if records.has_timestamp else self.timestamp_default
        if timestamp < -1:
            raise InvalidTimestamp(
                f"record {records.number}: timestamp {timestamp} is negative; -1 says that there is none"
            )
        if timestamp == -1 or self.log_append_time >= 0:
            return timestamp
        if not self.timestamp_min <= timestamp <= self.timestamp_max:
            raise InvalidTimestamp(
                f"record {records.number}: timestamp {timestamp} is outside [{self.timestamp_min}, "
                f"{self.timestamp_max}], which message.timestamp.before.max.ms and .after.max.ms allow"
            )
        return timestamp

    cdef int build(self, arena_t *out, kl_batch_t *b) except -1:
        """One batch of the record that is loaded and those behind it, as many as fit; the first that does not stays
        loaded. b.base_offset is the caller's."""
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
                raise InvalidRecord(
                    f"Compacted topic cannot accept message without key: record {records.number}; give it one"
                )
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
                raise RecordTooLarge(
                    f"record {records.number} makes a batch of {size} bytes, more than max.message.bytes = "
                    f"{self.message_bytes_max}; raise it for this topic, or send a smaller record"
                )
            append_record(out, fields, body_size)
            b.count += 1
            b.max_timestamp = max(b.max_timestamp, timestamp)
            if not records.advance():
                break
        b.last_offset_delta = b.count - 1
        if self.log_append_time >= 0:
            b.attributes = KL_ATTR_LOG_APPEND_TIME
            b.max_timestamp = self.log_append_time
        return seal(out, start, b, self.codec, self.level, self.message_bytes_max)


def encode(
    records, *, int64_t base_offset=0, compression=None, int32_t leader_epoch=-1, int64_t producer_id=-1,
    int16_t producer_epoch=-1, int32_t base_sequence=-1, bint is_transactional=False, bint is_control=False,
    timestamp_type=TimestampType.CREATE_TIME, int64_t log_append_time=-1, base_timestamp=None, max_timestamp=None,
    delete_horizon_ms=None, last_offset_delta=None, bint keep_offsets=False,
):
    """One batch as bytes. records as for append; the keywords are the header's fields.

    A timestamp of None is -1: this room has no clock. base_timestamp is the first record's unless given;
    delete_horizon_ms takes its place and sets attribute bit 6. max_timestamp is the largest of the records', or
    log_append_time with TimestampType.LOG_APPEND_TIME. keep_offsets: records are klog.Record and stand at their own
    offsets, which rise from base_offset on, gaps allowed, as in a compacted batch. last_offset_delta is the last
    record's unless given; a batch without records needs it, and has no codec, as the cleaner leaves it.
    """
    cdef RecordInput source
    cdef arena_t out
    cdef kl_batch_t b
    cdef int64_t timestamp, delta, body_size, largest = -1, before = -1
    cdef int codec
    codec, level = parse_compression(compression)
    source = RecordInput(records)
    memset(&out, 0, sizeof(out))
    blank_header(&b)
    b.base_offset = base_offset
    b.leader_epoch = leader_epoch
    b.producer_id = producer_id
    b.producer_epoch = producer_epoch
    b.base_sequence = base_sequence
    if is_transactional:
        b.attributes |= KL_ATTR_TRANSACTIONAL
    if is_control:
        b.attributes |= KL_ATTR_CONTROL
    if delete_horizon_ms is not None:
        b.attributes |= KL_ATTR_DELETE_HORIZON
        base_timestamp = delete_horizon_ms
    if base_timestamp is not None:
        b.base_timestamp = base_timestamp
    if timestamp_type == TimestampType.LOG_APPEND_TIME:
        b.attributes |= KL_ATTR_LOG_APPEND_TIME
    elif timestamp_type != TimestampType.CREATE_TIME:
        raise ValueError(f"a batch has CREATE_TIME or LOG_APPEND_TIME, not {timestamp_type!r}")
    try:
        reserve(&out, KL_BATCH_HEADER, True)
        out.size = KL_BATCH_HEADER
        while source.advance():
            timestamp = source.timestamp if source.has_timestamp else -1
            if timestamp < -1:
                raise InvalidTimestamp(f"record {source.number}: timestamp {timestamp} is negative; -1 says none")
            if b.count == 0 and base_timestamp is None:
                b.base_timestamp = timestamp
            delta = source.offset - base_offset if keep_offsets else b.count
            if not before < delta <= INT32_MAX:
                raise ValueError(
                    f"record {source.number}: offset {source.offset} does not rise from {base_offset + before} "
                    f"in a batch at {base_offset}"
                )
            before = delta
            source.fields.timestamp_delta = <int64_t>(<uint64_t>timestamp - <uint64_t>b.base_timestamp)
            source.fields.offset_delta = <int32_t>delta
            body_size = kl_record_body_size(&source.fields)
            if <int64_t>out.size + body_size > INT32_MAX - KL_VARINT_MAX:
                raise RecordTooLarge(f"record {source.number}: the batch grows past 2 GiB")
            append_record(&out, &source.fields, body_size)
            b.count += 1
            largest = max(largest, timestamp)
        if last_offset_delta is None:
            if b.count == 0:
                raise ValueError("a batch without records needs last_offset_delta")
            last_offset_delta = before
        b.last_offset_delta = last_offset_delta
        if b.last_offset_delta < before:
            raise ValueError(f"last_offset_delta {last_offset_delta} is below that of the last record, {before}")
        if base_offset < 0 or base_offset >= INT64_MAX - b.last_offset_delta:
            raise ValueError(f"offsets {base_offset} to {base_offset + last_offset_delta} do not fit into 63 bits")
        if max_timestamp is not None:
            b.max_timestamp = max_timestamp
        elif b.attributes & KL_ATTR_LOG_APPEND_TIME and log_append_time != -1:
            b.max_timestamp = log_append_time
        else:
            b.max_timestamp = largest
        seal(&out, 0, &b, codec, level, INT32_MAX)
        return PyBytes_FromStringAndSize(<char *>out.data, <Py_ssize_t>out.size)
    finally:
        give(&out)
