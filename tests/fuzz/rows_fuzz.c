/* Records to Arrow columns and back to records: choices:2 batch; the second batch has the first one's records.
 *
 *   choices := views:u8 capacity:u8     views by bit 0; the space that rows are written to at first
 *
 * kl_rows trusts Arrow data, so its input here is what columns.c makes of hostile bytes.
 */
#include "fuzz.h"

#include "columns.h"
#include "rows.h"
#include "status.h"

static kl_pool_t pool;
static const kl_column_t KINDS[] = {KL_COLUMN_TIMESTAMP, KL_COLUMN_KEY, KL_COLUMN_VALUE, KL_COLUMN_HEADERS};
enum { N = sizeof KINDS / sizeof *KINDS };

static void stays(void *owner) { (void)owner; }

static int same(const uint8_t *a, int32_t a_size, const uint8_t *b, int32_t b_size) {
    return a_size == b_size && (a_size <= 0 || memcmp(a, b, (size_t)a_size) == 0);
}

static void compare(const uint8_t *before, size_t before_size, const uint8_t *after, size_t after_size, int32_t count) {
    size_t used;
    for (int32_t i = 0; i < count; i++) {
        kl_record_t old, new;
        CLAIM(kl_record_next(before, before_size, &old, &used) == KL_OK);
        before += used, before_size -= used;
        CLAIM(kl_record_next(after, after_size, &new, &used) == KL_OK);
        after += used, after_size -= used;
        CLAIM(new.offset_delta == i && new.header_count == old.header_count);
        CLAIM(same(old.key, old.key_size, new.key, new.key_size));
        CLAIM(same(old.value, old.value_size, new.value, new.value_size));
    }
    CLAIM(after_size == 0);
}

static void written(const struct ArrowSchema *schema, const struct ArrowArray *array, const uint8_t *payload,
                    size_t size, size_t first_space) {
    char message[KL_ROWS_MESSAGE];
    kl_rows_t rows;
    CLAIM(kl_rows_bind(schema, &rows, message) == KL_OK);
    CLAIM(kl_rows_point(&rows, array, message) == KL_OK && rows.length == array->length);
    CLAIM(kl_rows_bytes(&rows, 0) >= 0);
    kl_rows_rules_t rules = {.batch_bytes_max = INT32_MAX, .message_bytes_max = INT32_MAX, .timestamp_max = INT64_MAX};
    kl_batch_t b = {.max_timestamp = -1};
    kl_rows_out_t out = {.at = malloc(KL_BATCH_HEADER + first_space), .size = KL_BATCH_HEADER,
                         .capacity = KL_BATCH_HEADER + first_space};
    int64_t row = 0;
    kl_rows_end_t end;
    while ((end = kl_rows_write(&rows, &rules, &row, &b, &out)) == KL_ROWS_SPACE) {
        CLAIM(out.more > out.capacity - out.size);
        out.capacity = out.size + out.more;
        out.at = realloc(out.at, out.capacity);
        CLAIM(out.at != NULL);
    }
    CLAIM(row == b.count && out.size <= out.capacity);
    if (end == KL_ROWS_DONE) {
        CLAIM(b.count == rows.length);
        compare(payload, size, out.at + KL_BATCH_HEADER, out.size - KL_BATCH_HEADER, b.count);
    } else {
        CLAIM(end == KL_ROWS_EARLY); /* of a timestamp; the other limits are far away */
    }
    free(out.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *choices = fuzz_choices(&data, &size, 2);
    int views = choices[0] & 1;
    kl_batch_t b;
    if (kl_batch_header(data, size, &b) != KL_OK || (b.attributes & (KL_ATTR_CONTROL | KL_ATTR_CODEC)) != 0)
        return 0;
    size_t own = (size_t)b.size - KL_BATCH_HEADER, left = size - KL_BATCH_HEADER, bytes = own < left ? own : left;
    if ((size_t)b.count > bytes / KL_RECORD_MIN)
        return 0;
    uint8_t *payload = fuzz_exact(data + KL_BATCH_HEADER, bytes);
    kl_columns_t *columns;
    CLAIM(kl_columns_new(&pool, KINDS, N, views, &columns) == KL_OK);
    if (views)
        CLAIM(kl_columns_pin(columns, payload, bytes, stays, NULL) == 0);
    int32_t bad = -1;
    if (kl_columns_append(columns, &b, payload, bytes, INT64_MIN, INT64_MAX, 0, &bad) == KL_OK &&
        kl_columns_rows(columns) == b.count) {
        struct ArrowSchema schema;
        struct ArrowArray array;
        CLAIM(kl_columns_schema(KINDS, N, views, &schema) == KL_OK && kl_columns_export(columns, &array) == KL_OK);
        kl_columns_drop(columns);
        written(&schema, &array, payload, bytes, choices[1]);
        schema.release(&schema);
        array.release(&array);
    } else {
        kl_columns_drop(columns);
    }
    free(payload);
    return 0;
}
