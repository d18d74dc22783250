# cython: auto_pickle=False
"""Messages as dicts: the sink and the source of csrc/wire.h for fields by name, without a class.

They are for records, which must remain readable whatever wrote them: a field that is not in the bytes is not in the
dict, and text that is not UTF-8 has backslash escapes. Ids are Kafka's 22 characters.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError, PyDict_Size
from cpython.exc cimport PyErr_Clear, PyErr_ExceptionMatches
from cpython.object cimport PyObject
from klog._c.status cimport KL_ENOFIELD, KL_ERANGE, KL_EUTF8, KL_OK
from klog._c.wire cimport (
    KL_WIRE_ARRAY, KL_WIRE_BOOL, KL_WIRE_DEPTH, KL_WIRE_NULL, KL_WIRE_STRING, KL_WIRE_UUID, kl_wire_decode,
    kl_wire_encode, kl_wire_field_t, kl_wire_location_t, kl_wire_sink_t, kl_wire_source_t, kl_wire_struct_t,
)
from klog.protocol._encode cimport Output, finish, start, take_bytes
from klog.protocol._program cimport Program, Programs, text_of
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

import operator
import uuid
from binascii import a2b_base64

from klog.arguments import whole, wrong_type
from klog.errors import CorruptFrame, UnsupportedVersion

from klog.protocol.layout import load
from klog.protocol.schema import ZERO_UUID

cdef extern from "Python.h":
    PyObject *PyLong_FromLongLong(long long value) except NULL
    PyObject *PyFloat_FromDouble(double value) except NULL
    PyObject *PyUnicode_DecodeUTF8(const char *at, Py_ssize_t size, const char *errors) except NULL
    PyObject *PyUnicode_New(Py_ssize_t size, unsigned int largest) except NULL
    unsigned char *PyUnicode_1BYTE_DATA(PyObject *text)
    PyObject *PyList_New(Py_ssize_t size) except NULL
    PyObject *PyDict_New() except NULL
    int PyDict_SetItem(PyObject *target, PyObject *name, PyObject *value) except -1
    void PyList_SET_ITEM(PyObject *items, Py_ssize_t index, PyObject *value)
    PyObject *PyTuple_GET_ITEM(PyObject *items, Py_ssize_t index)
    PyObject *PySequence_Fast_GET_ITEM(PyObject *value, Py_ssize_t index)
    Py_ssize_t PySequence_Fast_GET_SIZE(PyObject *value)
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    const char *PyUnicode_AsUTF8AndSize(object value, Py_ssize_t *size)
    void Py_INCREF(PyObject *value)
    void Py_DECREF(PyObject *value)
    void Py_XDECREF(PyObject *value)
    PyObject *Py_None
    PyObject *Py_True
    PyObject *Py_False

cdef const char *ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
cdef object FROM_URLSAFE = bytes.maketrans(b"-_+/", b"+/!!")  # + and / are no characters of an id
cdef object UUID = uuid.UUID
cdef object ZERO_TEXT = "A" * 22
cdef dict PROGRAMS = {}         # of each message by its name


@cython.final
cdef class FieldsProgram(Program):
    """defaults: of each field; () for an empty array, {} for a struct of defaults."""
    cdef tuple defaults

    def __cinit__(self, code, str name, int version):
        self.defaults = tuple(
            field.default if field.default is not ... else () if field.flags & KL_WIRE_ARRAY else {}
            for field in code.fields
        )

    # Does a value equal the default of a field?
    cdef bint is_default(self, Py_ssize_t number, object value) except -1:
        cdef const kl_wire_struct_t *struct
        cdef Py_ssize_t field
        default = self.defaults[number]
        if value is default:
            return True
        if default == ():
            return isinstance(value, (list, tuple)) and not value
        if default is ZERO_UUID and isinstance(value, str):
            return value == ZERO_TEXT
        if not isinstance(default, dict) or not isinstance(value, dict):
            return value == default
        struct = &self.structs[self.fields[number].child]
        for field in range(struct.first, struct.first + struct.plain + struct.tagged + struct.absent):
            if self.names[field] in value and not self.is_default(field, value[self.names[field]]):
                return False
        return True


cdef Programs programs_named(object message):
    cdef PyObject *found = NULL
    if type(message) is str:
        found = PyDict_GetItemWithError(PROGRAMS, message)
    if found != NULL:
        return <Programs>found
    try:
        layout = load(message)["data"]
    except (KeyError, TypeError):
        raise wrong_type("message", message, "the name of a message other than requests and responses") from None
    made = PROGRAMS[message] = Programs(layout, FieldsProgram)
    return made


def versions_of(message):
    """(first, last) version of a message that decode_fields() takes."""
    return programs_named(message).range


# ---- decoding

cdef struct Target:
    PyObject *target
    Py_ssize_t next         # of a list: the next element; -1: target is a dict

cdef struct Decoder:
    const kl_wire_field_t *fields
    PyObject *names
    PyObject *root          # owned: the dict of the message
    int depth
    Target targets[2 * KL_WIRE_DEPTH + 2]

cdef kl_wire_sink_t SINK
SINK.begin, SINK.array, SINK.end = take_struct, take_array, leave
SINK.integer, SINK.real, SINK.blob, SINK.null = take_integer, take_real, take_blob, take_null


# Store a value at the current position: in the list, or in the dict. Steals the reference.
cdef inline int put(Decoder *d, const kl_wire_field_t *field, PyObject *value) except -1:
    cdef Target *top = &d.targets[d.depth - 1]
    if top.next >= 0:
        PyList_SET_ITEM(top.target, top.next, value)
        top.next += 1
        return 0
    try:
        return PyDict_SetItem(top.target, PyTuple_GET_ITEM(d.names, field - d.fields), value)
    finally:
        Py_DECREF(value)


cdef inline void descend(Decoder *d, PyObject *target, Py_ssize_t next) noexcept:
    d.targets[d.depth].target = target
    d.targets[d.depth].next = next
    d.depth += 1


cdef int take_struct(void *context, const kl_wire_field_t *field, uint32_t number) except -1:
    cdef Decoder *d = <Decoder *>context
    cdef PyObject *made = PyDict_New()
    if d.depth == 0:
        d.root = made
    else:
        put(d, field, made)
    descend(d, made, -1)
    return 0


cdef int take_array(void *context, const kl_wire_field_t *field, uint32_t count) except -1:
    cdef Decoder *d = <Decoder *>context
    cdef PyObject *made = PyList_New(count)
    put(d, field, made)
    descend(d, made, 0)
    return 0


cdef int leave(void *context) except -1:
    (<Decoder *>context).depth -= 1
    return 0


cdef int take_integer(void *context, const kl_wire_field_t *field, int64_t value) except -1:
    cdef PyObject *made
    if field.kind == KL_WIRE_BOOL:
        made = Py_True if value else Py_False
        Py_INCREF(made)
    else:
        made = PyLong_FromLongLong(value)
    return put(<Decoder *>context, field, made)


cdef int take_real(void *context, const kl_wire_field_t *field, double value) except -1:
    return put(<Decoder *>context, field, PyFloat_FromDouble(value))


cdef int take_null(void *context, const kl_wire_field_t *field) except -1:
    Py_INCREF(Py_None)
    return put(<Decoder *>context, field, Py_None)


cdef int take_blob(void *context, const kl_wire_field_t *field, const uint8_t *at, size_t size) except -1:
    cdef PyObject *made
    if field.kind == KL_WIRE_STRING:
        made = PyUnicode_DecodeUTF8(<const char *>at, <Py_ssize_t>size, "backslashreplace")
    elif field.kind == KL_WIRE_UUID:
        made = id_text(at)
    else:
        value = PyBytes_FromStringAndSize(<const char *>at, <Py_ssize_t>size)
        made = <PyObject *>value
        Py_INCREF(made)
    return put(<Decoder *>context, field, made)


# The 128 bits of an id and 4 zeros: 22 characters of 6 bits, in base64 for URLs.
cdef PyObject *id_text(const uint8_t *at) except NULL:
    cdef PyObject *made = PyUnicode_New(22, 127)
    cdef unsigned char *out = PyUnicode_1BYTE_DATA(made)
    cdef uint32_t bits = 0
    cdef int held = 0
    cdef int number
    for number in range(16):
        bits = bits << 8 | at[number]
        held += 8
        while held >= 6:
            held -= 6
            out[0] = ALPHABET[bits >> held & 63]
            out += 1
    out[0] = ALPHABET[bits << 4 & 63]
    return made


def decode_fields(message, version, buffer, position=0):
    """(fields by name, the position after the message) of a message in a buffer that may have bytes after it.

    message: a name in klog.protocol.messages of a message other than requests and responses. Raises CorruptFrame for
    bytes that are not such a message, UnsupportedVersion for a version that klog does not know.
    """
    cdef FieldsProgram program = <FieldsProgram>programs_named(message).program(version)
    cdef Py_ssize_t begin = position if type(position) is int and position >= 0 else whole("position", position, 0)
    cdef Decoder d
    cdef kl_wire_location_t location
    cdef Py_buffer held
    cdef const uint8_t *base
    cdef size_t used = 0
    cdef int status
    try:
        PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    except (TypeError, BufferError):
        raise wrong_type("buffer", buffer, "a contiguous buffer") from None
    d.fields, d.names, d.root, d.depth = program.fields, <PyObject *>program.names, NULL, 0
    try:
        if begin > held.len:
            raise ValueError(f"position={begin}: the buffer has {held.len} bytes")
        base = <const uint8_t *>held.buf
        status = kl_wire_decode(&program.c, base + begin, held.len - begin, &SINK, &d, &used, &location)
        if status != KL_OK:
            path = program.path(&location)
            where = f"{program.name} version {program.version}, {path or 'its tagged fields'}"
            at = location.at - base
            raise CorruptFrame(f"{where}: {text_of(status)}", position=at, field=path or None)
        return <object>d.root, begin + <Py_ssize_t>used
    finally:
        Py_XDECREF(d.root)
        PyBuffer_Release(&held)


# ---- encoding

cdef struct Source:
    PyObject *target            # owned
    const kl_wire_struct_t *struct
    Py_ssize_t next             # of a list or tuple: the next element; -1: target is a dict
    Py_ssize_t met              # of a dict: its entries that are fields

cdef struct Encoder:
    const kl_wire_struct_t *structs
    const kl_wire_field_t *fields
    PyObject *names
    PyObject *defaults
    PyObject *root
    PyObject *program
    kl_wire_location_t *location
    PyObject *kept              # owned: the object whose bytes the walker copies next
    Py_buffer held              # the buffer whose bytes the walker copies next
    bint is_held
    int depth
    Source sources[2 * KL_WIRE_DEPTH + 2]

cdef kl_wire_source_t SOURCE
SOURCE.begin, SOURCE.array, SOURCE.end = give_struct, give_array, end
SOURCE.integer, SOURCE.real, SOURCE.blob = give_integer, give_real, give_blob
SOURCE.omit, SOURCE.splice = omit, NULL     # without records, no part is left to the caller


# The value to encode next; the message itself first.
cdef object value_of(Encoder *e, const kl_wire_field_t *field):
    cdef Source *top = &e.sources[e.depth - 1]
    cdef PyObject *value
    if field == NULL:
        return <object>e.root
    if top.next >= 0:
        if top.next >= PySequence_Fast_GET_SIZE(top.target):
            raise RuntimeError("a list has become shorter while it was encoded")
        value = PySequence_Fast_GET_ITEM(top.target, top.next)
        top.next += 1
        return <object>value
    value = PyDict_GetItemWithError(<object>top.target, <object>PyTuple_GET_ITEM(e.names, field - e.fields))
    if value == NULL:
        return <object>PyTuple_GET_ITEM(e.defaults, field - e.fields)
    top.met += 1
    return <object>value


cdef inline void enter(Encoder *e, object target, const kl_wire_struct_t *struct, Py_ssize_t next) noexcept:
    cdef Source *top = &e.sources[e.depth]
    Py_INCREF(<PyObject *>target)
    top.target, top.struct, top.next, top.met = <PyObject *>target, struct, next, 0
    e.depth += 1


cdef inline void release(Encoder *e) noexcept:
    if e.is_held:
        PyBuffer_Release(&e.held)
        e.is_held = False
    Py_XDECREF(e.kept)
    e.kept = NULL


cdef int give_struct(void *context, const kl_wire_field_t *field, uint32_t number) except -1:
    cdef Encoder *e = <Encoder *>context
    value = value_of(e, field)
    if value is None:
        return KL_WIRE_NULL
    if not isinstance(value, dict):
        raise wrong_type(here(e), value, "a dict")
    enter(e, value, &e.structs[number], -1)
    return 0


cdef int give_array(void *context, const kl_wire_field_t *field, uint32_t *count) except -1:
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
    cdef Source *top = &e.sources[e.depth - 1]
    if top.next < 0 and top.met != PyDict_Size(<object>top.target):
        check_names(e, top)
    drop(e)
    return 0


cdef inline void drop(Encoder *e) noexcept:
    e.depth -= 1
    Py_DECREF(e.sources[e.depth].target)


# Not every entry of a dict was encoded: the others are ignorable fields, or a mistake.
cdef int check_names(Encoder *e, Source *top) except -1:
    cdef uint32_t count = top.struct.plain + top.struct.tagged + top.struct.absent
    names = (<tuple>e.names)[top.struct.first:top.struct.first + count]
    for name in <dict>top.target:
        if name not in names:
            program = <FieldsProgram>e.program
            where = ".".join(filter(None, (program.name, program.path(e.location).rpartition(".")[0])))
            raise TypeError(f"{where} has no field {name!r}; it has {', '.join(names) or 'none'}")
    return 0


cdef int give_integer(void *context, const kl_wire_field_t *field, int64_t *out) except -1:
    cdef int overflow = 0
    cdef Encoder *e = <Encoder *>context
    value = value_of(e, field)
    if not isinstance(value, int):
        try:
            value = operator.index(value)
        except TypeError:
            raise wrong_type(here(e), value, "an int") from None
    out[0] = PyLong_AsLongLongAndOverflow(value, &overflow)
    return KL_ERANGE if overflow else KL_OK


cdef int give_real(void *context, const kl_wire_field_t *field, double *out) except -1:
    cdef Encoder *e = <Encoder *>context
    value = value_of(e, field)
    try:
        out[0] = value
    except TypeError:
        raise wrong_type(here(e), value, "a float") from None
    return 0


cdef int give_blob(void *context, const kl_wire_field_t *field, const uint8_t **at, size_t *size) except -1:
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
        at[0] = <const uint8_t *>text
    else:
        if field.kind == KL_WIRE_UUID:
            value = id_bytes(e, value)
        if not take_bytes(value, &e.held, &e.is_held, at, &length):
            raise wrong_type(here(e), value, "a contiguous buffer")
    Py_INCREF(<PyObject *>value)
    e.kept = <PyObject *>value
    size[0] = <size_t>length
    return 0


cdef bytes id_bytes(Encoder *e, object value):
    if isinstance(value, UUID):
        return value.bytes
    if not isinstance(value, str):
        raise wrong_type(here(e), value, "a uuid.UUID, or the 22 characters of an id")
    try:
        found = a2b_base64(f"{value}==".encode("ascii").translate(FROM_URLSAFE)) if len(value) == 22 else b""
    except ValueError:
        found = b""
    if len(found) != 16:
        raise ValueError(f"{here(e)}={value[:40]!r}: the 22 characters of an id expected")
    return found


cdef int omit(void *context, const kl_wire_field_t *field) except -1:
    cdef Encoder *e = <Encoder *>context
    cdef Source *top = &e.sources[e.depth - 1]
    cdef Py_ssize_t number = field - e.fields
    cdef PyObject *value
    value = PyDict_GetItemWithError(<object>top.target, <object>PyTuple_GET_ITEM(e.names, number))
    if value == NULL:
        return 1
    if not (<FieldsProgram>e.program).is_default(number, <object>value):
        return 0
    top.met += 1
    return 1


# The path of the current field.
cdef str here(Encoder *e):
    return (<FieldsProgram>e.program).path(e.location) or "fields"


def encode_fields(message, version, fields, bytes prefix=b""):
    """prefix, and the bytes of a message from its fields by name.

    message: a name, as for decode_fields(). fields: a dict, as decode_fields() gives it, or with ids as uuid.UUID; one
    that is left out has its default. Any thread, if none changes them meanwhile.

    Raises UnsupportedVersion if the version is unknown, or lacks a field whose value is not its default and that is not
    ignorable. Raises TypeError or ValueError, with the path of the field, for a field that the message does not have,
    and for a value that the field cannot have.
    """
    cdef FieldsProgram program = <FieldsProgram>programs_named(message).program(version)
    cdef Py_ssize_t ahead = PyBytes_GET_SIZE(prefix)
    cdef kl_wire_location_t location
    cdef Encoder e
    cdef Output out
    cdef int status
    e.structs, e.fields, e.names, e.defaults = (
        program.structs, program.fields, <PyObject *>program.names, <PyObject *>program.defaults
    )
    e.root, e.program, e.location = <PyObject *>fields, <PyObject *>program, &location
    e.kept, e.is_held, e.depth = NULL, False, 0
    location.depth = 0
    if ahead > 16:
        raise ValueError(f"prefix: at most 16 bytes expected, not {ahead}")
    start(&out)
    memcpy(out.c.at, PyBytes_AS_STRING(prefix), ahead)
    out.c.used = ahead
    try:
        status = kl_wire_encode(&program.c, &SOURCE, &e, &out.c, &location)
        if status == KL_ENOFIELD:
            raise UnsupportedVersion(
                f"{program.name} version {program.version} has no field {program.path(&location)}, whose value is not "
                "the default; use a version that has it, or leave the default"
            )
        if status != KL_OK:
            raise ValueError(f"{program.name} version {program.version}: {here(&e)}: {text_of(status)}")
        return PyBytes_FromStringAndSize(<const char *>out.c.at, <Py_ssize_t>out.c.used)
    finally:
        release(&e)
        while e.depth:
            drop(&e)
        finish(&out)
