from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

cdef extern from "batch.h" nogil:
    enum:
        KL_AT_LENGTH
        KL_AT_MAGIC
        KL_AT_CRC
        KL_AT_ATTRIBUTES
        KL_BATCH_PREFIX
        KL_BATCH_MIN
        KL_BATCH_HEADER
        KL_BATCH_CRC_FROM
        KL_RECORD_MIN
        KL_ATTR_CODEC
        KL_ATTR_LOG_APPEND_TIME
        KL_ATTR_TRANSACTIONAL
        KL_ATTR_CONTROL
        KL_ATTR_DELETE_HORIZON
        KL_CODEC_GZIP
        KL_CODEC_LZ4
        KL_CODEC_ZSTD

    ctypedef struct kl_batch_t:
        int64_t position
        int64_t base_offset
        int64_t base_timestamp
        int64_t max_timestamp
        int64_t producer_id
        int32_t size
        int32_t leader_epoch
        int32_t last_offset_delta
        int32_t base_sequence
        int32_t count
        uint32_t crc
        int16_t attributes
        int16_t producer_epoch
        int8_t magic

    int64_t kl_batch_last_offset(const kl_batch_t *b)
    int32_t kl_batch_size(const uint8_t *at)
    int kl_batch_frame(const uint8_t *at, size_t left, kl_batch_t *out)
    int kl_batch_next(const uint8_t *at, size_t held, size_t left, kl_batch_t *out)
    void kl_batch_fields(const uint8_t *at, kl_batch_t *out)
    void kl_batch_header_store(uint8_t *at, const kl_batch_t *b)
    uint32_t kl_batch_crc(const uint8_t *at, int32_t size)
    void kl_batch_seal(uint8_t *at, kl_batch_t *b)

    ctypedef struct kl_record_t:
        const uint8_t *key
        const uint8_t *value
        const uint8_t *headers
        int64_t timestamp_delta
        int32_t offset_delta
        int32_t key_size
        int32_t value_size
        int32_t header_count

    int kl_record_next(const uint8_t *at, size_t left, kl_record_t *out, size_t *used)

    ctypedef struct kl_record_header_t:
        const uint8_t *key
        const uint8_t *value
        int32_t key_size
        int32_t value_size

    int kl_record_header_next(const uint8_t *at, size_t left, kl_record_header_t *out, size_t *used)
    ctypedef struct kl_sum_t:
        pass

    kl_sum_t kl_sum_begin(const uint8_t *at, int32_t size, size_t step)
    uint32_t kl_sum_end(kl_sum_t *sum)
    int kl_payload_validate_summed(const uint8_t *payload, size_t size, int32_t count, int32_t last_offset_delta,
                                   kl_sum_t *sum, int32_t *bad)
    int kl_payload_validate(const uint8_t *payload, size_t size, int32_t count, int32_t last_offset_delta, int32_t *bad)

cdef extern from "scan.h" nogil:
    const uint8_t *kl_record_scan_common(const uint8_t *at, const uint8_t *end, kl_record_t *out)
