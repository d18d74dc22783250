/* Headers, the fields of a record, and its offset. */
#include "selftest/selftest.h"

#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "bytes.h"
#include "encode.h"
#include "status.h"

size_t make_batch(uint8_t *out, int32_t count) {
    uint8_t *at = out + KL_BATCH_HEADER;
    for (int32_t i = 0; i < count; i++) {
        uint8_t headers[256], *end = headers;
        int32_t header_count = (int32_t)random_below(4);
        for (int32_t h = 0; h < header_count; h++)
            end = kl_header_write(end, (const uint8_t *)"h\xff\xc3\xa9zz", (int64_t)random_below(7),
                                  (const uint8_t *)"0123456789", (int64_t)random_below(12) - 1);
        uint8_t bytes[300];
        random_fill(bytes, sizeof bytes);
        kl_record_in_t r = {
            .key = bytes,
            .value = bytes + 30,
            .headers = headers,
            .timestamp_delta = (int64_t)random_u64() >> random_below(64),
            .key_size = (int64_t)random_below(30) - 1,
            .value_size = (int64_t)random_below(200) - 1,
            .headers_size = end - headers,
            .offset_delta = i,
            .header_count = header_count,
        };
        at = kl_record_write(at, &r, kl_record_body_size(&r));
    }
    kl_batch_t b = {
        .base_offset = 1000,
        .base_timestamp = 1700000000000,
        .max_timestamp = 1700000000000,
        .producer_id = -1,
        .size = (int32_t)(at - out),
        .leader_epoch = 3,
        .last_offset_delta = count - 1,
        .base_sequence = -1,
        .count = count,
        .producer_epoch = -1,
        .magic = 2,
    };
    kl_batch_header_store(out, &b);
    b.crc = kl_batch_crc(out, b.size);
    kl_batch_header_store(out, &b);
    return (size_t)b.size;
}

void test_header(void) {
    uint8_t out[8192];
    size_t size = make_batch(out, 3);
    kl_batch_t b = {0};
    for (size_t left = 0; left < KL_BATCH_HEADER; left++) {
        uint8_t *at = exact_copy(out, left);
        CHECK(kl_batch_header(at, left, &b) == KL_ETRUNCATED);
        free(at);
    }
    uint8_t *header = exact_copy(out, KL_BATCH_HEADER);
    CHECK(kl_batch_header(header, KL_BATCH_HEADER, &b) == KL_OK);
    free(header);
    CHECK((size_t)b.size == size && b.count == 3 && b.base_offset == 1000 && kl_batch_last_offset(&b) == 1002);
    CHECK(b.crc == kl_batch_crc(out, b.size));

    static const int32_t bad_lengths[] = {-1, 0, 13, 48, INT32_MIN, INT32_MAX, INT32_MAX - 11};
    for (size_t i = 0; i < sizeof bad_lengths / sizeof *bad_lengths; i++) {
        uint8_t copy[KL_BATCH_HEADER];
        memcpy(copy, out, sizeof copy);
        kl_store_u32(copy + 8, (uint32_t)bad_lengths[i]);
        CHECK(kl_batch_header(copy, sizeof copy, &b) == KL_ELENGTH);
    }
    static const struct {
        size_t at;
        uint32_t value;
    } bad_fields[] = {{0, 0x80000000u}, {23, 0xffffffffu}, {57, 0xffffffffu}};
    for (size_t i = 0; i < 3; i++) {
        uint8_t copy[KL_BATCH_HEADER];
        memcpy(copy, out, sizeof copy);
        kl_store_u32(copy + bad_fields[i].at, bad_fields[i].value);
        CHECK(kl_batch_header(copy, sizeof copy, &b) == KL_ELENGTH);
    }
    uint8_t copy[KL_BATCH_HEADER];
    memcpy(copy, out, sizeof copy);
    kl_store_u64(copy, INT64_MAX - 2); /* last offset 2^63-1: the next one is not representable */
    CHECK(kl_batch_header(copy, sizeof copy, &b) == KL_ELENGTH);
    kl_store_u64(copy, INT64_MAX - 3);
    CHECK(kl_batch_header(copy, sizeof copy, &b) == KL_OK);
    copy[KL_AT_MAGIC] = 1;
    CHECK(kl_batch_header(copy, sizeof copy, &b) == KL_ELEGACY && b.magic == 1 && (size_t)b.size == size);
    copy[KL_AT_MAGIC] = 0x80;
    CHECK(kl_batch_header(copy, sizeof copy, &b) == KL_EMAGIC && b.magic == -128 && (size_t)b.size == size);
}

