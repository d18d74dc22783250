/* Runs each hot loop of csrc once, so that callgrind counts its instructions: python -m bench.instructions.
 *
 *   G1  only the measure_ functions are counted, each after its work was done once: pools are filled, pages touched.
 *   G2  no count depends on the processor: memcpy and memset are the plain ones below (libc picks its own by cpuid), and
 *       checksums are counted kernel by kernel, never through the dispatcher.
 *   G3  the results are checked: a wrong one ends the run with a message and status 1.
 *
 * Standard output gives the divisor of each count, a line for each measure_ function in the order of their
 * calls: "name units".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrow.h"
#include "batch.h"
#include "bytes.h"
#include "columns.h"
#include "crc32c.h"
#include "encode.h"
#include "index.h"
#include "pool.h"
#include "rows.h"
#include "status.h"

enum {
    RECORDS = 4096,
    KEY_BYTES = 9,
    VALUE_BYTES = 100,
    HEADERS = 2, /* for each record, in the sets that have headers */
    HEADER_KEY_BYTES = 5,
    HEADER_VALUE_BYTES = 8,
    ENTRIES = 65536,
    LOOKUPS = 1024,
    CRC_BYTES = 64 << 10,
    BATCH_BYTES = 1 << 20,
};

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* --- G2: copies that cost the same everywhere ------------------------------------------------------------------------ */

#if defined(__GNUC__) && !defined(__clang__)
#define AS_WRITTEN __attribute__((noinline, optimize("no-tree-loop-distribute-patterns", "no-tree-vectorize")))
#else
#define AS_WRITTEN __attribute__((noinline))
#endif

/* volatile: otherwise the compiler replaces the loop by a call of memcpy. */
AS_WRITTEN void *memcpy(void *restrict to, const void *restrict from, size_t size) {
    volatile uint8_t *at = to;
    const uint8_t *source = from;
    for (; size >= 32; size -= 32, at += 32, source += 32) {
        ((volatile uint64_t *)at)[0] = ((const uint64_t *)source)[0];
        ((volatile uint64_t *)at)[1] = ((const uint64_t *)source)[1];
        ((volatile uint64_t *)at)[2] = ((const uint64_t *)source)[2];
        ((volatile uint64_t *)at)[3] = ((const uint64_t *)source)[3];
    }
    for (; size >= 8; size -= 8, at += 8, source += 8)
        *(volatile uint64_t *)at = *(const uint64_t *)source;
    while (size-- != 0)
        *at++ = *source++;
    return to;
}

AS_WRITTEN void *memset(void *to, int byte, size_t size) {
    volatile uint8_t *at = to;
    const uint64_t word = 0x0101010101010101u * (uint8_t)byte;
    for (; size >= 8; size -= 8, at += 8)
        *(volatile uint64_t *)at = word;
    while (size-- != 0)
        *at++ = (uint8_t)byte;
    return to;
}

/* --- data ------------------------------------------------------------------------------------------------------------ */

/* Columns in Arrow's layout, with or without headers. */
static struct {
    int32_t key_ends[RECORDS + 1], value_ends[RECORDS + 1];
    int32_t header_ends[RECORDS + 1], header_key_ends[RECORDS * HEADERS + 1], header_value_ends[RECORDS * HEADERS + 1];
    uint8_t keys[RECORDS * KEY_BYTES], values[RECORDS * VALUE_BYTES];
    uint8_t header_keys[RECORDS * HEADERS * HEADER_KEY_BYTES], header_values[RECORDS * HEADERS * HEADER_VALUE_BYTES];
    int64_t timestamps[RECORDS];
} data;

typedef struct {
    uint8_t *bytes; /* a batch; its header is written, without a crc */
    kl_batch_t b;
} encoded_t;

static kl_pool_t pool;
static kl_rows_t plain_rows, header_rows;
static encoded_t plain, with_headers, again;
static uint8_t entries[ENTRIES * KL_OFFSET_ENTRY];
static int32_t wanted[LOOKUPS];
static uint8_t noise[CRC_BYTES];

static const kl_column_t all_kinds[] = {KL_COLUMN_OFFSET, KL_COLUMN_TIMESTAMP, KL_COLUMN_TIMESTAMP_TYPE,
                                        KL_COLUMN_KEY,    KL_COLUMN_VALUE,     KL_COLUMN_HEADERS};
