# cython: auto_pickle=False
"""Direct calls of the lz4 library, without Python between, into kept memory (_kept.pyx).

  D1  the functions are those of the package that klog depends on anyway, found by name in its shared library. Where it
      hides them, or a payload is not of the common form, unpack() returns None, and compress.py decompresses by the
      package's Python API: it knows every frame and names every error.
  D2  no memory outside of the payload and of the result is touched, even if another thread changes the payload.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from klog._c.lz4 cimport kl_lz4_block_t, kl_lz4_pack, kl_lz4_packed_max, kl_lz4_plain_max, kl_lz4_t, kl_lz4_unpack
from klog.codec._kept cimport Result, finish, result_of
from libc.stdint cimport int64_t, uint8_t

import os

cdef extern from "dlfcn.h" nogil:
    enum:
        RTLD_NOW
        RTLD_NOLOAD
    void *dlopen(const char *path, int flags)
    void *dlsym(void *library, const char *name)

cdef enum:
    NOGIL_MIN = 16 << 10    # bytes of result: taking the GIL back may cost more than less work

cdef kl_lz4_t lz4
cdef bint looked = False, found = False


cdef int find_lz4() except -1:
    """Look for the functions. Without memory or descriptors to import the package, the next call looks again."""
    cdef void *library
    cdef bytes path
    global looked, found
    try:
        from lz4 import block
    except ImportError:
        return 0
    looked = True
    _block = getattr(block, "_block", None)     # a private name, which a later version may change
    if getattr(_block, "__file__", None) is None:
        return 0
    path = os.fsencode(_block.__file__)
    library = dlopen(path, RTLD_NOW | RTLD_NOLOAD)      # already loaded, and never unloaded
    if library != NULL:     # or it depends on the shared library, where the functions are found, too
        lz4.decompress = <kl_lz4_block_t>dlsym(library, "LZ4_decompress_safe")
        lz4.compress = <kl_lz4_block_t>dlsym(library, "LZ4_compress_default")
        found = lz4.decompress != NULL and lz4.compress != NULL
    return 0


cdef const kl_lz4_t *direct_lz4() except? NULL:
    if not looked:
        find_lz4()
    return &lz4 if found else NULL


def unpack(payload, int64_t bytes_max, /):
    """Decompress an lz4 payload. None if it is not of the common form, is damaged, or may become more than
    bytes_max."""
    cdef Py_buffer view
    cdef const kl_lz4_t *functions = direct_lz4()
    cdef Result result
    cdef int64_t size
    if functions == NULL:
        return None
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        size = kl_lz4_plain_max(<const uint8_t *>view.buf, <size_t>view.len)
        if not 0 <= size <= bytes_max:
            return None
        result = result_of(size)
        if size >= NOGIL_MIN:
            with nogil:
                size = kl_lz4_unpack(functions, <const uint8_t *>view.buf, <size_t>view.len, result.data, size)
        else:
            size = kl_lz4_unpack(functions, <const uint8_t *>view.buf, <size_t>view.len, result.data, size)
        return finish(result, size) if size >= 0 else None
    finally:
        PyBuffer_Release(&view)


def pack(data, /):
    """Compress data to an lz4 payload; None if there are no direct calls."""
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
