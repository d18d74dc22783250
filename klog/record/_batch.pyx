# cython: auto_pickle=False
"""Reads batches and records from bytes: views of the caller's buffer, checked before use.

  R1  every length is checked against the bytes left before it is used; a count of records must fit into the plain bytes
      (a record has at least 7) before anything is allocated for it.
  R2  every pointer into a buffer holds the buffer: the Source of a batch, an iterator or a lazy record keeps it from
      being closed.
  R3  invalid bytes raise CorruptBatch with path, position of the batch and offset; the records before them come first.

In a LogAppendTime batch every record has max_timestamp; otherwise base_timestamp + delta, which may wrap, as in Java.
Messages of magic 0 and 1 become batches of magic 2 with the same content (_legacy.pyx).
Kafka: DefaultRecordBatch, DefaultRecord, MemoryRecords.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from cpython.tuple cimport PyTuple_SET_ITEM
from klog._c.batch cimport (
    KL_ATTR_CODEC, KL_ATTR_CONTROL, KL_ATTR_DELETE_HORIZON, KL_ATTR_LOG_APPEND_TIME, KL_ATTR_TRANSACTIONAL,
    KL_BATCH_HEADER, KL_RECORD_MIN, kl_batch_crc, kl_batch_last_offset, kl_batch_next, kl_batch_t,
    kl_payload_validate, kl_record_next, kl_record_t,
    kl_payload_validate_summed, kl_sum_begin, kl_sum_end, kl_sum_t,
)
from klog._c.bytes cimport kl_load_u32
from klog._c.legacy cimport KL_MESSAGE_AT_CRC, KL_MESSAGE_CRC_FROM
from klog._c.status cimport KL_ECOUNT, KL_ELEGACY, KL_EMAGIC, KL_ESLACK, KL_ETRUNCATED, KL_OK
from klog.codec._kept cimport decompressed_bytes_max
from klog.codec.status cimport raise_status
from klog.record._arguments cimport check_buffer, check_path, flag_of, long_of
from klog.record._legacy cimport LegacyBatch, read_legacy
from klog.record._record cimport TIMESTAMP_TYPES, Record, bytes_or_none, make_record, origin_number
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t

import operator
import zlib

from klog.arguments import function, having, items, wrong_type
from klog.codec import CODECS as _CODECS
from klog.codec import decompress
from klog.errors import CorruptBatch, UnsupportedBatch

cdef enum:
    CRC_NOGIL_MIN = 1 << 20     # 20 to 40 µs of checksum, 500 with the table: for less the GIL is kept
    SUM_STEP = 1 << 14          # bytes that the L1 cache still holds when the walk follows the checksum
    WALK_NOGIL_MIN = 1 << 18    # the same for a walk over records: about 3 ns each

cdef extern from "Python.h":
    long PY_VERSION_HEX
    Py_ssize_t Py_REFCNT(object)
    void PyObject_GC_UnTrack(void *object)
    PyObject *PyTuple_GET_ITEM(object made, Py_ssize_t i)


# Source ---------------------------------------------------------------------------------------------------------------

# no_gc: the tp_clear that Cython writes drops view.obj without releasing the view, and the exporter would count it for
# ever (a bytearray that never resizes, a mapping that never closes). no_gc_clear is not enough: if the collector clears
# a memoryview that has a view, CPython 3.11.7 and 3.12.1 crash (gh-77894). As the collector does not see this
# reference, it leaves the memoryview alone until the view is released. The cost: an exporter that refers back to its
# batches, such as an attribute of a bytearray's subclass, is not collected.
@cython.final
@cython.no_gc
cdef class Source:
    def __cinit__(self, buffer, path, file_position, lazy=False, origin=None):
        check_buffer("buffer", buffer)
        check_path("path", path)
        self.file_position = long_of("file_position", file_position)
        self.lazy = flag_of("lazy", lazy)
        self.origin = origin_number(origin)
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.data = <const uint8_t *>self.view.buf
        self.size = self.view.len
        self.path = path
        self.newer_magic = path is not None

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, <void *>self.data, self.size, 1, flags)

    cdef int batch_at(self, Py_ssize_t at, bint verify_crc, kl_batch_t *b) except -1:
        cdef size_t left = <size_t>(self.size - at)
        cdef int status = kl_batch_next(self.data + at, left, left, b)
        cdef uint32_t crc
        if status == KL_ETRUNCATED or status == KL_EMAGIC and <size_t>b.size > left:
            return 0
        if status == KL_EMAGIC or status == KL_ELEGACY and self.refuses_legacy:
            self.refuse(at, b, verify_crc)
        if status == KL_ELEGACY:
            b[0] = self.legacy_at(at, b.size, verify_crc).header
            return 1
        if status != KL_OK:
            raise_status(status, self.path, self.file_position + at, None, "batch header")
        b.position = at
        if verify_crc:
            if b.size >= CRC_NOGIL_MIN:
                with nogil:
                    crc = kl_batch_crc(self.data + at, b.size)
            else:
                crc = kl_batch_crc(self.data + at, b.size)
            if crc != b.crc:
                raise CorruptBatch(
                    f"the checksum of a batch of {b.size} bytes is {b.crc:08x}, its bytes make {crc:08x}",
                    path=self.path, position=self.file_position + at, offset=b.base_offset, kind="crc",
                )
        if b.magic != 2 and not self.newer_magic:
            self.refuse(at, b, verify_crc)
        if b.attributes & KL_ATTR_CODEC >= len(_CODECS):
            raise CorruptBatch(
                f"codec bits {b.attributes & KL_ATTR_CODEC} are not a known codec",
                path=self.path, position=self.file_position + at, offset=b.base_offset,
            )
        return 1

    cdef int refuse(self, Py_ssize_t at, const kl_batch_t *b, bint verify_crc) except -1:
        """Refuse a message of magic 0 or 1 as unsupported, or as corrupt if its CRC-32 does not match."""
        where = {"path": self.path, "position": self.file_position + at}
        if b.magic not in (0, 1):
            raise CorruptBatch(f"magic {b.magic} is not a record format", **where)
        if verify_crc:
            crc = zlib.crc32(memoryview(self)[at + KL_MESSAGE_CRC_FROM:at + b.size])
            if crc != kl_load_u32(self.data + at + KL_MESSAGE_AT_CRC):
                raise CorruptBatch(f"the checksum of a message of magic {b.magic} does not match", kind="crc", **where)
        raise UnsupportedBatch(
            f"a message of magic {b.magic}, the format before Kafka 0.11, where only batches of magic 2 are supported; "
            f"have Kafka 4's cleaner or a mirror rewrite it", **where,
        )

    cdef LegacyBatch legacy_at(self, Py_ssize_t at, int32_t size, bint verify_crc):
        # The header and then its records are requested separately: a sequential reader decompresses only once.
        cdef LegacyBatch held = self.legacy
        message = memoryview(self)[at:at + size]
        try:
            if held is None or held.header.position != at or held.header.size != size:
                held = read_legacy(message, verify_crc)
                held.header.position = at
                self.legacy = held
            elif verify_crc:
                held.verify(message, self.data + at)
        except CorruptBatch as error:
            raise type(error)(
                error.reason, path=self.path, position=self.file_position + at, offset=error.offset, kind=error.kind
            ) from None
        return held

    cdef object plain_records(self, const kl_batch_t *b):
        cdef Py_ssize_t size = b.size - KL_BATCH_HEADER
        cdef int codec = b.attributes & KL_ATTR_CODEC
        plain = None
        if b.magic < 2:
            return self.legacy_at(b.position, b.size, False).payload
        if codec != 0 and b.count != 0:
            start = b.position + KL_BATCH_HEADER
            if self.payloads is not None:
                plain = self.payloads.find(self.file_position + b.position, b.size, b.crc)
            try:
                if plain is None:
                    plain = decompress(codec, memoryview(self)[start:start + size], decompressed_bytes_max(size))
                    if self.payloads is not None:
                        self.payloads.keep(self.file_position + b.position, b.size, b.crc, plain)
            except CorruptBatch as error:
                raise type(error)(
                    error.reason, path=self.path, position=self.file_position + b.position, offset=b.base_offset,
                    kind=error.kind,
                ) from None
            size = len(plain)
        self.check_count(b, size)
        return plain

    cdef int check_count(self, const kl_batch_t *b, Py_ssize_t size) except -1:
        if b.count > size // KL_RECORD_MIN:
            raise CorruptBatch(
                f"{b.count} records cannot be in {size} bytes", path=self.path,
                position=self.file_position + b.position, offset=b.base_offset,
            )
        return 0

    cdef int raise_record(self, int status, const kl_batch_t *b, int32_t number) except -1:
        return raise_status(
            status, self.path, self.file_position + b.position, b.base_offset, f"record {number} of {b.count}"
        )


# Selection ------------------------------------------------------------------------------------------------------------

_TRIPLES = "(producer_id, first_offset, last_offset) triples of int"


cdef object aborted_of(object aborted):
    """Check `aborted` and return it as a list of triples of int."""
    if type(aborted) is tuple and len(<tuple>aborted) == 0:
        return aborted
    try:
        return [
            (operator.index(producer), operator.index(first), operator.index(last))
            for producer, first, last in items("aborted", aborted, _TRIPLES)
        ]
    except (TypeError, ValueError):
        raise wrong_type("aborted", aborted, _TRIPLES) from None


cdef object callable_of(object on_damage):
    function("on_damage", on_damage)
    return on_damage


cdef int check_payloads(object payloads) except -1:
    if payloads is not None:
        having("payloads", payloads, ("find", "keep"), "an object with find() and keep(), or None,")
    return 0


@cython.final
cdef class Selection:
    def __cinit__(self, start, stop, include_control, aborted):
        cdef Py_ssize_t i
        self.start = long_of("start", start)
        self.stop = long_of("stop", stop)
        self.include_control = flag_of("include_control", include_control)
        entries = aborted_of(aborted)
        if entries:
            self.aborted = <aborted_t *>PyMem_Malloc(len(entries) * sizeof(aborted_t))
            if self.aborted == NULL:
                raise MemoryError
            for i, (producer_id, first_offset, last_offset) in enumerate(entries):
                self.aborted[i].producer_id = producer_id
                self.aborted[i].first_offset = first_offset
                self.aborted[i].last_offset = last_offset
            self.aborted_count = len(entries)

    def __dealloc__(self):
        PyMem_Free(self.aborted)

    cdef bint wants(self, const kl_batch_t *b) noexcept nogil:
        # Can this batch hold a wanted record? Decided by its header alone, so that no codec runs for nothing.
        cdef Py_ssize_t i
        if b.count == 0 or kl_batch_last_offset(b) < self.start:
            return False
        if b.attributes & KL_ATTR_CONTROL:
            return self.include_control
        if b.attributes & KL_ATTR_TRANSACTIONAL:
            for i in range(self.aborted_count):
                if (self.aborted[i].producer_id == b.producer_id
                        and self.aborted[i].first_offset <= b.base_offset <= self.aborted[i].last_offset):
                    return False
        return True


# Records --------------------------------------------------------------------------------------------------------------

# Has a control record the version and the type that its key must have?
cdef inline bint has_control_key(const kl_record_t *r) noexcept nogil:
    return r.key_size >= 4 and not r.key[0] & 0x80


cdef int raise_control_key(Source source, const kl_batch_t *b, int32_t number) except -1:
    raise CorruptBatch(
        f"record {number} of {b.count}: the key of a control record has fewer than 4 bytes or a negative version",
        path=source.path, position=source.file_position + b.position, offset=b.base_offset,
    )


cdef class RecordIterator:
    """The records of a sequence of batches, one at a time. One thread at a time, like a generator."""

    def __cinit__(
        self, Source source, Py_ssize_t at, Py_ssize_t end, Selection selection, bint verify_crc, on_damage=None
    ):
        self.source = source
        self.origin = source.origin
        self.selection = selection
        self.start = self.passed = selection.start
        self.stop = selection.stop
        self.on_damage = on_damage
        self.at = at
        self.end = end
        self.verify_crc = verify_crc

    def __dealloc__(self):
        self.drop_plain()

    def __iter__(self):
        return self

    def __next__(self):
        cdef kl_record_t r
        cdef bint busy = self.busy
        if not next_plain(self, &r):
            return self.read_slowly()
        if r.header_count == 0:
            return make_record(&r, self.records, &self.batch, self.passed - 1, self.origin, self.pin)
        # Making headers may run the garbage collector, and so a finalizer, which must not free the bytes that are read.
        self.busy = True
        try:
            return make_record(&r, self.records, &self.batch, self.passed - 1, self.origin, self.pin)
        finally:
            self.busy = busy

    cdef Record read_slowly(self):
        if self.busy:   # a second thread, while this one decompresses without the GIL
            raise ValueError("record iterator already executing")
        if self.source is None:
            raise StopIteration
        self.busy = True
        try:
            record = self.read_next()
        except CorruptBatch as error:
            on_damage = self.on_damage
            self.let_go()
            if on_damage is not None:
                on_damage(error, self.passed)
            raise
        except BaseException:
            self.let_go()
            raise
        finally:
            self.busy = False
        if record is None:
            self.let_go()
            raise StopIteration
        return record

    def close(self):
        """Release the buffer; the end of the records and an error do it too."""
        if self.busy:   # the thread inside still uses what this would free
            raise ValueError("record iterator already executing")
        self.let_go()

    cdef void let_go(self) noexcept:
        self.drop_plain()
        self.batch.count = self.done = 0
        self.pin = None
        self.source = None
        self.on_damage = None

    cdef void drop_plain(self) noexcept:
        if self.plain_held:
            self.plain_held = False
            PyBuffer_Release(&self.plain)

    cdef bint open_next(self) except -1:
        """Go to the next batch that can hold a wanted record; False at the end."""
        cdef kl_batch_t b
        self.drop_plain()
        self.batch.count = self.done = 0
        while self.at < self.end:
            if not self.source.batch_at(self.at, False, &b) or b.base_offset >= self.selection.stop:
                return False
            # Checked even if the batch is skipped: the checksum covers the fields that decide this, and a count that
            # has become 0 must not hide records.
            if self.verify_crc:
                self.source.batch_at(self.at, True, &b)
            self.at += b.size
            if not self.selection.wants(&b):
                continue
            plain = self.source.plain_records(&b)
            if plain is None:
                self.records = self.source.data + b.position + KL_BATCH_HEADER
                self.records_end = self.source.data + b.position + b.size
            else:
                PyObject_GetBuffer(plain, &self.plain, PyBUF_SIMPLE)
                self.plain_held = True
                self.records = <const uint8_t *>self.plain.buf
                self.records_end = self.records + self.plain.len
            if self.source.lazy:
                self.pin = self.source if plain is None else plain
            self.batch = b
            return True
        return False

    cdef Record read_next(self):
        cdef kl_record_t r
        cdef size_t used = 0
        cdef int status
        cdef int64_t offset
        while True:
            while self.done < self.batch.count:
                if self.records == self.records_end:
                    self.source.raise_record(KL_ECOUNT, &self.batch, self.done)
                status = kl_record_next(self.records, <size_t>(self.records_end - self.records), &r, &used)
                if status != KL_OK:
                    self.source.raise_record(status, &self.batch, self.done)
                if self.batch.attributes & KL_ATTR_CONTROL and not has_control_key(&r):
                    raise_control_key(self.source, &self.batch, self.done)
                self.records += used
                self.done += 1
                offset = record_offset(&self.batch, &r)
                if self.start <= offset < self.stop:
                    self.passed = offset + 1
                    return make_record(&r, self.records, &self.batch, offset, self.origin, self.pin)
            if self.batch.count != 0 and self.records != self.records_end:
                self.source.raise_record(KL_ESLACK, &self.batch, self.done)
            if not self.open_next():
                return None


@cython.final
cdef class PairIterator(RecordIterator):
    """The same records as (key, value) tuples. One thread at a time."""

    def __next__(self):
        cdef kl_record_t r
        cdef Record record
        if next_plain(self, &r):
            return self.pair(bytes_or_none(r.key, r.key_size), bytes_or_none(r.value, r.value_size))
        record = self.read_slowly()
        return self.pair(record.key, record.value)

    cdef inline tuple pair(self, key, value):
        """The last tuple again if only this iterator still holds it, as zip() does, else a new one. The garbage
        collector need not look at it: it holds no objects that hold others."""
        cdef tuple made = self.last
        # Since Python 3.14 a tuple keeps its hash, which would be that of the items before.
        if PY_VERSION_HEX < 0x030E0000 and made is not None and Py_REFCNT(made) == 2:   # self.last and made
            replace_item(made, 0, key)
            replace_item(made, 1, value)
            return made
        made = (key, value)
        PyObject_GC_UnTrack(<void *>made)
        self.last = made
        return made


cdef inline void replace_item(tuple made, Py_ssize_t i, object item) noexcept:
    cdef PyObject *before = PyTuple_GET_ITEM(made, i)
    Py_INCREF(item)
    PyTuple_SET_ITEM(made, i, item)
    Py_DECREF(<object>before)


# RecordBatch ----------------------------------------------------------------------------------------------------------

@cython.final
cdef class RecordBatch:
    """One batch in a buffer, its header read; iterate it for its records, data and control alike.

    Attributes are the header's fields under Kafka's names. position: its first byte in the file (or buffer); size: all
    its bytes; raw: a view of them. base_timestamp is the header's field; in a batch with a delete horizon it holds that
    horizon. For magic 0 and 1, max_timestamp is the message's own, base_timestamp the first record's.
    """

    def __init__(self):
        raise TypeError("get record batches from klog.record.decode()")

    def __iter__(self):
        cdef Py_ssize_t at = self.header.position
        everything = Selection(INT64_MIN, INT64_MAX, True, ())
        return RecordIterator(self.source, at, at + self.header.size, everything, False)

    def __len__(self):
        # list(batch) allocates for this many before it reads the first one: R1 applies here too, 16 GiB otherwise.
        cdef Py_ssize_t size = self.header.size - KL_BATCH_HEADER
        if self.header.magic >= 2:
            if self.header.attributes & KL_ATTR_CODEC:
                size = decompressed_bytes_max(size)
            self.source.check_count(&self.header, size)
        return self.header.count

    @property
    def raw(self):
        return memoryview(self.source)[self.header.position:self.header.position + self.header.size]

    @property
    def position(self):
        return self.source.file_position + self.header.position

    @property
    def size(self):
        return self.header.size

    @property
    def base_offset(self):
        return self.header.base_offset

    @property
    def last_offset(self):
        return kl_batch_last_offset(&self.header)

    @property
    def next_offset(self):
        return kl_batch_last_offset(&self.header) + 1

    @property
    def count(self):
        return self.header.count

    @property
    def magic(self):
        return self.header.magic

    @property
    def crc(self):
        return self.header.crc

    @property
    def attributes(self):
        return self.header.attributes

    @property
    def compression(self):
        return _CODECS[self.header.attributes & KL_ATTR_CODEC]

    @property
    def timestamp_type(self):
        if self.header.magic == 0:
            return TIMESTAMP_TYPES[0]
        return TIMESTAMP_TYPES[2 if self.header.attributes & KL_ATTR_LOG_APPEND_TIME else 1]

    @property
    def base_timestamp(self):
        return self.header.base_timestamp

    @property
    def max_timestamp(self):
        return self.header.max_timestamp

    @property
    def delete_horizon_ms(self):
        return self.header.base_timestamp if self.header.attributes & KL_ATTR_DELETE_HORIZON else None

    @property
    def leader_epoch(self):
        return self.header.leader_epoch

    @property
    def producer_id(self):
        return self.header.producer_id

    @property
    def producer_epoch(self):
        return self.header.producer_epoch

    @property
    def base_sequence(self):
        return self.header.base_sequence

    @property
    def is_transactional(self):
        return (self.header.attributes & KL_ATTR_TRANSACTIONAL) != 0

    @property
    def is_control(self):
        return (self.header.attributes & KL_ATTR_CONTROL) != 0

    @property
    def control_type(self):
        """The type of a control batch's first record; None for data, and for a control batch emptied by the cleaner."""
        if not self.is_control or self.header.count == 0:
            return None
        return next(iter(self)).control_type

    def __repr__(self):
        return (
            f"RecordBatch(base_offset={self.base_offset}, last_offset={self.last_offset}, count={self.count}, "
            f"position={self.position}, size={self.size}, compression={self.compression!r})"
        )


