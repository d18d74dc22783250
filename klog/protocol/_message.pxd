cimport cython
from cpython.object cimport PyObject


# What the objects of one Message class look like: where its fields lie, and their defaults.
@cython.final
cdef class Shape:
    cdef readonly tuple names
    cdef readonly list defaults
    cdef PyObject *owner                # the class, which owns this shape
    cdef Py_ssize_t *offsets
    cdef char *kinds
    cdef dict numbers

    # Give a field of a message its default. message: of this shape.
    cdef int fill(self, PyObject *message, Py_ssize_t number) except -1

    # Does the value equal the default of a field?
    cdef bint is_default(self, Py_ssize_t number, object value) except -1

    # Do all fields of a message of this shape equal their defaults?
    cdef bint all_default(self, PyObject *message) except -1


cdef class Message:
    pass


# Where a field's value lies in a message.
cdef inline PyObject **slot(PyObject *message, Py_ssize_t offset) noexcept:
    return <PyObject **>(<char *>message + offset)


# A new object of the class, whose fields are not set.
cdef PyObject *allocate(PyObject *owner) except NULL

cdef Py_ssize_t slot_offset(object owner, str name) except -1
