# cython: auto_pickle=False
"""Python API of CRC-32C, the checksum of record batches and producer snapshots."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from klog._c.crc32c cimport kl_crc32c, kl_crc32c_fn, kl_crc32c_kernel
from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    NOGIL_MIN = 1 << 20     # 20 to 40 µs of work, 500 with the table


def kernels():
    """Return the names of the kernels that this processor can run, from slow to fast; the last one is used."""
    cdef const char *name
    cdef int number = 0
    names = []
    while True:
        name = NULL
        if kl_crc32c_kernel(number, &name) != NULL:
            names.append(name.decode("ascii"))
        if name == NULL:
            return tuple(names)
        number += 1


cdef kl_crc32c_fn find_kernel(str wanted) except NULL:
    cdef const char *name
    cdef kl_crc32c_fn kernel
    cdef int number = 0
    while True:
        name = NULL
        kernel = kl_crc32c_kernel(number, &name)
        if name == NULL:
            raise ValueError(f"kernel {wanted!r} is not available on this processor; use one of {', '.join(kernels())}")
        if kernel != NULL and name.decode("ascii") == wanted:
            return kernel
        number += 1


def crc32c(data, uint32_t value=0, *, kernel=None):
    """Compute the CRC-32C of data; value is that of the preceding bytes. kernel selects one by name, for tests."""
    cdef Py_buffer view
    cdef kl_crc32c_fn function
    cdef uint32_t crc
    if kernel is None and type(data) is bytes and PyBytes_GET_SIZE(data) < NOGIL_MIN:   # needs no Py_buffer
        return kl_crc32c(value, <const uint8_t *>PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))
    function = kl_crc32c if kernel is None else find_kernel(kernel)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len >= NOGIL_MIN:
            with nogil:
                crc = function(value, <const uint8_t *>view.buf, <size_t>view.len)
        else:
            crc = function(value, <const uint8_t *>view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)
    return crc
