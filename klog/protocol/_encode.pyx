# cython: auto_pickle=False
"""Messages to bytes: the source of csrc/wire.h that reads Python objects."""

from cpython.buffer cimport PyBuffer_Release, PyObject_CheckBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_Clear, PyErr_ExceptionMatches
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from klog._c.bytes cimport kl_store_u32
from klog._c.status cimport KL_ENOFIELD, KL_ERANGE, KL_EUTF8, KL_OK
from klog._c.wire cimport (
    KL_WIRE_DEPTH, KL_WIRE_NULL, KL_WIRE_RECORDS, KL_WIRE_STRING, KL_WIRE_STRING_MAX, KL_WIRE_UUID, kl_wire_encode,
    kl_wire_field_t, kl_wire_out_t, kl_wire_location_t, kl_wire_source_t, kl_wire_struct_t,
)
from klog.protocol._message cimport Shape, slot
from klog.protocol._program cimport ObjectProgram, program_of, text_of
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

import operator
import uuid

from klog.arguments import wrong_type
from klog.errors import UnsupportedVersion

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    const char *PyUnicode_AsUTF8AndSize(object value, Py_ssize_t *size)
    void Py_INCREF(PyObject *value)
    void Py_XDECREF(PyObject *value)
    Py_ssize_t PySequence_Fast_GET_SIZE(PyObject *value)
    PyObject *PySequence_Fast_GET_ITEM(PyObject *value, Py_ssize_t index)

cdef struct Frame:
    PyObject *target            # owned
    PyObject *shape             # of a message
    Py_ssize_t next             # of a list or tuple: the next element; -1: target is a message

cdef struct Encoder:
    const kl_wire_struct_t *structs
    const kl_wire_field_t *fields
    const Py_ssize_t *offsets
    const Py_ssize_t *numbers
    const bint *is_error
    const bint *is_text         # of an error
    PyObject *errors            # a list of the error codes other than 0, or NULL: they are not wanted
    PyObject **shapes
    PyObject *root
    PyObject *parts             # a list of (position, records), or NULL: records are copied
    size_t spliced              # bytes of the records in parts
    PyObject *program
    kl_wire_location_t *location
    PyObject *kept              # owned: the object whose bytes the walker copies next
    Py_buffer held              # the buffer whose bytes the walker copies next
    bint is_held
    int depth
    Frame frames[2 * KL_WIRE_DEPTH + 2]

cdef kl_wire_source_t SOURCE
SOURCE.begin, SOURCE.array, SOURCE.end = begin, array, end
SOURCE.integer, SOURCE.real, SOURCE.blob = integer, real, blob
SOURCE.omit, SOURCE.splice = omit, splice

cdef object UUID = uuid.UUID


# The value to encode next; the message itself first.
cdef object value_of(Encoder *e, const kl_wire_field_t *field):
    cdef Frame *top = &e.frames[e.depth - 1]
    cdef PyObject *value
    if field == NULL:
        return <object>e.root
    if top.next >= 0:
        if top.next >= PySequence_Fast_GET_SIZE(top.target):
            raise RuntimeError("a list has become shorter while it was encoded")
        value = PySequence_Fast_GET_ITEM(top.target, top.next)
        top.next += 1
    else:
        value = slot(top.target, e.offsets[field - e.fields])[0]
        if value == NULL:
            raise AttributeError("a field was deleted; give it a value")
    return <object>value


cdef inline void enter(Encoder *e, object target, PyObject *shape, Py_ssize_t next) noexcept:
    Py_INCREF(<PyObject *>target)
    e.frames[e.depth].shape = shape
    e.frames[e.depth].target = <PyObject *>target
    e.frames[e.depth].next = next
    e.depth += 1


cdef inline void release(Encoder *e) noexcept:
    if e.is_held:
        PyBuffer_Release(&e.held)
        e.is_held = False
    Py_XDECREF(e.kept)
    e.kept = NULL


cdef int begin(void *context, const kl_wire_field_t *field, uint32_t number) except -1:
    cdef Encoder *e = <Encoder *>context
    owner = <object>(<Shape>e.shapes[number]).owner
    value = value_of(e, field)
    if value is None:
        return KL_WIRE_NULL
    if not isinstance(value, owner):
        raise wrong_type(here(e), value, owner.__qualname__)
    enter(e, value, e.shapes[number], -1)
    return 0


