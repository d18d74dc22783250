/* See columns.h. */
#include "columns.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "scan.h"
#include "status.h"
#include "utf8.h"

enum {
    ALIGNMENT = KL_POOL_ALIGNMENT,
    AHEAD_MAX = KL_POOL_BUFFER_MAX, /* limit on bytes allocated ahead at first */
    BLOCK = 256,   /* records parsed before they are copied: few enough to stay in the L1 cache */
    STRIDE = 32,   /* bytes copied at a time if the source and the target have them */
    VIEW_INLINE = 12,
    SUM_STEP = 256 << 10, /* bytes that the L2 cache keeps beside what is written */
};

typedef struct {
    uint8_t *data;
    size_t size; /* bytes in use */
    size_t capacity;
} buffer_t;

/* Which entries are valid.  There are no bits until the first null: before that, all entries are valid. */
typedef struct {
    buffer_t bits;
    int64_t nulls;
} validity_t;

/* A column of bytes or lists: int32 offsets, one more than entries, into data. */
typedef struct {
    buffer_t offsets;
    buffer_t data;
    validity_t valid;
} binary_t;

/* Arrow's view of a run of bytes. */
typedef struct {
    int32_t size;
    union {
        uint8_t bytes[VIEW_INLINE]; /* up to this many bytes, followed by zeros */
        struct {
            uint8_t prefix[4];
            int32_t slot;
            int32_t offset;
        } ref;
    };
} view_t;

_Static_assert(sizeof(view_t) == 16, "Arrow's layout");

/* Bytes that views point into.  Offsets have 31 bits, so a large run of bytes takes several slots; the first owns it. */
typedef struct {
    void (*release)(void *);
    void *owner; /* NULL: none */
} pin_t;

/* Slots grow together, because Arrow requires their addresses and their sizes in one array each. */
typedef struct {
    int count;
    int space;
    int current; /* the slot of the next payload */
    const uint8_t **at;
    int64_t *size;
    pin_t *pins;
} slots_t;

struct kl_columns {
    atomic_int_fast64_t references;
    kl_pool_t *pool; /* of all the buffers below */
    int n;
    kl_column_t kinds[KL_COLUMN_KINDS];
    unsigned wanted; /* bit per kind */
    int64_t rows;
    int64_t headers; /* entries of header_key and header_value */
    int views;       /* key and value are views: entries in their data, their offsets unused */
    int spark;       /* the types of Spark's Kafka source */
    slots_t slots;
    const char *topic_at;
    size_t topic_size;
    int32_t partition_number;
    const int64_t *picked; /* the next of the offsets to keep; NULL: all records are kept */
    const int64_t *picked_end;
    buffer_t offset;
    buffer_t timestamp;
    validity_t timestamp_valid;
    buffer_t timestamp_type;
    buffer_t leader_epoch;
    buffer_t partition;
    binary_t topic; /* never null */
    binary_t key;
    binary_t value;
    buffer_t header_offsets;
    validity_t header_valid; /* of the lists */
    binary_t header_key; /* never null */
    binary_t header_value;
};

/* Keys or values of a block: their addresses, and their sizes, -1 for null. */
typedef struct {
    const uint8_t *at[BLOCK];
    int32_t size[BLOCK];
} runs_t;

/* The selected ones of up to BLOCK records, parsed and checked.  The fields here are not read again: in a shared
 * mapping bytes may change between two reads. */
typedef struct {
    int n;
    int with_headers;   /* 1 if there is any header */
    const uint8_t *end; /* of the payload: nothing is read there or after it */
    int64_t offset[BLOCK];
    int64_t timestamp[BLOCK];
    runs_t key;
    runs_t value;
    int32_t header_count[BLOCK];
    const uint8_t *headers[BLOCK]; /* set only if there are any */
    const uint8_t *headers_end[BLOCK];
} block_t;

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Reserve space for more bytes.  The first time, hint times as much; pages that are never touched cost nothing. */
static int reserve(kl_columns_t *c, buffer_t *b, uint64_t more, double hint) {
    if (b->capacity - b->size >= more)
        return KL_OK;
    uint64_t needed = b->size + more;
    uint64_t ahead = 2 * (uint64_t)b->capacity;
    if (b->capacity <= ALIGNMENT) {
        double guess = (double)more * hint;
        ahead = guess < AHEAD_MAX ? (uint64_t)guess : AHEAD_MAX;
    }
    if (ahead > needed)
        needed = ahead;
    size_t capacity = 0;
    uint8_t *data = kl_pool_take(c->pool, needed, &capacity);
    if (data == NULL)
        return -ENOMEM;
    if (b->size != 0)
        memcpy(data, b->data, b->size);
    kl_pool_give(c->pool, b->data, b->capacity);
    b->data = data;
    b->capacity = capacity;
    return KL_OK;
}

