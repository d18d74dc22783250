"""Gives encoded batches their offsets: those of a staged file begin at 0, and outside the checksum.

Only the base offset and the leader epoch of a header change, and what they are before does not matter: a crash may
leave a file of which some headers are changed already, or half of one is. With an append time, the timestamps of a
batch change too, as in a topic of message.timestamp.type=LogAppendTime, and the checksum, which covers them, is
computed again.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from klog._c.batch cimport (
    KL_ATTR_CONTROL, KL_ATTR_LOG_APPEND_TIME, KL_ATTR_TRANSACTIONAL, KL_BATCH_PREFIX, kl_batch_crc,
    kl_batch_header_store, kl_batch_last_offset, kl_batch_next, kl_batch_size, kl_batch_t,
)
from klog._c.crc32c cimport kl_crc32c
from klog._c.status cimport KL_OK
from klog.codec.status cimport status_text
from klog.record._arguments cimport check_buffer, whole_of
from libc.stdint cimport INT32_MAX, INT64_MAX, UINT32_MAX, int32_t, int64_t, uint8_t, uint32_t

from klog.errors import CorruptBatch


def renumber(buffer, start, base_offset, leader_epoch, append_time=-1, crc=0):
    """Renumber the whole batches at the begin of a writable buffer. Returns (their bytes, the offset after the last,
    their checksum as they were staged: offsets from `start` on, epoch 0, continued from `crc`).

    base_offset: the offset that the first batch gets. append_time: -1 keeps the timestamps. Raises CorruptBatch for
    bytes that are not batches of records numbered one after the other.
    """
    cdef Py_buffer view
    cdef int64_t at = 0, wanted = whole_of("start", start, 0, INT64_MAX)
    cdef int64_t delta = whole_of("base_offset", base_offset, 0, INT64_MAX) - wanted
    cdef int32_t epoch = <int32_t>whole_of("leader_epoch", leader_epoch, 0, INT32_MAX)
    cdef int64_t time = whole_of("append_time", append_time, -1, INT64_MAX)
    cdef uint32_t staged = <uint32_t>whole_of("crc", crc, 0, UINT32_MAX)
    cdef uint8_t *bytes_at
    cdef int status
    cdef kl_batch_t b
    check_buffer("buffer", buffer)
    try:
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    except BufferError:
        raise TypeError(f"buffer: {type(buffer).__name__} is read-only; give a bytearray or another writable buffer")
    try:
        bytes_at = <uint8_t *>view.buf
        while view.len - at >= KL_BATCH_PREFIX:
            # Until a batch is whole, its length alone counts: the caller reads on.
            if kl_batch_size(bytes_at + at) > view.len - at:
                break
            status = kl_batch_next(bytes_at + at, <size_t>(view.len - at), <size_t>(view.len - at), &b)
            if status != KL_OK:
                raise CorruptBatch(f"not a staged batch: {status_text(status)}", position=at)
            if b.magic != 2 or b.producer_id >= 0 or b.attributes & (KL_ATTR_CONTROL | KL_ATTR_TRANSACTIONAL):
                raise CorruptBatch("a staged batch is of magic 2, and of no producer", position=at)
            if b.count != b.last_offset_delta + 1:
                raise CorruptBatch(f"a staged batch of {b.last_offset_delta + 1} records has {b.count}", position=at)
            if kl_batch_crc(bytes_at + at, b.size) != b.crc:
                raise CorruptBatch("the checksum of a staged batch does not match", position=at, kind="crc")
            b.base_offset, b.leader_epoch = wanted, 0
            kl_batch_header_store(bytes_at + at, &b)
            staged = kl_crc32c(staged, bytes_at + at, b.size)
            wanted = kl_batch_last_offset(&b) + 1
            if wanted > INT64_MAX - delta:
                raise CorruptBatch(f"no offset is left for a staged batch after {b.base_offset + delta}", position=at)
            b.base_offset += delta
            b.leader_epoch = epoch
            if time >= 0:
                b.attributes |= KL_ATTR_LOG_APPEND_TIME
                b.max_timestamp = time
                kl_batch_header_store(bytes_at + at, &b)
                b.crc = kl_batch_crc(bytes_at + at, b.size)
            kl_batch_header_store(bytes_at + at, &b)
            at += b.size
        return at, wanted + delta, staged
    finally:
        PyBuffer_Release(&view)