cdef int array(void *context, const kl_wire_field_t *field, uint32_t *count) except -1:
    cdef Encoder *e = <Encoder *>context
    value = value_of(e, field)
    if value is None:
        return KL_WIRE_NULL
    if not isinstance(value, (list, tuple)):
        raise wrong_type(here(e), value, "a list or a tuple")
    if len(value) > INT32_MAX:
        return KL_ERANGE
    count[0] = <uint32_t>len(value)
    enter(e, value, NULL, 0)
    return 0


cdef int end(void *context) except -1:
    cdef Encoder *e = <Encoder *>context
    e.depth -= 1
    Py_XDECREF(e.frames[e.depth].target)
    return 0


cdef int integer(void *context, const kl_wire_field_t *field, int64_t *out) except -1:
    cdef int overflow = 0
    cdef Encoder *e = <Encoder *>context
    value = value_of(e, field)
    if not isinstance(value, int):
        try:
            value = operator.index(value)
        except TypeError:
            raise wrong_type(here(e), value, "an int") from None
    out[0] = PyLong_AsLongLongAndOverflow(value, &overflow)
    if out[0] and e.errors != NULL and e.is_error[field - e.fields]:
        (<list>e.errors).append(out[0])
    return KL_ERANGE if overflow else KL_OK


cdef int real(void *context, const kl_wire_field_t *field, double *out) except -1:
    cdef Encoder *e = <Encoder *>context
    value = value_of(e, field)
    try:
        out[0] = value
    except TypeError:
        raise wrong_type(here(e), value, "a float") from None
    return 0


cdef int blob(void *context, const kl_wire_field_t *field, const uint8_t **at, size_t *size) except -1:
    cdef Encoder *e = <Encoder *>context
    cdef const char *text
    cdef Py_ssize_t length = 0
    value = value_of(e, field)
    release(e)
    if value is None:
        return KL_WIRE_NULL
    if field.kind == KL_WIRE_STRING:
        if not isinstance(value, str):
            raise wrong_type(here(e), value, "a str")
        text = PyUnicode_AsUTF8AndSize(value, &length)
        if text == NULL:
            if not PyErr_ExceptionMatches(UnicodeEncodeError):
                return -1
            PyErr_Clear()
            return KL_EUTF8
        if length > KL_WIRE_STRING_MAX and e.is_text[field - e.fields]:
            value = cut(value)
            text = PyUnicode_AsUTF8AndSize(value, &length)
        at[0] = <const uint8_t *>text
    elif field.kind == KL_WIRE_RECORDS and e.parts != NULL:
        length = size_of(e, value)
    else:
        if field.kind == KL_WIRE_UUID:
            if not isinstance(value, UUID):
                raise wrong_type(here(e), value, "a uuid.UUID")
            value = value.bytes     # of a subclass maybe something else
        if not take_bytes(value, &e.held, &e.is_held, at, &length):
            raise wrong_type(here(e), value, "a contiguous buffer")
    Py_INCREF(<PyObject *>value)
    e.kept = <PyObject *>value
    size[0] = <size_t>length
    return 0


# An error's message, which may repeat what a client has sent, as long as a string can be.
cdef str cut(str text):
    return text.encode()[:KL_WIRE_STRING_MAX - 3].decode("utf-8", "ignore") + "..."


# Bytes of records that stay apart: a buffer, or an object with `size`, as klog.Log.fetch returns.
cdef Py_ssize_t size_of(Encoder *e, object value) except -1:
    if PyObject_CheckBuffer(value):
        return memoryview(value).nbytes
    size = getattr(value, "size", None)
    if not isinstance(size, int) or size < 0:
        raise wrong_type(here(e), value, "a buffer, or an object with a size,")
    return size


cdef int omit(void *context, const kl_wire_field_t *field) except -1:
    cdef Encoder *e = <Encoder *>context
    cdef Shape shape = <Shape>e.frames[e.depth - 1].shape
    return shape.is_default(e.numbers[field - e.fields], value_of(e, field))


cdef int splice(void *context, size_t position, size_t size) except -1:
    cdef Encoder *e = <Encoder *>context
    (<list>e.parts).append((position, <object>e.kept))
    e.spliced += size
    return 0


cdef void start(Output *out) noexcept:
    out.c.at, out.c.used, out.c.capacity, out.c.grow = out.first, 0, ON_STACK, grow


