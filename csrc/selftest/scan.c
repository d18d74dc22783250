/* The fast path, kl_record_next and the columns accept the same payloads, valid or not. */
#include "selftest/selftest.h"

#include <stdlib.h>
#include <string.h>

#include "arrow.h"
#include "batch.h"
#include "columns.h"
#include "scan.h"
#include "status.h"

static kl_pool_t pool;

/* kl_record_next gives the same result for every record that the fast path accepts. Returns how many records the fast
 * path has read. */
static int32_t scan(const uint8_t *payload, size_t size, int32_t count) {
    const uint8_t *at = payload, *end = payload + size;
    int32_t scanned = 0;
    for (int32_t i = 0; i < count; i++) {
        kl_record_t quick, slow;
        size_t used;
        const uint8_t *after = kl_record_scan_common(at, end, &quick);
        int status = kl_record_next(at, (size_t)(end - at), &slow, &used);
        if (after != NULL) {
            CHECK(status == KL_OK && after == at + used);
            CHECK(quick.timestamp_delta == slow.timestamp_delta && quick.offset_delta == slow.offset_delta);
            CHECK(quick.key == slow.key && quick.key_size == slow.key_size);
            CHECK(quick.value == slow.value && quick.value_size == slow.value_size);
            CHECK(quick.headers == slow.headers && quick.header_count == slow.header_count);
            scanned++;
        }
        if (status != KL_OK)
            break;
        at += used;
    }
    return scanned;
}

/* Walk a payload by both readers; they agree about what is valid. */
static int walk(const uint8_t *payload, size_t size, int32_t count) {
    uint8_t *at = exact_copy(payload, size);
    scan(at, size, count);
    int32_t bad = -7;
    int status = kl_payload_validate(at, size, count, -1, &bad);
    CHECK(status == KL_OK || (bad >= 0 && bad <= count));
    kl_batch_t b = {.base_offset = 1000, .count = count, .last_offset_delta = count - 1, .magic = 2};
    kl_columns_t *columns = NULL;
    CHECK(kl_columns_new(&pool, every_kind, KL_COLUMN_KINDS, 0, &columns) == KL_OK);
    int appended = kl_columns_append(columns, &b, at, size, INT64_MIN, INT64_MAX, 1, &bad);
    CHECK(appended == status);
    free(at);
    if (appended == KL_OK) {
        CHECK(kl_columns_rows(columns) == count);
        struct ArrowArray array;
        CHECK(kl_columns_export(columns, &array) == KL_OK);
        kl_columns_drop(columns); /* the array keeps them */
        columns = NULL;
        const int32_t *values = array.children[4]->buffers[1];
        CHECK(values[0] == 0);
        for (int32_t i = 0; i < count; i++)
            CHECK(values[i] <= values[i + 1]);
        array.release(&array);
    }
    kl_columns_drop(columns);
    return status;
}

void test_hostile(void) {
    enum { SPACE = 1 << 15 };
    uint8_t *out = malloc(SPACE);
    if (out == NULL)
        abort();
    for (int round = 0; round < 40; round++) {
        int32_t count = 1 + (int32_t)random_below(20);
        size_t size = make_batch(out, count);
        uint8_t *payload = out + KL_BATCH_HEADER;
        size -= KL_BATCH_HEADER;
        CHECK(walk(payload, size, count) == KL_OK);
        CHECK(scan(payload, size, count) >= count - KL_SCAN_MIN / KL_RECORD_MIN - 1); /* the last: too near the end */
        CHECK(walk(payload, size, count + 1) == KL_ECOUNT);
        CHECK(walk(payload, size, count - 1) == (count == 1 ? KL_OK : KL_ESLACK));
        CHECK(walk(payload, size, INT32_MAX) == KL_ECOUNT);
        for (int i = 0; i < 60; i++)
            CHECK(walk(payload, random_below(size), count) != KL_OK);
        for (int i = 0; i < 200; i++) {
            size_t at = random_below(size);
            uint8_t before = payload[at];
            payload[at] ^= (uint8_t)(1u << random_below(8));
            walk(payload, size, count);
            payload[at] = before;
        }
        for (int i = 0; i < 50; i++) { /* a length that claims the most it can */
            size_t at = random_below(size - 5);
            uint8_t before[5];
            memcpy(before, payload + at, 5);
            memcpy(payload + at, "\xfe\xff\xff\xff\x0f", 5);
            walk(payload, size, count);
            memcpy(payload + at, before, 5);
        }
    }
    for (int round = 0; round < 2000; round++) {
        size_t size = random_below(200);
        random_fill(out, size);
        walk(out, size, (int32_t)random_below(30));
    }
    free(out);
}

/* A checksum computed during a walk is that of the whole batch, whatever the walk finds and wherever it ends. */
void test_summed(void) {
    static uint8_t out[1 << 15];
    for (int round = 0; round < 200; round++) {
        int32_t count = 1 + (int32_t)random_below(60), bad = -1, other = -1;
        size_t size = make_batch(out, count);
        kl_batch_t b;
        CHECK(kl_batch_header(out, size, &b) == KL_OK);
        int damaged = random_below(2) != 0;
        if (damaged)
            out[KL_BATCH_CRC_FROM + random_below(size - KL_BATCH_CRC_FROM)] ^= (uint8_t)(1 + random_below(255));
        const uint8_t *payload = out + KL_BATCH_HEADER;
        size_t left = size - KL_BATCH_HEADER;
        kl_sum_t sum = kl_sum_begin(out, b.size, 1 + random_below(3 * size));
        int status = kl_payload_validate_summed(payload, left, count, count - 1, &sum, &bad);
        CHECK(status == kl_payload_validate(payload, left, count, count - 1, &other) && bad == other);
        CHECK(kl_sum_end(&sum) == kl_batch_crc(out, b.size));
        kl_columns_t *columns = NULL;
        CHECK(kl_columns_new(&pool, every_kind, KL_COLUMN_KINDS, 0, &columns) == KL_OK);
        status = kl_columns_append_unverified(columns, &b, out, INT64_MIN, INT64_MAX, 1, &bad);
        CHECK(status == (damaged ? KL_ECRC : KL_OK));
        kl_columns_drop(columns);
    }
}
