"""Whole batches back to back and the header of each: the input of a segment, wherever the bytes come from.

Subclasses: BatchGroup, encoded from records; ValidatedBatch, a validated request; EncodedBatches, an unchanged buffer.
"""

from cpython.buffer cimport PyBuffer_FillInfo

from klog._c.batch cimport KL_BATCH_HEADER

BATCH_HEADER = KL_BATCH_HEADER  # bytes


cdef class BatchTable:
    """n batches of nbytes bytes; a read-only buffer of them. Any thread may read it."""

    def __init__(self):
        raise TypeError("get batches from klog.record: Encoder, validate_append, EncodedBatches")

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.bytes_at, self.nbytes, 1, flags)
