from klog._c.batch cimport kl_batch_t
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t

cdef extern from "legacy.h" nogil:
    enum:
        KL_MESSAGE_PREFIX
        KL_MESSAGE_AT_CRC
        KL_MESSAGE_AT_ATTRIBUTES
        KL_MESSAGE_CRC_FROM

    ctypedef struct kl_message_t:
        const uint8_t *key
        const uint8_t *value
        int64_t offset
        int64_t timestamp
        int32_t key_size
        int32_t value_size
        int32_t size
        int32_t slack
        uint32_t crc
        int8_t magic
        uint8_t attributes

    int kl_message_next(const uint8_t *at, size_t left, kl_message_t *out)
    int kl_legacy_header(const uint8_t *at, size_t left, kl_batch_t *out)
    int kl_outer_header(const uint8_t *at, size_t left, kl_batch_t *out)
    uint32_t kl_message_crc(const uint8_t *at, int32_t size)

    ctypedef struct kl_legacy_t:
        int64_t base_offset
        int64_t last_offset
        int64_t base_timestamp
        int64_t shift
        int64_t payload_size
        int32_t count
        int32_t bad_crc
        int32_t ignored_bytes

    int kl_legacy_measure(const uint8_t *set, size_t size, const kl_message_t *wrapper, kl_legacy_t *out, int32_t *bad)
    int kl_legacy_write(const uint8_t *set, size_t size, const kl_message_t *wrapper, const kl_legacy_t *shape,
                        uint8_t *to)