static inline void put_i32(buffer_t *b, int32_t v) {
    memcpy(b->data + b->size, &v, 4);
    b->size += 4;
}

static void put_same_i32(buffer_t *b, int32_t v, int count) {
    int32_t *to = (int32_t *)(b->data + b->size);
    for (int i = 0; i < count; i++)
        to[i] = v;
    b->size += 4 * (size_t)count;
}

static inline void set_bit(buffer_t *b, int64_t at) { b->data[at >> 3] |= (uint8_t)(1u << (at & 7)); }

static void set_bits(buffer_t *b, int64_t at, int64_t count) {
    for (; count != 0 && at & 7; count--)
        set_bit(b, at++);
    memset(b->data + (at >> 3), 0xff, (size_t)count >> 3);
    at += count & ~(int64_t)7;
    for (count &= 7; count != 0; count--)
        set_bit(b, at++);
}

/* Reserve bits for entries at .. at + more, of which some will be null; all those before have bits. */
static int reserve_bits(kl_columns_t *c, validity_t *v, int64_t at, int64_t more, double hint) {
    size_t size = ((size_t)(at + more) + 7) / 8;
    int first = v->bits.size == 0;
    if (size > v->bits.size) {
        int status = reserve(c, &v->bits, size - v->bits.size, at == 0 ? hint : 2);
        if (status != KL_OK)
            return status;
        memset(v->bits.data + v->bits.size, 0, size - v->bits.size);
        v->bits.size = size;
    }
    if (first)
        set_bits(&v->bits, 0, at);
    return KL_OK;
}

/* Append the validity of count entries after the first at; is_null lists the nulls. */
#define PUT_VALIDITY(status, c, v, at, count, null_count, hint, is_null)                     \
    do {                                                                                     \
        int64_t nulls_ = (null_count);                                                       \
        if (nulls_ == 0 && (v)->nulls == 0)                                                  \
            break;                                                                           \
        status = reserve_bits(c, v, at, count, hint);                                        \
        if (status != KL_OK)                                                                 \
            break;                                                                           \
        (v)->nulls += nulls_;                                                                \
        if (nulls_ == 0)                                                                     \
            set_bits(&(v)->bits, at, count);                                                 \
        else                                                                                 \
            for (int i = 0; i < (count); i++)                                                \
                if (!(is_null))                                                              \
                    set_bit(&(v)->bits, (at) + i);                                           \
    } while (0)

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

/* Reserve more entries of bytes in all, and one extra stride. */
static int reserve_binary(kl_columns_t *c, binary_t *b, int64_t more, uint64_t bytes, double hint) {
    if (bytes > (uint64_t)INT32_MAX - b->data.size)
        return KL_ESPACE;
    int status = reserve(c, &b->offsets, 4 * (uint64_t)more, hint);
    return status != KL_OK ? status : reserve(c, &b->data, bytes + STRIDE, hint);
}

static void give(kl_columns_t *c, buffer_t *b) { kl_pool_give(c->pool, b->data, b->capacity); }

static void give_binary(kl_columns_t *c, binary_t *b) {
    give(c, &b->offsets);
    give(c, &b->data);
    give(c, &b->valid.bits);
}

int kl_columns_new(kl_pool_t *pool, const kl_column_t *kinds, int n, int flags, kl_columns_t **out) {
    kl_columns_t *c = calloc(1, sizeof *c);
    if (c == NULL)
        return -ENOMEM;
    atomic_init(&c->references, 1);
    c->pool = pool;
    c->n = n;
    c->views = flags & KL_COLUMNS_VIEWS;
    c->spark = flags & KL_COLUMNS_SPARK;
    c->topic_at = "";
    for (int i = 0; i < n; i++) {
        c->kinds[i] = kinds[i];
        c->wanted |= 1u << kinds[i];
    }
    int status = begin_binary(c, &c->topic);
    if (status == KL_OK)
        status = begin_binary(c, &c->key);
    if (status == KL_OK)
        status = begin_binary(c, &c->value);
    if (status == KL_OK)
        status = begin_binary(c, &c->header_key);
    if (status == KL_OK)
        status = begin_binary(c, &c->header_value);
    if (status == KL_OK)
        status = begin_offsets(c, &c->header_offsets);
    /* Fixed-width columns: consumers must not get a null pointer, even for zero rows. */
    buffer_t *fixed[] = {&c->offset, &c->timestamp, &c->timestamp_type, &c->leader_epoch, &c->partition};
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
    if (c == NULL || atomic_fetch_sub_explicit(&c->references, 1, memory_order_acq_rel) != 1)
        return;
    buffer_t *plain[] = {&c->offset,    &c->timestamp,      &c->timestamp_valid.bits, &c->timestamp_type, &c->leader_epoch,
                         &c->partition, &c->header_offsets, &c->header_valid.bits};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        give(c, plain[i]);
    give_binary(c, &c->topic);
    give_binary(c, &c->key);
    give_binary(c, &c->value);
    give_binary(c, &c->header_key);
    give_binary(c, &c->header_value);
    for (int i = 0; i < c->slots.count; i++)
        if (c->slots.pins[i].owner != NULL)
            c->slots.pins[i].release(c->slots.pins[i].owner);
    free(c->slots.at);
    free(c->slots.size);
    free(c->slots.pins);
    free(c);
}

