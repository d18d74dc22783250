/* See lz4.h for the contract of every function here. */
#include "lz4.h"

#include <string.h>

enum {
    HEADER = 7,
    WORD = 4,
    BLOCK = 1 << 16,
    RATIO_MAX = 255,
    GROWTH = BLOCK / 255 + 16, /* of a block that does not shrink, until it is stored instead: LZ4_compressBound */
};

static const uint8_t header[HEADER] = {0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82};
static const uint32_t stored = (uint32_t)1 << 31;

static inline uint32_t load(const uint8_t *at) {
    uint32_t word;
    memcpy(&word, at, WORD);
    return word;
}

static inline void store(uint8_t *at, uint32_t word) { memcpy(at, &word, WORD); }

static inline int32_t plain_max(uint32_t word) {
    uint32_t size = word & ~stored;
    if (word & stored)
        return (int32_t)size;
    return (int32_t)(size < BLOCK / RATIO_MAX ? size * RATIO_MAX : BLOCK);
}

int64_t kl_lz4_plain_max(const uint8_t *payload, size_t size) {
    int64_t bound = 0;
    if (size < HEADER || memcmp(payload, header, HEADER) != 0)
        return -1;
    for (size_t at = HEADER; size - at >= WORD;) {
        uint32_t word = load(payload + at), bytes = word & ~stored;
        at += WORD;
        if (word == 0)
            return bound; /* bytes after it are ignored */
        if (bytes > BLOCK || bytes > size - at)
            return -1;
        bound += plain_max(word);
        at += bytes;
    }
    return -1;
}

int64_t kl_lz4_unpack(const kl_lz4_t *lz4, const uint8_t *payload, size_t size, uint8_t *to, int64_t capacity) {
    int64_t total = 0;
    if (size < HEADER || memcmp(payload, header, HEADER) != 0)
        return -1;
    for (size_t at = HEADER; size - at >= WORD;) {
        uint32_t word = load(payload + at), bytes = word & ~stored;
        int64_t left = capacity - total;
        at += WORD;
        if (word == 0)
            return total;
        if (bytes > BLOCK || bytes > size - at)
            return -1;
        if (word & stored) {
            if (bytes > left)
                return -1;
            memcpy(to + total, payload + at, bytes);
            total += bytes;
        } else {
            int most = left < plain_max(word) ? (int)left : plain_max(word);
            int made = lz4->decompress((const char *)payload + at, (char *)to + total, (int)bytes, most);
            if (made < 0)
                return -1;
            total += made;
        }
        at += bytes;
    }
    return -1;
}

int64_t kl_lz4_packed_max(int64_t size) { return HEADER + size + (size / BLOCK + 1) * (WORD + GROWTH) + WORD; }

int64_t kl_lz4_pack(const kl_lz4_t *lz4, const uint8_t *plain, int64_t size, uint8_t *to) {
    uint8_t *start = to;
    memcpy(to, header, HEADER);
    to += HEADER;
    for (int64_t at = 0; at < size;) {
        int32_t piece = size - at < BLOCK ? (int32_t)(size - at) : BLOCK;
        int made = lz4->compress((const char *)plain + at, (char *)to + WORD, piece, piece + GROWTH);
        if (made <= 0 || made >= piece) {
            memcpy(to + WORD, plain + at, (size_t)piece);
            made = piece;
            store(to, (uint32_t)piece | stored);
        } else {
            store(to, (uint32_t)made);
        }
        to += WORD + made;
        at += piece;
    }
    store(to, 0);
    return to + WORD - start;
}
