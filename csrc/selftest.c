/* The C of the codec and record rooms, checked without Python: run it under address and undefined sanitizers.
 *
 *   cc -std=c11 -D_GNU_SOURCE -g -fsanitize=address,undefined csrc/selftest.c csrc/<the rest>.c && ./a.out [seed]
 *
 * Inputs to the walks are copied to the end of their own malloc, so that a read one byte too far is seen.  Random parts
 * print their seed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "arrow.h"
#include "batch.h"
#include "bytes.h"
#include "clean.h"
#include "columns.h"
#include "crc32c.h"
#include "encode.h"
#include "keymap.h"
#include "leader.h"
#include "legacy.h"
#include "lz4.h"
#include "pool.h"
#include "rows.h"
#include "scan.h"
#include "status.h"
#include "utf8.h"
#include "varint.h"

static int failures;
static kl_pool_t pool;
static const char *current;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s: %s:%d: %s\n", current, __FILE__, __LINE__, #condition);                               \
            failures++;                                                                                                \
        }                                                                                                              \
    } while (0)

/* splitmix64 */
static uint64_t random_state;
static uint64_t random_u64(void) {
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static size_t random_below(size_t n) { return (size_t)(random_u64() % n); }
static void random_fill(uint8_t *at, size_t size) {
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)random_u64();
}

/* Exactly these bytes in a block of their own. */
static uint8_t *exact_copy(const uint8_t *from, size_t size) {
    uint8_t *copy = malloc(size != 0 ? size : 1);
    if (copy == NULL)
        abort();
    memcpy(copy, from, size);
    return copy;
}

/* --- crc ----------------------------------------------------------------------------------------------------------- */

