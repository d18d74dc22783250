# Fast versions of klog.arguments for functions called once per batch: exact types are accepted without conversion.

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from libc.stdint cimport INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int64_t

cdef extern from "Python.h":
    bint PyLong_CheckExact(object)
    long long PyLong_AsLongLongAndOverflow(object, int *) except? -1


cdef inline int64_t whole_of(str name, object value, int64_t low, int64_t high) except? -1:
    cdef int overflow = 0
    cdef int64_t number
    if PyLong_CheckExact(value):
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow == 0 and low <= number <= high:
            return number
    from klog.arguments import whole
    return whole(name, value, low, high)


cdef inline int64_t long_of(str name, object value) except? -1:
    return whole_of(name, value, INT64_MIN, INT64_MAX)


cdef inline bint flag_of(str name, object value) except? -1:
    if value is True:
        return True
    if value is False:
        return False
    from klog.arguments import flag
    return flag(name, value)


cdef inline int check_buffer(str name, object value) except -1:
    cdef Py_buffer view
    if type(value) is bytes:
        return 0
    if not PyObject_CheckBuffer(value):
        from klog.arguments import wrong_type
        raise wrong_type(name, value, "bytes, or another buffer,", "; use .encode()" if isinstance(value, str) else "")
    try:
        PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    except (BufferError, ValueError) as error:      # with gaps between its bytes, or released
        raise ValueError(f"{name}: {error}") from None
    PyBuffer_Release(&view)
    return 0


cdef inline int check_path(str name, object value) except -1:
    if value is not None and type(value) is not str:
        from klog.arguments import path
        path(name, value)
    return 0
