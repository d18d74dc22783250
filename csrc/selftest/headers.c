/* Batch headers as columns. */
#include "selftest/selftest.h"

#include <stdlib.h>
#include <string.h>

#include "headers.h"
#include "status.h"

void test_headers(void) {
    kl_header_t kinds[KL_HEADER_KINDS];
    for (int i = 0; i < KL_HEADER_KINDS; i++)
        kinds[i] = (kl_header_t)i;
    struct ArrowSchema schema;
    CHECK(kl_headers_schema(kinds, KL_HEADER_KINDS, &schema) == KL_OK);
    CHECK(schema.n_children == KL_HEADER_KINDS);
    for (int i = 0; i < KL_HEADER_KINDS; i++)
        CHECK(strcmp(schema.children[i]->name, kl_header_name(kinds[i])) == 0);
    schema.release(&schema);
    for (int64_t count = 0; count < 140; count += 1 + count / 3) {
        kl_batch_t *rows = calloc((size_t)count + 1, sizeof *rows);
        for (int64_t i = 0; i < count; i++)
            rows[i] = (kl_batch_t){
                .position = 100 * i,
                .base_offset = 7 * i,
                .last_offset_delta = 6,
                .base_timestamp = i % 3 == 0 ? -1 : i,
                .max_timestamp = i,
                .attributes = (int16_t)(i % 5 | (i % 7 == 0 ? KL_ATTR_CONTROL : 0) |
                                        (i % 11 == 0 ? KL_ATTR_DELETE_HORIZON : 0)),
                .magic = 2,
            };
        struct ArrowArray array;
        CHECK(kl_headers_export(rows, count, 5, kinds, KL_HEADER_KINDS, &array) == KL_OK);
        free(rows); /* the export is a copy */
        CHECK(array.length == count);
        const int64_t *last = array.children[KL_HEADER_LAST_OFFSET]->buffers[1];
        const int64_t *segment = array.children[KL_HEADER_SEGMENT_BASE_OFFSET]->buffers[1];
        const uint8_t *control = array.children[KL_HEADER_IS_CONTROL]->buffers[1];
        const int32_t *names = array.children[KL_HEADER_COMPRESSION]->buffers[1];
        const struct ArrowArray *base = array.children[KL_HEADER_BASE_TIMESTAMP];
        int64_t nulls = 0;
        for (int64_t i = 0; i < count; i++) {
            static const int sizes[5] = {4, 4, 6, 3, 4};
            CHECK(last[i] == 7 * i + 6 && segment[i] == 5);
            CHECK((control[i / 8] >> (i % 8) & 1) == (i % 7 == 0));
            CHECK(names[i + 1] - names[i] == sizes[i % 5]);
            int null = i % 3 == 0 || i % 11 == 0;
            nulls += null;
            CHECK(base->buffers[0] == NULL || (((const uint8_t *)base->buffers[0])[i / 8] >> (i % 8) & 1) == !null);
        }
        CHECK(base->null_count == nulls);
        struct ArrowArray child = *array.children[KL_HEADER_MAX_TIMESTAMP]; /* moved out, as a consumer may */
        array.children[KL_HEADER_MAX_TIMESTAMP]->release = NULL;
        array.release(&array);
        for (int64_t i = 0; i < count; i++)
            CHECK(((const int64_t *)child.buffers[1])[i] == i);
        CHECK(((uintptr_t)child.buffers[1] & 63) == 0);
        child.release(&child);
    }
}