enum { ALL_KINDS = sizeof all_kinds / sizeof *all_kinds };

/* splitmix64, from a fixed seed. */
static uint64_t random_u64(void) {
    static uint64_t state = 20;
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void fill(uint8_t *at, size_t size, int32_t *ends, int32_t each, int32_t count) {
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)('a' + random_u64() % 26);
    for (int32_t i = 0; i <= count; i++)
        ends[i] = i * each;
}

/* Set the pointers of the rows to the data, which stays where it is; the Arrow structs are not read again. */
static void bind(kl_rows_t *rows, int headers) {
    const void *key_buffers[] = {NULL, data.key_ends, data.keys};
    const void *value_buffers[] = {NULL, data.value_ends, data.values};
    const void *timestamp_buffers[] = {NULL, data.timestamps};
    const void *list_buffers[] = {NULL, data.header_ends};
    const void *header_key_buffers[] = {NULL, data.header_key_ends, data.header_keys};
    const void *header_value_buffers[] = {NULL, data.header_value_ends, data.header_values};
    const void *no_buffers[] = {NULL};
    struct ArrowArray header_key = {.length = RECORDS * HEADERS, .n_buffers = 3, .buffers = header_key_buffers};
    struct ArrowArray header_value = {.length = RECORDS * HEADERS, .n_buffers = 3, .buffers = header_value_buffers};
    struct ArrowArray *item_children[] = {&header_key, &header_value};
    struct ArrowArray item = {.length = RECORDS * HEADERS, .n_buffers = 1, .buffers = no_buffers, .n_children = 2,
                              .children = item_children};
    struct ArrowArray *list_children[] = {&item};
    struct ArrowArray list = {.length = RECORDS, .n_buffers = 2, .buffers = list_buffers, .n_children = 1,
                              .children = list_children};
    struct ArrowArray key = {.length = RECORDS, .n_buffers = 3, .buffers = key_buffers};
    struct ArrowArray value = {.length = RECORDS, .n_buffers = 3, .buffers = value_buffers};
    struct ArrowArray timestamp = {.length = RECORDS, .n_buffers = 2, .buffers = timestamp_buffers};
    struct ArrowArray *children[] = {&key, &value, &timestamp, &list};
    struct ArrowArray array = {.length = RECORDS, .n_buffers = 1, .buffers = no_buffers, .n_children = 3 + headers,
                               .children = children};

    struct ArrowSchema header_key_type = {.format = "u", .name = "key"}, header_value_type = {.format = "z", .name = "value"};
    struct ArrowSchema *item_types[] = {&header_key_type, &header_value_type};
    struct ArrowSchema item_type = {.format = "+s", .name = "item", .n_children = 2, .children = item_types};
    struct ArrowSchema *list_types[] = {&item_type};
    struct ArrowSchema list_type = {.format = "+l", .name = "headers", .n_children = 1, .children = list_types};
    struct ArrowSchema key_type = {.format = "z", .name = "key"}, value_type = {.format = "z", .name = "value"};
    struct ArrowSchema timestamp_type = {.format = "tsm:UTC", .name = "timestamp"};
    struct ArrowSchema *types[] = {&key_type, &value_type, &timestamp_type, &list_type};
    struct ArrowSchema schema = {.format = "+s", .n_children = 3 + headers, .children = types};

    char message[KL_ROWS_MESSAGE];
    CHECK(kl_rows_bind(&schema, rows, message) == KL_OK);
    CHECK(kl_rows_point(rows, &array, message) == KL_OK && rows->length == RECORDS);
}

/* --- the work -------------------------------------------------------------------------------------------------------- */

static void seal(encoded_t *out, size_t size) {
    out->b.size = (int32_t)size;
    out->b.magic = 2;
    out->b.last_offset_delta = out->b.count - 1;
    kl_batch_header_store(out->bytes, &out->b);
}

