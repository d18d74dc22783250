/* See columns.h. */
#include "columns.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "utf8.h"

enum {
    ALIGNMENT = KL_POOL_ALIGNMENT,
    HINT_MAX = 64, /* times what the first batch takes */
};

typedef struct {
    uint8_t *data;
    size_t size; /* bytes in use */
    size_t capacity;
} buffer_t;

/* A column of bytes or lists: int32 offsets, one more than entries, into data. */
typedef struct {
    buffer_t offsets;
    buffer_t data;
    buffer_t valid;
    int64_t nulls;
} binary_t;

struct kl_columns {
    atomic_int_fast64_t shares;
    kl_pool_t *pool; /* of all the buffers below */
    int n;
    kl_column_t kinds[KL_COLUMN_KINDS];
    unsigned wanted; /* bit per kind */
    int64_t rows;
    int64_t headers; /* entries of header_key and header_value */
    buffer_t offset;
    buffer_t timestamp;
    buffer_t timestamp_valid;
    int64_t timestamp_nulls;
    buffer_t timestamp_type;
    buffer_t leader_epoch;
    binary_t key;
    binary_t value;
    buffer_t header_offsets;
    binary_t header_key;
    binary_t header_value;
};

/* What one batch adds. */
typedef struct {
    int64_t rows;
    int64_t headers;
    uint64_t key_bytes;
    uint64_t value_bytes;
    uint64_t header_key_bytes;
    uint64_t header_value_bytes;
} measure_t;

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Room for more bytes.  The first time, room for hint times as much; pages that nobody touches cost nothing. */
static int reserve(kl_columns_t *c, buffer_t *b, uint64_t more, double hint) {
    if (b->capacity - b->size >= more)
        return KL_OK;
    uint64_t wish = b->size + more;
    uint64_t ahead = b->capacity <= ALIGNMENT ? (uint64_t)((double)more * hint) : 2 * (uint64_t)b->capacity;
    if (ahead > wish)
        wish = ahead;
    size_t capacity = 0;
    uint8_t *data = kl_pool_take(c->pool, wish, &capacity);
    if (data == NULL)
        return -ENOMEM;
    if (b->size != 0)
        memcpy(data, b->data, b->size);
    kl_pool_give(c->pool, b->data, b->capacity);
    b->data = data;
    b->capacity = capacity;
    return KL_OK;
}

/* A bitmap for count bits in all, new bytes zero. */
static int reserve_bits(kl_columns_t *c, buffer_t *b, int64_t count, double hint) {
    size_t size = ((size_t)count + 7) / 8;
    if (size <= b->size)
        return KL_OK;
    int status = reserve(c, b, size - b->size, hint);
    if (status != KL_OK)
        return status;
    memset(b->data + b->size, 0, size - b->size);
    b->size = size;
    return KL_OK;
}

static inline void set_bit(buffer_t *b, int64_t at) { b->data[at >> 3] |= (uint8_t)(1u << (at & 7)); }

static inline void put_i64(buffer_t *b, int64_t v) {
    memcpy(b->data + b->size, &v, 8);
    b->size += 8;
}

static inline void put_i32(buffer_t *b, int32_t v) {
    memcpy(b->data + b->size, &v, 4);
    b->size += 4;
}

static int begin_offsets(kl_columns_t *c, buffer_t *b) {
    int status = reserve(c, b, ALIGNMENT, 1);
    if (status == KL_OK)
        put_i32(b, 0);
    return status;
}

static int begin_binary(kl_columns_t *c, binary_t *b) {
    int status = begin_offsets(c, &b->offsets);
    return status != KL_OK ? status : reserve(c, &b->data, ALIGNMENT, 1);
}

static int reserve_binary(kl_columns_t *c, binary_t *b, int64_t entries, int64_t more, uint64_t bytes,
                          double hint) {
    if (bytes > (uint64_t)INT32_MAX - b->data.size)
        return KL_ESPACE;
    int status = reserve(c, &b->offsets, 4 * (uint64_t)more, hint);
    if (status == KL_OK)
        status = reserve_bits(c, &b->valid, entries + more, hint);
    return status != KL_OK ? status : reserve(c, &b->data, bytes, hint);
}