cdef int raise_partial(Source source, Py_ssize_t at) except -1:
    return raise_status(
        KL_ETRUNCATED, source.path, source.file_position + at, None, f"{source.size - at} bytes, less than a batch"
    )


@cython.final
cdef class BatchIterator:
    """The batches of a buffer, each checked when it is reached."""

    def __cinit__(self, Source source, bint verify_crc, bint allow_partial):
        self.source = source
        self.verify_crc = verify_crc
        self.allow_partial = allow_partial

    def __iter__(self):
        return self

    def __next__(self):
        cdef RecordBatch batch
        cdef Source source = self.source
        if source is None:
            raise StopIteration
        if self.at == source.size:
            self.source = None
            raise StopIteration
        batch = RecordBatch.__new__(RecordBatch)
        batch.source = source
        try:
            whole = source.batch_at(self.at, self.verify_crc, &batch.header)
            if not whole:
                self.source = None
                if self.allow_partial:
                    raise StopIteration
                raise_partial(source, self.at)
        except CorruptBatch:
            self.source = None
            raise
        self.at += batch.header.size
        return batch


def decode(
    buffer, *, path=None, file_position=0, verify_crc=True, allow_partial=False, legacy=True, lazy=False, payloads=None,
    origin=None
):
    """Iterate the batches in a buffer of whole batches, as in a .log file.

    path and file_position (of the buffer's first byte) are used in positions and errors. Raises CorruptBatch for
    invalid bytes, with kind "crc" or "length", and for a partial batch at the end, unless allow_partial is true. A
    message of magic 0 or 1 is returned as a batch; if it has a codec, as the batch of all its inner messages. With
    legacy=False it raises UnsupportedBatch, for callers that support only magic 2. lazy, payloads, origin: see
    iter_records().
    """
    cdef Source source = Source(buffer, path, file_position, lazy, origin)
    source.refuses_legacy = not flag_of("legacy", legacy)
    check_payloads(payloads)
    source.payloads = payloads
    return BatchIterator(source, flag_of("verify_crc", verify_crc), flag_of("allow_partial", allow_partial))