static void encode_columns(const kl_rows_t *rows, encoded_t *out) {
    const kl_rows_rules_t rules = {.batch_bytes_max = BATCH_BYTES, .message_bytes_max = BATCH_BYTES,
                                   .timestamp_default = -1, .timestamp_max = INT64_MAX};
    kl_rows_out_t target = {.at = out->bytes, .size = KL_BATCH_HEADER, .capacity = BATCH_BYTES};
    int64_t row = 0;
    out->b = (kl_batch_t){.max_timestamp = -1, .producer_id = -1, .producer_epoch = -1, .base_sequence = -1};
    CHECK(kl_rows_write(rows, &rules, &row, &out->b, &target) == KL_ROWS_DONE);
    seal(out, target.size);
}

/* The C part of encoding a tuple: size, buffer, write, record by record. The Python code before it is not counted. */
static void encode_records(encoded_t *out) {
    uint8_t *at = out->bytes + KL_BATCH_HEADER;
    out->b = (kl_batch_t){.base_timestamp = data.timestamps[0], .max_timestamp = -1, .producer_id = -1,
                          .producer_epoch = -1, .base_sequence = -1};
    for (int32_t i = 0; i < RECORDS; i++) {
        kl_record_in_t r = {.key = data.keys + data.key_ends[i], .key_size = data.key_ends[i + 1] - data.key_ends[i],
                            .value = data.values + data.value_ends[i],
                            .value_size = data.value_ends[i + 1] - data.value_ends[i],
                            .timestamp_delta = data.timestamps[i] - data.timestamps[0], .offset_delta = i};
        int64_t body_size = kl_record_body_size(&r);
        CHECK(body_size + KL_VARINT_MAX <= out->bytes + BATCH_BYTES - at);
        at = kl_record_write(at, &r, body_size);
        out->b.max_timestamp = data.timestamps[i];
    }
    out->b.count = RECORDS;
    seal(out, (size_t)(at - out->bytes));
}

static void no_release(void *owner) { (void)owner; }

static void decode_columns(const encoded_t *from, int views) {
    const size_t size = (size_t)from->b.size - KL_BATCH_HEADER;
    kl_columns_t *columns = NULL;
    struct ArrowArray array;
    int32_t bad;
    CHECK(kl_columns_new(&pool, all_kinds, ALL_KINDS, views, &columns) == KL_OK);
    if (views)
        CHECK(kl_columns_pin(columns, from->bytes, (size_t)from->b.size, no_release, NULL) == 0);
    CHECK(kl_columns_append(columns, &from->b, from->bytes + KL_BATCH_HEADER, size, 0, INT64_MAX, 1, &bad) == KL_OK);
    CHECK(kl_columns_export(columns, &array) == KL_OK);
    kl_columns_drop(columns);
    CHECK(array.length == RECORDS && ((const int64_t *)array.children[0]->buffers[1])[RECORDS - 1] == RECORDS - 1);
    if (!views) {
        CHECK(((const int32_t *)array.children[3]->buffers[1])[RECORDS] == RECORDS * KEY_BYTES);
        CHECK(((const int32_t *)array.children[4]->buffers[1])[RECORDS] == RECORDS * VALUE_BYTES);
    }
    array.release(&array);
}

static void decode_records(void) {
    const uint8_t *at = plain.bytes + KL_BATCH_HEADER;
    size_t left = (size_t)plain.b.size - KL_BATCH_HEADER, used;
    kl_record_t r;
    for (int32_t i = 0; i < RECORDS; i++) {
        CHECK(kl_record_next(at, left, &r, &used) == KL_OK && r.offset_delta == i && r.value_size == VALUE_BYTES);
        at += used;
        left -= used;
    }
    CHECK(left == 0);
}

static void validate(void) {
    int32_t bad;
    CHECK(kl_payload_validate(plain.bytes + KL_BATCH_HEADER, (size_t)plain.b.size - KL_BATCH_HEADER, RECORDS,
                              RECORDS - 1, &bad) == KL_OK);
}

/* Entry i is for offset 10 i + 9. */
static void lookup(void) {
    for (int i = 0; i < LOOKUPS; i++)
        CHECK(kl_offset_index_floor(entries, ENTRIES, wanted[i]) == (wanted[i] + 1) / 10 - 1);
}

