# cython: auto_pickle=False
"""Converts batches to Arrow columns by the Arrow PyCapsule interface, for any consumer of it, pyarrow or not.

  A1  columns own their bytes: the source buffer may be released once columns() has returned. Views, if requested, are
      the exception: they hold the source, and the decompressed records, as any export of a buffer does (a bytearray
      cannot be resized, a mapping cannot be closed).
  A2  exported data lives until its release callback, whatever happens to the Python object it came from.
  A3  runs of uncompressed batches are checked and copied without the GIL in one step; no Python object is touched.
  A4  buffers return to a pool, also from the release callback, which may run on any thread, without the GIL, and late.
      Sources held by views are released there too, with the GIL; after Python's finalization the end of the process
      releases them.

Kafka records have no null headers, so the list is empty if there are none.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from klog._c.arrow cimport ArrowArray, ArrowArrayStream, ArrowSchema
from klog._c.batch cimport (
    KL_ATTR_CODEC, KL_BATCH_HEADER, KL_CODEC_ZSTD, KL_RECORD_MIN, kl_batch_crc, kl_batch_next, kl_batch_t,
)
from klog._c.columns cimport (
    KL_COLUMNS_SPARK, KL_COLUMNS_VIEWS, KL_COLUMN_HEADERS, KL_COLUMN_KEY, KL_COLUMN_KINDS, KL_COLUMN_LEADER_EPOCH,
    KL_COLUMN_OFFSET, KL_COLUMN_PARTITION,
    KL_COLUMN_TIMESTAMP, KL_COLUMN_TIMESTAMP_TYPE, KL_COLUMN_TOPIC, KL_COLUMN_VALUE, kl_column_t, kl_columns_append,
    kl_columns_append_unverified, kl_columns_drop, kl_columns_export, kl_columns_from, kl_columns_nbytes, kl_columns_new,
    kl_columns_origin, kl_columns_pick, kl_columns_pin, kl_columns_rows, kl_columns_schema, kl_columns_t,
)
from klog._c.pool cimport kl_pool_t
from klog._c.status cimport KL_ECRC, KL_ESPACE, KL_OK
from klog.record._arguments cimport check_buffer, flag_of
from klog.record._batch cimport Selection, Source
from libc.errno cimport EINVAL, EIO, ENOMEM
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

from klog.arguments import having, texts, wrong_type
from klog.errors import KlogError

cdef enum:
    NOGIL_MIN = 1 << 16     # 10 to 50 µs of work

FIELDS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
ORIGIN_FIELDS = ("topic", "partition")
cdef kl_pool_t pool     # not owned by an object: it must outlive what Arrow's consumers still hold at exit
cdef dict KINDS = {
    "offset": KL_COLUMN_OFFSET,
    "timestamp": KL_COLUMN_TIMESTAMP,
    "timestamp_type": KL_COLUMN_TIMESTAMP_TYPE,
    "key": KL_COLUMN_KEY,
    "value": KL_COLUMN_VALUE,
    "headers": KL_COLUMN_HEADERS,
    "leader_epoch": KL_COLUMN_LEADER_EPOCH,
    "topic": KL_COLUMN_TOPIC,
    "partition": KL_COLUMN_PARTITION,
}


# Capsules -------------------------------------------------------------------------------------------------------------

cdef void free_schema_capsule(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef void free_array_capsule(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


cdef void free_stream_capsule(object capsule) noexcept:
    cdef ArrowArrayStream *stream = <ArrowArrayStream *>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)


cdef void *zeroed(size_t size) except NULL:
    cdef void *memory = calloc(1, size)
    if memory == NULL:
        raise MemoryError
    return memory


cdef class Layout:
    cdef int fill_schema(self, ArrowSchema *out) except -1:
        raise NotImplementedError

    cdef object schema_capsule(self):
        cdef ArrowSchema *schema = <ArrowSchema *>zeroed(sizeof(ArrowSchema))
        capsule = PyCapsule_New(schema, "arrow_schema", free_schema_capsule)
        self.fill_schema(schema)
        return capsule


cdef tuple names_of(names, known, str argument="fields"):
    found = tuple(texts(argument, names))
    if not found or len(set(found)) != len(found):
        raise ValueError(f"{argument} must be one or more different names, not {found!r}")
    for name in found:
        if name not in known:
            raise ValueError(f"{argument} has {name!r}, which is unknown; use one of {', '.join(known)}")
    return found


def column_names(columns):
    """Return names of columns as a tuple. Raises TypeError, and ValueError for an unknown name or one given twice."""
    return names_of(columns, KINDS, "columns")


@cython.final
cdef class Fields(Layout):
    """Names of columns in order, as C uses them, and flags for their types."""
    cdef kl_column_t kinds[<int>KL_COLUMN_KINDS]
    cdef int n
    cdef int flags

    def __cinit__(self, names, views, spark=False):
        cdef int i
        if flag_of("views", views):
            self.flags |= KL_COLUMNS_VIEWS
        if flag_of("spark", spark):
            self.flags |= KL_COLUMNS_SPARK
        self.names = FIELDS if names is None else names_of(names, KINDS)
        self.n = len(self.names)
        for i, name in enumerate(self.names):
            self.kinds[i] = <kl_column_t><int>KINDS[name]

    cdef int fill_schema(self, ArrowSchema *out) except -1:
        if kl_columns_schema(self.kinds, self.n, self.flags, out) != KL_OK:
            raise MemoryError
        return 0


# Columns --------------------------------------------------------------------------------------------------------------

cdef class ArrowColumns:
    @property
    def fields(self):
        return self.columns_layout.names

    @property
    def num_rows(self):
        return len(self)

    def __arrow_c_schema__(self):
        return self.columns_layout.schema_capsule()

    def __arrow_c_array__(self, requested_schema=None):
        """Return (schema, array) capsules. A requested schema changes nothing, as the protocol allows: there is one."""
        cdef ArrowArray *array
        schema = self.columns_layout.schema_capsule()
        array = <ArrowArray *>zeroed(sizeof(ArrowArray))
        capsule = PyCapsule_New(array, "arrow_array", free_array_capsule)
        self.fill_array(array)
        return schema, capsule

    cdef int fill_array(self, ArrowArray *out) except -1:
        raise NotImplementedError


@cython.final
cdef class Columns(ArrowColumns):
    """Records as one Arrow struct array, exported by capsule any number of times (`pyarrow.record_batch(columns)`).

    fields: the names in order. num_rows: rows. nbytes: bytes in all buffers, which are 64-byte aligned. The bytes that
    views point to are neither counted nor aligned.
    """
    cdef kl_columns_t *columns

    def __init__(self):
        raise TypeError("get columns from klog.record.columns()")

    def __dealloc__(self):
        kl_columns_drop(self.columns)

    def __len__(self):
        return kl_columns_rows(self.columns)

    @property
    def nbytes(self):
        return kl_columns_nbytes(self.columns)

    cdef int fill_array(self, ArrowArray *out) except -1:
        if kl_columns_export(self.columns, out) != KL_OK:
            raise MemoryError
        return 0

    def __repr__(self):
        return f"Columns({self.num_rows} rows of {', '.join(self.fields)}, {self.nbytes} bytes)"


cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030d0000
    #define KL_PYTHON_IS_GOING() (!Py_IsInitialized() || Py_IsFinalizing())
    #else
    #define KL_PYTHON_IS_GOING() (!Py_IsInitialized() || _Py_IsFinalizing())
    #endif
    """
    bint KL_PYTHON_IS_GOING() nogil