static void give(kl_columns_t *c, buffer_t *b) { kl_pool_give(c->pool, b->data, b->capacity); }

static void give_binary(kl_columns_t *c, binary_t *b) {
    give(c, &b->offsets);
    give(c, &b->data);
    give(c, &b->valid);
}

/* Append one entry.  The room was measured, but in a shared mapping bytes may change between two looks: asked again. */
static inline int put_binary(binary_t *b, int64_t at, const uint8_t *bytes, int32_t size) {
    if (size < 0) {
        b->nulls++;
    } else {
        if ((size_t)size > b->data.capacity - b->data.size)
            return KL_ELENGTH;
        memcpy(b->data.data + b->data.size, bytes, (size_t)size);
        b->data.size += (size_t)size;
        set_bit(&b->valid, at);
    }
    put_i32(&b->offsets, (int32_t)b->data.size);
    return KL_OK;
}

int kl_columns_new(kl_pool_t *pool, const kl_column_t *kinds, int n, kl_columns_t **out) {
    kl_columns_t *c = calloc(1, sizeof *c);
    if (c == NULL)
        return -ENOMEM;
    atomic_init(&c->shares, 1);
    c->pool = pool;
    c->n = n;
    for (int i = 0; i < n; i++) {
        c->kinds[i] = kinds[i];
        c->wanted |= 1u << kinds[i];
    }
    int status = begin_binary(c, &c->key);
    if (status == KL_OK)
        status = begin_binary(c, &c->value);
    if (status == KL_OK)
        status = begin_binary(c, &c->header_key);
    if (status == KL_OK)
        status = begin_binary(c, &c->header_value);
    if (status == KL_OK)
        status = begin_offsets(c, &c->header_offsets);
    /* Fixed-width columns: no consumer should meet a null pointer, not even for no rows. */
    buffer_t *fixed[] = {&c->offset, &c->timestamp, &c->timestamp_type, &c->leader_epoch};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed && status == KL_OK; i++)
        status = reserve(c, fixed[i], ALIGNMENT, 1);
    if (status != KL_OK) {
        kl_columns_drop(c);
        return status;
    }
    *out = c;
    return KL_OK;
}

void kl_columns_drop(kl_columns_t *c) {
    if (c == NULL || atomic_fetch_sub_explicit(&c->shares, 1, memory_order_acq_rel) != 1)
        return;
    buffer_t *plain[] = {&c->offset,         &c->timestamp,    &c->timestamp_valid,
                         &c->timestamp_type, &c->leader_epoch, &c->header_offsets};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        give(c, plain[i]);
    give_binary(c, &c->key);
    give_binary(c, &c->value);
    give_binary(c, &c->header_key);
    give_binary(c, &c->header_value);
    free(c);
}

int64_t kl_columns_rows(const kl_columns_t *c) { return c->rows; }

int64_t kl_columns_nbytes(const kl_columns_t *c) {
    const binary_t *binaries[] = {&c->key, &c->value, &c->header_key, &c->header_value};
    const kl_column_t kinds[] = {KL_COLUMN_KEY, KL_COLUMN_VALUE, KL_COLUMN_HEADERS, KL_COLUMN_HEADERS};
    size_t size = c->offset.size + c->timestamp.size + c->timestamp_valid.size + c->timestamp_type.size +
                  c->leader_epoch.size;
    for (int i = 0; i < 4; i++)
        if (c->wanted & 1u << kinds[i])
            size += binaries[i]->offsets.size + binaries[i]->data.size + binaries[i]->valid.size;
    if (c->wanted & 1u << KL_COLUMN_HEADERS)
        size += c->header_offsets.size;
    return (int64_t)size;
}

/* --- a batch in ---------------------------------------------------------------------------------------------------- */

