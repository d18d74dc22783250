# cython: auto_pickle=False
"""Reads magic 0 and 1, Kafka's formats before 0.11, into the form of magic 2.

One message becomes one batch: of one record or, with a codec, of the whole messages in its decompressed value. What
Kafka's iterator accepts is accepted; csrc/legacy.h describes the bytes, and the few sets that are refused.

  L1  the decompressed size of a wrapper is bounded as that of any payload. It is converted to records once and not kept
      beside them: a record takes fewer bytes than its message did.
  L2  a message inside a wrapper has no codec: compressed data is never decompressed twice.
  L3  if checksums are verified, those of the inner messages are too, as in Kafka's consumer.

Kafka: AbstractLegacyRecordBatch, LegacyRecord.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from klog._c.batch cimport KL_AT_MAGIC, KL_ATTR_CODEC, KL_ATTR_LOG_APPEND_TIME, KL_CODEC_GZIP, KL_CODEC_LZ4
from klog._c.bytes cimport kl_load_u32, kl_load_u64
from klog._c.legacy cimport (
    KL_MESSAGE_AT_CRC, KL_MESSAGE_CRC_FROM, kl_legacy_measure, kl_legacy_t, kl_legacy_write, kl_message_next,
    kl_message_t,
)
from klog._c.status cimport KL_ECODEC, KL_ECOUNT, KL_EORDER, KL_OK
from klog.codec._kept cimport decompressed_bytes_max
from klog.codec.status cimport status_text
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

import zlib

from klog.codec import CODECS as _CODECS
from klog.codec import decompress, lz4_with_header_checksum
from klog.errors import CorruptBatch

cdef enum:
    NOGIL_MIN = 1 << 14     # a checksum by nibbles takes 5 ns a byte

cdef dict TEXTS = {
    KL_ECOUNT: "a wrapper without messages",
    KL_ECODEC: "a message with a codec inside a compressed wrapper",
    KL_EORDER: "offsets that are impossible in a batch",
}


cdef int fail(int status, const kl_message_t *m, bint wrapped, int32_t number) except -1:
    text = TEXTS.get(status) or status_text(status)
    if wrapped and status != KL_ECOUNT:
        text = f"message {number} in a wrapper: {text}"
    raise CorruptBatch(text, offset=m.offset, kind="offset_order" if status == KL_EORDER else None)


cdef object unwrap(message, const kl_message_t *m, const uint8_t *data):
    """Return the decompressed value of a wrapper."""
    cdef int codec = m.attributes & KL_ATTR_CODEC
    cdef Py_ssize_t value_at
    if not KL_CODEC_GZIP <= codec <= KL_CODEC_LZ4:
        text = f"codec {_CODECS[codec]}, which requires magic 2" if codec < len(_CODECS) else f"codec bits {codec}"
        raise CorruptBatch(f"a message of magic {m.magic} with {text}", offset=m.offset)
    if m.value_size < 0:
        raise CorruptBatch("a wrapper with a null value", offset=m.offset)
    value_at = m.value - data
    value = message[value_at:value_at + m.value_size]
    try:
        if codec == KL_CODEC_LZ4 and m.magic == 0:
            value = lz4_with_header_checksum(value)
        return decompress(codec, value, decompressed_bytes_max(m.value_size))
    except CorruptBatch as error:
        raise type(error)(error.reason, offset=m.offset, kind=error.kind) from None


cdef LegacyBatch as_batch(const uint8_t *messages, size_t size, const kl_message_t *m, bint wrapped):
    cdef LegacyBatch batch = LegacyBatch.__new__(LegacyBatch)
    cdef const kl_message_t *wrapper = m if wrapped else NULL
    cdef kl_legacy_t shape
    cdef int32_t bad = 0
    cdef int status
    cdef uint8_t *to
    if size >= NOGIL_MIN:
        with nogil:
            status = kl_legacy_measure(messages, size, wrapper, &shape, &bad)
    else:
        status = kl_legacy_measure(messages, size, wrapper, &shape, &bad)
    if status != KL_OK:
        fail(status, m, wrapped, bad)
    batch.payload = PyBytes_FromStringAndSize(NULL, shape.payload_size)
    to = <uint8_t *>PyBytes_AS_STRING(batch.payload)
    status = kl_legacy_write(messages, size, wrapper, &shape, to)
    if status != KL_OK:
        fail(status, m, wrapped, 0)
    batch.ignored_bytes = shape.ignored_bytes or m.slack != 0
    batch.bad_crc = shape.bad_crc
    batch.header.base_offset = shape.base_offset
    batch.header.last_offset_delta = <int32_t>(shape.last_offset - shape.base_offset)
    batch.header.base_timestamp = shape.base_timestamp
    batch.header.count = shape.count
    return batch


cdef int check_crc(message, const uint8_t *data) except -1:
    """Check the message's own checksum. Before its fields, so that damage is reported as a checksum error."""
    stored = kl_load_u32(data + KL_MESSAGE_AT_CRC)
    crc = zlib.crc32(message[KL_MESSAGE_CRC_FROM:])
    if crc != stored:
        raise CorruptBatch(
            f"the checksum of a message of magic {<int8_t>data[KL_AT_MAGIC]} is {stored:08x}, its bytes make {crc:08x}",
            offset=<int64_t>kl_load_u64(data), kind="crc",
        )
    return 0


