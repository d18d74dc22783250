/* Shared columns, columns of views, and the payloads that views pin. */
#include "selftest/selftest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "arrow.h"
#include "batch.h"
#include "columns.h"
#include "status.h"

static kl_pool_t pool;

const kl_column_t every_kind[KL_COLUMN_KINDS] = {
    KL_COLUMN_OFFSET,  KL_COLUMN_TIMESTAMP,    KL_COLUMN_TIMESTAMP_TYPE, KL_COLUMN_KEY,       KL_COLUMN_VALUE,
    KL_COLUMN_HEADERS, KL_COLUMN_LEADER_EPOCH, KL_COLUMN_TOPIC,          KL_COLUMN_PARTITION,
};

void test_columns_shared(void) {
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

/* Records that were picked, over two batches; each row has the topic and the partition. */
void test_columns_picked(void) {
    uint8_t out[16384];
    kl_columns_t *columns = NULL;
    CHECK(kl_columns_new(&pool, every_kind, KL_COLUMN_KINDS, 0, &columns) == KL_OK);
    const int64_t picked[] = {7, 1003, 1004, 1019, 5000};
    kl_columns_pick(columns, picked, sizeof picked / sizeof *picked);
    kl_columns_origin(columns, "events", 6, 3);
    size_t size = make_batch(out, 20);
    kl_batch_t b;
    int32_t bad;
    CHECK(kl_batch_header(out, size, &b) == KL_OK);
    for (int i = 0; i < 2; i++) { /* the second time all offsets of the batch have been passed */
        CHECK(kl_columns_append(columns, &b, out + KL_BATCH_HEADER, size - KL_BATCH_HEADER, 0, 2000, 1, &bad) == KL_OK);
        CHECK(kl_columns_rows(columns) == 3);
    }
    struct ArrowArray array;
    CHECK(kl_columns_export(columns, &array) == KL_OK);
    kl_columns_drop(columns);
    CHECK(memcmp(array.children[0]->buffers[1], picked + 1, 3 * sizeof *picked) == 0);
    CHECK(memcmp(array.children[7]->buffers[2], "eventseventsevents", 18) == 0);
    CHECK(((const int32_t *)array.children[7]->buffers[1])[3] == 18);
    for (int i = 0; i < 3; i++)
        CHECK(((const int32_t *)array.children[8]->buffers[1])[i] == 3);
    array.release(&array);
}

/* Spark's types: the times in microseconds, the types in 32 bits, no headers where there are none. */
void test_columns_spark(void) {
    kl_columns_t *plain = NULL, *spark = NULL;
    CHECK(kl_columns_new(&pool, every_kind, KL_COLUMN_KINDS, 0, &plain) == KL_OK);
    CHECK(kl_columns_new(&pool, every_kind, KL_COLUMN_KINDS, KL_COLUMNS_SPARK, &spark) == KL_OK);
    uint8_t out[16384];
    int32_t bad;
    for (int i = 0; i < 3; i++) {
        size_t size = make_batch(out, 20);
        kl_batch_t b;
        CHECK(kl_batch_header(out, size, &b) == KL_OK);
        size -= KL_BATCH_HEADER;
        CHECK(kl_columns_append(plain, &b, out + KL_BATCH_HEADER, size, INT64_MIN, INT64_MAX, 1, &bad) == KL_OK);
        CHECK(kl_columns_append(spark, &b, out + KL_BATCH_HEADER, size, INT64_MIN, INT64_MAX, 1, &bad) == KL_OK);
    }
    struct ArrowArray first, second;
    CHECK(kl_columns_export(plain, &first) == KL_OK);
    CHECK(kl_columns_export(spark, &second) == KL_OK);
    kl_columns_drop(plain);
    kl_columns_drop(spark);
    const int64_t *ms = first.children[1]->buffers[1], *us = second.children[1]->buffers[1];
    const int8_t *types = first.children[2]->buffers[1];
    const int32_t *wide = second.children[2]->buffers[1], *offsets = first.children[5]->buffers[1];
    const uint8_t *held = second.children[1]->buffers[0], *valid = second.children[5]->buffers[0];
    for (int64_t i = 0; i < first.length; i++) {
        int fits = ms[i] != -1 && ms[i] <= INT64_MAX / 1000 && ms[i] >= -(INT64_MAX / 1000);
        CHECK((held == NULL || held[i >> 3] >> (i & 7) & 1) == fits);
        CHECK(wide[i] == types[i] && (!fits || us[i] == 1000 * ms[i]));
        CHECK((valid == NULL || valid[i >> 3] >> (i & 7) & 1) == (offsets[i] != offsets[i + 1]));
    }
    first.release(&first);
    second.release(&second);
}

static void count_release(void *owner) { ++*(int *)owner; }

/* Views have the same content as copies, for two alternating payloads, and release them once, at the very end. */
void test_columns_views(void) {
    kl_columns_t *copies = NULL, *views = NULL;
    CHECK(kl_columns_new(&pool, every_kind, KL_COLUMN_KINDS, 0, &copies) == KL_OK);
    CHECK(kl_columns_new(&pool, every_kind, KL_COLUMN_KINDS, KL_COLUMNS_VIEWS, &views) == KL_OK);
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
            int32_t word[4];
            memcpy(word, at, sizeof word);
            const uint8_t *bytes = word[0] <= 12 ? at + 4 : (const uint8_t *)view->buffers[2 + word[2]] + word[3];
            CHECK(word[0] == offsets[i + 1] - offsets[i]);
            CHECK(memcmp(bytes, (const uint8_t *)plain->buffers[2] + offsets[i], (size_t)word[0]) == 0);
            for (int32_t k = word[0]; k < 12; k++)
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

/* Bytes beyond the range of a view's offset get their own slot, in the same pin. */
void test_views_far_away(void) {
    enum { AFTER = 700 };
    size_t reach = ((size_t)1 << 31) - AFTER, space = reach + 16384;
    uint8_t *bytes = mmap(NULL, space, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
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
    CHECK(kl_columns_new(&pool, every_kind, KL_COLUMN_KINDS, KL_COLUMNS_VIEWS, &views) == KL_OK);
    CHECK(kl_columns_pin(views, bytes, space, count_release, &released) == 0);
    CHECK(kl_columns_append(views, &b, bytes + reach, size, INT64_MIN, INT64_MAX, 1, &bad) == KL_OK);
    struct ArrowArray array;
    CHECK(kl_columns_export(views, &array) == KL_OK);
    kl_columns_drop(views);
    int64_t slots = array.children[4]->n_buffers - 3, used = 0;
    CHECK(slots >= 2 && slots <= 3); /* keys may begin one after the first values */
    for (int column = 3; column <= 4; column++) {
        const void **buffers = array.children[column]->buffers;
        const int64_t *sizes = buffers[2 + slots];
        CHECK(sizes[0] == (int64_t)space);
        for (int64_t i = 1; i < slots; i++)
            CHECK((const uint8_t *)buffers[2 + i] + sizes[i] == bytes + space);
        for (int64_t i = 0; i < array.length; i++) {
            int32_t word[4];
            memcpy(word, (const uint8_t *)buffers[1] + 16 * i, sizeof word);
            if (word[0] <= 12)
                continue;
            CHECK(word[2] >= 0 && word[2] < slots && word[3] >= 0 && (int64_t)word[3] + word[0] <= sizes[word[2]]);
            CHECK((int64_t)word[3] + word[0] <= INT32_MAX);
            CHECK(memcmp(word + 1, (const uint8_t *)buffers[2 + word[2]] + word[3], 4) == 0);
            used |= (int64_t)1 << word[2];
        }
    }
    CHECK((used & (used - 1)) != 0); /* more than one */
    array.release(&array);
    CHECK(released == 1);
    munmap(bytes, space);
}