static inline int64_t record_offset(const kl_batch_t *b, const kl_record_t *r) {
    return (int64_t)((uint64_t)b->base_offset + (uint64_t)(int64_t)r->offset_delta);
}

static inline int control_key_ok(const kl_record_t *r) { return r->key_size >= 4 && (r->key[0] & 0x80) == 0; }

static int measure_headers(const kl_record_t *r, const uint8_t *end, measure_t *m) {
    const uint8_t *at = r->headers;
    m->headers += r->header_count;
    for (int32_t i = 0; i < r->header_count; i++) {
        kl_record_header_t h;
        size_t used;
        int status = kl_record_header_next(at, (size_t)(end - at), &h, &used);
        if (status != KL_OK)
            return status;
        m->header_key_bytes += kl_utf8_repaired_size(h.key, (size_t)h.key_size);
        m->header_value_bytes += h.value_size > 0 ? (uint64_t)h.value_size : 0;
        at += used;
    }
    return KL_OK;
}

/* First pass: check every record, count what the wanted ones take. */
static int measure(const kl_columns_t *c, const kl_batch_t *b, const uint8_t *payload, size_t size, int64_t start,
                   int64_t stop, measure_t *m, int32_t *bad) {
    size_t at = 0;
    for (int32_t i = 0; i < b->count; i++) {
        kl_record_t r;
        size_t used;
        int status = at == size ? KL_ECOUNT : kl_record_next(payload + at, size - at, &r, &used);
        if (status == KL_OK && (b->attributes & KL_ATTR_CONTROL) && !control_key_ok(&r))
            status = KL_ELENGTH;
        if (status == KL_OK) {
            at += used;
            int64_t offset = record_offset(b, &r);
            if (offset >= start && offset < stop) {
                m->rows++;
                m->key_bytes += r.key_size > 0 ? (uint64_t)r.key_size : 0;
                m->value_bytes += r.value_size > 0 ? (uint64_t)r.value_size : 0;
                if (r.header_count != 0 && (c->wanted & 1u << KL_COLUMN_HEADERS))
                    status = measure_headers(&r, payload + at, m);
            }
        }
        if (status != KL_OK) {
            *bad = i;
            return status;
        }
    }
    if (at != size) {
        *bad = b->count;
        return KL_ESLACK;
    }
    return KL_OK;
}

static int reserve_all(kl_columns_t *c, const measure_t *m, double hint) {
    uint64_t rows = (uint64_t)m->rows;
    unsigned wanted = c->wanted;
    int status = KL_OK;
    if (status == KL_OK && wanted & 1u << KL_COLUMN_OFFSET)
        status = reserve(c, &c->offset, 8 * rows, hint);
    if (status == KL_OK && wanted & 1u << KL_COLUMN_TIMESTAMP)
        status = reserve(c, &c->timestamp, 8 * rows, hint);
    if (status == KL_OK && wanted & 1u << KL_COLUMN_TIMESTAMP)
        status = reserve_bits(c, &c->timestamp_valid, c->rows + m->rows, hint);
    if (status == KL_OK && wanted & 1u << KL_COLUMN_TIMESTAMP_TYPE)
        status = reserve(c, &c->timestamp_type, rows, hint);
    if (status == KL_OK && wanted & 1u << KL_COLUMN_LEADER_EPOCH)
        status = reserve(c, &c->leader_epoch, 4 * rows, hint);
    if (status == KL_OK && wanted & 1u << KL_COLUMN_KEY)
        status = reserve_binary(c, &c->key, c->rows, m->rows, m->key_bytes, hint);
    if (status == KL_OK && wanted & 1u << KL_COLUMN_VALUE)
        status = reserve_binary(c, &c->value, c->rows, m->rows, m->value_bytes, hint);
    if (status == KL_OK && wanted & 1u << KL_COLUMN_HEADERS) {
        if (m->headers > INT32_MAX - c->headers)
            return KL_ESPACE;
        status = reserve(c, &c->header_offsets, 4 * rows, hint);
        if (status == KL_OK)
            status = reserve_binary(c, &c->header_key, c->headers, m->headers, m->header_key_bytes, hint);
        if (status == KL_OK)
            status = reserve_binary(c, &c->header_value, c->headers, m->headers, m->header_value_bytes, hint);
    }
    return status;
}

