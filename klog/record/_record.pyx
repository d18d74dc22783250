# cython: auto_pickle=False
"""Record: one record, as given to append and returned by reads.

  M1  key, value and headers are member slots, as those of __slots__: CPython 3.11 and later read them without a call
      (LOAD_ATTR_SLOT). That requires plain attribute lookup, so Record has no __getattribute__.
  M2  a record has all three of its own, or none of them: then it is a LazyRecord that was not read yet.
  M3  key and value are exact bytes or None, headers a tuple of (str, bytes or None), pin is klog's own: no cycle can
      contain them, so the garbage collector need not look at records.
  M4  a record has the number of its topic and partition in ORIGINS, which only grows: an entry for each partition that
      this process has read. A reference would need more instructions and 16 bytes more in each record.
  M5  a freed record is kept for the next one: its slots are NULL, its other fields are written by its next owner.
"""

cimport cython
from cpython.object cimport Py_EQ, Py_NE, Py_TPFLAGS_BASETYPE, PyTypeObject, destructor
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.type cimport PyType_Modified
from cpython.unicode cimport PyUnicode_DecodeUTF8
from klog._c.batch cimport (
    KL_ATTR_CONTROL, KL_ATTR_LOG_APPEND_TIME, KL_ATTR_TRANSACTIONAL, kl_batch_t, kl_record_header_next,
    kl_record_header_t, kl_record_t,
)
from klog._c.status cimport KL_OK
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

import operator

from klog.arguments import wrong_type
from klog.errors import CorruptBatch, InvalidTimestamp
from klog.record.control import control_type
from klog.record.timestamps import TimestampType
from klog.shown import short, short_headers

cdef enum:
    SPARE_MAX = 1024

cdef extern from "Python.h":
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *at, Py_ssize_t size) except NULL
    object PyType_GenericAlloc(type type, Py_ssize_t items)

cdef extern from "structmember.h":
    enum:
        T_OBJECT_EX
        READONLY

    ctypedef struct PyMemberDef:
        const char *name
        int type
        Py_ssize_t offset
        int flags
        const char *doc

    object PyDescr_NewMember(type type, PyMemberDef *member)

cdef extern from *:
    """
    #if defined(Py_GIL_DISABLED) || defined(Py_REF_DEBUG) || defined(Py_TRACE_REFS)
    #define begin_again(record) PyObject_Init(record, Py_TYPE(record))
    #else /* the same without two calls: the record has its type still */
    #define begin_again(record) (Py_SET_REFCNT(record, 1), record)
    #endif
    """
    object begin_again(PyObject *record)

TIMESTAMP_TYPES = (TimestampType.NO_TIMESTAMP, TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)

cdef object MISSING = object()
cdef tuple EMPTY = ()


# What a caller gives --------------------------------------------------------------------------------------------------