cdef void release_pinned(void *owner) noexcept with gil:
    Py_DECREF(<object>owner)


# C calls this when the last view is released: on any thread, with or without the GIL.
cdef void unpin(void *owner) noexcept nogil:
    if not KL_PYTHON_IS_GOING():    # during finalization a thread that takes the GIL may never return
        release_pinned(owner)


cdef int pin(kl_columns_t *columns, Source bytes_of) except -1:
    """The following views point into this source, which is held."""
    cdef int number = kl_columns_pin(columns, bytes_of.data, <size_t>bytes_of.size, unpin, <void *>bytes_of)
    if number < 0:
        raise MemoryError
    Py_INCREF(bytes_of)
    return number


# Append uncompressed batches from at[0] on until the end, the first compressed one, or anything unexpected; at[0] is
# its position then. Returns KL_OK, or the code of an invalid record, with b and bad set.
cdef int append_plain_run(
    const uint8_t *data, Py_ssize_t size, bint newer_magic, bint verify_crc, Py_ssize_t *at, Selection wanted,
    kl_columns_t *columns, kl_batch_t *b, int32_t *bad,
) noexcept nogil:
    cdef int status
    cdef double hint
    while at[0] < size:
        if kl_batch_next(data + at[0], <size_t>(size - at[0]), <size_t>(size - at[0]), b) != KL_OK:
            return KL_OK
        if b.base_offset >= wanted.stop or (b.magic != 2 and not newer_magic):
            return KL_OK
        b.position = at[0]
        if wanted.wants(b):
            if b.attributes & KL_ATTR_CODEC or b.count > (b.size - KL_BATCH_HEADER) // KL_RECORD_MIN:
                return KL_OK
            hint = <double>(size - at[0]) / b.size
            if verify_crc:
                status = kl_columns_append_unverified(
                    columns, b, data + at[0], wanted.start, wanted.stop, hint, bad,
                )
            else:
                status = kl_columns_append(
                    columns, b, data + at[0] + KL_BATCH_HEADER, <size_t>(b.size - KL_BATCH_HEADER), wanted.start,
                    wanted.stop, hint, bad,
                )
            if status != KL_OK:
                return status
        # Checked even if skipped: the checksum covers the fields that decide this. An empty batch must have valid
        # codec bits, too.
        elif verify_crc and kl_batch_crc(data + at[0], b.size) != b.crc or b.attributes & KL_ATTR_CODEC > KL_CODEC_ZSTD:
            return KL_OK
        at[0] += b.size
    return KL_OK