static int put_headers(kl_columns_t *c, const kl_record_t *r, const uint8_t *end, int64_t headers_max) {
    const uint8_t *at = r->headers;
    if (r->header_count > headers_max - c->headers)
        return KL_ELENGTH;
    for (int32_t i = 0; i < r->header_count; i++) {
        kl_record_header_t h;
        size_t used;
        int status = kl_record_header_next(at, (size_t)(end - at), &h, &used);
        if (status != KL_OK)
            return status;
        buffer_t *keys = &c->header_key.data;
        size_t room = keys->capacity - keys->size;
        size_t made = kl_utf8_repair(h.key, (size_t)h.key_size, keys->data + keys->size, room);
        if (made > room)
            return KL_ELENGTH;
        keys->size += made;
        set_bit(&c->header_key.valid, c->headers);
        put_i32(&c->header_key.offsets, (int32_t)keys->size);
        status = put_binary(&c->header_value, c->headers, h.value, h.value_size);
        if (status != KL_OK)
            return status;
        c->headers++;
        at += used;
    }
    return KL_OK;
}

/* Second pass: copy. */
static int fill(kl_columns_t *c, const kl_batch_t *b, const uint8_t *payload, size_t size, int64_t start, int64_t stop,
                const measure_t *m, int32_t *bad) {
    unsigned wanted = c->wanted;
    int append_time = (b->attributes & KL_ATTR_LOG_APPEND_TIME) != 0;
    int64_t rows_max = c->rows + m->rows, headers_max = c->headers + m->headers;
    size_t at = 0;
    for (int32_t i = 0; i < b->count && c->rows < rows_max; i++) {
        kl_record_t r;
        size_t used;
        int status = kl_record_next(payload + at, size - at, &r, &used);
        if (status != KL_OK) {
            *bad = i;
            return status;
        }
        at += used;
        int64_t offset = record_offset(b, &r);
        if (offset < start || offset >= stop)
            continue;
        if (wanted & 1u << KL_COLUMN_OFFSET)
            put_i64(&c->offset, offset);
        if (wanted & 1u << KL_COLUMN_TIMESTAMP) {
            int64_t timestamp = append_time ? b->max_timestamp
                                            : (int64_t)((uint64_t)b->base_timestamp + (uint64_t)r.timestamp_delta);
            put_i64(&c->timestamp, timestamp);
            if (timestamp == -1)
                c->timestamp_nulls++;
            else
                set_bit(&c->timestamp_valid, c->rows);
        }
        if (wanted & 1u << KL_COLUMN_TIMESTAMP_TYPE)
            c->timestamp_type.data[c->timestamp_type.size++] = (uint8_t)append_time;
        if (wanted & 1u << KL_COLUMN_LEADER_EPOCH)
            put_i32(&c->leader_epoch, b->leader_epoch);
        if (wanted & 1u << KL_COLUMN_KEY)
            status = put_binary(&c->key, c->rows, r.key, r.key_size);
        if (status == KL_OK && wanted & 1u << KL_COLUMN_VALUE)
            status = put_binary(&c->value, c->rows, r.value, r.value_size);
        if (status == KL_OK && wanted & 1u << KL_COLUMN_HEADERS) {
            if (r.header_count != 0)
                status = put_headers(c, &r, payload + at, headers_max);
            put_i32(&c->header_offsets, (int32_t)c->headers);
        }
        if (status != KL_OK) {
            *bad = i;
            return status;
        }
        c->rows++;
    }
    return KL_OK;
}

