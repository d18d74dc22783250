"""Whole batches back to back and the header of each: the input of a segment, wherever the bytes come from.

Subclasses: BatchGroup, encoded from records; ValidatedBatch, a validated request; EncodedBatches, an unchanged buffer.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer

from klog._c.batch cimport (
    KL_ATTR_CODEC, KL_ATTR_DELETE_HORIZON, KL_ATTR_TRANSACTIONAL, KL_BATCH_HEADER, kl_batch_fields, kl_batch_t,
)

from klog.record._arguments cimport check_buffer

from klog.values import NamedTuple

BATCH_HEADER = KL_BATCH_HEADER  # bytes
DELETE_HORIZON = KL_ATTR_DELETE_HORIZON     # bit of the attributes


class UncheckedHeader(NamedTuple):
    """Fields of a batch's header as a client sent them. codec: as in klog.codec.CODECS, if the number is known."""

    codec: int
    is_transactional: bool
    producer_id: int
    producer_epoch: int


def unchecked_header(buffer):
    """Return fields of the first batch's header without any check of it, None for fewer bytes than a header has."""
    cdef Py_buffer view
    cdef kl_batch_t b
    check_buffer("buffer", buffer)
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if view.len < KL_BATCH_HEADER:
            return None
        kl_batch_fields(<const uint8_t *>view.buf, &b)
    finally:
        PyBuffer_Release(&view)
    return UncheckedHeader(b.attributes & KL_ATTR_CODEC, (b.attributes & KL_ATTR_TRANSACTIONAL) != 0, b.producer_id,
                           b.producer_epoch)


cdef class BatchTable:
    """n batches of nbytes bytes; a read-only buffer of them. Any thread may read it."""

    def __init__(self):
        raise TypeError("get batches from klog.record: Encoder, validate_append, EncodedBatches")

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.bytes_at, self.nbytes, 1, flags)
