# cython: auto_pickle=False
"""Direct calls of a codec without Python: the C functions in the shared library of the lz4 package, looked up by name.

The cleaner processes many small payloads outside the GIL. A batch of 16 KiB then takes 3 µs, the time of lz4 itself;
compress.py takes 2 µs more, and the GIL. compress.py still handles all other frames, and reports what is invalid. If
the package hides its functions, only compress.py is used.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from klog._c.lz4 cimport kl_lz4_block_t, kl_lz4_pack, kl_lz4_packed_max, kl_lz4_plain_max, kl_lz4_t, kl_lz4_unpack
from libc.stdint cimport int64_t, uint8_t

import os

try:
    from lz4.block import _block    # a private name, which a later version may change
except ImportError:
    _block = None

cdef extern from "dlfcn.h" nogil:
    enum:
        RTLD_NOW
        RTLD_NOLOAD
    void *dlopen(const char *path, int flags)
    void *dlsym(void *library, const char *name)

cdef kl_lz4_t lz4
cdef bint found = False, wanted = True


cdef int find_lz4() except -1:
    cdef void *library
    cdef bytes path
    global found
    if getattr(_block, "__file__", None) is None:
        return 0
    path = os.fsencode(_block.__file__)
    library = dlopen(path, RTLD_NOW | RTLD_NOLOAD)      # already loaded, and never unloaded
    if library != NULL:     # or it depends on the shared library, where the functions are found, too
        lz4.decompress = <kl_lz4_block_t>dlsym(library, "LZ4_decompress_safe")
        lz4.compress = <kl_lz4_block_t>dlsym(library, "LZ4_compress_default")
        found = lz4.decompress != NULL and lz4.compress != NULL
    return 0


find_lz4()


cdef const kl_lz4_t *direct_lz4() noexcept nogil:
    return &lz4 if found and wanted else NULL


def use_direct(bint on, /):
    """Turn the direct calls of lz4 on or off; off is for testing. Returns whether they are available and on."""
    global wanted
    wanted = on
    return direct_lz4() != NULL


def unpack(payload, /):
    """Decompress an lz4 payload; None if the direct way does not handle it."""
    cdef Py_buffer view
    cdef bytearray out
    cdef int64_t size
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        size = kl_lz4_plain_max(<const uint8_t *>view.buf, <size_t>view.len)
        if size < 0 or direct_lz4() == NULL:
            return None
        out = bytearray(size)
        size = kl_lz4_unpack(direct_lz4(), <const uint8_t *>view.buf, <size_t>view.len, <uint8_t *><char *>out)
        return bytes(out[:size]) if size >= 0 else None
    finally:
        PyBuffer_Release(&view)


def pack(data, /):
    """Compress data to an lz4 payload; None if there is no direct way."""
    cdef Py_buffer view
    cdef bytearray out
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if direct_lz4() == NULL:
            return None
        out = bytearray(kl_lz4_packed_max(view.len))
        return bytes(out[:kl_lz4_pack(direct_lz4(), <const uint8_t *>view.buf, view.len, <uint8_t *><char *>out)])
    finally:
        PyBuffer_Release(&view)