static int grow(void **items, int space, size_t item) {
    void *more = realloc(*items, (size_t)space * item);
    if (more == NULL)
        return -ENOMEM;
    *items = more;
    return KL_OK;
}

int kl_columns_pin(kl_columns_t *c, const uint8_t *bytes, size_t size, void (*release)(void *), void *owner) {
    slots_t *s = &c->slots;
    if (s->count == s->space) {
        int space = 2 * s->space + 4;
        if (grow((void **)&s->at, space, sizeof *s->at) != KL_OK ||
            grow((void **)&s->size, space, sizeof *s->size) != KL_OK ||
            grow((void **)&s->pins, space, sizeof *s->pins) != KL_OK)
            return -ENOMEM;
        s->space = space;
    }
    s->at[s->count] = bytes;
    s->size[s->count] = (int64_t)size;
    s->pins[s->count] = (pin_t){release, owner};
    s->current = s->count++;
    return s->current;
}

void kl_columns_origin(kl_columns_t *c, const char *topic, size_t size, int32_t partition) {
    c->topic_at = topic;
    c->topic_size = size;
    c->partition_number = partition;
}

void kl_columns_pick(kl_columns_t *c, const int64_t *offsets, size_t n) {
    c->picked = offsets;
    c->picked_end = offsets + n;
}

void kl_columns_from(kl_columns_t *c, int pinned) { c->slots.current = pinned; }

int64_t kl_columns_rows(const kl_columns_t *c) { return c->rows; }

int64_t kl_columns_nbytes(const kl_columns_t *c) {
    const binary_t *binaries[] = {&c->key, &c->value, &c->header_key, &c->header_value};
    const kl_column_t kinds[] = {KL_COLUMN_KEY, KL_COLUMN_VALUE, KL_COLUMN_HEADERS, KL_COLUMN_HEADERS};
    size_t size = c->offset.size + c->timestamp.size + c->timestamp_valid.bits.size + c->timestamp_type.size +
                  c->leader_epoch.size + c->partition.size;
    if (c->wanted & 1u << KL_COLUMN_TOPIC)
        size += c->topic.offsets.size + c->topic.data.size;
    for (int i = 0; i < 4; i++)
        if (c->wanted & 1u << kinds[i])
            size += (c->views && i < 2 ? 0 : binaries[i]->offsets.size) + binaries[i]->data.size + binaries[i]->valid.bits.size;
    if (c->wanted & 1u << KL_COLUMN_HEADERS)
        size += c->header_offsets.size + c->header_valid.bits.size;
    return (int64_t)size;
}

/* --- parse and append blocks -------------------------------------------------------------------------------------- */

static inline int control_key_ok(const kl_record_t *r) { return r->key_size >= 4 && (r->key[0] & 0x80) == 0; }

/* Parse records from *at on until the block is full or *next is count; keep those with start <= offset < start + span.
 * Every record is checked, selected or not. */
static int parse_block(const kl_batch_t *b, const uint8_t **at, const uint8_t *end, uint64_t start, uint64_t span,
                       int32_t *next, block_t *block) {
    const uint8_t *from = *at;
    int32_t i = *next;
    int n = 0, with_headers = 0;
    uint64_t base_offset = (uint64_t)b->base_offset;
    int append_time = (b->attributes & KL_ATTR_LOG_APPEND_TIME) != 0;
    uint64_t base_timestamp = (uint64_t)(append_time ? b->max_timestamp : b->base_timestamp);
    uint64_t deltas = append_time ? 0 : UINT64_MAX; /* a mask */
    int control = b->attributes & KL_ATTR_CONTROL;
    int status = KL_OK;
    for (; i < b->count && n < BLOCK; i++) {
        kl_record_t r;
        const uint8_t *after = kl_record_scan(from, end, &r, &status);
        if (after == NULL)
            break;
        if (control && !control_key_ok(&r)) {
            status = KL_ELENGTH;
            break;
        }
        from = after;
        uint64_t offset = base_offset + (uint64_t)(int64_t)r.offset_delta;
        block->offset[n] = (int64_t)offset;
        block->timestamp[n] = (int64_t)(base_timestamp + ((uint64_t)r.timestamp_delta & deltas));
        block->key.at[n] = r.key;
        block->key.size[n] = r.key_size;
        block->value.at[n] = r.value;
        block->value.size[n] = r.value_size;
        block->header_count[n] = r.header_count;
        if (r.header_count != 0) {
            block->headers[n] = r.headers;
            block->headers_end[n] = after;
        }
        /* The next record overwrites one that is not selected. */
        int wanted = offset - start < span;
        with_headers |= wanted && r.header_count != 0;
        n += wanted;
    }
    *at = from;
    *next = i;
    block->n = n;
    block->end = end;
    block->with_headers = with_headers;
    return status;
}