cdef void finish(Output *out) noexcept:
    if out.c.at != out.first:
        PyMem_Free(out.c.at)


cdef int grow(kl_wire_out_t *c, size_t more) except -1:
    cdef Output *out = <Output *>c
    cdef size_t capacity = max(2 * c.capacity, c.used + more)
    cdef uint8_t *at
    if c.at == out.first:
        at = <uint8_t *>PyMem_Malloc(capacity)
        if at != NULL:
            memcpy(at, c.at, c.used)
    else:
        at = <uint8_t *>PyMem_Realloc(c.at, capacity)
    if at == NULL:
        raise MemoryError
    c.at, c.capacity = at, capacity
    return 0


# Append a message to the output; parts: a list for its records, or None; errors: one for its error codes, or None.
# Returns the bytes of records in parts.
cdef size_t walk(ObjectProgram program, object message, list parts, list errors, Output *out) except? 0:
    cdef Encoder e
    cdef kl_wire_location_t location
    cdef int status
    e.structs, e.fields, e.offsets, e.numbers = program.structs, program.fields, program.offsets, program.numbers
    e.shapes, e.program, e.location, e.root = program.shapes, <PyObject *>program, &location, <PyObject *>message
    e.parts = NULL if parts is None else <PyObject *>parts
    e.is_text = program.texts
    e.is_error, e.errors = program.errors, NULL if errors is None else <PyObject *>errors
    e.kept, e.is_held, e.spliced, e.depth = NULL, False, 0, 0
    try:
        status = kl_wire_encode(&program.c, &SOURCE, &e, &out.c, &location)
        if status == KL_ENOFIELD:
            raise UnsupportedVersion(
                f"{program.name} version {program.version} has no field {program.path(&location)}, whose value is not "
                "the default; use a version that has it, or leave the default"
            )
        if status != KL_OK:
            raise ValueError(f"{program.name} version {program.version}: {here(&e)}: {text_of(status)}")
        return e.spliced
    finally:
        release(&e)
        while e.depth:
            end(&e)


# The path of the current field.
cdef str here(Encoder *e):
    return (<ObjectProgram>e.program).path(e.location) or "message"


def encode(message, version):
    """The bytes of a message. Records are copied. The message of an error, a field ..._error_message, is cut if it is too
    long for a string of the protocol. Any thread, if none changes the message meanwhile.

    Raises UnsupportedVersion if the version is unknown, or lacks a field whose value is not its default and that is not
    ignorable. Raises TypeError or ValueError, with the path of the field, for a value that the field cannot have.
    """
    cdef ObjectProgram program = program_of(type(message), version)
    cdef Output out
    start(&out)
    try:
        walk(program, message, None, None, &out)
        return PyBytes_FromStringAndSize(<const char *>out.c.at, <Py_ssize_t>out.c.used)
    finally:
        finish(&out)


def encode_frame(header, header_version, message, version, list errors=None):
    """A frame, ready to be sent: a list of its parts in order. errors: gets the error codes of the message, but for 0.

    The first part begins with the size (int32), the header and the message. Records are parts of their own, and not
    copied: the buffers, or other objects with a `size` in bytes, that the message has. Raises what encode() raises, and
    ValueError for a frame of 2 GiB or more.
    """
    cdef ObjectProgram header_program = program_of(type(header), header_version)
    cdef ObjectProgram program = program_of(type(message), version)
    cdef Output out
    cdef size_t total
    cdef Py_ssize_t begin = 0
    cdef Py_ssize_t position
    records = []
    start(&out)
    out.c.used = 4
    try:
        walk(header_program, header, None, None, &out)
        total = walk(program, message, records, errors, &out) + out.c.used - 4
        if total > INT32_MAX:
            raise ValueError(f"{program.name}: {total} bytes are too many for one frame; send less in it")
        kl_store_u32(out.c.at, <uint32_t>total)
        parts = []
        for position, each in records:
            if position != begin:
                parts.append(PyBytes_FromStringAndSize(<const char *>out.c.at + begin, position - begin))
            parts.append(each)
            begin = position
        if begin != <Py_ssize_t>out.c.used:
            parts.append(PyBytes_FromStringAndSize(<const char *>out.c.at + begin, <Py_ssize_t>out.c.used - begin))
        return parts
    finally:
        finish(&out)
