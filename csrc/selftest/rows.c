/* Arrow rows become records. */
#include "selftest/selftest.h"

#include <stdlib.h>
#include <string.h>

#include "arrow.h"
#include "batch.h"
#include "rows.h"
#include "status.h"

/* A struct of value (binary, offset by two rows) and key (views), sliced once more by the parent. */
void test_rows(void) {
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

    /* The space grows byte by byte: what is written is right, and no byte after the space is (the block ends there). */
    kl_rows_rules_t rules = {.batch_bytes_max = 1000, .message_bytes_max = 1000, .timestamp_default = 7,
                             .timestamp_max = 9};
    int done = 0;
    for (size_t capacity = KL_BATCH_HEADER; capacity < 200 && !done; capacity++) {
        uint8_t *out = calloc(1, capacity);
        if (out == NULL)
            abort();
        kl_batch_t b = {.max_timestamp = -1};
        kl_rows_out_t into = {.at = out, .size = KL_BATCH_HEADER, .capacity = capacity};
        int64_t row = 0;
        kl_rows_end_t end = kl_rows_write(&rows, &rules, &row, &b, &into);
        CHECK(end == KL_ROWS_DONE || (end == KL_ROWS_SPACE && into.more > capacity - into.size));
        CHECK(into.size <= capacity && row == b.count);
        if (end == KL_ROWS_DONE) {
            kl_record_t r;
            size_t used;
            done = 1;
            CHECK(b.count == 2 && b.base_timestamp == 7 && b.max_timestamp == 7);
            CHECK(kl_record_next(out + KL_BATCH_HEADER, into.size - KL_BATCH_HEADER, &r, &used) == KL_OK);
            CHECK(r.key_size == 21 && memcmp(r.key, block, 21) == 0);
            CHECK(r.value_size == 2 && memcmp(r.value, "de", 2) == 0 && r.offset_delta == 0);
            CHECK(kl_record_next(out + KL_BATCH_HEADER + used, into.size - KL_BATCH_HEADER - used, &r, &used) == KL_OK);
            CHECK(r.key_size == 0 && r.value_size == 1 && r.value[0] == 'f' && r.offset_delta == 1);
        }
        free(out);
    }
    CHECK(done);

    /* Unsupported types and buffers. */
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