/* Three batches, a message and a batch: each cut is found, in a buffer and in a file of which only headers are read. */
void test_walk(void) {
    uint8_t out[5 * 8192], *at = out;
    size_t starts[6] = {0};
    for (int i = 0; i < 5; i++) {
        at += i == 3 ? make_message(at, 1, 7, 3, 4) : make_batch(at, 1 + i);
        starts[i + 1] = (size_t)(at - out);
    }
    size_t end = starts[5];
    for (size_t cut = 0; cut <= end; cut += cut < 80 || end - cut < 80 ? 1 : 1 + random_below(9)) {
        uint8_t *copy = exact_copy(out, cut);
        size_t from = 0;
        int status = KL_OK, number = 0;
        kl_batch_t b;
        while (from < cut && ((status = kl_batch_next(copy + from, cut - from, cut - from, &b)) == KL_OK ||
                              (status == KL_ELEGACY && number == 3))) {
            CHECK(b.magic == (number == 3 ? 1 : 2) && from + (size_t)b.size == starts[number + 1]);
            from += (size_t)b.size;
            number++;
        }
        CHECK(from == starts[number] && (number == 5 || cut < starts[number + 1]));
        CHECK(from == cut || (status == KL_ETRUNCATED && (b.size == 0 || (size_t)b.size == starts[number + 1] - from)));
        free(copy);
    }
    for (int i = 0; i < 5; i++) {
        size_t size = starts[i + 1] - starts[i], held = size < KL_BATCH_HEADER ? size : KL_BATCH_HEADER;
        uint8_t *header = exact_copy(out + starts[i], held);
        kl_batch_t b;
        CHECK(kl_batch_next(header, held, end - starts[i], &b) == (i == 3 ? KL_ELEGACY : KL_OK) && (size_t)b.size == size);
        CHECK(kl_batch_next(header, held, size - 1, &b) == KL_ETRUNCATED && (b.size == 0 || (size_t)b.size == size));
        CHECK(kl_batch_next(header, 17, end - starts[i], &b) == KL_ETRUNCATED && b.size == 0);
        free(header);
        header = exact_copy(out + starts[i], held - 1); /* held may be more than left, which is the limit then */
        CHECK(kl_batch_next(header, SIZE_MAX, held - 1, &b) == KL_ETRUNCATED);
        free(header);
    }
}

/* The results that the walk may return for bytes of any content. */
static void check_next(const uint8_t *bytes, size_t held, size_t left) {
    uint8_t *at = exact_copy(bytes, held);
    kl_batch_t b;
    memset(&b, 0x5a, sizeof b);
    int status = kl_batch_next(at, held, left, &b);
    int64_t size = held < KL_BATCH_PREFIX ? 0 : (int64_t)(int32_t)kl_load_u32(at + KL_AT_LENGTH) + KL_BATCH_PREFIX;
    int8_t magic = held < 18 ? 0 : (int8_t)at[KL_AT_MAGIC];
    switch (status) {
    case KL_OK:
        CHECK(b.size == size && magic >= 2 && b.magic == magic && size >= KL_BATCH_HEADER && size <= (int64_t)left);
        CHECK(b.base_offset >= 0 && b.count >= 0 && b.last_offset_delta >= 0 && kl_batch_last_offset(&b) < INT64_MAX);
        break;
    case KL_ELEGACY:
        CHECK(b.size == size && (magic == 0 || magic == 1) && b.magic == magic && size >= 26 && size <= (int64_t)left);
        break;
    case KL_ETRUNCATED:
        CHECK(b.size == 0 ? held < 18 || (magic >= 2 && held < KL_BATCH_HEADER) : b.size == size && size > (int64_t)left);
        break;
    case KL_EMAGIC:
        CHECK(b.size == size && magic < 0 && b.magic == magic);
        break;
    default:
        CHECK(status == KL_ELENGTH && held >= 18);
    }
    if (held == left) { /* bytes that were sent: the same batches, but no other magics */
        kl_batch_t sent;
        int framed = kl_batch_frame(at, left, &sent);
        if (framed == KL_OK)
            CHECK(sent.size == size && size >= 26 && size <= (int64_t)left && sent.magic == magic && magic >= 0 &&
                  (magic < 2 || (magic == 2 && size >= KL_BATCH_HEADER)));
        if (status == KL_OK || status == KL_ELEGACY)
            CHECK(framed == (magic > 2 ? KL_EMAGIC : KL_OK));
        if (status == KL_ETRUNCATED && held != 17)
            CHECK(framed == (magic > 2 ? KL_EMAGIC : KL_ETRUNCATED));
    }
    free(at);
}

