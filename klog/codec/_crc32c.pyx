"""CRC-32C for Python: snapshots, tools and tests. Batches are summed in C, without coming here."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t

from klog._c.crc32c cimport kl_crc32c

cdef enum:
    HOLD_BYTES = 1 << 18


def crc32c(data, uint32_t crc=0):
    """CRC-32C (Castagnoli) of data; crc is that of the bytes before it. Lets go of the GIL on large input."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len < HOLD_BYTES:
            return kl_crc32c(crc, <const uint8_t *>view.buf, view.len)
        with nogil:
            crc = kl_crc32c(crc, <const uint8_t *>view.buf, view.len)
        return crc
    finally:
        PyBuffer_Release(&view)
