# cython: auto_pickle=False
"""Python API of zigzag varints, for tools and tests; batches are read and written in C."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from klog._c.status cimport KL_OK
from klog._c.varint cimport (
    KL_VARLONG_MAX, kl_varint_decode, kl_varint_encode, kl_varlong_decode, kl_varlong_encode,
)
from klog.codec.status cimport raise_status
from libc.stdint cimport int32_t, int64_t, uint8_t


def encode_varint(int32_t value):
    """Return the shortest encoding of an int32."""
    cdef uint8_t out[<int>KL_VARLONG_MAX]
    return PyBytes_FromStringAndSize(<char *>out, kl_varint_encode(out, value))


def encode_varlong(int64_t value):
    """Return the shortest encoding of an int64."""
    cdef uint8_t out[<int>KL_VARLONG_MAX]
    return PyBytes_FromStringAndSize(<char *>out, kl_varlong_encode(out, value))


cdef tuple decode(object data, Py_ssize_t position, bint wide):
    cdef Py_buffer view
    cdef size_t used = 0
    cdef int32_t narrow = 0
    cdef int64_t value = 0
    cdef int status
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= position <= view.len:
            raise ValueError(f"position {position} is outside {view.len} bytes")
        if wide:
            status = kl_varlong_decode(<const uint8_t *>view.buf + position, view.len - position, &value, &used)
        else:
            status = kl_varint_decode(<const uint8_t *>view.buf + position, view.len - position, &narrow, &used)
            value = narrow
    finally:
        PyBuffer_Release(&view)
    if status != KL_OK:
        raise_status(status, None, position, None, "varlong" if wide else "varint")
    return value, position + <Py_ssize_t>used


def decode_varint(data, Py_ssize_t position=0):
    """Return (value, position after it) of the int32 at position. Raises CorruptBatch if there is none."""
    return decode(data, position, False)


def decode_varlong(data, Py_ssize_t position=0):
    """Return (value, position after it) of the int64 at position. Raises CorruptBatch if there is none."""
    return decode(data, position, True)