@cython.final
cdef class _Picked:
    """Offsets in a buffer that the caller keeps."""
    cdef Py_buffer view

    def __cinit__(self, offsets):
        check_buffer("offsets", offsets)
        PyObject_GetBuffer(offsets, &self.view, PyBUF_SIMPLE)
        if self.view.len % 8:
            raise ValueError(f"offsets: {self.view.len} bytes are not a buffer of int64")

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef bytes set_origin(kl_columns_t *columns, Fields layout, object origin):
    """Set topic and partition of the columns. Return the bytes that must stay until the last append."""
    if origin is None:
        for name in ORIGIN_FIELDS:
            if name in layout.names:
                raise ValueError(f"fields has {name!r}, which needs origin=(topic, partition)")
        return None
    topic = (<str>origin[0]).encode()
    kl_columns_origin(columns, topic, len(topic), origin[1])
    return topic


cdef int append_batch(
    Source source, Selection wanted, bint views, kl_columns_t *columns, kl_batch_t *b, int32_t *bad
) except 1:
    """Append one batch, decompressed if necessary."""
    cdef Py_buffer plain
    cdef const uint8_t *payload
    cdef size_t size
    cdef int status
    cdef double hint = <double>(source.size - b.position) / b.size
    held = source.plain_records(b)
    if held is None:
        payload = source.data + b.position + KL_BATCH_HEADER
        return kl_columns_append(
            columns, b, payload, <size_t>(b.size - KL_BATCH_HEADER), wanted.start, wanted.stop, hint, bad
        )
    if views:
        pin(columns, Source(held, None, 0))
    PyObject_GetBuffer(held, &plain, PyBUF_SIMPLE)
    try:
        payload = <const uint8_t *>plain.buf
        size = <size_t>plain.len
        if size >= NOGIL_MIN:
            with nogil:
                status = kl_columns_append(columns, b, payload, size, wanted.start, wanted.stop, hint, bad)
        else:
            status = kl_columns_append(columns, b, payload, size, wanted.start, wanted.stop, hint, bad)
    finally:
        PyBuffer_Release(&plain)
        if views:
            kl_columns_from(columns, 0)
    return status