void test_walk_hostile(void) {
    static const uint32_t lengths[] = {0, 13, 14, 48, 49, 100, 1000, INT32_MAX - 12, INT32_MAX - 11, INT32_MAX, 1u << 31,
                                       UINT32_MAX};
    for (int i = 0; i < 20000; i++) {
        uint8_t bytes[1024];
        make_batch(bytes, 1);
        if (i & 1)
            random_fill(bytes, KL_BATCH_HEADER);
        if (i & 2)
            kl_store_u32(bytes + KL_AT_LENGTH, lengths[random_below(sizeof lengths / sizeof *lengths)]);
        if (i & 4)
            bytes[KL_AT_MAGIC] = (uint8_t)(random_below(6) - 1);
        if (i & 8)
            bytes[random_below(KL_BATCH_HEADER)] ^= (uint8_t)(1 << random_below(8));
        size_t held = random_below(KL_BATCH_HEADER + 20);
        check_next(bytes, held, held);
        check_next(bytes, held, held + random_below(2000));
        check_next(bytes, held, (size_t)INT32_MAX + random_below(20));
    }
}

/* Invalid fields of one record. */
void test_record_fields(void) {
    static const struct {
        const char *bytes;
        size_t size;
        int status;
    } rows[] = {
        {"\x0c\x00\x00\x00\x01\x01\x00", 7, KL_OK},
        {"\x0c\x00\x00\x00\x0d\x0d\x00", 7, KL_OK},         /* any negative length is null */
        {"\x0e\x00\x00\x00\x01\x01\x00\x00", 8, KL_ESLACK},
        {"\x0c\x00\x00\x00\x01\x01\x01", 7, KL_ELENGTH},     /* header count -1 */
        {"\x0c\x00\x00\x00\x01\x01\x02", 7, KL_ELENGTH},     /* a missing header */
        {"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 9, KL_ELENGTH}, /* a null header key */
        {"\x10\x00\x00\x00\x01\x01\x02\x00\x01", 9, KL_OK},
        {"\x0a\x00\x00\x00\x01\x01", 6, KL_ELENGTH},         /* too short for any record */
        {"\x0c\x00\x00\x00\x04\x01\x00", 7, KL_ELENGTH},     /* a key longer than its record */
        {"\x0c\x00\x00\x00\x01\x01", 6, KL_ETRUNCATED},
        {"\x01", 1, KL_ELENGTH},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t *at = exact_copy((const uint8_t *)rows[i].bytes, rows[i].size);
        kl_record_t r;
        size_t used = 0;
        CHECK(kl_record_next(at, rows[i].size, &r, &used) == rows[i].status);
        CHECK(used == (rows[i].status == KL_OK ? rows[i].size : 0));
        free(at);
    }
}

void test_offsets(void) {
    uint8_t out[8192];
    size_t size = make_batch(out, 4) - KL_BATCH_HEADER;
    int32_t bad = -1;
    CHECK(kl_payload_validate(out + KL_BATCH_HEADER, size, 4, 3, &bad) == KL_OK);
    CHECK(kl_payload_validate(out + KL_BATCH_HEADER, size, 4, 2, &bad) == KL_EORDER && bad == 3);
    CHECK(kl_payload_validate(out + KL_BATCH_HEADER, size, 3, 1, &bad) == KL_ESLACK && bad == 3);
    CHECK(kl_payload_validate(out + KL_BATCH_HEADER, size - 1, 4, 2, &bad) == KL_ETRUNCATED && bad == 3);
    size_t half = size; /* the same four again: their offsets start again */
    memcpy(out + KL_BATCH_HEADER + half, out + KL_BATCH_HEADER, half);
    CHECK(kl_payload_validate(out + KL_BATCH_HEADER, 2 * half, 8, 7, &bad) == KL_EORDER && bad == 4);
    size = make_batch(out, 1) - KL_BATCH_HEADER; /* the same offset twice */
    memcpy(out + KL_BATCH_HEADER + size, out + KL_BATCH_HEADER, size);
    CHECK(kl_payload_validate(out + KL_BATCH_HEADER, 2 * size, 2, 1, &bad) == KL_EORDER && bad == 1);
}
