/* Reads the common kind of record inline: every number in few bytes, every length inside the record.
 *
 * For any other record, invalid or only rare, the inline function returns NULL, and kl_record_next reads it, so that
 * only one function reports errors.  kl_record_next accepts every record that is accepted here, with the same result
 * (selftest/scan.c).  In a shared mapping bytes may change between two reads: no length is checked by one read of a byte
 * and used by another.
 */
#ifndef KL_SCAN_H
#define KL_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "batch.h"
#include "varint.h"

enum {
    /* Bytes that the numbers before the key can take here: length 3, attributes 1, timestamp 10, offset 3, key size 3.
     * If as many are left, they are read before the record's end is known. */
    KL_SCAN_MIN = 20,
};

/* The raw bits of a varint of up to three bytes, sizes and deltas to a million; NULL for a longer one.  The third byte
 * is only read if it is before limit. */
static inline const uint8_t *kl_varint_scan(const uint8_t *at, const uint8_t *limit, uint32_t *out) {
    uint32_t first = at[0];
    if (first < 0x80) {
        *out = first;
        return at + 1;
    }
    uint32_t second = at[1], bits = (first & 0x7f) | second << 7;
    if (second < 0x80) {
        *out = bits;
        return at + 2;
    }
    uint32_t third = limit - at < 3 ? 0x80u : at[2];
    if (third >= 0x80)
        return NULL;
    *out = (bits & 0x3fff) | third << 14;
    return at + 3;
}

/* Walk count headers with sizes below 64, if they end before end.  Returns the byte after the last one, or NULL. */
static inline const uint8_t *kl_headers_scan(const uint8_t *at, const uint8_t *end, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        if (end - at < 2)
            return NULL;
        int32_t key = at[0];
        if (key & 0x81 || (key >> 1) + 2 > end - at)
            return NULL;
        at += 1 + (key >> 1);
        int32_t value = at[0], size = value & 1 ? 0 : value >> 1;
        if (value >= 0x80 || size + 1 > end - at)
            return NULL;
        at += 1 + size;
    }
    return at;
}

/* Read the record at at[0 .. end - at) if it is of the common kind.  Returns its end, or NULL.
 * A zigzag number is negative if its lowest bit is set: an error for the record, null for key and value. */
static inline const uint8_t *kl_record_scan_common(const uint8_t *at, const uint8_t *end, kl_record_t *out) {
    uint32_t length, offset, size;
    if (end - at < KL_SCAN_MIN || (at = kl_varint_scan(at, end, &length)) == NULL || length & 1)
        return NULL;
    length >>= 1;
    if ((ptrdiff_t)length > end - at)
        return NULL;
    const uint8_t *whole = at + length;
    at++; /* attributes, which are not used */
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
    if ((at = kl_varint_scan(at, end, &offset)) == NULL || (at = kl_varint_scan(at, end, &size)) == NULL)
        return NULL;
    out->offset_delta = kl_unzigzag32(offset);
    /* From here on nothing is read at or after the end of the record: a size and a count follow, one byte each. */
    if (size & 1) {
        out->key = NULL;
        out->key_size = -1;
        size = 0;
    } else {
        size >>= 1;
        out->key = at;
        out->key_size = (int32_t)size;
    }
    if ((ptrdiff_t)size > whole - at - 2)
        return NULL;
    if ((at = kl_varint_scan(at + size, whole, &size)) == NULL)
        return NULL;
    if (size & 1) {
        out->value = NULL;
        out->value_size = -1;
        size = 0;
    } else {
        size >>= 1;
        out->value = at;
        out->value_size = (int32_t)size;
    }
    ptrdiff_t left = whole - at - (ptrdiff_t)size;
    if (left < 1)
        return NULL;
    at += size;
    int32_t headers = at[0];
    out->headers = at + 1;
    out->header_count = headers >> 1;
    if (headers == 0)
        return left == 1 ? whole : NULL;
    if (headers & 0x81) /* more than 63, or a negative number */
        return NULL;
    return kl_headers_scan(at + 1, whole, out->header_count) == whole ? whole : NULL;
}

/* Read the record at at[0 .. end - at), of any kind.  Returns its end, or NULL with *status set: any code of
 * kl_record_next, or KL_ECOUNT if no byte is left. */
static inline const uint8_t *kl_record_scan(const uint8_t *at, const uint8_t *end, kl_record_t *out, int *status) {
    const uint8_t *after = kl_record_scan_common(at, end, out);
    if (after != NULL)
        return after;
    kl_record_t rare; /* separate, so that *out can stay in registers */
    size_t used = 0;
    *status = at == end ? KL_ECOUNT : kl_record_next(at, (size_t)(end - at), &rare, &used);
    if (*status != KL_OK)
        return NULL;
    *out = rare;
    return at + used;
}

#endif
