/* Messages of magic 0 and 1 become records with the same content. */
#include "selftest/selftest.h"

#include <stdlib.h>

#include "batch.h"
#include "bytes.h"
#include "legacy.h"
#include "status.h"

size_t make_message(uint8_t *out, int8_t magic, int64_t offset, int32_t key_size, int32_t value_size) {
    uint8_t *at = out + KL_MESSAGE_CRC_FROM;
    *at++ = (uint8_t)magic;
    *at++ = 0;
    if (magic == 1) {
        kl_store_u64(at, 1700000000000u + (uint64_t)offset);
        at += 8;
    }
    const int32_t sizes[] = {key_size, value_size};
    for (int i = 0; i < 2; i++) {
        kl_store_u32(at, (uint32_t)sizes[i]);
        at += 4;
        for (int32_t n = 0; n < sizes[i]; n++)
            *at++ = (uint8_t)random_u64();
    }
    size_t size = (size_t)(at - out);
    kl_store_u64(out, (uint64_t)offset);
    kl_store_u32(out + 8, (uint32_t)(size - KL_MESSAGE_PREFIX));
    kl_store_u32(out + 12, kl_message_crc(out, (int32_t)size));
    return size;
}

void test_message(void) {
    /* on-disk-format.md 3.10: key k, value v */
    static const uint8_t known[] = {0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 16, 0x1f, 0xec, 0xd7, 0x0a,
                                    0, 0, 0, 0, 0, 1, 'k', 0, 0, 0, 1, 'v'};
    kl_message_t m = {.offset = 99};
    for (size_t left = 0; left < sizeof known; left++) {
        uint8_t *copy = exact_copy(known, left);
        CHECK(kl_message_next(copy, left, &m) == KL_ETRUNCATED && m.offset == 99);
        free(copy);
    }
    CHECK(kl_message_next(known, sizeof known, &m) == KL_OK && m.offset == 7 && m.timestamp == -1 && m.slack == 0);
    CHECK(m.key_size == 1 && *m.key == 'k' && m.value_size == 1 && *m.value == 'v');
    CHECK(kl_message_crc(known, m.size) == m.crc && m.crc == 0x1fecd70au);
    for (int bit = 0; bit < 8 * (int)sizeof known; bit++) {
        uint8_t *copy = exact_copy(known, sizeof known);
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (kl_message_next(copy, sizeof known, &m) == KL_OK)
            CHECK(m.size <= (int32_t)sizeof known && m.slack >= 0);
        free(copy);
    }
}

/* The outer fields of a message, as a header: 26 bytes are enough, and nothing is assumed about a wrapper's content. */
void test_message_header(void) {
    uint8_t head[KL_MESSAGE_MIN] = {0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 100, 1, 2, 3, 4, 1, 0x0b, 0, 0, 0, 0, 0, 0, 0, 9};
    kl_batch_t b = {.base_offset = 99};
    for (size_t left = 0; left < sizeof head; left++) {
        uint8_t *copy = exact_copy(head, left);
        CHECK(kl_legacy_header(copy, left, &b) == KL_ETRUNCATED && b.base_offset == 99);
        free(copy);
    }
    CHECK(kl_legacy_header(head, sizeof head, &b) == KL_OK && b.base_offset == 7 && b.last_offset_delta == 0);
    CHECK(b.size == 112 && b.crc == 0x01020304 && b.attributes == 0x0b && b.count == -1 && b.max_timestamp == 9);
    CHECK(b.magic == 1 && b.producer_id == -1 && b.leader_epoch == -1 && b.base_sequence == -1);
    head[17] = 0xf0; /* no codec, and bits that the format does not have */
    CHECK(kl_legacy_header(head, sizeof head, &b) == KL_OK && b.count == 1 && b.attributes == 0);
    head[11] = 21;
    CHECK(kl_legacy_header(head, sizeof head, &b) == KL_ELENGTH);
    head[16] = 0;
    CHECK(kl_legacy_header(head, sizeof head, &b) == KL_OK && b.max_timestamp == -1);
    head[16] = 2;
    CHECK(kl_legacy_header(head, sizeof head, &b) == KL_EMAGIC);
    head[16] = head[0] = 0x80;
    CHECK(kl_legacy_header(head, sizeof head, &b) == KL_EMAGIC);
    head[16] = 0;
    CHECK(kl_legacy_header(head, sizeof head, &b) == KL_ELENGTH);
}

/* Sets of random messages become the right records; with any byte changed, other records or a failure. */
void test_message_sets(void) {
    uint8_t set[8192];
    for (int round = 0; round < 300; round++) {
        int8_t magic = (int8_t)(round & 1);
        int32_t count = 1 + (int32_t)random_below(20);
        size_t size = 0;
        int64_t first = magic == 0 ? 1000 : 0;
        for (int32_t i = 0; i < count; i++)
            size += make_message(set + size, magic, first + 2 * i, (int32_t)random_below(20) - 1,
                                 (int32_t)random_below(60) - 1);
        kl_message_t wrapper = {.offset = 1000 + 2 * (count - 1), .magic = magic, .attributes = 1};
        kl_legacy_t shape;
        int32_t bad = 77;
        uint8_t *exact = exact_copy(set, size);
        CHECK(kl_legacy_measure(exact, size, &wrapper, &shape, &bad) == KL_OK);
        CHECK(shape.base_offset == 1000 && shape.last_offset == wrapper.offset && shape.count == count);
        CHECK(shape.bad_crc == -1 && !shape.ignored_bytes && (size_t)shape.payload_size <= size);
        uint8_t *payload = malloc((size_t)shape.payload_size);
        if (payload == NULL)
            abort();
        CHECK(kl_legacy_write(exact, size, &wrapper, &shape, payload) == KL_OK);
        CHECK(kl_payload_validate(payload, (size_t)shape.payload_size, count, 2 * (count - 1), &bad) == KL_OK);
        exact[random_below(size)] ^= (uint8_t)(1 + random_below(255)); /* as in a shared mapping: between the passes */
        kl_legacy_write(exact, size, &wrapper, &shape, payload);
        free(payload);
        kl_legacy_t other;
        if (kl_legacy_measure(exact, size, &wrapper, &other, &bad) == KL_OK) {
            payload = malloc((size_t)other.payload_size);
            if (payload == NULL)
                abort();
            int status = kl_legacy_write(exact, size, &wrapper, &other, payload);
            CHECK(status == KL_OK);
            status = kl_payload_validate(payload, (size_t)other.payload_size, other.count, INT32_MAX, &bad);
            CHECK(status == KL_OK || status == KL_EORDER);
            free(payload);
        }
        free(exact);
    }
}
