/* Zigzag varint (32 bits) and varlong (64 bits), Kafka's ByteUtils, protobuf's sint32 and sint64.
 *
 *   zigzag: 0 -1 1 -2 2 ... become 0 1 2 3 4 ..., so small numbers of either sign stay short
 *   LEB128: seven bits a byte, lowest first, bit 7 set on every byte but the last
 *
 * At most 5 (10) bytes; a continuation bit in the last of them is an error.  Readers accept longer encodings than
 * needed and ignore bits past the 32nd (64th), as in Kafka; writers write the shortest form.
 */
#ifndef KL_VARINT_H
#define KL_VARINT_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

enum {
    KL_VARINT_MAX = 5,
    KL_VARLONG_MAX = 10,
};

static inline uint32_t kl_zigzag32(int32_t v) { return ((uint32_t)v << 1) ^ (uint32_t)(v >> 31); }
static inline int32_t kl_unzigzag32(uint32_t v) { return (int32_t)((v >> 1) ^ (0u - (v & 1))); }
static inline uint64_t kl_zigzag64(int64_t v) { return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63); }
static inline int64_t kl_unzigzag64(uint64_t v) { return (int64_t)((v >> 1) ^ (0u - (v & 1))); }

/* Decode one varint from at[0..left).  Never reads at[left].
 * KL_OK | KL_ETRUNCATED (more bytes could help) | KL_EOVERLONG (no bytes can help). */
static inline int kl_varint_decode(const uint8_t *at, size_t left, int32_t *out, size_t *used) {
    if (left != 0 && at[0] < 0x80) { /* most lengths and deltas: one byte */
        *out = kl_unzigzag32(at[0]);
        *used = 1;
        return KL_OK;
    }
    uint32_t value = 0;
    for (size_t i = 0; i < KL_VARINT_MAX; i++) {
        if (i == left)
            return KL_ETRUNCATED;
        value |= (uint32_t)(at[i] & 0x7f) << (7 * i);
        if (at[i] < 0x80) {
            *out = kl_unzigzag32(value);
            *used = i + 1;
            return KL_OK;
        }
    }
    return KL_EOVERLONG;
}

/* The same for 64 bits. */
static inline int kl_varlong_decode(const uint8_t *at, size_t left, int64_t *out, size_t *used) {
    if (left != 0 && at[0] < 0x80) {
        *out = kl_unzigzag64(at[0]);
        *used = 1;
        return KL_OK;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < KL_VARLONG_MAX; i++) {
        if (i == left)
            return KL_ETRUNCATED;
        value |= (uint64_t)(at[i] & 0x7f) << (7 * i);
        if (at[i] < 0x80) {
            *out = kl_unzigzag64(value);
            *used = i + 1;
            return KL_OK;
        }
    }
    return KL_EOVERLONG;
}

/* Bytes that encoding v takes: ceil(significant bits / 7), at least one.  (9 * bits + 64) / 64 equals that up to 64. */
static inline size_t kl_varlong_size(int64_t v) {
    unsigned bits = 64 - (unsigned)__builtin_clzll(kl_zigzag64(v) | 1);
    return (9 * bits + 64) / 64;
}

static inline size_t kl_varint_size(int32_t v) { return kl_varlong_size(v); }

/* Encode v at at, which has space for KL_VARLONG_MAX bytes (KL_VARINT_MAX for int32).  Returns the size. */
static inline size_t kl_varlong_encode(uint8_t *at, int64_t v) {
    uint64_t z = kl_zigzag64(v);
    if (z < 0x80) { /* most lengths and deltas: one byte, or two */
        at[0] = (uint8_t)z;
        return 1;
    }
    at[0] = (uint8_t)(z | 0x80);
    z >>= 7;
    if (z < 0x80) {
        at[1] = (uint8_t)z;
        return 2;
    }
    size_t n = 1;
    while (z >= 0x80) {
        at[n++] = (uint8_t)(z | 0x80);
        z >>= 7;
    }
    at[n++] = (uint8_t)z;
    return n;
}

static inline size_t kl_varint_encode(uint8_t *at, int32_t v) { return kl_varlong_encode(at, v); }

#endif
