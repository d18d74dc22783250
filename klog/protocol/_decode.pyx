# cython: auto_pickle=False
"""Messages from bytes: the sink of csrc/wire.h that makes Python objects.

Records become memoryviews of the input, without a copy; other fields are copied.

The garbage collector does not run meanwhile: the objects of a large message are all in use, and to search them again and
again takes five times as long as to make them, while other threads wait for the GIL.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_Clear, PyErr_ExceptionMatches
from cpython.object cimport PyObject
from klog._c.bytes cimport kl_load_u64
from klog._c.status cimport KL_ESLACK, KL_EUTF8, KL_OK
from klog._c.wire cimport (
    KL_WIRE_BOOL, KL_WIRE_DEPTH, KL_WIRE_RECORDS, KL_WIRE_STRING, KL_WIRE_UUID, kl_wire_decode, kl_wire_field_t,
    kl_wire_location_t, kl_wire_sink_t, kl_wire_struct_t,
)
from klog.protocol._message cimport Shape, allocate, slot, slot_offset
from klog.protocol._program cimport ObjectProgram, program_of, text_of
from libc.stdint cimport int64_t, uint8_t, uint32_t

import uuid

from klog.arguments import whole, wrong_type
from klog.errors import CorruptFrame

cdef extern from "Python.h":
    PyObject *PyLong_FromLongLong(long long value) except NULL
    PyObject *PyFloat_FromDouble(double value) except NULL
    PyObject *PyUnicode_DecodeUTF8(const char *at, Py_ssize_t size, const char *errors)
    PyObject *PyList_New(Py_ssize_t size) except NULL
    void PyList_SET_ITEM(PyObject *items, Py_ssize_t index, PyObject *value)
    PyObject *_PyLong_FromByteArray(const unsigned char *at, size_t size, int little_endian, int is_signed) except NULL
    Py_buffer *PyMemoryView_GET_BUFFER(object view)
    void Py_INCREF(PyObject *value)
    void Py_XDECREF(PyObject *value)
    PyObject *Py_None
    PyObject *Py_True
    PyObject *Py_False
    int PyGC_Disable() nogil
    int PyGC_Enable() nogil

cdef struct Frame:
    PyObject *target
    Py_ssize_t next         # of a list: the next element; -1: target is a message

cdef struct Decoder:
    const uint8_t *base
    const kl_wire_struct_t *structs
    const kl_wire_field_t *fields
    const Py_ssize_t *offsets
    const Py_ssize_t *numbers
    PyObject **shapes
    PyObject *buffer        # the input
    PyObject *root          # owned: the message
    int depth
    Frame frames[2 * KL_WIRE_DEPTH + 2]

cdef kl_wire_sink_t SINK
SINK.begin, SINK.array, SINK.end = begin, array, end
SINK.integer, SINK.real, SINK.blob, SINK.null = integer, real, blob, null

cdef object UUID = uuid.UUID
cdef object UNKNOWN = uuid.SafeUUID.unknown
cdef object ZERO = uuid.UUID(int=0)
cdef Py_ssize_t UUID_INT = slot_offset(UUID, "int")
cdef Py_ssize_t UUID_IS_SAFE = slot_offset(UUID, "is_safe")


# Store a value at the current position: in the list, or in the field. Steals the reference.
cdef inline void put(Decoder *d, const kl_wire_field_t *field, PyObject *value) noexcept:
    cdef Frame *top = &d.frames[d.depth - 1]
    cdef PyObject **address
    cdef PyObject *old
    if top.next >= 0:
        PyList_SET_ITEM(top.target, top.next, value)
        top.next += 1
        return
    address = slot(top.target, d.offsets[field - d.fields])
    old = address[0]
    address[0] = value
    Py_XDECREF(old)


cdef inline void enter(Decoder *d, PyObject *target, Py_ssize_t next) noexcept:
    d.frames[d.depth].target = target
    d.frames[d.depth].next = next
    d.depth += 1


cdef int begin(void *context, const kl_wire_field_t *field, uint32_t number) except -1:
    cdef Decoder *d = <Decoder *>context
    cdef const kl_wire_struct_t *struct = &d.structs[number]
    cdef Shape shape = <Shape>d.shapes[number]
    cdef PyObject *made = allocate(shape.owner)
    cdef uint32_t i
    if d.depth == 0:
        d.root = made
    else:
        put(d, field, made)
    enter(d, made, -1)
    for i in range(struct.first + struct.plain, struct.first + struct.plain + struct.tagged + struct.absent):
        shape.fill(made, d.numbers[i])
    return 0


cdef int array(void *context, const kl_wire_field_t *field, uint32_t count) except -1:
    cdef Decoder *d = <Decoder *>context
    cdef PyObject *made = PyList_New(count)
    put(d, field, made)
    enter(d, made, 0)
    return 0


cdef int end(void *context) except -1:
    (<Decoder *>context).depth -= 1
    return 0


cdef int integer(void *context, const kl_wire_field_t *field, int64_t value) except -1:
    cdef PyObject *made
    if field.kind == KL_WIRE_BOOL:
        made = Py_True if value else Py_False
        Py_INCREF(made)
    else:
        made = PyLong_FromLongLong(value)
    put(<Decoder *>context, field, made)
    return 0


cdef int real(void *context, const kl_wire_field_t *field, double value) except -1:
    put(<Decoder *>context, field, PyFloat_FromDouble(value))
    return 0


cdef int null(void *context, const kl_wire_field_t *field) except -1:
    Py_INCREF(Py_None)
    put(<Decoder *>context, field, Py_None)
    return 0


cdef int blob(void *context, const kl_wire_field_t *field, const uint8_t *at, size_t size) except -1:
    cdef Decoder *d = <Decoder *>context
    cdef PyObject *made
    if field.kind == KL_WIRE_STRING:
        made = PyUnicode_DecodeUTF8(<const char *>at, <Py_ssize_t>size, NULL)
        if made == NULL:
            if not PyErr_ExceptionMatches(UnicodeDecodeError):
                return -1
            PyErr_Clear()
            return KL_EUTF8
        put(d, field, made)
        return 0
    if field.kind == KL_WIRE_UUID:
        value = uuid_from(at)
    elif field.kind == KL_WIRE_RECORDS:
        value = bytes_of(<object>d.buffer)[at - d.base : at - d.base + size]
    else:
        value = PyBytes_FromStringAndSize(<const char *>at, <Py_ssize_t>size)
    Py_INCREF(<PyObject *>value)
    put(d, field, <PyObject *>value)
    return 0


cdef object bytes_of(object buffer):
    view = memoryview(buffer)
    cdef Py_buffer *shape = PyMemoryView_GET_BUFFER(view)
    cdef bint is_plain = shape.ndim == 1 and shape.format != NULL and shape.format[0] == b"B" and shape.format[1] == 0
    return view if is_plain else view.cast("B")


# uuid.UUID(bytes=...) without its checks in Python, which take a microsecond.
cdef object uuid_from(const uint8_t *at):
    cdef PyObject *made
    if kl_load_u64(at) == 0 and kl_load_u64(at + 8) == 0:
        return ZERO
    made = allocate(<PyObject *>UUID)
    value = <object>made
    Py_XDECREF(made)
    slot(made, UUID_INT)[0] = _PyLong_FromByteArray(at, 16, 0, 0)
    Py_INCREF(<PyObject *>UNKNOWN)
    slot(made, UUID_IS_SAFE)[0] = <PyObject *>UNKNOWN
    return value


# The message at a position of the buffer; *after is the position after it.
cdef object walk(ObjectProgram program, object buffer, Py_ssize_t position, Py_ssize_t *after, bint ends):
    cdef Decoder d
    cdef kl_wire_location_t location
    cdef Py_buffer held
    cdef size_t used = 0
    cdef int status, collects
    try:
        PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    except (TypeError, BufferError):
        raise wrong_type("buffer", buffer, "a contiguous buffer") from None
    d.base, d.buffer, d.root, d.depth = <const uint8_t *>held.buf, <PyObject *>buffer, NULL, 0
    d.structs, d.fields, d.offsets, d.numbers = program.structs, program.fields, program.offsets, program.numbers
    d.shapes = program.shapes
    try:
        if position > held.len:
            raise ValueError(f"position={position}: the buffer has {held.len} bytes")
        collects = PyGC_Disable()
        try:
            status = kl_wire_decode(&program.c, d.base + position, held.len - position, &SINK, &d, &used, &location)
        finally:
            if collects:
                PyGC_Enable()
        if status != KL_OK:
            raise corrupt(program, text_of(status), program.path(&location), location.at - d.base)
        after[0] = position + <Py_ssize_t>used
        if ends and after[0] != held.len:
            raise corrupt(program, text_of(KL_ESLACK), "", after[0])
        return <object>d.root
    finally:
        Py_XDECREF(d.root)
        PyBuffer_Release(&held)


cdef object corrupt(ObjectProgram program, str text, str path, Py_ssize_t position):
    where = f"{program.name} version {program.version}"
    if path:
        where = f"{where}, field {path}"
    return CorruptFrame(f"{where}: {text}; close the connection", position=position, field=path or None)


def decode_from(message, version, buffer, position):
    """(message, the position after it): decode() of a message from a position, that may have bytes after it."""
    cdef Py_ssize_t after = position if type(position) is int and position >= 0 else whole("position", position, 0)
    made = walk(program_of(message, version), buffer, after, &after, False)
    return made, after


def decode(message, version, buffer, position=0):
    """The message of this class in a buffer, from a position to the end. Any thread.

    message: a class of klog.protocol.messages. Its fields have their defaults where the version lacks them. Records are
    memoryviews of the buffer. Unknown tagged fields are skipped.

    Raises CorruptFrame for bytes that are not such a message, UnsupportedVersion for a version that klog does not know.
    """
    cdef Py_ssize_t after = position if type(position) is int and position >= 0 else whole("position", position, 0)
    return walk(program_of(message, version), buffer, after, &after, True)