static int put_i64s(kl_columns_t *c, buffer_t *b, const int64_t *from, int n, double hint) {
    int status = reserve(c, b, 8 * (uint64_t)n, hint);
    if (status != KL_OK)
        return status;
    memcpy(b->data + b->size, from, 8 * (size_t)n);
    b->size += 8 * (size_t)n;
    return KL_OK;
}

/* Null in microseconds: no timestamp, or more than 64 bits hold. */
static int no_micros(int64_t ms) {
    return ms == -1 || ms > INT64_MAX / 1000 || ms < -(INT64_MAX / 1000);
}

static int put_micros(kl_columns_t *c, const block_t *block, double hint) {
    int status = reserve(c, &c->timestamp, 8 * (uint64_t)block->n, hint);
    if (status != KL_OK)
        return status;
    int64_t *to = (int64_t *)(c->timestamp.data + c->timestamp.size), nulls = 0;
    for (int i = 0; i < block->n; i++) {
        int64_t ms = block->timestamp[i];
        to[i] = (int64_t)((uint64_t)ms * 1000);
        nulls += no_micros(ms);
    }
    c->timestamp.size += 8 * (size_t)block->n;
    PUT_VALIDITY(status, c, &c->timestamp_valid, c->rows, block->n, nulls, hint, no_micros(block->timestamp[i]));
    return status;
}

static int put_timestamps(kl_columns_t *c, const block_t *block, double hint) {
    if (c->spark)
        return put_micros(c, block, hint);
    int status = put_i64s(c, &c->timestamp, block->timestamp, block->n, hint);
    if (status != KL_OK)
        return status;
    int64_t nulls = 0;
    for (int i = 0; i < block->n; i++)
        nulls += block->timestamp[i] == -1;
    PUT_VALIDITY(status, c, &c->timestamp_valid, c->rows, block->n, nulls, hint, block->timestamp[i] == -1);
    return status;
}

static int put_constants(kl_columns_t *c, buffer_t *b, int32_t value, const block_t *block, double hint) {
    int status = reserve(c, b, 4 * (uint64_t)block->n, hint);
    if (status != KL_OK)
        return status;
    put_same_i32(b, value, block->n);
    return KL_OK;
}

static int put_timestamp_types(kl_columns_t *c, const kl_batch_t *b, const block_t *block, double hint) {
    int type = b->magic == 0 ? -1 : (b->attributes & KL_ATTR_LOG_APPEND_TIME) != 0;
    if (c->spark)
        return put_constants(c, &c->timestamp_type, type, block, hint);
    int status = reserve(c, &c->timestamp_type, (uint64_t)block->n, hint);
    if (status != KL_OK)
        return status;
    memset(c->timestamp_type.data + c->timestamp_type.size, type, (size_t)block->n);
    c->timestamp_type.size += (size_t)block->n;
    return KL_OK;
}

static int put_topics(kl_columns_t *c, const block_t *block, double hint) {
    int status = reserve_binary(c, &c->topic, block->n, (uint64_t)block->n * c->topic_size, hint);
    if (status != KL_OK)
        return status;
    buffer_t *data = &c->topic.data;
    for (int i = 0; i < block->n; i++) {
        memcpy(data->data + data->size, c->topic_at, c->topic_size);
        data->size += c->topic_size;
        put_i32(&c->topic.offsets, (int32_t)data->size);
    }
    return KL_OK;
}

/* Copy size bytes, in strides if the source has enough bytes after them; to has space for one extra stride. */
static inline void copy_run(uint8_t *to, const uint8_t *from, size_t size, const uint8_t *end) {
    if ((size_t)(end - from) >= size + STRIDE && size <= 16 * STRIDE) {
        size_t done = 0;
        do {
            memcpy(to + done, from + done, STRIDE);
            done += STRIDE;
        } while (done < size);
    } else {
        memcpy(to, from, size);
    }
}