cdef object own_bytes(object value, str name):
    """Return bytes unchanged, other buffers as a copy; a subclass could hold references, which Record must not (M3)."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        raise TypeError(f"{name} must be bytes or None, not str; use .encode()")
    try:
        return bytes(memoryview(value))
    except TypeError:
        raise TypeError(f"{name} must be bytes or None, not {type(value).__name__}") from None


cdef tuple checked_headers(object headers):
    if headers is None:
        return ()
    if (isinstance(headers, (str, bytes, bytearray, memoryview, dict)) or not hasattr(headers, "__iter__")
            or getattr(headers, "ndim", 1) == 0):
        raise TypeError(
            f"headers must be pairs of str and bytes or None, not {type(headers).__name__}"
            f"{'; use .items()' if isinstance(headers, dict) else ''}"
        )
    owned = []
    for header in headers:
        if not isinstance(header, (tuple, list)) or len(header) != 2:
            raise TypeError(f"headers: a header must be a pair of str and bytes or None, not {header!r}")
        key, value = header
        if not isinstance(key, str):
            raise TypeError(f"headers: a header key must be str, not {type(key).__name__}")
        owned.append((str.__str__(key) if type(key) is str else "".join(key), own_bytes(value, "headers: a header value")))
    return tuple(owned)


# Where records come from (M4) -----------------------------------------------------------------------------------------

ORIGINS = [(None, None)]
cdef dict origin_numbers = {}


cdef int32_t origin_number(object origin) except -1:
    if origin is None:
        return 0
    number = origin_numbers.get(origin) if type(origin) is tuple else None
    if number is None:
        if type(origin) is not tuple or len(origin) != 2 or type(origin[0]) is not str or type(origin[1]) is not int:
            raise wrong_type("origin", origin, "a (topic, partition) tuple of str and int, or None,")
        ORIGINS.append(origin)
        number = origin_numbers[origin] = len(ORIGINS) - 1
    return number


# Record ---------------------------------------------------------------------------------------------------------------

def _rebuild_record(key, value, tuple headers not None, timestamp, *rest):
    cdef Record record = Record.__new__(Record)
    put(record, key, value, headers)
    record.timestamp_ms = -1 if timestamp is None else timestamp
    (record.offset, record.producer_id, record.leader_epoch, record.sequence, record.producer_epoch,
     record.kind, record.flags, origin) = rest
    record.origin = origin_number(origin)
    return record


cdef class Record:
    """Record(key, value, timestamp=None, headers=())\n--\n
    One record, as given to append and returned by reads.

    key and value are bytes or None. headers are (str, bytes or None) pairs in their order; keys may repeat, and bytes
    of a key that are not UTF-8 use surrogateescape. timestamp is in ms, -1 for none. A record made without a timestamp
    has -1 too and gets the time of its append; pass -1 to store it without any. topic and partition are None for a
    record that was not read from a log. Immutable.

    Two records are equal if all fields that both know are equal. A record that was read knows all fields, but topic and
    partition only if it was read from a log. One made here knows key, value and headers, and a timestamp other than -1.
    So equality is not transitive: Record(k, v) equals two records that differ in their offsets. The hash is that of
    key, value and headers.
    """

    def __init__(self, key=MISSING, value=MISSING, timestamp=None, headers=()):
        if key is MISSING or value is MISSING:
            raise TypeError(
                f"klog.Record takes key and value, each bytes or None, and has no {'key' if key is MISSING else 'value'}: "
                "klog.Record(key=None, value=b'...')"
            )
        put(self, own_bytes(key, "key"), own_bytes(value, "value"), checked_headers(headers))
        self.timestamp_ms = -1
        self.flags = 0
        if timestamp is not None:
            try:
                if isinstance(timestamp, bool):
                    raise TypeError
                self.timestamp_ms = operator.index(timestamp)
            except TypeError:
                raise TypeError(
                    f"timestamp must be an int of milliseconds or None, not {type(timestamp).__name__}"
                ) from None
            except OverflowError:
                raise InvalidTimestamp(f"timestamp {timestamp} does not fit into 64 bits") from None
            self.flags = FLAG_TIMESTAMP
        self.offset = -1
        self.producer_id = -1
        self.leader_epoch = -1
        self.sequence = -1
        self.producer_epoch = -1
        self.origin = 0
        self.kind = 0

    @property
    def timestamp(self):
        return self.timestamp_ms

    @property
    def timestamp_type(self):
        return TIMESTAMP_TYPES[self.kind + 1]

    @property
    def is_transactional(self):
        return (self.flags & FLAG_TRANSACTIONAL) != 0

    @property
    def is_control(self):
        return (self.flags & FLAG_CONTROL) != 0

    @property
    def control_type(self):
        return control_type(self.key) if self.flags & FLAG_CONTROL else None

    @property
    def topic(self):
        return ORIGINS[self.origin][0]

    @property
    def partition(self):
        return ORIGINS[self.origin][1]

    def __reduce__(self):
        return _rebuild_record, (
            self.key, self.value, self.headers, self.timestamp, self.offset, self.producer_id, self.leader_epoch,
            self.sequence, self.producer_epoch, self.kind, self.flags, ORIGINS[self.origin] if self.origin else None,
        )

    def __richcmp__(self, other, int op):
        cdef Record a, b
        if op not in (Py_EQ, Py_NE) or not isinstance(other, Record):
            return NotImplemented
        a, b = self, other
        same = a.key == b.key and a.value == b.value and a.headers == b.headers
        if a.flags & b.flags & FLAG_READ:
            same = same and same_when_read(a, b)
        elif knows_timestamp(a) and knows_timestamp(b):
            same = same and a.timestamp_ms == b.timestamp_ms
        return same if op == Py_EQ else not same

    def __hash__(self):
        return hash((self.key, self.value, self.headers))

    def __repr__(self):
        parts = [f"key={short(self.key)}", f"value={short(self.value)}"]
        if self.flags & FLAG_TIMESTAMP:
            parts.append(f"timestamp={self.timestamp_ms}")
        if self.headers:
            parts.append(f"headers={short_headers(self.headers)}")
        if self.offset != -1:
            parts.append(f"offset={self.offset}")
        if self.flags & FLAG_CONTROL:
            parts.append(f"control_type={self.control_type!r}")
        return f"Record({', '.join(parts)})"


cdef bint knows_timestamp(Record record) noexcept:
    return record.flags & FLAG_READ or record.timestamp_ms != -1


cdef bint same_when_read(Record a, Record b) noexcept:
    """Are the fields equal that only a record that was read has?"""
    return (
        a.offset == b.offset and a.timestamp_ms == b.timestamp_ms and a.flags == b.flags and a.kind == b.kind
        and a.leader_epoch == b.leader_epoch and a.producer_id == b.producer_id
        and a.producer_epoch == b.producer_epoch and a.sequence == b.sequence
        and (a.origin == b.origin or a.origin == 0 or b.origin == 0)
    )


cdef int put(Record record, key, value, tuple headers) except -1:
    """Give the record its key, value and headers."""
    drop_slots(<PyObject *>record)
    Py_INCREF(key)
    Py_INCREF(value)
    Py_INCREF(headers)
    record.own_key, record.own_value, record.own_headers = <PyObject *>key, <PyObject *>value, <PyObject *>headers
    return 0


# LazyRecord -----------------------------------------------------------------------------------------------------------

@cython.final
cdef class LazyRecord(Record):
    """A record that leaves key, value and headers in a buffer, and keeps it in use, until one of them is read: then it
    copies all three and releases the buffer. In every other respect a Record."""

    cdef PyObject *pin              # holds the bytes at at_key and at_value; NULL once the record has its own copies
    cdef const uint8_t *at_key
    cdef const uint8_t *at_value
    cdef const uint8_t *at_headers
    cdef int32_t key_size
    cdef int32_t value_size
    cdef int32_t header_count
    cdef int32_t headers_size

    def __init__(self):
        raise TypeError("get lazy records from klog.record.iter_records(buffer, lazy=True)")

    @property
    def key(self):
        own_fields(self)
        return <object>self.own_key

    @property
    def value(self):
        own_fields(self)
        return <object>self.own_value

    @property
    def headers(self):
        own_fields(self)
        return <object>self.own_headers


cdef int own_fields(Record record) except -1:
    return 0 if record.own_key != NULL else read_lazy(record)


cdef int read_lazy(Record record) except -1:
    cdef LazyRecord lazy
    if type(record) is not LazyRecord or (<LazyRecord>record).pin == NULL:
        raise AttributeError("a klog.Record that was made without its __init__() has no key, value and headers")
    lazy = record
    # Also held here: making headers may let another thread run, which may drop the record's pin.
    _pin = <object>lazy.pin
    key = bytes_or_none(lazy.at_key, lazy.key_size)
    value = bytes_or_none(lazy.at_value, lazy.value_size)
    headers = read_headers(lazy.at_headers, lazy.headers_size, lazy.header_count) if lazy.header_count else EMPTY
    put(lazy, key, value, headers)
    Py_XDECREF(lazy.pin)
    lazy.pin = NULL
    return 0


cdef tuple read_headers(const uint8_t *at, int32_t size, int32_t count):
    cdef const uint8_t *end = at + size
    cdef kl_record_header_t header
    cdef size_t used = 0
    cdef int32_t i
    cdef tuple headers = PyTuple_New(count)
    for i in range(count):
        # kl_record_next has checked them, but in a shared mapping bytes may change between two reads.
        if kl_record_header_next(at, <size_t>(end - at), &header, &used) != KL_OK:
            raise CorruptBatch("the headers of a record changed while they were read")
        at += used
        pair = (
            PyUnicode_DecodeUTF8(<const char *>header.key, header.key_size, "surrogateescape"),
            bytes_or_none(header.value, header.value_size),
        )
        Py_INCREF(pair)
        PyTuple_SET_ITEM(headers, i, pair)
    return headers


# Records that are read ------------------------------------------------------------------------------------------------

cdef inline PyObject *new_bytes_or_none(const uint8_t *at, int32_t size) except NULL:
    if size >= 0:
        return new_bytes(<const char *>at, size)
    Py_INCREF(None)
    return <PyObject *>None


cdef Record make_record(
    const kl_record_t *r, const uint8_t *end, const kl_batch_t *b, int64_t offset, int32_t origin, object pin
):
    cdef Record record
    cdef LazyRecord lazy
    cdef uint8_t flags = FLAG_TIMESTAMP | FLAG_READ
    if pin is None:
        headers = read_headers(r.headers, <int32_t>(end - r.headers), r.header_count) if r.header_count else EMPTY
        record = allocate(Record, &spare_records)
        record.own_key = new_bytes_or_none(r.key, r.key_size)
        record.own_value = new_bytes_or_none(r.value, r.value_size)
        Py_INCREF(headers)
        record.own_headers = <PyObject *>headers
    else:
        record = lazy = allocate(LazyRecord, &spare_lazy)
        Py_INCREF(pin)
        lazy.pin = <PyObject *>pin
        lazy.at_key, lazy.key_size = r.key, r.key_size
        lazy.at_value, lazy.value_size = r.value, r.value_size
        lazy.at_headers, lazy.header_count = r.headers, r.header_count
        lazy.headers_size = <int32_t>(end - r.headers)
    record.offset = offset
    record.producer_id = b.producer_id
    record.leader_epoch = b.leader_epoch
    record.producer_epoch = b.producer_epoch
    record.origin = origin
    if b.base_sequence < 0:
        record.sequence = -1
    else:   # sequences wrap from 2^31-1 to 0
        record.sequence = <int32_t>((<uint32_t>b.base_sequence + <uint32_t>r.offset_delta) & 0x7fffffff)
    if b.attributes & KL_ATTR_LOG_APPEND_TIME:
        record.timestamp_ms = b.max_timestamp
        record.kind = 1
    else:
        record.timestamp_ms = <int64_t>(<uint64_t>b.base_timestamp + <uint64_t>r.timestamp_delta)
        record.kind = -1 if b.magic == 0 else 0
    if b.attributes & KL_ATTR_TRANSACTIONAL:
        flags |= FLAG_TRANSACTIONAL
    if b.attributes & KL_ATTR_CONTROL:
        flags |= FLAG_CONTROL
    record.flags = flags
    return record


# Memory (M5) and member slots (M1) ------------------------------------------------------------------------------------

ctypedef struct spare_t:
    int count
    PyObject *records[SPARE_MAX]

cdef spare_t spare_records, spare_lazy
cdef PyMemberDef[3] MEMBERS


cdef inline object allocate(type type, spare_t *spare):
    if spare.count == 0:
        return PyType_GenericAlloc(type, 0)
    spare.count -= 1
    return begin_again(spare.records[spare.count])


cdef inline void release(PyObject *record, spare_t *spare) noexcept:
    if spare.count < SPARE_MAX:
        spare.records[spare.count] = record
        spare.count += 1
    else:
        (<PyTypeObject *>Record).tp_free(record)


cdef inline void drop_slots(PyObject *record) noexcept:
    Py_XDECREF((<Record>record).own_key)
    Py_XDECREF((<Record>record).own_value)
    Py_XDECREF((<Record>record).own_headers)
    (<Record>record).own_key = (<Record>record).own_value = (<Record>record).own_headers = NULL


cdef void dealloc_record(PyObject *record) noexcept:
    drop_slots(record)
    release(record, &spare_records)


cdef void dealloc_lazy(PyObject *record) noexcept:
    drop_slots(record)
    Py_XDECREF((<LazyRecord>record).pin)
    (<LazyRecord>record).pin = NULL
    release(record, &spare_lazy)


cdef int complete_types() except -1:
    """Add what Cython has no declaration for."""
    cdef Record record = Record.__new__(Record)
    cdef char *start = <char *><PyObject *>record
    cdef PyTypeObject *base = <PyTypeObject *>Record
    MEMBERS[0] = PyMemberDef("key", T_OBJECT_EX, <char *>&record.own_key - start, READONLY, NULL)
    MEMBERS[1] = PyMemberDef("value", T_OBJECT_EX, <char *>&record.own_value - start, READONLY, NULL)
    MEMBERS[2] = PyMemberDef("headers", T_OBJECT_EX, <char *>&record.own_headers - start, READONLY, NULL)
    for i in range(3):
        (<dict>base.tp_dict)[MEMBERS[i].name.decode()] = PyDescr_NewMember(Record, &MEMBERS[i])
    base.tp_flags &= ~Py_TPFLAGS_BASETYPE   # only for LazyRecord
    base.tp_dealloc = <destructor>dealloc_record
    (<PyTypeObject *>LazyRecord).tp_dealloc = <destructor>dealloc_lazy
    PyType_Modified(Record)
    return 0


complete_types()
