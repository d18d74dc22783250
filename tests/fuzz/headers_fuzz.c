/* Headers of batches to Arrow columns: choices:4 batch*; the exported array is valid Arrow data with the headers'
 * values.
 *
 *   choices := left_out:u32     a bit for each column that is left out
 */
#include "fuzz.h"

#include "headers.h"
#include "status.h"

enum { ROWS = 64 };

static int bit(const uint8_t *bits, int64_t i) { return bits == NULL || (bits[i >> 3] >> (i & 7) & 1); }

static void text(const struct ArrowArray *a) {
    CLAIM(a->n_buffers == 3 && a->null_count == 0);
    const int32_t *ends = a->buffers[1];
    const char *bytes = a->buffers[2];
    CLAIM(ends[0] == 0);
    for (int64_t i = 0; i < a->length; i++) {
        CLAIM(ends[i + 1] - ends[i] >= 3 && ends[i + 1] - ends[i] <= 6);
        for (int32_t k = ends[i]; k < ends[i + 1]; k++)
            CLAIM((bytes[k] >= 'a' && bytes[k] <= 'z') || bytes[k] == '4');
    }
}

/* The values of a column, and where it is null. */
static int64_t value_of(const struct ArrowArray *a, size_t width, int64_t i) {
    const uint8_t *at = (const uint8_t *)a->buffers[1] + (size_t)i * width;
    int8_t one;
    int16_t two;
    int32_t four;
    int64_t eight;
    switch (width) {
    case 1: return memcpy(&one, at, 1), one;
    case 2: return memcpy(&two, at, 2), two;
    case 4: return memcpy(&four, at, 4), four;
    default: return memcpy(&eight, at, 8), eight;
    }
}

static void times(const struct ArrowArray *a) {
    int64_t nulls = 0;
    for (int64_t i = 0; i < a->length; i++) {
        int null = !bit(a->buffers[0], i);
        CLAIM(null == (value_of(a, 8, i) == -1));
        nulls += null;
    }
    CLAIM(nulls == a->null_count);
}

static void equal(const struct ArrowArray *a, const kl_batch_t *rows, kl_header_t kind) {
    CLAIM((uintptr_t)a->buffers[1] % 64 == 0 && a->offset == 0);
    for (int64_t i = 0; i < a->length; i++) {
        const kl_batch_t *b = &rows[i];
        switch (kind) {
        case KL_HEADER_POSITION: CLAIM(value_of(a, 8, i) == b->position); break;
        case KL_HEADER_SIZE: CLAIM(value_of(a, 4, i) == b->size); break;
        case KL_HEADER_BASE_OFFSET: CLAIM(value_of(a, 8, i) == b->base_offset); break;
        case KL_HEADER_LAST_OFFSET: CLAIM(value_of(a, 8, i) == kl_batch_last_offset(b)); break;
        case KL_HEADER_COUNT: CLAIM(value_of(a, 4, i) == b->count); break;
        case KL_HEADER_TIMESTAMP_TYPE: CLAIM(value_of(a, 1, i) >= -1 && value_of(a, 1, i) <= 1); break;
        case KL_HEADER_LEADER_EPOCH: CLAIM(value_of(a, 4, i) == b->leader_epoch); break;
        case KL_HEADER_PRODUCER_ID: CLAIM(value_of(a, 8, i) == b->producer_id); break;
        case KL_HEADER_PRODUCER_EPOCH: CLAIM(value_of(a, 2, i) == b->producer_epoch); break;
        case KL_HEADER_BASE_SEQUENCE: CLAIM(value_of(a, 4, i) == b->base_sequence); break;
        case KL_HEADER_IS_TRANSACTIONAL:
            CLAIM(bit(a->buffers[1], i) == ((b->attributes & KL_ATTR_TRANSACTIONAL) != 0));
            break;
        case KL_HEADER_IS_CONTROL: CLAIM(bit(a->buffers[1], i) == ((b->attributes & KL_ATTR_CONTROL) != 0)); break;
        case KL_HEADER_MAGIC: CLAIM(value_of(a, 1, i) == b->magic); break;
        case KL_HEADER_SEGMENT_BASE_OFFSET: CLAIM(value_of(a, 8, i) == 7); break;
        default: break;
        }
    }
    if (kind == KL_HEADER_COMPRESSION)
        text(a);
    if (kind == KL_HEADER_BASE_TIMESTAMP || kind == KL_HEADER_MAX_TIMESTAMP || kind == KL_HEADER_DELETE_HORIZON)
        times(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint32_t left_out;
    memcpy(&left_out, fuzz_choices(&data, &size, 4), 4);
    kl_header_t kinds[KL_HEADER_KINDS];
    int n = 0;
    for (int kind = 0; kind < KL_HEADER_KINDS; kind++)
        if (!(left_out >> kind & 1))
            kinds[n++] = (kl_header_t)kind;
    kl_batch_t *rows = malloc(ROWS * sizeof *rows);
    CLAIM(rows != NULL);
    int64_t count = 0;
    for (size_t at = 0; at < size && count < ROWS; count++) {
        kl_batch_t *b = &rows[count];
        memset(b, 0, sizeof *b);
        if (kl_batch_header(data + at, size - at, b) != KL_OK || (b->attributes & KL_ATTR_CODEC) > 4)
            break;
        b->position = (int64_t)at;
        at += (size_t)b->size < size - at ? (size_t)b->size : size - at;
    }
    struct ArrowSchema schema;
    struct ArrowArray array;
    CLAIM(kl_headers_schema(kinds, n, &schema) == KL_OK && schema.n_children == n);
    CLAIM(kl_headers_export(rows, count, 7, kinds, n, &array) == KL_OK);
    CLAIM(array.length == count && array.n_children == n);
    for (int i = 0; i < n; i++) {
        CLAIM(array.children[i]->length == count && strcmp(schema.children[i]->name, kl_header_name(kinds[i])) == 0);
        equal(array.children[i], rows, kinds[i]);
    }
    free(rows); /* the export has copied them */
    schema.release(&schema);
    array.release(&array);
    return 0;
}
