/* See headers.h. */
#include "headers.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

enum { ALIGNMENT = 64, CODEC_NAME_MAX = 6, CODECS = 5 };

typedef enum { I8, I16, I32, I64, TIME, BIT, TEXT } layout_t;

static const struct {
    const char *name, *format;
    layout_t layout;
} fields[KL_HEADER_KINDS] = {
    [KL_HEADER_POSITION] = {"position", "l", I64},
    [KL_HEADER_SIZE] = {"size", "i", I32},
    [KL_HEADER_BASE_OFFSET] = {"base_offset", "l", I64},
    [KL_HEADER_LAST_OFFSET] = {"last_offset", "l", I64},
    [KL_HEADER_COUNT] = {"count", "i", I32},
    [KL_HEADER_BASE_TIMESTAMP] = {"base_timestamp", "tsm:UTC", TIME},
    [KL_HEADER_MAX_TIMESTAMP] = {"max_timestamp", "tsm:UTC", TIME},
    [KL_HEADER_TIMESTAMP_TYPE] = {"timestamp_type", "c", I8},
    [KL_HEADER_COMPRESSION] = {"compression", "u", TEXT},
    [KL_HEADER_LEADER_EPOCH] = {"leader_epoch", "i", I32},
    [KL_HEADER_PRODUCER_ID] = {"producer_id", "l", I64},
    [KL_HEADER_PRODUCER_EPOCH] = {"producer_epoch", "s", I16},
    [KL_HEADER_BASE_SEQUENCE] = {"base_sequence", "i", I32},
    [KL_HEADER_IS_TRANSACTIONAL] = {"is_transactional", "b", BIT},
    [KL_HEADER_IS_CONTROL] = {"is_control", "b", BIT},
    [KL_HEADER_DELETE_HORIZON] = {"delete_horizon", "tsm:UTC", TIME},
    [KL_HEADER_MAGIC] = {"magic", "c", I8},
    [KL_HEADER_SEGMENT_BASE_OFFSET] = {"segment_base_offset", "l", I64},
};

/* In the order of the codec bits. */
static const char *const codecs[CODECS] = {"none", "gzip", "snappy", "lz4", "zstd"};

const char *kl_header_name(kl_header_t kind) { return fields[kind].name; }