cdef int raise_append(int status, Source source, kl_batch_t *b, int32_t bad) except -1:
    if status == -ENOMEM:
        raise MemoryError("columns of records")
    if status == KL_ESPACE:
        raise OverflowError(
            "one set of columns holds less than 2 GiB of keys, of values and of headers; read in smaller pieces"
        )
    if status == KL_ECRC:
        source.batch_at(b.position, True, b)
    return source.raise_record(status, b, bad)


def columns(
    buffer, *, start=0, stop=INT64_MAX, include_control=False, aborted=(), path=None, file_position=0, verify_crc=True,
    fields=None, views=False, payloads=None, origin=None, offsets=None, spark=False,
):
    """Convert the records of a buffer of batches, start <= offset < stop, to one set of Arrow columns.

    Selection, errors, verify_crc and payloads are those of iter_records(). fields: names of columns in order; by
    default all but leader_epoch, topic and partition. origin: (topic, partition), for the columns of these names. The
    result does not hold the buffer. offsets: a buffer of int64 in rising order: only records with these offsets.

    views: keys and values are Arrow's binary_view and are not copied: up to 12 bytes are in the view itself, longer
    ones stay in the buffer or in the decompressed records. Both are held while any part of the result lives; a writable
    buffer must not be changed in that time. Headers are copied.

    spark: the types and names of Spark's Kafka source. timestamp is in microseconds, and null also where 64 bits do not
    hold them; timestampType is int32; headers are null for a record without any; leader_epoch is leaderEpoch.
    """
    cdef Source source = Source(buffer, path, file_position, False, origin)
    cdef Fields layout = Fields(fields, views, spark)
    cdef bint pinned = (layout.flags & KL_COLUMNS_VIEWS) != 0
    cdef _Picked picked = None if offsets is None else _Picked(offsets)
    cdef Selection wanted = Selection(start, stop, include_control, aborted)
    cdef Columns result = Columns.__new__(Columns)
    cdef kl_batch_t b
    cdef bint checked = flag_of("verify_crc", verify_crc)
    cdef Py_ssize_t at = 0
    cdef int32_t bad = 0
    cdef int status
    if payloads is not None:
        having("payloads", payloads, ("find", "keep"), "an object with find() and keep(), or None,")
    source.payloads = payloads
    result.columns_layout = layout
    if kl_columns_new(&pool, layout.kinds, layout.n, layout.flags, &result.columns) != KL_OK:
        raise MemoryError
    _topic = set_origin(result.columns, layout, origin)
    if picked is not None:
        kl_columns_pick(result.columns, <const int64_t *>picked.view.buf, <size_t>picked.view.len // 8)
    if pinned:
        pin(result.columns, source)
    while True:
        if source.size - at >= NOGIL_MIN:
            with nogil:
                status = append_plain_run(
                    source.data, source.size, source.newer_magic, checked, &at, wanted, result.columns, &b, &bad
                )
        else:
            status = append_plain_run(
                source.data, source.size, source.newer_magic, checked, &at, wanted, result.columns, &b, &bad
            )
        if status != KL_OK:
            raise_append(status, source, &b, bad)
        # Check what stopped the run again, with code that can raise.
        if at == source.size or not source.batch_at(at, False, &b) or b.base_offset >= wanted.stop:
            return result
        source.batch_at(at, checked, &b)
        status = append_batch(source, wanted, pinned, result.columns, &b, &bad)
        if status != KL_OK:
            raise_append(status, source, &b, bad)
        at += b.size


# Stream ---------------------------------------------------------------------------------------------------------------

@cython.final
cdef class _Pull:
    """The state of an exported stream: an iterator of columns, and the text of the last error."""
    cdef object iterator
    cdef Layout layout
    cdef ArrowStream owner
    cdef bytes message

    cdef int fail(self, object error) noexcept:
        """Keep the error. Returns its errno, whatever happens here: 0 would be the end of the stream."""
        self.owner.error = error
        try:
            self.message = f"{type(error).__name__}: {error}".encode("utf-8", "replace")
        except BaseException:       # of its __str__, or no memory
            self.message = b"an error without a text"
        if isinstance(error, MemoryError):
            return ENOMEM
        return EIO if isinstance(error, (KlogError, OSError)) else EINVAL

    cdef int pull(self, ArrowArray *out) except -1:
        cdef ArrowColumns item
        out.release = NULL  # the end, unless an array follows
        for chunk in self.iterator:
            if not isinstance(chunk, ArrowColumns):
                raise TypeError(f"an Arrow stream of klog takes Columns, not {type(chunk).__name__}")
            item = chunk
            self.check_layout(item.columns_layout)
            item.fill_array(out)
            break
        return 0

    cdef int check_layout(self, Layout found) except -1:
        if type(found) is not type(self.layout) or found.names != self.layout.names:
            raise ValueError(f"columns {found.names} in a stream of {self.layout.names}")
        if isinstance(found, Fields) and (<Fields>found).flags != (<Fields>self.layout).flags:
            raise ValueError("one stream cannot contain both columns with copies and columns with views, or for Spark")
        return 0


cdef int stream_schema(ArrowArrayStream *stream, ArrowSchema *out) noexcept with gil:
    cdef _Pull pull = <_Pull>stream.private_data
    try:
        pull.layout.fill_schema(out)
    except BaseException as error:
        return pull.fail(error)
    return 0


cdef int stream_next(ArrowArrayStream *stream, ArrowArray *out) noexcept with gil:
    cdef _Pull pull = <_Pull>stream.private_data
    try:
        pull.pull(out)
    except BaseException as error:
        return pull.fail(error)
    return 0


cdef const char *stream_error(ArrowArrayStream *stream) noexcept with gil:
    cdef _Pull pull = <_Pull>stream.private_data
    if pull.message is None:
        return NULL
    return <const char *>pull.message


cdef void stream_release(ArrowArrayStream *stream) noexcept with gil:
    Py_DECREF(<object>stream.private_data)
    stream.private_data = NULL
    stream.release = NULL


@cython.final
cdef class ArrowStream:
    """An iterable of Columns as an Arrow stream, advanced only when the consumer asks: nothing is read ahead.

    fields, names or a Layout, and views must be those of the columns. Each export iterates again from the start. If the
    iterable raises, the consumer gets its own error with the text; the exception itself is in `error`.
    """
    cdef object iterable
    cdef Layout layout
    cdef readonly object error

    def __init__(self, iterable, fields=None, *, views=False):
        if not hasattr(iterable, "__iter__"):
            raise wrong_type("iterable", iterable, "an iterable of klog.record.Columns")
        self.iterable = iterable
        self.layout = fields if isinstance(fields, Layout) else Fields(fields, views)

    @property
    def fields(self):
        return self.layout.names

    def __arrow_c_schema__(self):
        return self.layout.schema_capsule()

    def __arrow_c_stream__(self, requested_schema=None):
        """Return the stream as a capsule. A requested schema changes nothing: there is one layout."""
        cdef ArrowArrayStream *stream
        cdef _Pull pull = _Pull.__new__(_Pull)
        pull.iterator = iter(self.iterable)
        pull.layout = self.layout
        pull.owner = self
        stream = <ArrowArrayStream *>zeroed(sizeof(ArrowArrayStream))
        capsule = PyCapsule_New(stream, "arrow_array_stream", free_stream_capsule)
        Py_INCREF(pull)
        stream.private_data = <void *>pull
        stream.get_schema = stream_schema
        stream.get_next = stream_next
        stream.get_last_error = stream_error
        stream.release = stream_release
        return capsule
