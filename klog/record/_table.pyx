"""Whole batches back to back and the header of each: what a segment takes, wherever the bytes come from.

Heirs: BatchGroup, made of records; ValidatedBatch, what a leader makes of a request; EncodedBatches, a buffer as it is.
"""

from cpython.buffer cimport PyBuffer_FillInfo


cdef class BatchTable:
    """n batches of nbytes bytes; a read-only buffer of them. Any thread may read it."""

    def __init__(self):
        raise TypeError("batches come from klog.record: Encoder, validate_append, EncodedBatches")

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.bytes_at, self.nbytes, 1, flags)
