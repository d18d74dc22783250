/* The record that nearly all records are, read inline: every number in few bytes, every length inside.
 *
 * Anything else, broken or merely rare, is NULL here and the business of kl_record_next, so that there is one place
 * that says what is wrong.  What is accepted here, kl_record_next accepts with the same outcome (selftest.c).
 */
#ifndef KL_SCAN_H
#define KL_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "batch.h"
#include "varint.h"

enum {
    /* Bytes that the numbers before the key can take here: length 3, attributes 1, timestamp 10, offset 3, key size 3.
     * With as many left, they are read before anybody knows whether the record goes that far. */
    KL_SCAN_MIN = 20,
};

/* A varint of up to three bytes, sizes and deltas to a million; NULL for a longer one. */
static inline const uint8_t *kl_scan_varint(const uint8_t *at, int32_t *out) {
    uint32_t value = at[0];
    if (value < 0x80) {
        *out = kl_unzigzag32(value);
        return at + 1;
    }
    value = (value & 0x7f) | (uint32_t)at[1] << 7;
    if (at[1] < 0x80) {
        *out = kl_unzigzag32(value);
        return at + 2;
    }
    value = (value & 0x3fff) | (uint32_t)at[2] << 14;
    *out = kl_unzigzag32(value);
    return at[2] < 0x80 ? at + 3 : NULL;
}

/* Walk count headers with sizes below 64, as long as they go on before end; behind the last one, or NULL. */
static inline const uint8_t *kl_scan_headers(const uint8_t *at, const uint8_t *end, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        if (end - at < 2 || at[0] & 0x81 || (at[0] >> 1) + 2 > end - at)
            return NULL;
        at += 1 + (at[0] >> 1);
        int32_t size = at[0] & 1 ? 0 : at[0] >> 1;
        if (at[0] >= 0x80 || size + 1 > end - at)
            return NULL;
        at += 1 + size;
    }
    return at;
}

/* Read the record at at[0 .. end - at) if it is of the common kind.  Answers where it ends, or NULL. */
static inline const uint8_t *kl_scan_record(const uint8_t *at, const uint8_t *end, kl_record_t *out) {
    int32_t length, key_size, value_size;
    if (end - at < KL_SCAN_MIN || (at = kl_scan_varint(at, &length)) == NULL || length < 0 || length > end - at)
        return NULL;
    const uint8_t *whole = at + length;
    at++; /* attributes, which nobody reads */
    uint64_t stamp = at[0];
    if (stamp < 0x80) {
        at++;
    } else if (at[1] < 0x80) {
        stamp = (stamp & 0x7f) | (uint64_t)at[1] << 7;
        at += 2;
    } else if (at[2] < 0x80) {
        stamp = (stamp & 0x7f) | (uint64_t)(at[1] & 0x7f) << 7 | (uint64_t)at[2] << 14;
        at += 3;
    } else {
        int64_t delta;
        size_t used;
        if (kl_varlong_decode(at, KL_VARLONG_MAX, &delta, &used) != KL_OK)
            return NULL;
        stamp = kl_zigzag64(delta);
        at += used;
    }
    out->timestamp_delta = kl_unzigzag64(stamp);
    if ((at = kl_scan_varint(at, &out->offset_delta)) == NULL || (at = kl_scan_varint(at, &key_size)) == NULL)
        return NULL;
    /* From here on nothing is read at or behind the end of the record. */
    int64_t bytes = key_size > 0 ? key_size : 0;
    if (bytes > whole - at - 2)
        return NULL;
    out->key = key_size < 0 ? NULL : at;
    out->key_size = key_size < 0 ? -1 : key_size;
    at += bytes;
    if (at[0] >= 0x80 && at[1] >= 0x80 && whole - at < 3)
        return NULL;
    if ((at = kl_scan_varint(at, &value_size)) == NULL)
        return NULL;
    bytes = value_size > 0 ? value_size : 0;
    if (bytes > whole - at - 1)
        return NULL;
    out->value = value_size < 0 ? NULL : at;
    out->value_size = value_size < 0 ? -1 : value_size;
    at += bytes;
    int32_t headers = *at++;
    if (headers & 0x81) /* more than 63, or a negative number */
        return NULL;
    out->header_count = headers >> 1;
    out->headers = at;
    if (headers != 0 && (at = kl_scan_headers(at, whole, out->header_count)) == NULL)
        return NULL;
    return at == whole ? whole : NULL;
}

#endif