static int put_runs(kl_columns_t *c, binary_t *b, const runs_t *runs, const block_t *block, double hint) {
    int n = block->n;
    int64_t nulls = 0;
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        nulls += runs->size[i] < 0;
        bytes += (uint32_t)(runs->size[i] > 0 ? runs->size[i] : 0);
    }
    int status = reserve_binary(c, b, n, bytes, hint);
    if (status != KL_OK)
        return status;
    PUT_VALIDITY(status, c, &b->valid, c->rows, n, nulls, hint, runs->size[i] < 0);
    if (status != KL_OK)
        return status;
    uint8_t *data = b->data.data;
    int32_t *offsets = (int32_t *)(b->offsets.data + b->offsets.size);
    size_t size = b->data.size;
    for (int i = 0; i < n; i++) {
        if (runs->size[i] > 0) {
            copy_run(data + size, runs->at[i], (size_t)runs->size[i], block->end);
            size += (size_t)runs->size[i];
        }
        offsets[i] = (int32_t)size;
    }
    b->data.size = size;
    b->offsets.size += 4 * (size_t)n;
    return KL_OK;
}

/* Copy the bytes, followed by zeros: in two loads if the payload has enough bytes after them. */
static inline void inline_view(view_t *v, const uint8_t *from, int32_t size, const uint8_t *end) {
    memset(v->bytes, 0, VIEW_INLINE);
    if (end - from < VIEW_INLINE) {
        if (size > 0)
            memcpy(v->bytes, from, (size_t)size);
        return;
    }
    uint64_t low;
    uint32_t high;
    memcpy(&low, from, 8);
    memcpy(&high, from + 8, 4);
    if (size < 8) {
        low &= ((uint64_t)1 << (8 * size)) - 1;
        high = 0;
    } else if (size < VIEW_INLINE) {
        high &= ((uint32_t)1 << (8 * (size - 8))) - 1;
    }
    memcpy(v->bytes, &low, 8);
    memcpy(v->bytes + 8, &high, 4);
}

static int put_views(kl_columns_t *c, binary_t *b, const runs_t *runs, const block_t *block, double hint) {
    int n = block->n;
    int64_t nulls = 0;
    for (int i = 0; i < n; i++)
        nulls += runs->size[i] < 0;
    int status = reserve(c, &b->data, sizeof(view_t) * (uint64_t)n, hint);
    if (status != KL_OK)
        return status;
    PUT_VALIDITY(status, c, &b->valid, c->rows, n, nulls, hint, runs->size[i] < 0);
    if (status != KL_OK)
        return status;
    view_t *to = (view_t *)(b->data.data + b->data.size);
    const uint8_t *from = c->slots.at[c->slots.current];
    for (int i = 0; i < n; i++) {
        int32_t size = runs->size[i];
        const uint8_t *at = runs->at[i];
        if (size < 0) {
            memset(&to[i], 0, sizeof *to);
            continue;
        }
        to[i].size = size;
        if (size <= VIEW_INLINE) {
            inline_view(&to[i], at, size, block->end);
            continue;
        }
        /* Beyond the slot's 31-bit offsets, or before the slot, if a key has just begun one: begin a slot here. */
        if ((uint64_t)(at - from) > (uint64_t)(INT32_MAX - size)) {
            const slots_t *s = &c->slots;
            status = kl_columns_pin(c, at, (size_t)(s->size[s->current] - (at - from)), NULL, NULL);
            if (status < 0)
                return status;
            from = at;
        }
        memcpy(to[i].ref.prefix, at, 4);
        to[i].ref.slot = c->slots.current;
        to[i].ref.offset = (int32_t)(at - from);
    }
    b->data.size += sizeof(view_t) * (size_t)n;
    return KL_OK;
}

/* Sizes of a block's headers. */
typedef struct {
    int64_t count;
    int64_t nulls;
    uint64_t key_bytes;
    uint64_t value_bytes;
} header_sizes_t;

static int measure_headers(const uint8_t *at, const uint8_t *end, int32_t count, header_sizes_t *m) {
    m->count += count;
    for (int32_t i = 0; i < count; i++) {
        kl_record_header_t h;
        size_t used;
        int status = kl_record_header_next(at, (size_t)(end - at), &h, &used);
        if (status != KL_OK)
            return status;
        m->key_bytes += kl_utf8_repaired_size(h.key, (size_t)h.key_size);
        m->value_bytes += h.value_size > 0 ? (uint64_t)h.value_size : 0;
        m->nulls += h.value_size < 0;
        at += used;
    }
    return KL_OK;
}

/* Append the headers of a record.  They were measured, but in a shared mapping bytes may change between two reads: more
 * bytes than were reserved, and a null value without bits for the validity, are refused. */
