/* Write one record of an uncompressed payload; batch.h reads it.  The caller provides the space.
 *
 *   length:varint attributes:i8 timestamp_delta:varlong offset_delta:varint
 *   key_size:varint key value_size:varint value header_count:varint header*
 *   header := key_size:varint key value_size:varint value            sizes of -1 are null, all varints zigzag
 */
#ifndef KL_ENCODE_H
#define KL_ENCODE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "varint.h"

/* The fields of a record; headers are headers_size bytes written by kl_header_write. */
typedef struct {
    const uint8_t *key;     /* NULL and key_size -1 for null */
    const uint8_t *value;
    const uint8_t *headers;
    int64_t timestamp_delta;
    int64_t key_size;
    int64_t value_size;
    int64_t headers_size;
    int32_t offset_delta;
    int32_t header_count;
} kl_record_in_t;

/* Bytes after the length field.  May exceed int32: check before writing. */
static inline int64_t kl_record_body_size(const kl_record_in_t *r) {
    return 1 + (int64_t)kl_varlong_size(r->timestamp_delta) + (int64_t)kl_varint_size(r->offset_delta) +
           (int64_t)kl_varlong_size(r->key_size) + (r->key_size > 0 ? r->key_size : 0) +
           (int64_t)kl_varlong_size(r->value_size) + (r->value_size > 0 ? r->value_size : 0) +
           (int64_t)kl_varint_size(r->header_count) + r->headers_size;
}

/* memcpy for keys: up to 16 bytes without a call, as two moves that may overlap.  Reads nothing past the source. */
static inline void kl_copy(uint8_t *to, const uint8_t *from, size_t size) {
    if (size - 8 <= 8) {
        uint64_t first, last;
        memcpy(&first, from, 8);
        memcpy(&last, from + size - 8, 8);
        memcpy(to, &first, 8);
        memcpy(to + size - 8, &last, 8);
    } else {
        memcpy(to, from, size);
    }
}

/* A size, -1 for null, and its bytes. */
static inline uint8_t *kl_sized_write(uint8_t *at, const uint8_t *bytes, int64_t size) {
    at += kl_varlong_encode(at, size);
    if (size > 0) {
        kl_copy(at, bytes, (size_t)size);
        at += size;
    }
    return at;
}

/* Write the record, whose body has body_size bytes, at at, which has space for body_size + KL_VARINT_MAX bytes.
 * Returns the byte after it. */
static inline uint8_t *kl_record_write(uint8_t *at, const kl_record_in_t *r, int64_t body_size) {
    at += kl_varlong_encode(at, body_size);
    *at++ = 0;
    at += kl_varlong_encode(at, r->timestamp_delta);
    at += kl_varint_encode(at, r->offset_delta);
    at = kl_sized_write(at, r->key, r->key_size);
    at = kl_sized_write(at, r->value, r->value_size);
    at += kl_varint_encode(at, r->header_count);
    if (r->headers_size > 0) {
        memcpy(at, r->headers, (size_t)r->headers_size);
        at += r->headers_size;
    }
    return at;
}

/* Write one header; it needs space for 2 * KL_VARINT_MAX bytes more than its key and value. */
static inline uint8_t *kl_header_write(uint8_t *at, const uint8_t *key, int64_t key_size, const uint8_t *value,
                                       int64_t value_size) {
    return kl_sized_write(kl_sized_write(at, key, key_size), value, value_size);
}

#endif