int kl_columns_append(kl_columns_t *c, const kl_batch_t *b, const uint8_t *payload, size_t size, int64_t start,
                      int64_t stop, double hint, int32_t *bad) {
    if (b->count == 0)
        return KL_OK;
    measure_t m = {0};
    int status = measure(c, b, payload, size, start, stop, &m, bad);
    if (status != KL_OK)
        return status;
    *bad = 0;
    status = reserve_all(c, &m, hint < 1 ? 1 : hint > HINT_MAX ? HINT_MAX : hint);
    return status != KL_OK ? status : fill(c, b, payload, size, start, stop, &m, bad);
}

/* --- schema out ----------------------------------------------------------------------------------------------------- */

static void release_schema(struct ArrowSchema *s) {
    for (int64_t i = 0; i < s->n_children; i++) {
        struct ArrowSchema *child = s->children[i];
        if (child != NULL && child->release != NULL)
            child->release(child);
        free(child);
    }
    free(s->children);
    s->release = NULL;
}

/* A node with room for n children, each of them empty and released. */
static int begin_schema(struct ArrowSchema *s, const char *format, const char *name, int64_t n) {
    memset(s, 0, sizeof *s);
    if (n != 0) {
        s->children = calloc((size_t)n, sizeof *s->children);
        if (s->children == NULL)
            return -ENOMEM;
    }
    s->format = format;
    s->name = name;
    s->flags = KL_ARROW_NULLABLE;
    s->n_children = n;
    s->release = release_schema;
    for (int64_t i = 0; i < n; i++) {
        s->children[i] = calloc(1, sizeof **s->children);
        if (s->children[i] == NULL) {
            release_schema(s);
            return -ENOMEM;
        }
    }
    return KL_OK;
}

static int headers_schema(struct ArrowSchema *s) {
    int status = begin_schema(s, "+l", "headers", 1);
    if (status == KL_OK)
        status = begin_schema(s->children[0], "+s", "item", 2);
    if (status == KL_OK)
        status = begin_schema(s->children[0]->children[0], "u", "key", 0);
    if (status == KL_OK)
        status = begin_schema(s->children[0]->children[1], "z", "value", 0);
    return status;
}

int kl_columns_schema(const kl_column_t *kinds, int n, struct ArrowSchema *out) {
    static const struct {
        const char *format, *name;
    } fields[KL_COLUMN_KINDS] = {
        [KL_COLUMN_OFFSET] = {"l", "offset"},
        [KL_COLUMN_TIMESTAMP] = {"tsm:UTC", "timestamp"},
        [KL_COLUMN_TIMESTAMP_TYPE] = {"c", "timestamp_type"},
        [KL_COLUMN_KEY] = {"z", "key"},
        [KL_COLUMN_VALUE] = {"z", "value"},
        [KL_COLUMN_HEADERS] = {"+l", "headers"},
        [KL_COLUMN_LEADER_EPOCH] = {"i", "leader_epoch"},
    };
    struct ArrowSchema root;
    int status = begin_schema(&root, "+s", "", n);
    if (status != KL_OK)
        return status;
    root.flags = 0; /* rows are there or not: a record cannot be null */
    for (int i = 0; i < n && status == KL_OK; i++)
        status = kinds[i] == KL_COLUMN_HEADERS
                     ? headers_schema(root.children[i])
                     : begin_schema(root.children[i], fields[kinds[i]].format, fields[kinds[i]].name, 0);
    if (status != KL_OK) {
        release_schema(&root);
        return status;
    }
    *out = root;
    return KL_OK;
}

/* --- arrays out ------------------------------------------------------------------------------------------------------ */

/* What an exported array owns: its pointers and a share of the columns. */
typedef struct {
    kl_columns_t *columns;
    const void *buffers[3];
} share_t;

static void release_array(struct ArrowArray *a) {
    for (int64_t i = 0; i < a->n_children; i++) {
        struct ArrowArray *child = a->children[i];
        if (child != NULL && child->release != NULL)
            child->release(child);
        free(child);
    }
    free(a->children);
    share_t *share = a->private_data;
    kl_columns_drop(share->columns);
    free(share);
    a->release = NULL;
}