static uint32_t crc_by_bits(uint32_t crc, const uint8_t *data, size_t size) {
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void test_crc(void) {
    enum { SIZE = 1 << 17 };
    uint8_t *data = malloc(SIZE);
    if (data == NULL)
        abort();
    random_fill(data, SIZE);
    CHECK(kl_crc32c(0, (const uint8_t *)"123456789", 9) == 0xe3069283u);
    CHECK(kl_crc32c(7, data, 0) == 7);
    int kernels = 0;
    for (int number = 0;; number++) {
        const char *name = NULL;
        kl_crc32c_fn kernel = kl_crc32c_kernel(number, &name);
        if (name == NULL)
            break;
        if (kernel == NULL) {
            printf("  kernel %s: needs a processor that has it\n", name);
            continue;
        }
        kernels++;
        for (size_t size = 0; size < 1200; size++) {
            uint8_t *exact = exact_copy(data + size % 17, size);
            uint32_t before = (uint32_t)random_u64();
            CHECK(kernel(0, exact, size) == crc_by_bits(0, exact, size));
            CHECK(kernel(before, exact, size) == crc_by_bits(before, exact, size));
            free(exact);
        }
        for (int i = 0; i < 300; i++) {
            size_t from = random_below(64), size = random_below(SIZE - 64);
            uint32_t before = (uint32_t)random_u64();
            uint32_t whole = kl_crc32c_kernel(0, &name)(before, data + from, size);
            CHECK(kernel(before, data + from, size) == whole);
            size_t cut = random_below(size + 1);
            CHECK(kernel(kernel(before, data + from, cut), data + from + cut, size - cut) == whole);
        }
    }
    CHECK(kernels >= 1);
    free(data);
}

/* --- varints -------------------------------------------------------------------------------------------------------- */

static void test_varint_table(void) {
    static const struct {
        int64_t value;
        const char *bytes;
        size_t size;
    } rows[] = {
        {0, "\x00", 1},
        {-1, "\x01", 1},
        {1, "\x02", 1},
        {-2, "\x03", 1},
        {63, "\x7e", 1},
        {64, "\x80\x01", 2},
        {-64, "\x7f", 1},
        {-65, "\x81\x01", 2},
        {300, "\xd8\x04", 2},
        {8191, "\xfe\x7f", 2},
        {8192, "\x80\x80\x01", 3},
        {INT32_MAX, "\xfe\xff\xff\xff\x0f", 5},
        {INT32_MIN, "\xff\xff\xff\xff\x0f", 5},
        {86400000, "\x80\xf0\xb2\x52", 4},
        {-86400990, "\xbb\xff\xb2\x52", 4},
        {INT64_MAX, "\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10},
        {INT64_MIN, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t out[KL_VARLONG_MAX];
        CHECK(kl_varlong_encode(out, rows[i].value) == rows[i].size);
        CHECK(kl_varlong_size(rows[i].value) == rows[i].size);
        CHECK(memcmp(out, rows[i].bytes, rows[i].size) == 0);
        int64_t wide = 99;
        size_t used = 99;
        CHECK(kl_varlong_decode(out, rows[i].size, &wide, &used) == KL_OK);
        CHECK(wide == rows[i].value && used == rows[i].size);
        if (rows[i].value >= INT32_MIN && rows[i].value <= INT32_MAX) {
            int32_t narrow = 99;
            CHECK(kl_varint_size((int32_t)rows[i].value) == rows[i].size);
            CHECK(kl_varint_decode(out, rows[i].size, &narrow, &used) == KL_OK);
            CHECK(narrow == rows[i].value && used == rows[i].size);
        }
    }
}

static void test_varint_ends(void) {
    uint8_t more[11];
    memset(more, 0xff, sizeof more);
    int32_t narrow = 5;
    int64_t wide = 5;
    size_t used = 7;
    for (size_t left = 0; left <= sizeof more; left++) {
        uint8_t *at = exact_copy(more, left);
        CHECK(kl_varint_decode(at, left, &narrow, &used) == (left < 5 ? KL_ETRUNCATED : KL_EOVERLONG));
        CHECK(kl_varlong_decode(at, left, &wide, &used) == (left < 10 ? KL_ETRUNCATED : KL_EOVERLONG));
        free(at);
    }
    CHECK(narrow == 5 && wide == 5 && used == 7); /* untouched on failure */
    static const uint8_t longer[] = {0x82, 0x80, 0x80, 0x80, 0x00};
    CHECK(kl_varint_decode(longer, 5, &narrow, &used) == KL_OK && narrow == 1 && used == 5);
}

static void test_varint_random(void) {
    for (int i = 0; i < 20000; i++) {
        int64_t value = (int64_t)(random_u64() >> random_below(64));
        if (random_u64() & 1)
            value = -value;
        uint8_t out[KL_VARLONG_MAX];
        size_t size = kl_varlong_encode(out, value), used;
        int64_t back;
        CHECK(size == kl_varlong_size(value));
        CHECK(kl_varlong_decode(out, size, &back, &used) == KL_OK && back == value && used == size);
    }
}

/* --- batches -------------------------------------------------------------------------------------------------------- */

/* A batch of records with random fields; answers its size. */
static size_t make_batch(uint8_t *out, int32_t count) {
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

static void test_header(void) {
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
    kl_store_u64(copy, INT64_MAX - 2); /* last offset 2^63-1: the next one is no number */
    CHECK(kl_batch_header(copy, sizeof copy, &b) == KL_ELENGTH);
    kl_store_u64(copy, INT64_MAX - 3);
    CHECK(kl_batch_header(copy, sizeof copy, &b) == KL_OK);
    copy[16] = 1;
    CHECK(kl_batch_header(copy, sizeof copy, &b) == KL_EMAGIC && b.magic == 1 && (size_t)b.size == size);
}

static const kl_column_t every_kind[] = {
    KL_COLUMN_OFFSET, KL_COLUMN_TIMESTAMP, KL_COLUMN_TIMESTAMP_TYPE, KL_COLUMN_KEY,
    KL_COLUMN_VALUE,  KL_COLUMN_HEADERS,   KL_COLUMN_LEADER_EPOCH,
};

/* Whatever the short way accepts is what kl_record_next makes of it; answers how many records went the short way. */
static int32_t scan(const uint8_t *payload, size_t size, int32_t count) {
    const uint8_t *at = payload, *end = payload + size;
    int32_t scanned = 0;
    for (int32_t i = 0; i < count; i++) {
        kl_record_t quick, slow;
        size_t used;
        const uint8_t *behind = kl_scan_record(at, end, &quick);
        int status = kl_record_next(at, (size_t)(end - at), &slow, &used);
        if (behind != NULL) {
            CHECK(status == KL_OK && behind == at + used);
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

/* Walk a payload by both readers; they agree about what is good. */
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

static void test_hostile(void) {
    enum { ROOM = 1 << 15 };
    uint8_t *out = malloc(ROOM);
    if (out == NULL)
        abort();
    for (int round = 0; round < 40; round++) {
        int32_t count = 1 + (int32_t)random_below(20);
        size_t size = make_batch(out, count);
        uint8_t *payload = out + KL_BATCH_HEADER;
        size -= KL_BATCH_HEADER;
        CHECK(walk(payload, size, count) == KL_OK);
        CHECK(scan(payload, size, count) >= count - KL_SCAN_MIN / KL_RECORD_MIN - 1); /* the last ones are too near the end */
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

/* Fields of one record that no record may have. */
static void test_record_fields(void) {
    static const struct {
        const char *bytes;
        size_t size;
        int status;
    } rows[] = {
        {"\x0c\x00\x00\x00\x01\x01\x00", 7, KL_OK},
        {"\x0c\x00\x00\x00\x0d\x0d\x00", 7, KL_OK},         /* any negative length is null */
        {"\x0e\x00\x00\x00\x01\x01\x00\x00", 8, KL_ESLACK},
        {"\x0c\x00\x00\x00\x01\x01\x01", 7, KL_ELENGTH},     /* header count -1 */
        {"\x0c\x00\x00\x00\x01\x01\x02", 7, KL_ELENGTH},     /* a header that is not there */
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

/* A checksum taken along a walk is that of the whole batch, whatever the walk finds and wherever it ends. */
static void test_summed(void) {
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

static void test_offsets(void) {
    uint8_t out[8192];
    size_t size = make_batch(out, 4) - KL_BATCH_HEADER;
    int32_t bad = -1;
    CHECK(kl_payload_validate(out + KL_BATCH_HEADER, size, 4, 3, &bad) == KL_OK);
    CHECK(kl_payload_validate(out + KL_BATCH_HEADER, size, 4, 2, &bad) == KL_EORDER && bad == 3);
    CHECK(kl_payload_validate(out + KL_BATCH_HEADER, size, 3, 1, &bad) == KL_ESLACK && bad == 3);
    CHECK(kl_payload_validate(out + KL_BATCH_HEADER, size - 1, 4, 2, &bad) == KL_ETRUNCATED && bad == 3);
    size_t half = size; /* the same four again: their offsets begin anew */
    memcpy(out + KL_BATCH_HEADER + half, out + KL_BATCH_HEADER, half);
    CHECK(kl_payload_validate(out + KL_BATCH_HEADER, 2 * half, 8, 7, &bad) == KL_EORDER && bad == 4);
}

/* --- pool ----------------------------------------------------------------------------------------------------------- */

static void test_pool(void) {
    static kl_pool_t few;
    size_t capacity = 0, again = 0;
    uint8_t *data = kl_pool_take(&few, 100000, &capacity);
    CHECK(data != NULL && capacity >= 100000 && ((uintptr_t)data & 4095) == 0);
    memset(data, 1, capacity);
    kl_pool_give(&few, data, capacity);
    CHECK(few.count == 1 && few.bytes == capacity);
    CHECK(kl_pool_take(&few, capacity, &again) == data && again == capacity && few.count == 0 && few.bytes == 0);
    memset(data, 2, capacity);
    kl_pool_give(&few, data, capacity);
    /* Much too large for this one, so it stays; but not for one who wants the largest. */
    uint8_t *small = kl_pool_take(&few, capacity / 4, &again);
    CHECK(small != data && again >= capacity / 4 && few.count == 1);
    CHECK(kl_pool_take_largest(&few, capacity / 4, &capacity) == data && few.count == 0);
    kl_pool_give(&few, small, again);
    kl_pool_give(&few, data, capacity);
    /* Below and above what a pool keeps. */
    uint8_t *tiny = kl_pool_take(&few, 1, &capacity);
    CHECK(((uintptr_t)tiny & 63) == 0 && capacity == 64);
    kl_pool_give(&few, tiny, capacity);
    uint8_t *huge = kl_pool_take(&few, KL_POOL_BUFFER_MAX + 1, &capacity);
    CHECK(huge != NULL && capacity > KL_POOL_BUFFER_MAX);
    kl_pool_give(&few, huge, capacity);
    kl_pool_give(&few, NULL, 0);
    CHECK(few.count == 2);
    /* A pool that somebody is in is passed by (P1). */
    atomic_store(&few.busy, 1);
    uint8_t *other = kl_pool_take(&few, 100000, &capacity);
    CHECK(other != data && few.count == 2);
    kl_pool_give(&few, other, capacity);
    CHECK(few.count == 2);
    atomic_store(&few.busy, 0);
    /* Never past its bounds, and the newest stay (P2). */
    struct {
        void *data;
        size_t capacity;
    } held[100];
    for (int round = 0; round < 20; round++) {
        size_t n = 1 + random_below(100);
        for (size_t i = 0; i < n; i++) {
            size_t size = random_below(2) ? random_below(100000) : random_below(1 << 22);
            held[i].data = random_below(2) ? kl_pool_take(&few, size, &held[i].capacity)
                                           : kl_pool_take_largest(&few, size, &held[i].capacity);
            CHECK(held[i].data != NULL && held[i].capacity >= size);
            memset(held[i].data, 3, size);
        }
        for (size_t i = 0; i < n; i++)
            kl_pool_give(&few, held[i].data, held[i].capacity);
        size_t bytes = 0;
        for (int i = 0; i < few.count; i++)
            bytes += few.buffers[i].capacity;
        CHECK(few.count <= KL_POOL_SLOTS && few.bytes == bytes && bytes <= KL_POOL_BYTES_MAX);
        if (held[n - 1].capacity >= KL_POOL_BUFFER_MIN)
            CHECK(few.buffers[few.count - 1].data == held[n - 1].data);
    }
}

/* --- magic 0 and 1 --------------------------------------------------------------------------------------------------- */

/* A message without codec at out; answers its size. */
static size_t make_message(uint8_t *out, int8_t magic, int64_t offset, int32_t key_size, int32_t value_size) {
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

static void test_message(void) {
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

/* The outside of a message, as a header: 26 bytes are asked for and no more, and nothing is claimed of a wrapper's inside. */
static void test_message_header(void) {
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

/* Sets of random messages come out as the records they are; with a byte changed anywhere, as others or as a failure. */
static void test_message_sets(void) {
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
        CHECK(shape.bad_crc == -1 && !shape.loose && (size_t)shape.payload_size <= size);
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

/* --- leader --------------------------------------------------------------------------------------------------------- */

static const kl_leader_rules_t anything = {.now = 1700000000000};

/* What a leader takes as it is: the scan agrees with kl_payload_validate, lists no more than it suspects, and what it
 * writes anew is measured right and read as the same records. */
static void leader_walk(const uint8_t *payload, size_t size, int32_t count, const kl_leader_rules_t *rules) {
    uint8_t *at = exact_copy(payload, size);
    int32_t bad = -7, other = -7;
    kl_findings_t found;
    int status = kl_leader_scan(at, size, count, 5, rules, &found, &bad);
    CHECK(status == kl_payload_validate(at, size, count, -1, &other) && bad == other);
    if (status == KL_OK) {
        kl_refusal_t few[2];
        int32_t n = kl_leader_refusals(at, size, count, 5, rules, few, 2);
        CHECK(n <= count && (n == 0 || found.suspects));
        for (int32_t i = 0; i < n && i < 2; i++)
            CHECK(few[i].number >= 0 && few[i].number < count && few[i].why != KL_REFUSED_NOT);
        CHECK((kl_payload_validate(at, size, count, count - 1, &other) == KL_OK) == (found.disorder < 0));
        int64_t anew = kl_leader_rewrite_size(at, size, count);
        uint8_t *out = malloc((size_t)anew);
        if (out == NULL)
            abort();
        kl_leader_rewrite(at, size, count, out);
        kl_findings_t again;
        CHECK(kl_leader_scan(out, (size_t)anew, count, found.first_timestamp, &anything, &again, &bad) == KL_OK);
        CHECK(again.disorder < 0 && again.max_timestamp == found.max_timestamp);
        CHECK(again.first_timestamp == found.first_timestamp);
        CHECK(kl_leader_rewrite_size(out, (size_t)anew, count) == anew);
        free(out);
    }
    free(at);
}

static void test_leader(void) {
    uint8_t out[16384];
    kl_leader_rules_t strict = {.now = 1700000000000, .range_checked = 1, .negative_refused = 1, .key_required = 1};
    for (int round = 0; round < 400; round++) {
        int32_t count = 1 + (int32_t)random_below(20);
        size_t size = make_batch(out, count) - KL_BATCH_HEADER;
        uint8_t *payload = out + KL_BATCH_HEADER;
        leader_walk(payload, size, count, round & 1 ? &strict : &anything);
        payload[random_below(size)] ^= (uint8_t)(1 + random_below(255));
        leader_walk(payload, size, count, round & 1 ? &strict : &anything);
        leader_walk(payload, random_below(size), count, &anything);
    }
}

static void test_leader_sets(void) {
    uint8_t bytes[8192];
    kl_leader_rules_t strict = {.now = 1700000000000, .range_checked = 1, .after_max = 10, .key_required = 1};
    for (int round = 0; round < 400; round++) {
        int32_t count = 1 + (int32_t)random_below(20), bad = 77;
        size_t size = 0;
        kl_set_t set = {.magic = (int8_t)(round & 1), .wrapped = round & 2, .offset = 100};
        for (int32_t i = 0; i < count; i++)
            size += make_message(bytes + size, set.magic, i, (int32_t)random_below(20) - 1, (int32_t)random_below(60) - 1);
        for (int damaged = 0; damaged < 3; damaged++) {
            set.size = damaged == 2 ? random_below(size) : size;
            uint8_t *exact = exact_copy(bytes, set.size);
            set.at = exact;
            if (damaged == 1)
                exact[random_below(size)] ^= (uint8_t)(1 + random_below(255));
            kl_findings_t found;
            kl_refusal_t few[2];
            int status = kl_set_scan(&set, &strict, &found, &bad);
            if (status == KL_OK)
                CHECK(kl_set_refusals(&set, found.count, &strict, few, 2) <= found.count);
            status = kl_set_scan(&set, &anything, &found, &bad);
            CHECK(damaged || (status == KL_OK && found.count == count && !found.suspects));
            if (status == KL_OK && !found.suspects && found.count > 0) {
                uint8_t *payload = malloc((size_t)found.size);
                if (payload == NULL)
                    abort();
                kl_set_write(&set, &found, payload);
                CHECK(kl_payload_validate(payload, (size_t)found.size, found.count, found.count - 1, &bad) == KL_OK);
                free(payload);
            }
            free(exact);
        }
    }
}

/* --- columns -------------------------------------------------------------------------------------------------------- */

static void test_columns_shared(void) {
    uint8_t out[16384];
    kl_columns_t *columns = NULL;
    CHECK(kl_columns_new(&pool, every_kind, KL_COLUMN_KINDS, 0, &columns) == KL_OK);
    int32_t bad;
    for (int i = 0; i < 30; i++) {
        size_t size = make_batch(out, 20);
        kl_batch_t b;
        CHECK(kl_batch_header(out, size, &b) == KL_OK);
        CHECK(kl_columns_append(columns, &b, out + KL_BATCH_HEADER, size - KL_BATCH_HEADER, 1005, 1015, 3, &bad) == KL_OK);
    }
    CHECK(kl_columns_rows(columns) == 300);
    struct ArrowArray first, second;
    CHECK(kl_columns_export(columns, &first) == KL_OK);
    CHECK(kl_columns_export(columns, &second) == KL_OK);
    kl_columns_drop(columns);
    first.release(&first);
    CHECK(first.release == NULL);
    struct ArrowArray child = *second.children[0]; /* moved out, as a consumer may */
    second.children[0]->release = NULL;
    second.release(&second);
    const int64_t *offsets = child.buffers[1];
    CHECK(((uintptr_t)offsets & 63) == 0);
    for (int64_t i = 0; i < child.length; i++)
        CHECK(offsets[i] == 1005 + i % 10);
    child.release(&child);
    struct ArrowSchema schema;
    CHECK(kl_columns_schema(every_kind, KL_COLUMN_KINDS, 0, &schema) == KL_OK);
    CHECK(strcmp(schema.format, "+s") == 0 && schema.n_children == KL_COLUMN_KINDS);
    CHECK(strcmp(schema.children[5]->children[0]->children[0]->format, "u") == 0);
    schema.release(&schema);
}

static void count_release(void *owner) { ++*(int *)owner; }

/* Views say what copies say, of two payloads taken in turns, and let go of them once, at the very end. */
static void test_columns_views(void) {
    kl_columns_t *copies = NULL, *views = NULL;
    CHECK(kl_columns_new(&pool, every_kind, KL_COLUMN_KINDS, 0, &copies) == KL_OK);
    CHECK(kl_columns_new(&pool, every_kind, KL_COLUMN_KINDS, 1, &views) == KL_OK);
    uint8_t out[16384], *payloads[2];
    kl_batch_t b[2];
    int released[2] = {0, 0}, pinned[2];
    int32_t bad;
    for (int i = 0; i < 2; i++) {
        size_t size = make_batch(out, 20);
        CHECK(kl_batch_header(out, size, &b[i]) == KL_OK);
        size -= KL_BATCH_HEADER;
        payloads[i] = exact_copy(out + KL_BATCH_HEADER, size);
        pinned[i] = kl_columns_pin(views, payloads[i], size, count_release, &released[i]);
    }
    for (int i = 0; i < 6; i++) {
        size_t size = (size_t)b[i % 2].size - KL_BATCH_HEADER;
        kl_columns_from(views, pinned[i % 2]);
        CHECK(kl_columns_append(views, &b[i % 2], payloads[i % 2], size, INT64_MIN, INT64_MAX, 1, &bad) == KL_OK);
        CHECK(kl_columns_append(copies, &b[i % 2], payloads[i % 2], size, INT64_MIN, INT64_MAX, 1, &bad) == KL_OK);
    }
    struct ArrowArray copied, viewed;
    CHECK(kl_columns_export(copies, &copied) == KL_OK);
    CHECK(kl_columns_export(views, &viewed) == KL_OK);
    kl_columns_drop(copies);
    kl_columns_drop(views);
    for (int column = 3; column <= 4; column++) {
        const struct ArrowArray *plain = copied.children[column], *view = viewed.children[column];
        CHECK(view->n_buffers == 5 && view->length == 120 && view->null_count == plain->null_count);
        const int32_t *offsets = plain->buffers[1];
        for (int64_t i = 0; i < view->length; i++) {
            const uint8_t *at = (const uint8_t *)view->buffers[1] + 16 * i;
            int32_t said[4];
            memcpy(said, at, sizeof said);
            const uint8_t *bytes = said[0] <= 12 ? at + 4 : (const uint8_t *)view->buffers[2 + said[2]] + said[3];
            CHECK(said[0] == offsets[i + 1] - offsets[i]);
            CHECK(memcmp(bytes, (const uint8_t *)plain->buffers[2] + offsets[i], (size_t)said[0]) == 0);
            for (int32_t k = said[0]; k < 12; k++)
                CHECK(at[4 + k] == 0);
        }
    }
    struct ArrowArray child = *viewed.children[4];
    viewed.children[4]->release = NULL;
    viewed.release(&viewed);
    copied.release(&copied);
    CHECK(released[0] == 0 && released[1] == 0);
    child.release(&child);
    CHECK(released[0] == 1 && released[1] == 1);
    free(payloads[0]);
    free(payloads[1]);
}

/* Bytes out of the reach of a view's offset get a slot of their own, in the same pin. */
static void test_views_far_away(void) {
    enum { BEHIND = 700 };
    size_t reach = ((size_t)1 << 31) - BEHIND, room = reach + 16384;
    uint8_t *bytes = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(bytes != MAP_FAILED);
    uint8_t out[16384];
    size_t size = make_batch(out, 50);
    kl_batch_t b;
    CHECK(kl_batch_header(out, size, &b) == KL_OK);
    size -= KL_BATCH_HEADER;
    memcpy(bytes + reach, out + KL_BATCH_HEADER, size);
    kl_columns_t *views = NULL;
    int released = 0;
    int32_t bad;
    CHECK(kl_columns_new(&pool, every_kind, KL_COLUMN_KINDS, 1, &views) == KL_OK);
    CHECK(kl_columns_pin(views, bytes, room, count_release, &released) == 0);
    CHECK(kl_columns_append(views, &b, bytes + reach, size, INT64_MIN, INT64_MAX, 1, &bad) == KL_OK);
    struct ArrowArray array;
    CHECK(kl_columns_export(views, &array) == KL_OK);
    kl_columns_drop(views);
    int64_t slots = array.children[4]->n_buffers - 3, used = 0;
    CHECK(slots >= 2 && slots <= 3); /* keys may begin one behind the first values */
    for (int column = 3; column <= 4; column++) {
        const void **buffers = array.children[column]->buffers;
        const int64_t *sizes = buffers[2 + slots];
        CHECK(sizes[0] == (int64_t)room);
        for (int64_t i = 1; i < slots; i++)
            CHECK((const uint8_t *)buffers[2 + i] + sizes[i] == bytes + room);
        for (int64_t i = 0; i < array.length; i++) {
            int32_t said[4];
            memcpy(said, (const uint8_t *)buffers[1] + 16 * i, sizeof said);
            if (said[0] <= 12)
                continue;
            CHECK(said[2] >= 0 && said[2] < slots && said[3] >= 0 && (int64_t)said[3] + said[0] <= sizes[said[2]]);
            CHECK((int64_t)said[3] + said[0] <= INT32_MAX);
            CHECK(memcmp(said + 1, (const uint8_t *)buffers[2 + said[2]] + said[3], 4) == 0);
            used |= (int64_t)1 << said[2];
        }
    }
    CHECK((used & (used - 1)) != 0); /* more than one */
    array.release(&array);
    CHECK(released == 1);
    munmap(bytes, room);
}

static void test_utf8(void) {
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"plain", "plain"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xff", "\xef\xbf\xbd"},
        {"\xe2\x82", "\xef\xbf\xbd"},                         /* one for a sequence that began well */
        {"\xe2\x82z", "\xef\xbf\xbdz"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},             /* overlong forms */
        {"\xe0\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* past U+10FFFF */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t size = strlen(rows[i].in), wanted = strlen(rows[i].out);
        uint8_t *in = exact_copy((const uint8_t *)rows[i].in, size);
        uint8_t *out = malloc(wanted);
        CHECK(out != NULL && kl_utf8_repaired_size(in, size) == wanted);
        CHECK(kl_utf8_repair(in, size, out, wanted) == wanted && memcmp(out, rows[i].out, wanted) == 0);
        CHECK(kl_utf8_repair(in, size, out, wanted - 1) == wanted);
        free(in);
        free(out);
    }
}

/* --- rows ---------------------------------------------------------------------------------------------------------- */

/* A struct of value (binary, two rows behind its own offset) and key (views), sliced once more by the parent. */
static void test_rows(void) {
    static const int32_t ends[] = {0, 3, 3, 5, 6};
    static const uint8_t value_bits[] = {0x0d}; /* row 1 is null */
    uint8_t *bytes = exact_copy((const uint8_t *)"abcdef", 6);
    uint8_t *views = exact_copy((const uint8_t[48]){0}, 48);
    uint8_t *block = exact_copy((const uint8_t *)"a key of more than 12", 21);
    int32_t small[] = {1, 'k', 0, 0}, large[] = {21, 0, 0, 0}, empty[] = {0, 0, 0, 0};
    memcpy(views, small, 16);
    memcpy(views + 16, large, 16);
    memcpy(views + 32, empty, 16);
    const void *value_buffers[] = {value_bits, ends, bytes}, *key_buffers[] = {NULL, views, block, NULL};
    const void *no_buffers[] = {NULL};
    struct ArrowArray value = {.length = 3, .null_count = 1, .offset = 1, .n_buffers = 3, .buffers = value_buffers};
    struct ArrowArray key = {.length = 3, .n_buffers = 4, .buffers = key_buffers};
    struct ArrowArray *children[] = {&value, &key};
    struct ArrowArray array = {.length = 2, .offset = 1, .n_buffers = 1, .buffers = no_buffers, .n_children = 2,
                               .children = children};
    struct ArrowSchema value_schema = {.format = "z", .name = "value"}, key_schema = {.format = "vu", .name = "key"};
    struct ArrowSchema *schemas[] = {&value_schema, &key_schema};
    struct ArrowSchema schema = {.format = "+s", .n_children = 2, .children = schemas};
    char message[KL_ROWS_MESSAGE];
    kl_rows_t rows;
    CHECK(kl_rows_bind(&schema, &rows, message) == KL_OK);
    CHECK(kl_rows_point(&rows, &array, message) == KL_OK && rows.length == 2);
    CHECK(kl_rows_bytes(&rows, 0) > 0);

    /* Room grows byte by byte: what is written is right, and never a byte behind the room (the block is that long). */
    kl_rows_rules_t rules = {.batch_bytes_max = 1000, .message_bytes_max = 1000, .timestamp_default = 7,
                             .timestamp_max = 9};
    int done = 0;
    for (size_t capacity = KL_BATCH_HEADER; capacity < 200 && !done; capacity++) {
        uint8_t *out = calloc(1, capacity);
        if (out == NULL)
            abort();
        kl_batch_t b = {.max_timestamp = -1};
        kl_rows_out_t room = {.at = out, .size = KL_BATCH_HEADER, .capacity = capacity};
        int64_t row = 0;
        kl_rows_end_t end = kl_rows_write(&rows, &rules, &row, &b, &room);
        CHECK(end == KL_ROWS_DONE || (end == KL_ROWS_SPACE && room.more > capacity - room.size));
        CHECK(room.size <= capacity && row == b.count);
        if (end == KL_ROWS_DONE) {
            kl_record_t r;
            size_t used;
            done = 1;
            CHECK(b.count == 2 && b.base_timestamp == 7 && b.max_timestamp == 7);
            CHECK(kl_record_next(out + KL_BATCH_HEADER, room.size - KL_BATCH_HEADER, &r, &used) == KL_OK);
            CHECK(r.key_size == 21 && memcmp(r.key, block, 21) == 0);
            CHECK(r.value_size == 2 && memcmp(r.value, "de", 2) == 0 && r.offset_delta == 0);
            CHECK(kl_record_next(out + KL_BATCH_HEADER + used, room.size - KL_BATCH_HEADER - used, &r, &used) == KL_OK);
            CHECK(r.key_size == 0 && r.value_size == 1 && r.value[0] == 'f' && r.offset_delta == 1);
        }
        free(out);
    }
    CHECK(done);

    /* Types and buffers that are not taken. */
    static const char *const wrong[] = {"l", "+s", "", "w:", "w:-1", "vzz"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        value_schema.format = wrong[i];
        CHECK(kl_rows_bind(&schema, &rows, message) == KL_EMAGIC);
    }
    value_schema.format = "z";
    CHECK(kl_rows_bind(&schema, &rows, message) == KL_OK);
    value.n_buffers = 2;
    CHECK(kl_rows_point(&rows, &array, message) == KL_ELENGTH);
    array.n_children = 1;
    CHECK(kl_rows_point(&rows, &array, message) == KL_ELENGTH);
    key_schema.name = "other";
    CHECK(kl_rows_bind(&schema, &rows, message) == KL_ELENGTH);
    free(bytes);
    free(views);
    free(block);
}

/* --- key map -------------------------------------------------------------------------------------------------------- */

static void test_key_hashes(void) {
    /* The key 00 01 .. 0f over the bytes 00 01 ..: of SipHash-2-4-128 the authors' own vectors. */
    static const struct {
        size_t size;
        const char *published, *used;
    } sip[] = {
        {0, "A3817F04BA25A8E66DF67214C7550293", "E77EBCB22788A5BEFD62DB6ADD303001"},
        {1, "DA87C1D86B99AF44347659119B22FC45", "FC6F370460D3EDA85E0573CC2B2FF063"},
        {7, "A1F1EBBED8DBC153C0B84AA61FF08239", "1084B923F2AAE0C3A62F2EC80848AB77"},
        {8, "3B62A9BA6258F5610F83E264F31497B4", "AA12FEE1D5E3DAB4724F16AB35F9C799"},
        {15, "5493E99933B0A8117E08EC0F97CFC3D9", "C17E5505B2BD526C2921CDEC1E7E0109"},
        {33, "77C6077146F01C32B6B69D5F4EA9FFCF", "C5F57BAE1320FCF4B4E868E71D56C66B"},
        {64, "1EAF077DC0D4CD3F8CAD4D383658A74B", "1253DEF24B4AA5364EC8A759BA6A66C2"},
    };
    uint8_t secret[16], out[16];
    for (int i = 0; i < 16; i++)
        secret[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof sip / sizeof *sip; i++) {
        uint8_t plain[64];
        for (size_t j = 0; j < sizeof plain; j++)
            plain[j] = (uint8_t)j;
        uint8_t *data = exact_copy(plain, sip[i].size);
        for (int last = 0; last < 2; last++) {
            kl_siphash128(secret, data, sip[i].size, last ? 1 : 2, last ? 3 : 4, out);
            for (int j = 0; j < 16; j++) {
                unsigned byte = 0;
                CHECK(sscanf((last ? sip[i].used : sip[i].published) + 2 * j, "%2x", &byte) == 1 && byte == out[j]);
            }
        }
        free(data);
    }
    /* RFC 4493, section 4. */
    static const uint8_t rfc_secret[16] = {0x2b, 0x7e, 0x15, 0x16, 0x28, 0xae, 0xd2, 0xa6,
                                           0xab, 0xf7, 0x15, 0x88, 0x09, 0xcf, 0x4f, 0x3c};
    static const uint8_t message[64] = {
        0x6b, 0xc1, 0xbe, 0xe2, 0x2e, 0x40, 0x9f, 0x96, 0xe9, 0x3d, 0x7e, 0x11, 0x73, 0x93, 0x17, 0x2a,
        0xae, 0x2d, 0x8a, 0x57, 0x1e, 0x03, 0xac, 0x9c, 0x9e, 0xb7, 0x6f, 0xac, 0x45, 0xaf, 0x8e, 0x51,
        0x30, 0xc8, 0x1c, 0x46, 0xa3, 0x5c, 0xe4, 0x11, 0xe5, 0xfb, 0xc1, 0x19, 0x1a, 0x0a, 0x52, 0xef,
        0xf6, 0x9f, 0x24, 0x45, 0xdf, 0x4f, 0x9b, 0x17, 0xad, 0x2b, 0x41, 0x7b, 0xe6, 0x6c, 0x37, 0x10};
    static const struct {
        size_t size;
        uint8_t mac[16];
    } cmac[] = {
        {0, {0xbb, 0x1d, 0x69, 0x29, 0xe9, 0x59, 0x37, 0x28, 0x7f, 0xa3, 0x7d, 0x12, 0x9b, 0x75, 0x67, 0x46}},
        {16, {0x07, 0x0a, 0x16, 0xb4, 0x6b, 0x4d, 0x41, 0x44, 0xf7, 0x9b, 0xdd, 0x9d, 0xd0, 0x4a, 0x28, 0x7c}},
        {40, {0xdf, 0xa6, 0x67, 0x47, 0xde, 0x9a, 0xe6, 0x30, 0x30, 0xca, 0x32, 0x61, 0x14, 0x97, 0xc8, 0x27}},
        {64, {0x51, 0xf0, 0xbe, 0xbf, 0x7e, 0x3b, 0x9d, 0x92, 0xfc, 0x49, 0x74, 0x17, 0x79, 0x36, 0x3c, 0xfe}},
    };
    kl_keyhash_t hash;
    if (kl_keyhash_init(&hash, rfc_secret, 1) != NULL)
        for (size_t i = 0; i < sizeof cmac / sizeof *cmac; i++) {
            kl_key_t keys[KL_KEYMAP_GROUP];
            kl_hash_t made[KL_KEYMAP_GROUP];
            uint8_t *data = exact_copy(message, cmac[i].size);
            for (int j = 0; j < KL_KEYMAP_GROUP; j++)
                keys[j] = (kl_key_t){data, cmac[i].size};
            hash.many(&hash, keys, 7, made); /* one lot of lanes, and three alone */
            for (int j = 0; j < 7; j++)
                CHECK(memcmp(made + j, cmac[i].mac, 16) == 0);
            free(data);
        }
    /* Lanes and singles, of every size, from the end of their own memory. */
    for (int kernel = 0; kernel < 2; kernel++) {
        if (kl_keyhash_init(&hash, rfc_secret, kernel) == NULL)
            continue;
        for (size_t size = 0; size < 70; size++) {
            uint8_t bytes[80];
            random_fill(bytes, sizeof bytes);
            uint8_t *data = exact_copy(bytes, size), *other = exact_copy(bytes, size + 9);
            kl_key_t keys[5] = {{data, size}, {data, size}, {data, size}, {data, size}, {other, size + 9}};
            kl_hash_t together[5], alone;
            hash.many(&hash, keys, 5, together);
            for (int i = 0; i < 5; i++) {
                hash.many(&hash, keys + i, 1, &alone);
                CHECK(memcmp(&alone, together + i, sizeof alone) == 0);
            }
            free(data), free(other);
        }
    }
}

/* The hashes of a table in which everything lands where the test wants it: of 8 bytes, high is what they say. */
static void plain_hash(const kl_keyhash_t *hash, const kl_key_t *keys, int32_t n, kl_hash_t *out) {
    (void)hash;
    for (int32_t i = 0; i < n; i++)
        out[i] = (kl_hash_t){kl_load_u64(keys[i].at), 0};
}

static void check_table(const kl_keymap_t *map) {
    int64_t room = map->slots + (map->slots < KL_KEYMAP_TAIL ? map->slots : KL_KEYMAP_TAIL), seen = 0;
    const kl_entry_t *last = NULL;
    for (int64_t i = 0; i < room; i++) {
        const kl_entry_t *e = map->entries + i;
        if (e->offset_1 == 0)
            continue;
        int64_t home = (int64_t)((unsigned __int128)~e->order * (uint64_t)map->slots >> 64);
        CHECK(home <= i); /* K1 */
        for (int64_t j = home; j < i; j++)
            CHECK(map->entries[j].offset_1 != 0);
        CHECK(last == NULL || last->order > e->order || (last->order == e->order && last->low < e->low));
        last = e;
        seen++;
    }
    CHECK(map->entries[room].offset_1 == 0); /* K3 */
    CHECK(seen == map->size);
}

static void test_key_map(void) {
    static const int64_t sizes[] = {1, 2, 3, 20, 4095, 4097, 9001, 50000};
    uint8_t secret[16];
    random_fill(secret, sizeof secret);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int hostile = 0; hostile < 3; hostile++) {
            if (hostile && sizes[k] > 9001) /* each step would pass thousands */
                continue;
            int64_t slots = sizes[k], limit = hostile ? slots : slots * 9 / 10;
            kl_keymap_t map;
            void *memory = calloc(1, kl_keymap_bytes(slots));
            int64_t *model = malloc((size_t)slots * 2 * sizeof *model); /* the key is its place here */
            uint64_t *names = malloc((size_t)slots * 2 * sizeof *names);
            if (memory == NULL || model == NULL || names == NULL)
                abort();
            kl_keyhash_init(&map.hash, secret, -1);
            if (hostile)
                map.hash.many = plain_hash;
            kl_keymap_init(&map, memory, slots, limit);
            int64_t tracked = 1 + (int64_t)random_below((size_t)(4 * slots)), first = (int64_t)random_below(70);
            uint64_t *words = calloc((size_t)(tracked + 63) / 64, 8), *marked = calloc((size_t)(tracked + 4095) / 4096, 8);
            char *stale = calloc(1, (size_t)(4 * slots) + KL_KEYMAP_GROUP);
            if (words == NULL || marked == NULL || stale == NULL)
                abort();
            kl_keymap_track_stale(&map, words, marked, first, tracked);
            for (int64_t i = 0; i < 2 * slots; i++) {
                model[i] = -1;
                /* at random; all behind the last home; all at the first */
                names[i] = __builtin_bswap64(hostile == 1 ? UINT64_MAX - (uint64_t)i : hostile == 2 ? (uint64_t)i : random_u64());
            }
            int full = 0;
            for (int64_t offset = 0; offset < 4 * slots && !full; offset += KL_KEYMAP_GROUP) {
                kl_key_t keys[KL_KEYMAP_GROUP];
                int64_t offsets[KL_KEYMAP_GROUP], places[KL_KEYMAP_GROUP];
                int32_t n = 1 + (int32_t)random_below(KL_KEYMAP_GROUP);
                for (int32_t i = 0; i < n; i++) {
                    places[i] = (int64_t)random_below((size_t)(2 * slots));
                    keys[i] = (kl_key_t){(const uint8_t *)(names + places[i]), 8};
                    offsets[i] = offset + i;
                }
                int32_t put = kl_keymap_put(&map, keys, offsets, n);
                for (int32_t i = 0; i < put; i++) {
                    if (model[places[i]] >= 0)
                        stale[model[places[i]]] = 1;
                    model[places[i]] = offsets[i];
                }
                full = put < n;
                CHECK(map.size <= limit);
                if (full && !hostile)
                    CHECK(map.size == limit);
            }
            check_table(&map);
            int64_t count = 0;
            for (int64_t i = 0; i < 2 * slots; i++) {
                kl_key_t key = {(const uint8_t *)(names + i), 8};
                int64_t found;
                kl_keymap_get(&map, &key, 1, &found);
                CHECK(found == model[i]);
                count += model[i] >= 0;
            }
            CHECK(count == map.size);
            count = 0;
            for (int64_t i = 0; i < 4 * slots; i++) {
                CHECK(kl_keymap_tracks(&map, i, 1) == (i >= first && i < first + tracked));
                if (!kl_keymap_tracks(&map, i, 1))
                    continue;
                CHECK(kl_keymap_stale(&map, i) == stale[i]);
                count += stale[i];
                CHECK(kl_keymap_count_stale(&map, first, i + 1 - first) == count);
                CHECK(!kl_keymap_is_marked(&map, first, i + 1 - first));
            }
            int64_t mark = (int64_t)random_below((size_t)(4 * slots)) - 5;
            kl_keymap_mark(&map, mark);
            for (int64_t i = first; i < first + tracked; i++) { /* a mark counts for the 64 offsets that it is among */
                int64_t n = 1 + (int64_t)random_below((size_t)(first + tracked - i));
                int64_t from = i - (i - first) % 64, to = i + n - 1 - (i + n - 1 - first) % 64 + 64;
                CHECK(kl_keymap_is_marked(&map, i, n) == (kl_keymap_tracks(&map, mark, 1) && mark >= from && mark < to));
            }
            CHECK(!kl_keymap_tracks(&map, first, tracked + 1));
            kl_keymap_forget_stale(&map);
            CHECK(!kl_keymap_tracks(&map, first, 1));
            free(memory), free(model), free(names), free(words), free(marked), free(stale);
        }
}

/* --- lz4 ------------------------------------------------------------------------------------------------------------ */

/* A codec for the frame around it: every byte twice, if nothing odd is in the way. */
static int half(const char *from, char *to, int size, int room) {
    if (size % 2 != 0 || size / 2 > room)
        return 0;
    for (int i = 0; i < size; i += 2) {
        if (from[i] != from[i + 1])
            return 0;
        to[i / 2] = from[i];
    }
    return size / 2;
}

static int twofold(const char *from, char *to, int size, int room) {
    if (2 * (int64_t)size > room)
        return -1;
    for (int i = 0; i < 2 * size; i++)
        to[i] = from[i / 2];
    return 2 * size;
}

/* What comes out of an exact copy, into room that is as large as was said: -1 for nothing. */
static int64_t unpacked(const uint8_t *payload, size_t size, const uint8_t *plain) {
    static const kl_lz4_t lz4 = {twofold, half};
    uint8_t *exact = exact_copy(payload, size);
    int64_t room = kl_lz4_plain_max(exact, size), made = -1;
    if (room >= 0) {
        uint8_t *out = malloc((size_t)room + (room == 0));
        if (out == NULL)
            abort();
        made = kl_lz4_unpack(&lz4, exact, size, out);
        CHECK(made <= room);
        if (plain != NULL)
            CHECK(made >= 0 && memcmp(out, plain, (size_t)made) == 0);
        free(out);
    }
    free(exact);
    return made;
}

static void test_lz4(void) {
    static const kl_lz4_t lz4 = {twofold, half};
    for (int round = 0; round < 200; round++) {
        int64_t size = (int64_t)random_below(round % 8 == 0 ? 300000 : 400);
        uint8_t *plain = malloc((size_t)size + 1), *packed = malloc((size_t)kl_lz4_packed_max(size));
        if (plain == NULL || packed == NULL)
            abort();
        for (int64_t i = 0; i < size; i++)
            plain[i] = i % 2 != 0 && round % 2 != 0 ? plain[i - 1] : (uint8_t)random_u64();
        int64_t made = kl_lz4_pack(&lz4, plain, size, packed);
        CHECK(made <= kl_lz4_packed_max(size));
        CHECK(unpacked(packed, (size_t)made, plain) == size);
        CHECK(unpacked(packed, (size_t)made - 1, NULL) == -1);
        for (int i = 0; i < 30; i++) {
            size_t at = random_below((size_t)made), cut = random_below((size_t)made + 1);
            uint8_t before = packed[at];
            packed[at] ^= (uint8_t)(1u << random_below(8));
            unpacked(packed, (size_t)made, NULL);
            packed[at] = before;
            CHECK(unpacked(packed, cut, NULL) == (cut == (size_t)made ? size : -1));
        }
        free(plain), free(packed);
    }
}

/* --- cleaning ------------------------------------------------------------------------------------------------------- */

/* One batch through both passes, out of blocks that end where they may. Answers the status of the first pass that fails. */
static int clean_once(const kl_batch_t *b, const uint8_t *payload, size_t size, int attributes, int check) {
    kl_batch_t header = *b;
    header.attributes = (int16_t)attributes;
    uint8_t secret[16] = {0};
    kl_keymap_t map;
    void *memory = calloc(1, kl_keymap_bytes(64));
    uint8_t *records = exact_copy(payload, size);
    kl_clean_run_t *runs = malloc(kl_clean_runs_max(b->count) * sizeof *runs);
    if (memory == NULL || runs == NULL)
        abort();
    kl_keyhash_init(&map.hash, secret, -1);
    kl_keymap_init(&map, memory, 64, 60);
    int32_t bad = 0;
    int64_t latest = -1, start = b->base_offset + (int64_t)random_below(3);
    uint64_t words[16] = {0}, marked[1] = {0};
    kl_keymap_track_stale(&map, words, marked, start, 1 + (int64_t)random_below(16 * 64));
    int status = kl_clean_note(&map, &header, records, size, start, &latest, &bad);
    kl_clean_rules_t rules = {.map = &map, .latest_offset = b->base_offset + (int64_t)random_below((size_t)b->count + 1) - 1,
                              .now = 1700000000000, .new_horizon = 1700000000000 + 86400000,
                              .keep_legacy_tombstones = 1};
    kl_cleaned_t cleaned, again = {0};
    int all = random_below(8) == 0, marker_done = random_below(8) == 0;
    if (status != KL_OK) /* what is stale is known of batches that have been noted as a whole */
        kl_keymap_forget_stale(&map);
    int second = kl_clean_choose(&rules, &header, records, size, all, marker_done, runs, &cleaned, &bad);
    /* Whoever knows what is stale chooses as one who looks for each key. */
    kl_clean_run_t *others = malloc(kl_clean_runs_max(b->count) * sizeof *others);
    if (others == NULL)
        abort();
    kl_fate_t fate = kl_clean_fate(&rules, &header);
    kl_keymap_forget_stale(&map);
    CHECK(kl_clean_choose(&rules, &header, records, size, all, marker_done, others, &again, &bad) == second);
    if (second == KL_OK) {
        CHECK(again.count == cleaned.count && again.keyless == cleaned.keyless && again.runs == cleaned.runs);
        CHECK(fate != KL_FATE_STALE || all || cleaned.count == 0);
        CHECK(fate != KL_FATE_INTACT || marker_done || cleaned.whole);
        CHECK(cleaned.count == 0 || memcmp(&again, &cleaned, sizeof again) == 0);
        for (int32_t i = 0; i < again.runs; i++)
            CHECK(others[i].from == runs[i].from && others[i].to == runs[i].to);
    }
    /* Whoever looks for the first record's key finds as many as a purge of it takes away. */
    kl_record_t first;
    int walked;
    if (b->count > 0 && kl_walk_record(records, records + size, &first, &walked) != NULL && first.key != NULL) {
        kl_found_t found = {.key = {first.key, (size_t)first.key_size}};
        rules.purged = found.key;
        int looked = kl_clean_find(&found, &header, records, size, &bad);
        CHECK(kl_clean_choose(&rules, &header, records, size, 0, 0, others, &again, &bad) == looked);
        if (looked == KL_OK)
            CHECK(found.records >= 1 && found.records + again.count == b->count && again.sets_horizon == 0);
    }
    free(others);
    if (status == KL_OK)
        status = second;
    if (second == KL_OK && cleaned.count != 0) {
        CHECK(cleaned.count <= b->count && cleaned.runs <= cleaned.count);
        CHECK((size_t)cleaned.runs <= kl_clean_runs_max(b->count));
        uint8_t *out = malloc((size_t)cleaned.bytes_max + KL_BATCH_HEADER);
        if (out == NULL)
            abort();
        int64_t base = random_below(2) ? b->base_offset : cleaned.first_offset;
        int64_t written = kl_clean_write(&header, records, runs, &cleaned, base, out + KL_BATCH_HEADER);
        CHECK(written <= cleaned.bytes_max);
        kl_clean_seal(&header, &cleaned, base, 0, written, out);
        kl_batch_t left;
        CHECK(kl_batch_header(out, KL_BATCH_HEADER, &left) == KL_OK);
        CHECK(left.count == cleaned.count && left.base_offset == base && left.size == written + KL_BATCH_HEADER);
        CHECK(kl_batch_last_offset(&left) == kl_batch_last_offset(b));
        CHECK(kl_batch_crc(out, left.size) == left.crc);
        CHECK(kl_payload_validate(out + KL_BATCH_HEADER, (size_t)written, left.count, check ? left.last_offset_delta : -1,
                                  &bad) == KL_OK);
        /* Each survivor says what it said, at the time at which it said it. */
        const uint8_t *at = out + KL_BATCH_HEADER, *end = at + written, *from = records;
        int32_t number = 0;
        while (at != end) {
            kl_record_t mine, theirs;
            size_t used;
            CHECK(kl_record_next(at, (size_t)(end - at), &mine, &used) == KL_OK);
            at += used;
            int64_t offset = left.base_offset + mine.offset_delta;
            do {
                CHECK(kl_record_next(from, (size_t)(records + size - from), &theirs, &used) == KL_OK);
                from += used;
            } while (b->base_offset + theirs.offset_delta != offset && number++ < b->count);
            CHECK(mine.key_size == theirs.key_size && mine.value_size == theirs.value_size);
            CHECK(mine.key_size <= 0 || memcmp(mine.key, theirs.key, (size_t)mine.key_size) == 0);
            CHECK(mine.value_size <= 0 || memcmp(mine.value, theirs.value, (size_t)mine.value_size) == 0);
            CHECK(mine.header_count == theirs.header_count);
            uint64_t time = (uint64_t)left.base_timestamp + (uint64_t)mine.timestamp_delta;
            uint64_t expected = (uint64_t)b->base_timestamp + (uint64_t)theirs.timestamp_delta;
            CHECK(time == (attributes & KL_ATTR_LOG_APPEND_TIME ? (uint64_t)b->max_timestamp : expected));
            if (number > b->count)
                break;
        }
        free(out);
    }
    free(memory), free(records), free(runs);
    return status;
}

static void test_clean(void) {
    uint8_t *out = malloc(1 << 16);
    static const int kinds[] = {0, KL_ATTR_LOG_APPEND_TIME, KL_ATTR_DELETE_HORIZON, KL_ATTR_TRANSACTIONAL};
    if (out == NULL)
        abort();
    for (int round = 0; round < 400; round++) {
        int32_t count = 1 + (int32_t)random_below(60);
        size_t size = make_batch(out, count);
        kl_batch_t b;
        CHECK(kl_batch_header(out, size, &b) == KL_OK);
        uint8_t *payload = out + KL_BATCH_HEADER;
        size -= KL_BATCH_HEADER;
        int attributes = kinds[random_below(4)];
        CHECK(clean_once(&b, payload, size, attributes, 1) == KL_OK);
        CHECK(clean_once(&b, payload, size - 1, attributes, 1) != KL_OK);
        b.count = count + 1;
        CHECK(clean_once(&b, payload, size, attributes, 1) == KL_ECOUNT);
        b.count = count;
        b.last_offset_delta = count - 2;
        if (count > 1)
            CHECK(clean_once(&b, payload, size, attributes, 1) == KL_EORDER);
        b.last_offset_delta = count - 1;
        for (int i = 0; i < 20; i++) {
            size_t at = random_below(size);
            uint8_t before = payload[at];
            payload[at] ^= (uint8_t)(1u << random_below(8));
            clean_once(&b, payload, size, attributes, 0);
            payload[at] = before;
        }
    }
    for (int round = 0; round < 3000; round++) {
        size_t size = random_below(200);
        kl_batch_t b = {.base_offset = INT64_MAX - 100, .count = (int32_t)random_below(30), .last_offset_delta = 60, .magic = 2};
        random_fill(out, size);
        clean_once(&b, out, size, kinds[random_below(4)], 0);
    }
    free(out);
}

/* --- waste ---------------------------------------------------------------------------------------------------------- */

static void test_waste(void) {
    enum { SLOTS = 64, KEYS = 2000 };
    static kl_wasted_t table[SLOTS], scratch[SLOTS];
    static int64_t truth[KEYS];
    uint8_t secret[16] = {7};
    kl_keyhash_t hash;
    kl_keyhash_init(&hash, secret, -1);
    memset(table, 0, sizeof table);
    memset(truth, 0, sizeof truth);
    kl_waste_t waste = {.hash = &hash, .table = table, .scratch = scratch, .slots = SLOTS};
    int64_t all = 0;
    for (int i = 0; i < 50000; i++) {
        uint32_t key = random_below(3) == 0 ? (uint32_t)random_below(3) : (uint32_t)random_below(KEYS);
        int64_t n = 1 + (int64_t)random_below(90);
        kl_waste_add(&waste, (kl_key_t){(const uint8_t *)&key, sizeof key}, n, key);
        truth[key] += n;
        all += n;
    }
    int64_t keys = 0, often = 0;
    for (int i = 0; i < SLOTS; i++) {
        if (table[i].records == 0)
            continue;
        keys++;
        often += table[i].offset < 3;
        CHECK(table[i].bytes <= truth[table[i].offset]);
        CHECK(table[i].bytes >= truth[table[i].offset] - waste.given_up);
    }
    CHECK(keys == waste.keys && keys <= SLOTS / 4 * 3 && often == 3);
    CHECK(waste.given_up > 0 && waste.given_up <= 2 * all / (SLOTS / 4 * 3));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        {"crc", test_crc},
        {"waste", test_waste},
        {"varint table", test_varint_table},
        {"varint ends", test_varint_ends},
        {"varint random", test_varint_random},
        {"batch header", test_header},
        {"record fields", test_record_fields},
        {"hostile payloads", test_hostile},
        {"checksums along a walk", test_summed},
        {"record offsets", test_offsets},
        {"message", test_message},
        {"message header", test_message_header},
        {"message sets", test_message_sets},
        {"leader", test_leader},
        {"leader's sets", test_leader_sets},
        {"pool", test_pool},
        {"shared columns", test_columns_shared},
        {"views", test_columns_views},
        {"views far away", test_views_far_away},
        {"utf-8", test_utf8},
        {"rows", test_rows},
        {"key hashes", test_key_hashes},
        {"key map", test_key_map},
        {"lz4", test_lz4},
        {"clean", test_clean},
    };
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 20130208;
    printf("seed %" PRIu64 "\n", seed);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        current = tests[i].name;
        random_state = seed;
        int before = failures;
        tests[i].run();
        printf("%s %s\n", failures == before ? "ok  " : "FAIL", current);
    }
    return failures != 0;
}
