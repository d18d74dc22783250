/* Batches to Arrow columns: choices:6 batch*; the exported arrays are valid Arrow data.
 *
 *   choices := fields:u8 start:u8 stop:u8 hint:u8 views:u8 ...
 *                      a bit for each field that is left out; offsets relative to the first batch, 0 is all; views by
 * bit 0
 */
#include "fuzz.h"

#include <limits.h>

#include "columns.h"
#include "status.h"
#include "utf8.h"

static kl_pool_t pool;

static void fixed(const struct ArrowArray *a, size_t width) {
    CLAIM(a->n_buffers == 2 && a->buffers[1] != NULL && (uintptr_t)a->buffers[1] % 64 == 0);
    const volatile uint8_t *values = a->buffers[1];
    for (size_t i = 0; i < (size_t)a->length * width; i++)
        (void)values[i];
}

static int64_t bits(const struct ArrowArray *a) {
    const uint8_t *valid = a->buffers[0];
    int64_t set = 0;
    for (int64_t i = 0; i < a->length; i++)
        set += valid == NULL || (valid[i >> 3] >> (i & 7) & 1);
    CLAIM(a->length - set == a->null_count);
    return set;
}

static void binary(const struct ArrowArray *a, int text) {
    CLAIM(a->n_buffers == 3 && a->buffers[1] != NULL);
    bits(a);
    const int32_t *offsets = a->buffers[1];
    const uint8_t *bytes = a->buffers[2];
    CLAIM(offsets[0] == 0 && (bytes != NULL || offsets[a->length] == 0));
    for (int64_t i = 0; i < a->length; i++) {
        CLAIM(offsets[i] <= offsets[i + 1]);
        const uint8_t *at = bytes + offsets[i];
        size_t left = (size_t)(offsets[i + 1] - offsets[i]);
        while (left != 0) {
            int step = text ? kl_utf8_step(at, left) : 1;
            (void)*(const volatile uint8_t *)at;
            CLAIM(step > 0);
            at += step;
            left -= (size_t)step;
        }
    }
}

/* The buffers of views, in separate blocks of exact size: each is released with its last reference. */
static int pinned, let_go;

static void let_go_of(void *payload) {
    free(payload);
    let_go++;
}

static void views_of(const struct ArrowArray *a) {
    CLAIM(a->n_buffers == 3 + pinned && a->buffers[1] != NULL && (uintptr_t)a->buffers[1] % 64 == 0);
    bits(a);
    const uint8_t *valid = a->buffers[0], *views = a->buffers[1];
    const int64_t *sizes = a->buffers[2 + pinned];
    for (int64_t i = 0; i < a->length; i++) {
        static const uint8_t zeros[16];
        const uint8_t *view = views + 16 * i;
        int32_t word[4]; /* size, then 12 bytes; or the first 4 of them, number of a buffer, offset in it */
        memcpy(word, view, sizeof word);
        if (valid != NULL && !(valid[i >> 3] >> (i & 7) & 1)) {
            CLAIM(word[0] == 0);
            continue;
        }
        CLAIM(word[0] >= 0);
        if (word[0] <= 12) {
            CLAIM(memcmp(view + 4 + word[0], zeros, (size_t)(12 - word[0])) == 0);
            continue;
        }
        CLAIM(word[2] >= 0 && word[2] < pinned && word[3] >= 0);
        CLAIM(word[0] <= sizes[word[2]] && word[3] <= sizes[word[2]] - word[0]);
        const volatile uint8_t *at = (const uint8_t *)a->buffers[2 + word[2]] + word[3];
        CLAIM(memcmp((const uint8_t *)at, view + 4, 4) == 0);
        for (int32_t k = 0; k < word[0]; k++)
            (void)at[k];
    }
}

static void lists(const struct ArrowArray *a) {
    CLAIM(a->n_buffers == 2 && a->n_children == 1);
    const int32_t *offsets = a->buffers[1];
    const struct ArrowArray *items = a->children[0];
    CLAIM(offsets[0] == 0 && offsets[a->length] == items->length && items->n_children == 2);
    for (int64_t i = 0; i < a->length; i++)
        CLAIM(offsets[i] <= offsets[i + 1]);
    CLAIM(items->children[0]->length == items->length && items->children[1]->length == items->length);
    binary(items->children[0], 1);
    binary(items->children[1], 0);
}