static int begin_array(struct ArrowArray *a, kl_columns_t *c, int64_t length, int64_t n_buffers, int64_t n_children) {
    memset(a, 0, sizeof *a);
    share_t *share = calloc(1, sizeof *share);
    if (share == NULL)
        return -ENOMEM;
    if (n_children != 0) {
        a->children = calloc((size_t)n_children, sizeof *a->children);
        if (a->children == NULL) {
            free(share);
            return -ENOMEM;
        }
    }
    atomic_fetch_add_explicit(&c->shares, 1, memory_order_relaxed);
    share->columns = c;
    a->length = length;
    a->n_buffers = n_buffers;
    a->buffers = share->buffers;
    a->n_children = n_children;
    a->private_data = share;
    a->release = release_array;
    for (int64_t i = 0; i < n_children; i++) {
        a->children[i] = calloc(1, sizeof **a->children);
        if (a->children[i] == NULL) {
            release_array(a);
            return -ENOMEM;
        }
    }
    return KL_OK;
}

static int export_fixed(struct ArrowArray *a, kl_columns_t *c, const buffer_t *data, const buffer_t *valid,
                        int64_t nulls) {
    int status = begin_array(a, c, c->rows, 2, 0);
    if (status != KL_OK)
        return status;
    a->null_count = nulls;
    a->buffers[0] = nulls != 0 ? valid->data : NULL;
    a->buffers[1] = data->data;
    return KL_OK;
}

static int export_binary(struct ArrowArray *a, kl_columns_t *c, const binary_t *b, int64_t length) {
    int status = begin_array(a, c, length, 3, 0);
    if (status != KL_OK)
        return status;
    a->null_count = b->nulls;
    a->buffers[0] = b->nulls != 0 ? b->valid.data : NULL;
    a->buffers[1] = b->offsets.data;
    a->buffers[2] = b->data.data;
    return KL_OK;
}

static int export_headers(struct ArrowArray *a, kl_columns_t *c) {
    int status = begin_array(a, c, c->rows, 2, 1);
    if (status != KL_OK)
        return status;
    a->buffers[1] = c->header_offsets.data;
    struct ArrowArray *items = a->children[0];
    status = begin_array(items, c, c->headers, 1, 2);
    if (status == KL_OK)
        status = export_binary(items->children[0], c, &c->header_key, c->headers);
    if (status == KL_OK)
        status = export_binary(items->children[1], c, &c->header_value, c->headers);
    if (status != KL_OK)
        release_array(a);
    return status;
}

static int export_column(struct ArrowArray *a, kl_columns_t *c, kl_column_t kind) {
    switch (kind) {
    case KL_COLUMN_OFFSET:
        return export_fixed(a, c, &c->offset, NULL, 0);
    case KL_COLUMN_TIMESTAMP:
        return export_fixed(a, c, &c->timestamp, &c->timestamp_valid, c->timestamp_nulls);
    case KL_COLUMN_TIMESTAMP_TYPE:
        return export_fixed(a, c, &c->timestamp_type, NULL, 0);
    case KL_COLUMN_LEADER_EPOCH:
        return export_fixed(a, c, &c->leader_epoch, NULL, 0);
    case KL_COLUMN_KEY:
        return export_binary(a, c, &c->key, c->rows);
    case KL_COLUMN_VALUE:
        return export_binary(a, c, &c->value, c->rows);
    default:
        return export_headers(a, c);
    }
}

int kl_columns_export(kl_columns_t *c, struct ArrowArray *out) {
    struct ArrowArray root;
    int status = begin_array(&root, c, c->rows, 1, c->n);
    if (status != KL_OK)
        return status;
    for (int i = 0; i < c->n && status == KL_OK; i++)
        status = export_column(root.children[i], c, c->kinds[i]);
    if (status != KL_OK) {
        release_array(&root);
        return status;
    }
    *out = root;
    return KL_OK;
}
