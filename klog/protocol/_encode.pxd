from cpython.buffer cimport PyBUF_SIMPLE, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from klog._c.wire cimport kl_wire_out_t
from libc.stdint cimport uint8_t

cdef enum:
    ON_STACK = 512


# Memory for the bytes of a message: at first some of the stack, then of the heap. finish() releases it.
cdef struct Output:
    kl_wire_out_t c             # the first member: the walker gives its address to grow()
    uint8_t first[ON_STACK]


cdef void start(Output *out) noexcept
cdef void finish(Output *out) noexcept


cdef inline bint take_bytes(
    object value, Py_buffer *held, bint *is_held, const uint8_t **at, Py_ssize_t *length
) except -1:
    """The bytes of a value, whose buffer `held` then has, if it is not a bytes object. False: it is no contiguous
    buffer."""
    if PyBytes_CheckExact(value):
        at[0] = <const uint8_t *>PyBytes_AS_STRING(value)
        length[0] = PyBytes_GET_SIZE(value)
        return True
    try:
        PyObject_GetBuffer(value, held, PyBUF_SIMPLE)
    except (TypeError, BufferError):
        return False
    is_held[0] = True
    at[0] = <const uint8_t *>held.buf
    length[0] = held.len
    return True
