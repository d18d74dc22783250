# cython: auto_pickle=False
"""Memory for decompressed payloads, kept from one to the next.

  K1  fresh memory costs one page fault for each 4 KiB, which takes longer than lz4, and malloc gives large blocks back
      to the kernel when they are freed. So results lie in pooled memory (csrc/pool.h).
  K2  a result that is small, or fills little of its memory, is a copy of its own (`bytes`), so that an object that is
      kept never holds much more memory than its size.
  K3  the caller that fills a Result is its only owner; once finished it is read-only.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromObject
from klog._c.pool cimport KL_POOL_BUFFER_MIN, kl_pool_give, kl_pool_t, kl_pool_take
from libc.stdint cimport int64_t, uint8_t

cdef enum:
    WASTE_MAX = 4           # times its size that a result may hold
    BYTES_MAX_FLOOR = 64 << 20
    RATIO_MAX = 8

cdef kl_pool_t pool     # no object owns it: the last result may come back at exit


@cython.final
cdef class Result:
    """Memory of size bytes: a buffer to fill until finished, then a read-only one for any thread."""

    def __init__(self):
        raise TypeError("get results from memory_for()")

    def __dealloc__(self):
        kl_pool_give(&pool, self.data, self.capacity)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, self.finished, flags)


cdef Result result_of(int64_t size):
    cdef Result result = Result.__new__(Result)
    result.data = <uint8_t *>kl_pool_take(&pool, <size_t>max(size, 1), &result.capacity)
    if result.data == NULL:
        raise MemoryError(f"{size} bytes for a decompressed payload")
    result.size = <Py_ssize_t>size
    return result


cdef object finish(Result result, int64_t size):
    if size < KL_POOL_BUFFER_MIN or result.capacity > <size_t>(WASTE_MAX * size):
        return PyBytes_FromStringAndSize(<const char *>result.data, <Py_ssize_t>size)
    result.size = <Py_ssize_t>size
    result.finished = True
    return PyMemoryView_FromObject(result)


def memory_for(int64_t size, /):
    """Memory of size bytes for a codec to fill; finished() gives what is in it."""
    if size < 0:
        raise ValueError("size is negative")
    return result_of(size)


def finished(Result result not None, int64_t size, /):
    """The first size bytes: a read-only view of the memory, or a copy (K2)."""
    if not 0 <= size <= result.size or result.finished:
        raise ValueError(f"{size} bytes of a result of {result.size}")
    return finish(result, size)


cpdef int64_t decompressed_bytes_max(int64_t payload_size) noexcept nogil:
    """Return the limit on the decompressed size of a payload: 64 MiB, or eight times its size if that is more.

    Real batches are plain bytes of about max.message.bytes (1 MiB); 1 MiB of zstd can hold 32 GiB of zeros. A writer
    stores records that would exceed the limit uncompressed.
    """
    return max(<int64_t>BYTES_MAX_FLOOR, RATIO_MAX * payload_size)