def iter_records(
    buffer, *, start=0, stop=INT64_MAX, include_control=False, aborted=(), path=None, file_position=0, verify_crc=True,
    lazy=False, payloads=None, on_damage=None, origin=None
):
    """Iterate the records of a buffer of batches with start <= offset < stop: the fast path of reading.

    aborted: (producer_id, first_offset, last_offset) of transactions whose data is left out. Control records are left
    out unless requested. A partial batch at the end is ignored: a fetch may end anywhere. Nothing after the first batch
    at or above stop is checked.

    lazy: records leave key, value and headers in the buffer, and keep it in use, until one of them is read: for callers
    that read few of them, from a buffer that does not change. payloads: keeps decompressed records, by find(position,
    size, crc) of the batch in its file and keep(position, size, crc, plain). on_damage: called with a CorruptBatch,
    before it is raised, and the offset after the last record returned. origin: the records' (topic, partition).
    """
    cdef Source source = Source(buffer, path, file_position, lazy, origin)
    check_payloads(payloads)
    source.payloads = payloads
    wanted = Selection(start, stop, include_control, aborted)
    return RecordIterator(source, 0, source.size, wanted, flag_of("verify_crc", verify_crc), callable_of(on_damage))


def pairs(
    buffer, *, start=0, stop=INT64_MAX, include_control=False, aborted=(), path=None, file_position=0, verify_crc=True,
    payloads=None, on_damage=None
):
    """Iterate (key, value) of the records that iter_records() returns, bytes or None each: the fastest way through a
    buffer in Python. Arguments and errors are those of iter_records().
    """
    cdef Source source = Source(buffer, path, file_position)
    check_payloads(payloads)
    source.payloads = payloads
    wanted = Selection(start, stop, include_control, aborted)
    return PairIterator(source, 0, source.size, wanted, flag_of("verify_crc", verify_crc), callable_of(on_damage))