int kl_headers_schema(const kl_header_t *kinds, int n, struct ArrowSchema *out) {
    struct ArrowSchema root;
    int status = kl_arrow_schema(&root, "+s", "", n);
    if (status != KL_OK)
        return status;
    root.flags = 0; /* a batch is never null */
    for (int i = 0; i < n && status == KL_OK; i++)
        status = kl_arrow_schema(root.children[i], fields[kinds[i]].format, fields[kinds[i]].name, 0);
    if (status != KL_OK) {
        root.release(&root);
        return status;
    }
    *out = root;
    return KL_OK;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

typedef struct {
    atomic_int_fast64_t references;
    size_t used; /* bytes of the block that columns have */
    _Alignas(ALIGNMENT) uint8_t bytes[];
} block_t;

static void drop(void *owner) {
    block_t *block = owner;
    if (atomic_fetch_sub_explicit(&block->references, 1, memory_order_acq_rel) == 1)
        free(block);
}

static size_t aligned(size_t size) { return (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1); }

static size_t bits(int64_t count) { return aligned(((size_t)count + 7) / 8); }

/* Bytes of a column's buffers, all aligned. */
static size_t column_size(layout_t layout, int64_t count) {
    size_t rows = (size_t)count;
    switch (layout) {
    case I8:
        return aligned(rows);
    case I16:
        return aligned(2 * rows);
    case I32:
        return aligned(4 * rows);
    case I64:
        return aligned(8 * rows);
    case TIME:
        return bits(count) + aligned(8 * rows);
    case BIT:
        return bits(count);
    default:
        return aligned(4 * (rows + 1)) + aligned(CODEC_NAME_MAX * rows);
    }
}

static void *take(block_t *block, size_t size) {
    void *at = block->bytes + block->used;
    block->used += aligned(size);
    return at;
}

static int begin(struct ArrowArray *a, block_t *block, int64_t length, int64_t n_buffers, int64_t n_children) {
    int status = kl_arrow_array(a, length, n_buffers, n_children, drop, block);
    if (status == KL_OK)
        atomic_fetch_add_explicit(&block->references, 1, memory_order_relaxed);
    return status;
}

/* --- columns ------------------------------------------------------------------------------------------------------ */

static int64_t i64_of(const kl_batch_t *b, kl_header_t kind, int64_t segment_base_offset) {
    switch (kind) {
    case KL_HEADER_POSITION:
        return b->position;
    case KL_HEADER_BASE_OFFSET:
        return b->base_offset;
    case KL_HEADER_LAST_OFFSET:
        return kl_batch_last_offset(b);
    case KL_HEADER_PRODUCER_ID:
        return b->producer_id;
    default:
        return segment_base_offset;
    }
}

static int32_t i32_of(const kl_batch_t *b, kl_header_t kind) {
    switch (kind) {
    case KL_HEADER_SIZE:
        return b->size;
    case KL_HEADER_COUNT:
        return b->count;
    case KL_HEADER_LEADER_EPOCH:
        return b->leader_epoch;
    default:
        return b->base_sequence;
    }
}

static int8_t i8_of(const kl_batch_t *b, kl_header_t kind) {
    if (kind == KL_HEADER_MAGIC)
        return b->magic;
    return b->magic == 0 ? -1 : (b->attributes & KL_ATTR_LOG_APPEND_TIME) != 0;
}

/* A timestamp in ms, -1 for none. */
static int64_t time_of(const kl_batch_t *b, kl_header_t kind) {
    if (kind == KL_HEADER_MAX_TIMESTAMP)
        return b->max_timestamp;
    int horizon = (b->attributes & KL_ATTR_DELETE_HORIZON) != 0;
    return horizon == (kind == KL_HEADER_DELETE_HORIZON) ? b->base_timestamp : -1;
}

static void put_times(struct ArrowArray *a, block_t *block, const kl_batch_t *rows, int64_t count, kl_header_t kind) {
    uint8_t *valid = take(block, bits(count));
    int64_t *to = take(block, 8 * (size_t)count);
    memset(valid, 0, bits(count));
    for (int64_t i = 0; i < count; i++) {
        to[i] = time_of(&rows[i], kind);
        valid[i >> 3] |= (uint8_t)((to[i] != -1) << (i & 7));
        a->null_count += to[i] == -1;
    }
    a->buffers[0] = a->null_count != 0 ? valid : NULL;
    a->buffers[1] = to;
}

static void put_bits(struct ArrowArray *a, block_t *block, const kl_batch_t *rows, int64_t count, int attribute) {
    uint8_t *to = take(block, bits(count));
    memset(to, 0, bits(count));
    for (int64_t i = 0; i < count; i++)
        to[i >> 3] |= (uint8_t)(((rows[i].attributes & attribute) != 0) << (i & 7));
    a->buffers[1] = to;
}

static void put_codecs(struct ArrowArray *a, block_t *block, const kl_batch_t *rows, int64_t count) {
    int32_t *offsets = take(block, 4 * ((size_t)count + 1)), at = 0;
    char *to = take(block, CODEC_NAME_MAX * (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        const char *name = codecs[(rows[i].attributes & KL_ATTR_CODEC) % CODECS];
        size_t size = strlen(name);
        memcpy(to + at, name, size);
        offsets[i] = at;
        at += (int32_t)size;
    }
    offsets[count] = at;
    a->buffers[1] = offsets;
    a->buffers[2] = to;
}

static int export_column(struct ArrowArray *a, block_t *block, const kl_batch_t *rows, int64_t count,
                         int64_t segment_base_offset, kl_header_t kind) {
    layout_t layout = fields[kind].layout;
    int status = begin(a, block, count, layout == TEXT ? 3 : 2, 0);
    if (status != KL_OK)
        return status;
    switch (layout) {
    case TIME:
        put_times(a, block, rows, count, kind);
        break;
    case BIT:
        put_bits(a, block, rows, count, kind == KL_HEADER_IS_CONTROL ? KL_ATTR_CONTROL : KL_ATTR_TRANSACTIONAL);
        break;
    case TEXT:
        put_codecs(a, block, rows, count);
        break;
    case I8: {
        int8_t *to = take(block, (size_t)count);
        for (int64_t i = 0; i < count; i++)
            to[i] = i8_of(&rows[i], kind);
        a->buffers[1] = to;
        break;
    }
    case I16: {
        int16_t *to = take(block, 2 * (size_t)count);
        for (int64_t i = 0; i < count; i++)
            to[i] = rows[i].producer_epoch;
        a->buffers[1] = to;
        break;
    }
    case I32: {
        int32_t *to = take(block, 4 * (size_t)count);
        for (int64_t i = 0; i < count; i++)
            to[i] = i32_of(&rows[i], kind);
        a->buffers[1] = to;
        break;
    }
    case I64: {
        int64_t *to = take(block, 8 * (size_t)count);
        for (int64_t i = 0; i < count; i++)
            to[i] = i64_of(&rows[i], kind, segment_base_offset);
        a->buffers[1] = to;
        break;
    }
    }
    return KL_OK;
}

int kl_headers_export(const kl_batch_t *rows, int64_t count, int64_t segment_base_offset, const kl_header_t *kinds,
                      int n, struct ArrowArray *out) {
    size_t size = sizeof(block_t);
    for (int i = 0; i < n; i++)
        size += column_size(fields[kinds[i]].layout, count);
    void *memory = NULL;
    if (posix_memalign(&memory, ALIGNMENT, size) != 0)
        return -ENOMEM;
    block_t *block = memory;
    atomic_init(&block->references, 1);
    block->used = 0;
    struct ArrowArray root;
    int status = begin(&root, block, count, 1, n);
    if (status == KL_OK) {
        for (int i = 0; i < n && status == KL_OK; i++)
            status = export_column(root.children[i], block, rows, count, segment_base_offset, kinds[i]);
        if (status == KL_OK)
            *out = root;
        else
            root.release(&root);
    }
    drop(block); /* the exported arrays have their own references */
    return status;
}
