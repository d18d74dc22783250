# cython: auto_pickle=False
"""The base class of messages and of the structs in them: objects with one slot for each field of the schema.

The fields of all versions are there. A field that has not been given has the default of the schema.
"""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.ref cimport Py_INCREF, Py_XDECREF


cdef extern from "structmember.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset

cdef extern from "Python.h":
    PyObject *PyList_GET_ITEM(object items, Py_ssize_t index)
    ctypedef struct PyMemberDescrObject:
        PyMemberDef *d_member
    ctypedef struct PyTypeObject:
        PyObject *(*tp_alloc)(PyTypeObject *, Py_ssize_t) except NULL

cdef enum:
    SHARED          # the default is one object for all
    EMPTY_LIST      # a new list for each message
    NEW             # a new object of the class that `defaults` has


cdef PyObject *allocate(PyObject *owner) except NULL:
    return (<PyTypeObject *>owner).tp_alloc(<PyTypeObject *>owner, 0)


cdef Py_ssize_t slot_offset(object owner, str name) except -1:
    descriptor = owner.__dict__[name]
    return (<PyMemberDescrObject *>descriptor).d_member.offset


@cython.final
cdef class Shape:
    """names: of the fields, which are slots of owner. defaults: a value for each; ... for a new list; a subclass of
    Message for a new object of it."""

    def __cinit__(self, owner, tuple names, list defaults):
        cdef Py_ssize_t number
        self.owner = <PyObject *>owner
        self.names, self.defaults = names, defaults
        self.numbers = {name: number for number, name in enumerate(names)}
        self.offsets = <Py_ssize_t *>PyMem_Calloc(len(names) + 1, sizeof(Py_ssize_t))
        self.kinds = <char *>PyMem_Calloc(len(names) + 1, 1)
        if self.offsets == NULL or self.kinds == NULL:
            raise MemoryError
        for number, name in enumerate(names):
            self.offsets[number] = slot_offset(owner, name)
            default = defaults[number]
            self.kinds[number] = EMPTY_LIST if default is ... else NEW if isinstance(default, type) else SHARED

    def __dealloc__(self):
        PyMem_Free(self.offsets)
        PyMem_Free(self.kinds)

    cdef int fill(self, PyObject *message, Py_ssize_t number) except -1:
        cdef PyObject **address = slot(message, self.offsets[number])
        cdef PyObject *old = address[0]
        if self.kinds[number] == SHARED:
            value = <object>PyList_GET_ITEM(self.defaults, number)
        elif self.kinds[number] == EMPTY_LIST:
            value = []
        else:
            value = self.defaults[number]()
        Py_INCREF(value)
        address[0] = <PyObject *>value
        Py_XDECREF(old)
        return 0

    cdef bint is_default(self, Py_ssize_t number, object value) except -1:
        default = <object>PyList_GET_ITEM(self.defaults, number)
        if value is default:
            return True
        if self.kinds[number] == EMPTY_LIST:
            return isinstance(value, (list, tuple)) and not value
        if self.kinds[number] == NEW:
            return isinstance(value, default) and (<Shape>default._shape).all_default(<PyObject *>value)
        return value == default

    cdef bint all_default(self, PyObject *message) except -1:
        cdef Py_ssize_t number
        cdef PyObject *value
        for number in range(len(self.names)):
            value = slot(message, self.offsets[number])[0]
            if value == NULL or not self.is_default(number, <object>value):
                return False
        return True


cdef class Message:
    """A message, or a struct in one. Its fields are attributes; the constructor takes them as keywords.

    Messages with equal fields are equal. One thread at a time may change one.
    """

    _programs = None        # of a message: its programs by version

    @classmethod
    def set_shape(cls, names, defaults):
        """Give a new subclass its fields: each name is a slot of it, each default as in the schema; ... is a new list, a
        subclass of Message a new object of it."""
        cls._shape = Shape(cls, tuple(names), list(defaults))

    @classmethod
    def set_programs(cls, programs):
        """Give the class of a whole message its programs."""
        cls._programs = programs

    def __init__(self, **fields):
        cdef PyObject *this = <PyObject *>self
        cdef Shape shape = type(self)._shape
        cdef PyObject *old
        cdef PyObject **address
        cdef Py_ssize_t number
        cdef Py_ssize_t given = 0
        for name, value in fields.items():
            if name not in shape.numbers:
                raise TypeError(f"{type(self).__qualname__} has no field {name!r}; it has {', '.join(shape.names)}")
            address = slot(this, shape.offsets[<Py_ssize_t>shape.numbers[name]])
            old = address[0]
            Py_INCREF(value)
            address[0] = <PyObject *>value
            Py_XDECREF(old)
            given += 1
        if given == len(shape.names):
            return
        for number in range(len(shape.names)):
            if slot(this, shape.offsets[number])[0] == NULL:
                shape.fill(this, number)

    def __eq__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self)._shape.names)

    __hash__ = None

    def __repr__(self):
        cdef Shape shape = type(self)._shape
        shown = []
        for number, name in enumerate(shape.names):
            value = getattr(self, name)
            if not shape.is_default(number, value):
                text = f"<{value.nbytes} bytes>" if isinstance(value, memoryview) else repr(value)
                shown.append(f"{name}={text}")
        return f"{type(self).__qualname__}({', '.join(shown)})"
