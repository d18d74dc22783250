"""Whole batches back to back and the header of each: the input of a segment, wherever the bytes come from.

Subclasses: BatchGroup, encoded from records; ValidatedBatch, a validated request; EncodedBatches, an unchanged buffer.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer

from klog._c.batch cimport (
    KL_AT_LENGTH, KL_AT_MAGIC, KL_ATTR_CODEC, KL_ATTR_DELETE_HORIZON, KL_ATTR_TRANSACTIONAL, KL_BATCH_HEADER,
    KL_BATCH_PREFIX, kl_batch_fields, kl_batch_size, kl_batch_t,
)
from klog._c.bytes cimport kl_load_u32
from klog._c.status cimport KL_EMAGIC

from klog.record._arguments cimport check_buffer
from libc.stdint cimport int8_t, int32_t

from klog.errors import CorruptBatch
from klog.values import NamedTuple

BATCH_PREFIX = KL_BATCH_PREFIX  # bytes
BATCH_HEADER = KL_BATCH_HEADER
DELETE_HORIZON = KL_ATTR_DELETE_HORIZON     # bit of the attributes


class UncheckedHeader(NamedTuple):
    """Fields of a batch's header as a client sent them. codec: as in klog.codec.CODECS, if the number is known."""

    codec: int
    is_transactional: bool
    producer_id: int
    producer_epoch: int
    base_sequence: int


def unchecked_header(buffer):
    """Return fields of the first batch's header without a check of it. None if the buffer ends before the header or the
    batch does, or if these are messages of magic 0 or 1."""
    cdef Py_buffer view
    cdef kl_batch_t b
    cdef const uint8_t *at
    check_buffer("buffer", buffer)
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if view.len < KL_BATCH_HEADER:
            return None
        at = <const uint8_t *>view.buf
        if kl_batch_size(at) > view.len or at[KL_AT_MAGIC] < 2:
            return None
        kl_batch_fields(at, &b)
    finally:
        PyBuffer_Release(&view)
    return UncheckedHeader(b.attributes & KL_ATTR_CODEC, (b.attributes & KL_ATTR_TRANSACTIONAL) != 0, b.producer_id,
                           b.producer_epoch, b.base_sequence)


cdef int raise_frame(int status, const uint8_t *at, Py_ssize_t position) except -1:
    """Raise CorruptBatch for what kl_batch_frame() has returned, other than KL_ETRUNCATED, for the bytes at at."""
    cdef int32_t length = <int32_t>kl_load_u32(at + KL_AT_LENGTH)
    if status == KL_EMAGIC:
        raise CorruptBatch(f"magic {<int8_t>at[KL_AT_MAGIC]} is not a record format", position=position)
    if kl_batch_size(at) > 0:
        raise CorruptBatch(f"a batch of {length + KL_BATCH_PREFIX} bytes, less than its header", position=position)
    raise CorruptBatch(f"a batch length of {length} bytes is invalid", position=position)


cdef class BatchTable:
    """n batches of nbytes bytes; a read-only buffer of them. Any thread may read it."""

    def __init__(self):
        raise TypeError("get batches from klog.record: Encoder, validate_append, EncodedBatches")

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.bytes_at, self.nbytes, 1, flags)