/* Releases the columns: the array alone must keep its buffers. */
static void exported(kl_columns_t *columns, const kl_column_t *kinds, int n, int views) {
    struct ArrowArray array;
    CLAIM(kl_columns_export(columns, &array) == KL_OK);
    CLAIM(array.length == kl_columns_rows(columns) && array.n_children == n && kl_columns_nbytes(columns) >= 0);
    kl_columns_drop(columns);
    CLAIM(let_go == 0);
    for (int i = 0; i < n; i++) {
        const struct ArrowArray *child = array.children[i];
        CLAIM(child->length == array.length && child->offset == 0);
        switch (kinds[i]) {
        case KL_COLUMN_OFFSET: fixed(child, 8); break;
        case KL_COLUMN_TIMESTAMP: fixed(child, 8), bits(child); break;
        case KL_COLUMN_TIMESTAMP_TYPE: fixed(child, 1); break;
        case KL_COLUMN_LEADER_EPOCH: fixed(child, 4); break;
        case KL_COLUMN_KEY:
        case KL_COLUMN_VALUE: views ? views_of(child) : binary(child, 0); break;
        case KL_COLUMN_HEADERS: lists(child); break;
        default: CLAIM(!"a kind that the target knows");
        }
    }
    array.release(&array);
    CLAIM(array.release == NULL && let_go == pinned);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *choices = fuzz_choices(&data, &size, 6);
    kl_column_t kinds[KL_COLUMN_KINDS];
    int n = 0;
    for (int kind = 0; kind < KL_COLUMN_LEADER_EPOCH + 1; kind++)
        if (!(choices[0] >> kind & 1)) /* no choice is all fields */
            kinds[n++] = (kl_column_t)kind;
    if (n == 0)
        return 0;
    kl_columns_t *columns;
    int views = choices[4] & 1;
    pinned = let_go = 0;
    CLAIM(kl_columns_new(&pool, kinds, n, views, &columns) == KL_OK);
    size_t at = 0;
    int64_t first = -1;
    while (at < size) {
        kl_batch_t b;
        if (kl_batch_header(data + at, size - at, &b) != KL_OK)
            break;
        if (first < 0)
            first = b.base_offset;
        size_t left = size - at - KL_BATCH_HEADER, own = (size_t)b.size - KL_BATCH_HEADER;
        size_t payload_size = own < left ? own : left;
        int64_t start = choices[1] == 0 || first > INT64_MAX - choices[1] ? INT64_MIN : first + choices[1];
        int64_t stop = choices[2] == 0 || first > INT64_MAX - choices[2] ? INT64_MAX : first + choices[2];
        if ((size_t)b.count > payload_size / KL_RECORD_MIN)
            break;
        uint8_t *payload = fuzz_exact(data + at + KL_BATCH_HEADER, payload_size);
        if (views)
            CLAIM(kl_columns_pin(columns, payload, payload_size, let_go_of, payload) == pinned++);
        int32_t bad = -1;
        int64_t before = kl_columns_rows(columns);
        int status = kl_columns_append(columns, &b, payload, payload_size, start, stop, choices[3], &bad);
        int32_t also_bad = -1;
        int valid = kl_payload_validate(payload, payload_size, b.count, -1, &also_bad);
        if (!views)
            free(payload);
        if (status != KL_OK) {
            CLAIM(valid != KL_OK || b.attributes & KL_ATTR_CONTROL || status == KL_ESPACE);
            kl_columns_drop(columns);
            CLAIM(let_go == pinned);
            return 0;
        }
        CLAIM(valid == KL_OK && kl_columns_rows(columns) - before <= b.count);
        /* A record's offset may exceed its batch's last one, even 2^63-1, which no stop exceeds. */
        if (choices[1] == 0 && choices[2] == 0 && b.base_offset < INT64_MAX - INT32_MAX)
            CLAIM(kl_columns_rows(columns) - before == b.count);
        at += KL_BATCH_HEADER + payload_size;
    }
    exported(columns, kinds, n, views);
    return 0;
}
