from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from "encode.h" nogil:
    ctypedef struct kl_record_in_t:
        const uint8_t *key
        const uint8_t *value
        const uint8_t *headers
        int64_t timestamp_delta
        int64_t key_size
        int64_t value_size
        int64_t headers_size
        int32_t offset_delta
        int32_t header_count

    int64_t kl_record_body_size(const kl_record_in_t *r)
    uint8_t *kl_record_write(uint8_t *at, const kl_record_in_t *r, int64_t body_size)
    uint8_t *kl_header_write(uint8_t *at, const uint8_t *key, int64_t key_size, const uint8_t *value, int64_t value_size)