static int copy_headers(kl_columns_t *c, const uint8_t *at, const uint8_t *end, int32_t count) {
    validity_t *valid = &c->header_value.valid;
    for (int32_t i = 0; i < count; i++) {
        kl_record_header_t h;
        size_t used;
        int status = kl_record_header_next(at, (size_t)(end - at), &h, &used);
        if (status != KL_OK)
            return status;
        buffer_t *keys = &c->header_key.data, *values = &c->header_value.data;
        size_t space = keys->capacity - keys->size;
        size_t made = kl_utf8_repair(h.key, (size_t)h.key_size, keys->data + keys->size, space);
        if (made > space)
            return KL_ELENGTH;
        keys->size += made;
        put_i32(&c->header_key.offsets, (int32_t)keys->size);
        if (h.value_size >= 0) {
            if ((size_t)h.value_size > values->capacity - values->size)
                return KL_ELENGTH;
            memcpy(values->data + values->size, h.value, (size_t)h.value_size);
            values->size += (size_t)h.value_size;
            if (valid->bits.size != 0)
                set_bit(&valid->bits, c->headers);
        } else if (valid->bits.size != 0) {
            valid->nulls++;
        } else {
            return KL_ELENGTH;
        }
        put_i32(&c->header_value.offsets, (int32_t)values->size);
        c->headers++;
        at += used;
    }
    return KL_OK;
}

static int put_headers(kl_columns_t *c, const block_t *block, double hint) {
    int n = block->n;
    int status = reserve(c, &c->header_offsets, 4 * (uint64_t)n, hint);
    if (status == KL_OK && c->spark) {
        int64_t nulls = 0;
        for (int i = 0; i < n; i++)
            nulls += block->header_count[i] == 0;
        PUT_VALIDITY(status, c, &c->header_valid, c->rows, n, nulls, hint, block->header_count[i] == 0);
    }
    if (status != KL_OK)
        return status;
    if (!block->with_headers) {
        put_same_i32(&c->header_offsets, (int32_t)c->headers, n);
        return KL_OK;
    }
    header_sizes_t m = {0};
    for (int i = 0; i < n && status == KL_OK; i++)
        if (block->header_count[i] != 0)
            status = measure_headers(block->headers[i], block->headers_end[i], block->header_count[i], &m);
    if (status != KL_OK)
        return status;
    if (m.count > INT32_MAX - c->headers)
        return KL_ESPACE;
    status = reserve_binary(c, &c->header_key, m.count, m.key_bytes, hint);
    if (status == KL_OK)
        status = reserve_binary(c, &c->header_value, m.count, m.value_bytes, hint);
    if (status == KL_OK && (m.nulls != 0 || c->header_value.valid.bits.size != 0))
        status = reserve_bits(c, &c->header_value.valid, c->headers, m.count, hint);
    for (int i = 0; i < n && status == KL_OK; i++) {
        if (block->header_count[i] != 0)
            status = copy_headers(c, block->headers[i], block->headers_end[i], block->header_count[i]);
        put_i32(&c->header_offsets, (int32_t)c->headers);
    }
    return status;
}

static int put_block(kl_columns_t *c, const kl_batch_t *b, const block_t *block, double hint) {
    unsigned wanted = c->wanted;
    int status = KL_OK;
    if (wanted & 1u << KL_COLUMN_OFFSET)
        status = put_i64s(c, &c->offset, block->offset, block->n, hint);
    if (status == KL_OK && wanted & 1u << KL_COLUMN_TIMESTAMP)
        status = put_timestamps(c, block, hint);
    if (status == KL_OK && wanted & 1u << KL_COLUMN_TIMESTAMP_TYPE)
        status = put_timestamp_types(c, b, block, hint);
    if (status == KL_OK && wanted & 1u << KL_COLUMN_LEADER_EPOCH)
        status = put_constants(c, &c->leader_epoch, b->leader_epoch, block, hint);
    if (status == KL_OK && wanted & 1u << KL_COLUMN_TOPIC)
        status = put_topics(c, block, hint);
    if (status == KL_OK && wanted & 1u << KL_COLUMN_PARTITION)
        status = put_constants(c, &c->partition, c->partition_number, block, hint);
    if (status == KL_OK && wanted & 1u << KL_COLUMN_KEY)
        status = (c->views ? put_views : put_runs)(c, &c->key, &block->key, block, hint);
    if (status == KL_OK && wanted & 1u << KL_COLUMN_VALUE)
        status = (c->views ? put_views : put_runs)(c, &c->value, &block->value, block, hint);
    if (status == KL_OK && wanted & 1u << KL_COLUMN_HEADERS)
        status = put_headers(c, block, hint);
    if (status == KL_OK)
        c->rows += block->n;
    return status;
}