def validate(buffer, *, path=None, file_position=0):
    """Check every field, checksum and record of a buffer of whole batches. Returns the count of records.

    Stricter than readers: offsets must rise from record to record, inside their batch (kind "offset_order"), and a
    message of magic 0 or 1 must have no byte after its value, and no partial message after the last inner one.
    """
    cdef Source source = Source(buffer, path, file_position)
    cdef kl_batch_t b
    cdef Py_ssize_t at = 0
    cdef int64_t total = 0
    everything = Selection(INT64_MIN, INT64_MAX, True, ())
    while at < source.size:
        if validate_plain(source, at, &b):
            total += b.count
            at += b.size
            continue
        if not source.batch_at(at, True, &b):
            raise_partial(source, at)
        if b.magic < 2 and source.legacy_at(at, b.size, True).ignored_bytes:
            source.raise_record(KL_ESLACK, &b, b.count)
        validate_records(source, &b)
        if b.attributes & KL_ATTR_CONTROL:  # their keys too
            for _record in RecordIterator(source, at, at + b.size, everything, False):
                pass
        total += b.count
        at += b.size
    return total


cdef bint validate_plain(Source source, Py_ssize_t at, kl_batch_t *b) noexcept:
    """Check an uncompressed data batch, its checksum and its records in one walk. False for any other batch, or if
    anything is invalid: the caller then checks again with code that can raise."""
    cdef const uint8_t *batch = source.data + at
    cdef int32_t bad = 0
    cdef size_t left = <size_t>(source.size - at)
    cdef int status
    cdef kl_sum_t sum
    if kl_batch_next(batch, left, left, b) != KL_OK or b.magic != 2:
        return False
    if b.attributes & (KL_ATTR_CODEC | KL_ATTR_CONTROL) or b.count > (b.size - KL_BATCH_HEADER) // KL_RECORD_MIN:
        return False
    sum = kl_sum_begin(batch, b.size, SUM_STEP)
    if b.size >= WALK_NOGIL_MIN:
        with nogil:
            status = kl_payload_validate_summed(
                batch + KL_BATCH_HEADER, <size_t>(b.size - KL_BATCH_HEADER), b.count, b.last_offset_delta, &sum, &bad)
            kl_sum_end(&sum)
    else:
        status = kl_payload_validate_summed(
            batch + KL_BATCH_HEADER, <size_t>(b.size - KL_BATCH_HEADER), b.count, b.last_offset_delta, &sum, &bad)
    return status == KL_OK and kl_sum_end(&sum) == b.crc


cdef int validate_records(Source source, const kl_batch_t *b) except -1:
    cdef Py_buffer plain
    held = source.plain_records(b)
    if held is None:
        return validate_payload(source, b, source.data + b.position + KL_BATCH_HEADER, b.size - KL_BATCH_HEADER)
    PyObject_GetBuffer(held, &plain, PyBUF_SIMPLE)
    try:
        return validate_payload(source, b, <const uint8_t *>plain.buf, plain.len)
    finally:
        PyBuffer_Release(&plain)


cdef int validate_payload(Source source, const kl_batch_t *b, const uint8_t *records, Py_ssize_t size) except -1:
    cdef int32_t bad = 0
    cdef int status
    if size >= WALK_NOGIL_MIN:
        with nogil:
            status = kl_payload_validate(records, <size_t>size, b.count, b.last_offset_delta, &bad)
    else:
        status = kl_payload_validate(records, <size_t>size, b.count, b.last_offset_delta, &bad)
    return 0 if status == KL_OK else source.raise_record(status, b, bad)