static void lookup_tail(void) {
    for (int i = 0; i < LOOKUPS; i++)
        CHECK(kl_offset_index_floor(entries, ENTRIES, 10 * ENTRIES - 1 - i % 500) == ENTRIES - 1 - (i % 500 + 9) / 10);
}

static void crc(int kernel) {
    static uint32_t sum;
    const char *name;
    uint32_t found = kl_crc32c_kernel(kernel, &name)(0, noise, CRC_BYTES);
    CHECK(sum == 0 || found == sum);
    sum = found;
}

/* --- what is counted ------------------------------------------------------------------------------------------------- */

#define COUNTED __attribute__((noinline, noclone, visibility("default")))
#if defined(__clang__)
#undef COUNTED
#define COUNTED __attribute__((noinline, visibility("default")))
#endif

#define OPERATIONS(X)                                                                                                  \
    X(encode_columns, RECORDS, encode_columns(&plain_rows, &again))                                                    \
    X(encode_columns_headers, RECORDS, encode_columns(&header_rows, &again))                                           \
    X(encode_records, RECORDS, encode_records(&again))                                                                 \
    X(decode_columns, RECORDS, decode_columns(&plain, 0))                                                              \
    X(decode_columns_headers, RECORDS, decode_columns(&with_headers, 0))                                               \
    X(decode_views, RECORDS, decode_columns(&plain, 1))                                                                \
    X(decode_records, RECORDS, decode_records())                                                                       \
    X(validate, RECORDS, validate())                                                                                   \
    X(lookup, LOOKUPS, lookup())                                                                                       \
    X(lookup_tail, LOOKUPS, lookup_tail())                                                                             \
    X(crc32c_table, CRC_BYTES >> 10, crc(0))

#if defined(__x86_64__)
#define SSE42(X) X(crc32c_sse42, CRC_BYTES >> 10, crc(1))
#else
#define SSE42(X)
#endif

#define DEFINE(name, units, work)                                                                                      \
    COUNTED void measure_##name(void);                                                                                 \
    void measure_##name(void) { work; }
OPERATIONS(DEFINE)
SSE42(DEFINE)

#define RUN(name, units, work)                                                                                         \
    work;                                                                                                              \
    measure_##name();                                                                                                  \
    printf("%s %d\n", #name, (int)(units));

int main(void) {
    data.timestamps[0] = 1357035300000;
    for (int i = 1; i < RECORDS; i++)
        data.timestamps[i] = data.timestamps[i - 1] + (int64_t)(random_u64() % 8);
    fill(data.keys, sizeof data.keys, data.key_ends, KEY_BYTES, RECORDS);
    fill(data.values, sizeof data.values, data.value_ends, VALUE_BYTES, RECORDS);
    fill(data.header_keys, sizeof data.header_keys, data.header_key_ends, HEADER_KEY_BYTES, RECORDS * HEADERS);
    fill(data.header_values, sizeof data.header_values, data.header_value_ends, HEADER_VALUE_BYTES, RECORDS * HEADERS);
    for (int32_t i = 0; i <= RECORDS; i++)
        data.header_ends[i] = i * HEADERS;
    for (int32_t i = 0; i < ENTRIES; i++) {
        kl_store_u32(entries + 8 * i, (uint32_t)(10 * i + 9));
        kl_store_u32(entries + 8 * i + 4, (uint32_t)(4096 + 1200 * i));
    }
    for (int i = 0; i < LOOKUPS; i++)
        wanted[i] = (int32_t)(random_u64() % (10 * ENTRIES));
    for (size_t i = 0; i < CRC_BYTES; i++)
        noise[i] = (uint8_t)random_u64();
    bind(&plain_rows, 0);
    bind(&header_rows, 1);
    encoded_t *all[] = {&plain, &with_headers, &again};
    for (int i = 0; i < 3; i++)
        CHECK((all[i]->bytes = malloc(BATCH_BYTES)) != NULL);

    encode_columns(&plain_rows, &plain);
    encode_columns(&header_rows, &with_headers);
    encode_records(&again);
    CHECK(plain.b.count == RECORDS && plain.b.size == again.b.size);
    CHECK(memcmp(plain.bytes, again.bytes, (size_t)plain.b.size) == 0);
    OPERATIONS(RUN)
    SSE42(RUN)
    return 0;
}