/* Remove the records that kl_columns_pick does not keep from a block. */
static void keep_picked(kl_columns_t *c, block_t *block) {
    int n = 0, with_headers = 0;
    for (int i = 0; i < block->n; i++) {
        while (c->picked != c->picked_end && *c->picked < block->offset[i])
            c->picked++;
        if (c->picked == c->picked_end)
            break;
        if (*c->picked != block->offset[i])
            continue;
        c->picked++;
        block->offset[n] = block->offset[i];
        block->timestamp[n] = block->timestamp[i];
        block->key.at[n] = block->key.at[i];
        block->key.size[n] = block->key.size[i];
        block->value.at[n] = block->value.at[i];
        block->value.size[n] = block->value.size[i];
        block->header_count[n] = block->header_count[i];
        if (block->header_count[i] != 0) {
            block->headers[n] = block->headers[i];
            block->headers_end[n] = block->headers_end[i];
            with_headers = 1;
        }
        n++;
    }
    block->n = n;
    block->with_headers = with_headers;
}

static int append(kl_columns_t *c, const kl_batch_t *b, const uint8_t *payload, size_t size, int64_t start, int64_t stop,
                  double hint, kl_sum_t *sum, int32_t *bad) {
    const uint8_t *at = payload, *end = payload + size;
    uint64_t span = stop > start ? (uint64_t)stop - (uint64_t)start : 0;
    int32_t next = 0;
    block_t block;
    hint = hint < 1 ? 1 : hint;
    while (next < b->count) {
        const uint8_t *from = at;
        if (sum != NULL)
            kl_sum_reach(sum, at);
        int status = parse_block(b, &at, end, (uint64_t)start, span, &next, &block);
        if (status == KL_OK && c->picked != NULL)
            keep_picked(c, &block);
        if (status == KL_OK)
            status = put_block(c, b, &block, hint * (double)size / (double)(at - from));
        else
            *bad = next;
        if (status != KL_OK)
            return status;
    }
    if (b->count > 0 && at != end) {
        *bad = b->count;
        return KL_ESLACK;
    }
    return KL_OK;
}

int kl_columns_append(kl_columns_t *c, const kl_batch_t *b, const uint8_t *payload, size_t size, int64_t start,
                      int64_t stop, double hint, int32_t *bad) {
    return append(c, b, payload, size, start, stop, hint, NULL, bad);
}

int kl_columns_append_unverified(kl_columns_t *c, const kl_batch_t *b, const uint8_t *batch, int64_t start, int64_t stop,
                                 double hint, int32_t *bad) {
    kl_sum_t sum = kl_sum_begin(batch, b->size, SUM_STEP);
    int status = append(c, b, batch + KL_BATCH_HEADER, (size_t)b->size - KL_BATCH_HEADER, start, stop, hint, &sum, bad);
    return kl_sum_end(&sum) == b->crc ? status : KL_ECRC;
}

/* --- export the schema -------------------------------------------------------------------------------------------- */

static int headers_schema(struct ArrowSchema *s, const char *item) {
    int status = kl_arrow_schema(s, "+l", "headers", 1);
    if (status == KL_OK)
        status = kl_arrow_schema(s->children[0], "+s", item, 2);
    if (status == KL_OK)
        status = kl_arrow_schema(s->children[0]->children[0], "u", "key", 0);
    if (status == KL_OK)
        status = kl_arrow_schema(s->children[0]->children[1], "z", "value", 0);
    return status;
}

int kl_columns_schema(const kl_column_t *kinds, int n, int flags, struct ArrowSchema *out) {
    const int spark = flags & KL_COLUMNS_SPARK;
    const char *binary = flags & KL_COLUMNS_VIEWS ? "vz" : "z";
    const struct {
        const char *format, *name;
    } fields[KL_COLUMN_KINDS] = {
        [KL_COLUMN_OFFSET] = {"l", "offset"},
        [KL_COLUMN_TIMESTAMP] = {spark ? "tsu:UTC" : "tsm:UTC", "timestamp"},
        [KL_COLUMN_TIMESTAMP_TYPE] = {spark ? "i" : "c", spark ? "timestampType" : "timestamp_type"},
        [KL_COLUMN_KEY] = {binary, "key"},
        [KL_COLUMN_VALUE] = {binary, "value"},
        [KL_COLUMN_HEADERS] = {"+l", "headers"},
        [KL_COLUMN_LEADER_EPOCH] = {"i", spark ? "leaderEpoch" : "leader_epoch"},
        [KL_COLUMN_TOPIC] = {"u", "topic"},
        [KL_COLUMN_PARTITION] = {"i", "partition"},
    };
    struct ArrowSchema root;
    int status = kl_arrow_schema(&root, "+s", "", n);
    if (status != KL_OK)
        return status;
    root.flags = 0; /* a record is never null */
    for (int i = 0; i < n && status == KL_OK; i++) {
        kl_column_t kind = kinds[i];
        status = kind == KL_COLUMN_HEADERS ? headers_schema(root.children[i], spark ? "element" : "item")
                                           : kl_arrow_schema(root.children[i], fields[kind].format, fields[kind].name, 0);
    }
    if (status != KL_OK) {
        root.release(&root);
        return status;
    }
    *out = root;
    return KL_OK;
}

