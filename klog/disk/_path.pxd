from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

cdef extern from "Python.h":
    int PyUnicode_FSConverter(object path, PyObject **out) except 0


cdef inline bytes encode_path(str path):
    """Return the path as the kernel takes it. Raises ValueError if it has a NUL."""
    cdef PyObject *out = NULL
    PyUnicode_FSConverter(path, &out)
    encoded = <object>out
    Py_DECREF(encoded)
    return <bytes>encoded
