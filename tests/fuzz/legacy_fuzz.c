/* Messages of magic 0 and 1 made into records: choices:12 message*; the records equal the messages, and are no larger.
 *
 *   choices := kind:u8 attributes:u8 offset:i64 touch:u16     kind: bit 0 a wrapper, bit 1 its magic; bit 2 touches a
 * byte
 *
 * Checksums are not required; a message's checksum is also computed by the plain implementation.
 */
#include "fuzz.h"

#include "batch.h"
#include "bytes.h"
#include "legacy.h"
#include "status.h"

static int inside(const uint8_t *part, int32_t part_size, const uint8_t *at, size_t size) {
    return part_size < 0 ? part == NULL && part_size == -1
                         : part >= at && (size_t)(part - at) <= size && (size_t)part_size <= size - (size_t)(part - at);
}

static uint32_t plain_crc(const uint8_t *at, size_t size) {
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < size; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

/* Returns how many messages there are, and sets *end to their end. */
static int32_t walk(const uint8_t *set, size_t size, size_t *end) {
    int32_t count = 0;
    kl_message_t m;
    *end = 0;
    while (*end < size && kl_message_next(set + *end, size - *end, &m) == KL_OK) {
        const uint8_t *at = set + *end;
        CLAIM(m.size >= KL_MESSAGE_MIN && (size_t)m.size <= size - *end && (m.magic == 0 || m.magic == 1));
        CLAIM(inside(m.key, m.key_size, at, (size_t)m.size) && inside(m.value, m.value_size, at, (size_t)m.size));
        CLAIM(m.slack >= 0 && m.slack <= m.size - KL_MESSAGE_MIN && (m.magic == 1 || m.timestamp == -1));
        CLAIM(kl_message_crc(at, m.size) == plain_crc(at + KL_MESSAGE_CRC_FROM, (size_t)m.size - KL_MESSAGE_CRC_FROM));
        *end += (size_t)m.size;
        count++;
    }
    return count;
}

static int same(const uint8_t *a, int32_t a_size, const uint8_t *b, int32_t b_size) {
    return a_size == b_size && (a_size <= 0 || memcmp(a, b, (size_t)a_size) == 0);
}

/* Compares the records with the messages, one by one. */
static void compare(const uint8_t *set, size_t size, const kl_message_t *wrapper, const kl_legacy_t *shape,
                    const uint8_t *payload) {
    size_t at = 0, from = 0, used;
    int stamped = wrapper != NULL && wrapper->magic == 1 && wrapper->attributes & KL_ATTR_LOG_APPEND_TIME;
    for (int32_t i = 0; i < shape->count; i++) {
        kl_message_t m;
        kl_record_t r;
        CLAIM(kl_message_next(set + from, size - from, &m) == KL_OK);
        CLAIM(kl_record_next(payload + at, (size_t)shape->payload_size - at, &r, &used) == KL_OK);
        CLAIM(same(r.key, r.key_size, m.key, m.key_size) && same(r.value, r.value_size, m.value, m.value_size));
        CLAIM(r.header_count == 0);
        CLAIM((uint64_t)shape->base_offset + (uint64_t)(int64_t)r.offset_delta == (uint64_t)m.offset + (uint64_t)shape->shift);
        CLAIM((uint64_t)shape->base_timestamp + (uint64_t)r.timestamp_delta ==
              (uint64_t)(stamped ? wrapper->timestamp : m.timestamp));
        at += used;
        from += (size_t)m.size;
    }
    CLAIM(at == (size_t)shape->payload_size);
}

static void converted(uint8_t *set, size_t size, const kl_message_t *wrapper, int32_t count, const uint8_t *choices) {
    kl_legacy_t shape;
    int32_t bad = -1;
    memset(&shape, 0x5a, sizeof shape);
    int status = kl_legacy_measure(set, size, wrapper, &shape, &bad);
    if (status != KL_OK) {
        CLAIM(shape.count == 0x5a5a5a5a && bad >= 0 && bad <= count);
        return;
    }
    CLAIM(shape.count > 0 && shape.count <= count && shape.bad_crc < shape.count);
    CLAIM(shape.base_offset >= 0 && shape.last_offset >= shape.base_offset && shape.last_offset < INT64_MAX);
    CLAIM(shape.last_offset - shape.base_offset <= INT32_MAX);
    CLAIM(shape.payload_size >= (int64_t)shape.count * KL_RECORD_MIN && (uint64_t)shape.payload_size < size);
    if (wrapper != NULL && wrapper->offset != 0)
        CLAIM(shape.last_offset == wrapper->offset);
    uint8_t *payload = fuzz_exact(set, (size_t)shape.payload_size);
    CLAIM(kl_legacy_write(set, size, wrapper, &shape, payload) == KL_OK);
    CLAIM(kl_payload_validate(payload, (size_t)shape.payload_size, shape.count, -1, &bad) == KL_OK);
    compare(set, size, wrapper, &shape, payload);
    if (choices[0] & 4) { /* another process writes to a shared mapping */
        set[kl_load_u16(choices + 10) % size] ^= choices[1] | 1;
        status = kl_legacy_write(set, size, wrapper, &shape, payload);
        CLAIM(status == KL_OK || status == KL_ELENGTH);
    }
    free(payload);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *choices = fuzz_choices(&data, &size, 12);
    kl_message_t wrapper = {
        .magic = choices[0] >> 1 & 1,
        .attributes = choices[1],
        .offset = (int64_t)kl_load_u64(choices + 2),
        .timestamp = choices[0] & 2 ? (int64_t)kl_load_u64(choices + 4) : -1,
        .key_size = -1,
    };
    uint8_t *set = fuzz_exact(data, size);
    size_t end;
    int32_t count = walk(set, size, &end);
    converted(set, size, choices[0] & 1 ? &wrapper : NULL, count, choices);
    free(set);
    return 0;
}