/* --- export arrays ------------------------------------------------------------------------------------------------ */

static void drop_reference(void *owner) { kl_columns_drop(owner); }

static int begin_array(struct ArrowArray *a, kl_columns_t *c, int64_t length, int64_t n_buffers, int64_t n_children) {
    int status = kl_arrow_array(a, length, n_buffers, n_children, drop_reference, c);
    if (status == KL_OK)
        atomic_fetch_add_explicit(&c->references, 1, memory_order_relaxed);
    return status;
}

/* Export the bitmap as Arrow requires: none if there are no nulls. */
static void export_validity(struct ArrowArray *a, const validity_t *v) {
    a->null_count = v->nulls;
    a->buffers[0] = v->nulls != 0 ? v->bits.data : NULL;
}

static int export_fixed(struct ArrowArray *a, kl_columns_t *c, const buffer_t *data) {
    int status = begin_array(a, c, c->rows, 2, 0);
    if (status != KL_OK)
        return status;
    a->buffers[1] = data->data;
    return KL_OK;
}

static int export_timestamp(struct ArrowArray *a, kl_columns_t *c) {
    int status = export_fixed(a, c, &c->timestamp);
    if (status == KL_OK)
        export_validity(a, &c->timestamp_valid);
    return status;
}

static int export_binary(struct ArrowArray *a, kl_columns_t *c, const binary_t *b, int64_t length) {
    int status = begin_array(a, c, length, 3, 0);
    if (status != KL_OK)
        return status;
    export_validity(a, &b->valid);
    a->buffers[1] = b->offsets.data;
    a->buffers[2] = b->data.data;
    return KL_OK;
}

/* Validity, views, the buffers they point into, and the sizes of those. */
static int export_views(struct ArrowArray *a, kl_columns_t *c, const binary_t *b) {
    static const int64_t no_size;
    const slots_t *s = &c->slots;
    int status = begin_array(a, c, c->rows, s->count + 3, 0);
    if (status != KL_OK)
        return status;
    export_validity(a, &b->valid);
    a->buffers[1] = b->data.data;
    for (int i = 0; i < s->count; i++)
        a->buffers[2 + i] = s->at[i];
    a->buffers[2 + s->count] = s->count != 0 ? s->size : &no_size;
    return KL_OK;
}

static int export_headers(struct ArrowArray *a, kl_columns_t *c) {
    int status = begin_array(a, c, c->rows, 2, 1);
    if (status != KL_OK)
        return status;
    export_validity(a, &c->header_valid);
    a->buffers[1] = c->header_offsets.data;
    struct ArrowArray *items = a->children[0];
    status = begin_array(items, c, c->headers, 1, 2);
    if (status == KL_OK)
        status = export_binary(items->children[0], c, &c->header_key, c->headers);
    if (status == KL_OK)
        status = export_binary(items->children[1], c, &c->header_value, c->headers);
    if (status != KL_OK)
        a->release(a);
    return status;
}

static int export_column(struct ArrowArray *a, kl_columns_t *c, kl_column_t kind) {
    switch (kind) {
    case KL_COLUMN_OFFSET:
        return export_fixed(a, c, &c->offset);
    case KL_COLUMN_TIMESTAMP:
        return export_timestamp(a, c);
    case KL_COLUMN_TIMESTAMP_TYPE:
        return export_fixed(a, c, &c->timestamp_type);
    case KL_COLUMN_LEADER_EPOCH:
        return export_fixed(a, c, &c->leader_epoch);
    case KL_COLUMN_TOPIC:
        return export_binary(a, c, &c->topic, c->rows);
    case KL_COLUMN_PARTITION:
        return export_fixed(a, c, &c->partition);
    case KL_COLUMN_KEY:
        return c->views ? export_views(a, c, &c->key) : export_binary(a, c, &c->key, c->rows);
    case KL_COLUMN_VALUE:
        return c->views ? export_views(a, c, &c->value) : export_binary(a, c, &c->value, c->rows);
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
        root.release(&root);
        return status;
    }
    *out = root;
    return KL_OK;
}