cdef int check_crcs_within(LegacyBatch batch, const uint8_t *data) except -1:
    if batch.bad_crc >= 0:
        raise CorruptBatch(
            f"the checksum of message {batch.bad_crc} of {batch.header.count} in a wrapper does not match",
            offset=<int64_t>kl_load_u64(data), kind="crc",
        )
    return 0


@cython.final
cdef class LegacyBatch:
    cdef int verify(self, message, const uint8_t *data) except -1:
        if self.verified:
            return 0
        check_crc(message, data)
        check_crcs_within(self, data)
        self.verified = True
        return 0


cdef LegacyBatch read_legacy(message, bint verify_crc):
    cdef Py_buffer whole, inner
    cdef const uint8_t *data
    cdef kl_message_t m
    cdef LegacyBatch batch
    cdef int status
    PyObject_GetBuffer(message, &whole, PyBUF_SIMPLE)
    try:
        data = <const uint8_t *>whole.buf
        if verify_crc:
            check_crc(message, data)
        status = kl_message_next(data, <size_t>whole.len, &m)
        if status != KL_OK:
            raise CorruptBatch(
                f"a message of magic {<int8_t>data[KL_AT_MAGIC]}: {status_text(status)}",
                offset=<int64_t>kl_load_u64(data),
            )
        if m.attributes & KL_ATTR_CODEC:
            set_of_messages = unwrap(message, &m, data)
            PyObject_GetBuffer(set_of_messages, &inner, PyBUF_SIMPLE)
            try:
                batch = as_batch(<const uint8_t *>inner.buf, <size_t>inner.len, &m, True)
            finally:
                PyBuffer_Release(&inner)
        else:
            batch = as_batch(data, <size_t>whole.len, &m, False)
        batch.header.size = m.size
        batch.header.magic = m.magic
        batch.header.crc = m.crc
        # Bits that the format does not have are cleared: in magic 2 some of them mean control or transactional.
        batch.header.attributes = m.attributes & (KL_ATTR_CODEC | (KL_ATTR_LOG_APPEND_TIME if m.magic == 1 else 0))
        batch.header.max_timestamp = m.timestamp
        batch.header.producer_id = -1
        batch.header.producer_epoch = -1
        batch.header.base_sequence = -1
        batch.header.leader_epoch = -1
        if verify_crc:
            check_crcs_within(batch, data)
            batch.verified = True
        return batch
    finally:
        PyBuffer_Release(&whole)
