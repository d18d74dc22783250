#include "wire.h"

#include <string.h>

#include "bytes.h"

static const uint8_t fixed_sizes[KL_WIRE_KINDS] = {
    [KL_WIRE_BOOL] = 1,  [KL_WIRE_INT8] = 1,    [KL_WIRE_INT16] = 2, [KL_WIRE_UINT16] = 2, [KL_WIRE_INT32] = 4,
    [KL_WIRE_INT64] = 8, [KL_WIRE_FLOAT64] = 8, [KL_WIRE_UUID] = 16,
};

/* ---- reading ---------------------------------------------------------------------------------------------------- */

typedef struct {
    const kl_wire_program_t *program;
    const uint8_t *at;
    size_t left;
    const kl_wire_sink_t *sink;
    void *context;
    kl_wire_location_t *location;
} reader_t;

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        int status_ = (call);                                                                                          \
        if (__builtin_expect(status_ < 0, 0))                                                                          \
            return status_;                                                                                            \
    } while (0)

static int read_struct(reader_t *r, const kl_wire_field_t *field, uint32_t number, int depth);

static inline void skip(reader_t *r, size_t size) {
    r->at += size;
    r->left -= size;
}

static inline int read_uvarint(reader_t *r, uint32_t *out) {
    if (__builtin_expect(r->left != 0 && r->at[0] < 0x80, 1)) {
        *out = r->at[0];
        skip(r, 1);
        return KL_OK;
    }
    uint32_t value = 0;
    for (size_t i = 0; i < 5; i++) {
        if (i == r->left)
            return KL_ETRUNCATED;
        if (i == 4 && r->at[i] > 0x0f)
            return KL_EOVERLONG;
        value |= (uint32_t)(r->at[i] & 0x7f) << (7 * i);
        if (r->at[i] < 0x80) {
            *out = value;
            skip(r, i + 1);
            return KL_OK;
        }
    }
    return KL_EOVERLONG;
}

/* A length or count, -1 for null. */
static inline int read_length(reader_t *r, const kl_wire_field_t *field, int short_form, int64_t *out) {
    int64_t length;
    if (field->flags & KL_WIRE_COMPACT) {
        uint32_t stored;
        TRY(read_uvarint(r, &stored));
        length = (int64_t)stored - 1;
    } else {
        size_t size = short_form ? 2 : 4;
        if (r->left < size)
            return KL_ETRUNCATED;
        length = short_form ? (int16_t)kl_load_u16(r->at) : (int32_t)kl_load_u32(r->at);
        skip(r, size);
    }
    if (length < -1 || length > INT32_MAX)
        return KL_ELENGTH;
    if (length == -1 && !(field->flags & KL_WIRE_NULLABLE))
        return KL_ENULL;
    *out = length;
    return KL_OK;
}

static int read_fixed(reader_t *r, const kl_wire_field_t *field) {
    size_t size = fixed_sizes[field->kind];
    const uint8_t *at = r->at;
    if (r->left < size)
        return KL_ETRUNCATED;
    int64_t value;
    switch (field->kind) {
    case KL_WIRE_BOOL:
        value = at[0] != 0;
        break;
    case KL_WIRE_INT8:
        value = (int8_t)at[0];
        break;
    case KL_WIRE_INT16:
        value = (int16_t)kl_load_u16(at);
        break;
    case KL_WIRE_UINT16:
        value = kl_load_u16(at);
        break;
    case KL_WIRE_INT32:
        value = (int32_t)kl_load_u32(at);
        break;
    case KL_WIRE_INT64:
        value = (int64_t)kl_load_u64(at);
        break;
    case KL_WIRE_FLOAT64: {
        uint64_t bits = kl_load_u64(at);
        double real;
        memcpy(&real, &bits, 8);
        TRY(r->sink->real(r->context, field, real));
        skip(r, size);
        return KL_OK;
    }
    default: /* KL_WIRE_UUID */
        TRY(r->sink->blob(r->context, field, at, size));
        skip(r, size);
        return KL_OK;
    }
    TRY(r->sink->integer(r->context, field, value));
    skip(r, size);
    return KL_OK;
}

static int read_blob(reader_t *r, const kl_wire_field_t *field, uint8_t flags) {
    kl_wire_field_t plain = {.flags = flags};
    int64_t size;
    TRY(read_length(r, &plain, field->kind == KL_WIRE_STRING, &size));
    if (size < 0)
        return r->sink->null(r->context, field);
    if (field->kind == KL_WIRE_STRING && size > KL_WIRE_STRING_MAX)
        return KL_ELENGTH;
    if ((uint64_t)size > r->left)
        return KL_ETRUNCATED;
    TRY(r->sink->blob(r->context, field, r->at, (size_t)size));
    skip(r, (size_t)size);
    return KL_OK;
}

/* Reads what precedes a struct that may be null: a byte, negative for null; in a tagged field an unsigned varint, 0 for
 * null. */
static int read_presence(reader_t *r, uint8_t flags, int *is_there) {
    if (flags & KL_WIRE_TAGGED) {
        uint32_t stored;
        TRY(read_uvarint(r, &stored));
        *is_there = stored != 0;
        return KL_OK;
    }
    if (r->left == 0)
        return KL_ETRUNCATED;
    *is_there = (int8_t)r->at[0] >= 0;
    skip(r, 1);
    return KL_OK;
}

/* A value that is not an array: a whole field, or an element, which cannot be null. */
static inline int read_one(reader_t *r, const kl_wire_field_t *field, int is_element, int depth) {
    uint8_t flags = is_element ? field->flags & KL_WIRE_COMPACT : field->flags;
    r->location->at = r->at;
    if (field->kind < KL_WIRE_STRING)
        return read_fixed(r, field);
    if (field->kind < KL_WIRE_STRUCT)
        return read_blob(r, field, flags);
    if (flags & KL_WIRE_NULLABLE) {
        int is_there;
        TRY(read_presence(r, flags, &is_there));
        if (!is_there)
            return r->sink->null(r->context, field);
    }
    return read_struct(r, field, field->child, depth + 1);
}

static int read_field(reader_t *r, const kl_wire_field_t *field, int depth) {
    r->location->depth = depth + 1;
    r->location->steps[depth].field = field;
    r->location->steps[depth].index = -1;
    if (!(field->flags & KL_WIRE_ARRAY))
        return read_one(r, field, 0, depth);
    int64_t count;
    r->location->at = r->at;
    TRY(read_length(r, field, 0, &count));
    if (count < 0)
        return r->sink->null(r->context, field);
    if ((uint64_t)count > r->left / field->element_min)
        return KL_ECOUNT;
    TRY(r->sink->array(r->context, field, (uint32_t)count));
    for (int64_t i = 0; i < count; i++) {
        r->location->depth = depth + 1;
        r->location->steps[depth].index = i;
        TRY(read_one(r, field, 1, depth));
    }
    return r->sink->end(r->context);
}

/* One known tagged field, which must fill its size bytes. */
static int read_tagged(reader_t *r, const kl_wire_field_t *field, size_t size, int depth) {
    size_t after = r->left - size;
    r->left = size;
    TRY(read_field(r, field, depth));
    if (r->left != 0) {
        r->location->at = r->at;
        return KL_ESLACK;
    }
    r->left = after;
    return KL_OK;
}

static int read_tags(reader_t *r, const kl_wire_field_t *known, uint16_t known_count, int depth) {
    uint32_t count, tag, size;
    int64_t last = -1;
    r->location->at = r->at;
    TRY(read_uvarint(r, &count));
    if (count > r->left / 2)
        return KL_ECOUNT;
    for (uint16_t next = 0; count != 0; count--) {
        r->location->depth = depth;
        r->location->at = r->at;
        TRY(read_uvarint(r, &tag));
        if (tag <= last)
            return KL_EORDER;
        last = tag;
        TRY(read_uvarint(r, &size));
        if (size > r->left)
            return KL_ETRUNCATED;
        while (next < known_count && known[next].tag < tag)
            next++;
        if (next < known_count && known[next].tag == tag)
            TRY(read_tagged(r, &known[next], size, depth));
        else
            skip(r, size);
    }
    return KL_OK;
}

static int read_struct(reader_t *r, const kl_wire_field_t *field, uint32_t number, int depth) {
    const kl_wire_struct_t *s = &r->program->structs[number];
    const kl_wire_field_t *fields = &r->program->fields[s->first];
    TRY(r->sink->begin(r->context, field, number));
    for (uint16_t i = 0; i < s->plain; i++)
        TRY(read_field(r, &fields[i], depth));
    if (s->flexible) {
        r->location->depth = depth;
        TRY(read_tags(r, fields + s->plain, s->tagged, depth));
    }
    return r->sink->end(r->context);
}

int kl_wire_decode(const kl_wire_program_t *program, const uint8_t *at, size_t size, const kl_wire_sink_t *sink,
                   void *context, size_t *used, kl_wire_location_t *location) {
    reader_t r = {program, at, size, sink, context, location};
    location->at = at;
    location->depth = 0;
    TRY(read_struct(&r, NULL, 0, 0));
    *used = size - r.left;
    return KL_OK;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

typedef struct {
    const kl_wire_program_t *program;
    const kl_wire_source_t *source;
    void *context;
    kl_wire_out_t *out;
    kl_wire_location_t *location;
} writer_t;

static const struct {
    int64_t low, high;
} ranges[] = {
    [KL_WIRE_BOOL] = {0, 1},
    [KL_WIRE_INT8] = {INT8_MIN, INT8_MAX},
    [KL_WIRE_INT16] = {INT16_MIN, INT16_MAX},
    [KL_WIRE_UINT16] = {0, UINT16_MAX},
    [KL_WIRE_INT32] = {INT32_MIN, INT32_MAX},
    [KL_WIRE_INT64] = {INT64_MIN, INT64_MAX},
};

static int write_struct(writer_t *w, uint32_t number, int depth);

static inline int need(kl_wire_out_t *out, size_t more) {
    return __builtin_expect(out->capacity - out->used >= more, 1) ? KL_OK : out->grow(out, more);
}

static inline size_t uvarint_store(uint8_t *at, uint32_t value) {
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        at[n++] = (uint8_t)(value | 0x80);
    at[n++] = (uint8_t)value;
    return n;
}

static int write_uvarint(kl_wire_out_t *out, uint32_t value) {
    TRY(need(out, 5));
    out->used += uvarint_store(out->at + out->used, value);
    return KL_OK;
}

/* A length or count, -1 for null. */
static int write_length(writer_t *w, uint8_t flags, int short_form, int64_t length) {
    kl_wire_out_t *out = w->out;
    if (flags & KL_WIRE_COMPACT)
        return write_uvarint(out, (uint32_t)(length + 1));
    TRY(need(out, 4));
    if (short_form)
        kl_store_u16(out->at + out->used, (uint16_t)length);
    else
        kl_store_u32(out->at + out->used, (uint32_t)length);
    out->used += short_form ? 2 : 4;
    return KL_OK;
}

static int write_integer(writer_t *w, const kl_wire_field_t *field) {
    int64_t value;
    TRY(w->source->integer(w->context, field, &value));
    if (value < ranges[field->kind].low || value > ranges[field->kind].high)
        return KL_ERANGE;
    TRY(need(w->out, 8));
    uint8_t *at = w->out->at + w->out->used;
    size_t size = fixed_sizes[field->kind];
    if (size == 1)
        at[0] = (uint8_t)value;
    else if (size == 2)
        kl_store_u16(at, (uint16_t)value);
    else if (size == 4)
        kl_store_u32(at, (uint32_t)value);
    else
        kl_store_u64(at, (uint64_t)value);
    w->out->used += size;
    return KL_OK;
}

static int write_real(writer_t *w, const kl_wire_field_t *field) {
    double value;
    uint64_t bits;
    TRY(w->source->real(w->context, field, &value));
    TRY(need(w->out, 8));
    memcpy(&bits, &value, 8);
    kl_store_u64(w->out->at + w->out->used, bits);
    w->out->used += 8;
    return KL_OK;
}

static int write_blob(writer_t *w, const kl_wire_field_t *field, uint8_t flags) {
    const uint8_t *at = NULL;
    size_t size = 0;
    int status = w->source->blob(w->context, field, &at, &size);
    TRY(status);
    if (field->kind == KL_WIRE_UUID) {
        if (status == KL_WIRE_NULL)
            return KL_ENULL;
        if (size != 16)
            return KL_ELENGTH;
    } else {
        int is_string = field->kind == KL_WIRE_STRING;
        if (status == KL_WIRE_NULL)
            return flags & KL_WIRE_NULLABLE ? write_length(w, flags, is_string, -1) : KL_ENULL;
        if (size > (is_string ? KL_WIRE_STRING_MAX : INT32_MAX))
            return KL_ELENGTH;
        TRY(write_length(w, flags, is_string, (int64_t)size));
    }
    if (size == 0)
        return KL_OK;
    if (at == NULL)
        return w->source->splice(w->context, w->out->used, size);
    TRY(need(w->out, size));
    memcpy(w->out->at + w->out->used, at, size);
    w->out->used += size;
    return KL_OK;
}

static int write_byte(writer_t *w, uint8_t value) {
    TRY(need(w->out, 1));
    w->out->at[w->out->used++] = value;
    return KL_OK;
}

/* A struct; if it may be null, a byte before it states whether it is present. */
static int write_nested(writer_t *w, const kl_wire_field_t *field, uint8_t flags, int depth) {
    int nullable = flags & KL_WIRE_NULLABLE;
    int status = w->source->begin(w->context, field, field->child);
    TRY(status);
    if (status == KL_WIRE_NULL)
        return nullable ? write_byte(w, flags & KL_WIRE_TAGGED ? 0 : 0xff) : KL_ENULL;
    if (nullable)
        TRY(write_byte(w, 1));
    return write_struct(w, field->child, depth + 1);
}

static int write_one(writer_t *w, const kl_wire_field_t *field, int is_element, int depth) {
    uint8_t flags = is_element ? field->flags & KL_WIRE_COMPACT : field->flags;
    if (field->kind < KL_WIRE_FLOAT64)
        return write_integer(w, field);
    if (field->kind == KL_WIRE_FLOAT64)
        return write_real(w, field);
    if (field->kind < KL_WIRE_STRUCT)
        return write_blob(w, field, flags);
    return write_nested(w, field, flags, depth);
}

static int write_field(writer_t *w, const kl_wire_field_t *field, int depth) {
    w->location->depth = depth + 1;
    w->location->steps[depth].field = field;
    w->location->steps[depth].index = -1;
    if (!(field->flags & KL_WIRE_ARRAY))
        return write_one(w, field, 0, depth);
    uint32_t count = 0;
    int status = w->source->array(w->context, field, &count);
    TRY(status);
    if (status == KL_WIRE_NULL)
        return field->flags & KL_WIRE_NULLABLE ? write_length(w, field->flags, 0, -1) : KL_ENULL;
    if (count > INT32_MAX)
        return KL_ELENGTH;
    TRY(write_length(w, field->flags, 0, count));
    for (uint32_t i = 0; i < count; i++) {
        w->location->depth = depth + 1;
        w->location->steps[depth].index = i;
        TRY(write_one(w, field, 1, depth));
    }
    return w->source->end(w->context);
}

/* The tag, the size and the value.  The size is known last: the value moves back by its length. */
static int write_tagged(writer_t *w, const kl_wire_field_t *field, int depth) {
    kl_wire_out_t *out = w->out;
    uint8_t stored[5];
    TRY(write_uvarint(out, field->tag));
    size_t begin = out->used;
    TRY(write_field(w, field, depth));
    size_t size = out->used - begin;
    if (size > INT32_MAX)
        return KL_ELENGTH;
    size_t moved = uvarint_store(stored, (uint32_t)size);
    TRY(need(out, moved));
    memmove(out->at + begin + moved, out->at + begin, size);
    memcpy(out->at + begin, stored, moved);
    out->used += moved;
    return KL_OK;
}

static int write_tags(writer_t *w, const kl_wire_field_t *tagged, uint16_t tagged_count, int depth) {
    size_t begin = w->out->used;
    TRY(write_byte(w, 0)); /* the count: a schema has fewer than 128 tags */
    uint8_t count = 0;
    for (uint16_t i = 0; i < tagged_count; i++) {
        w->location->depth = depth + 1;
        w->location->steps[depth].field = &tagged[i];
        w->location->steps[depth].index = -1;
        int omitted = w->source->omit(w->context, &tagged[i]);
        TRY(omitted);
        if (omitted)
            continue;
        TRY(write_tagged(w, &tagged[i], depth));
        count++;
    }
    w->out->at[begin] = count;
    return KL_OK;
}

/* The fields of a struct that has begun, and its end. */
static int write_struct(writer_t *w, uint32_t number, int depth) {
    const kl_wire_struct_t *s = &w->program->structs[number];
    const kl_wire_field_t *fields = &w->program->fields[s->first];
    for (uint16_t i = 0; i < s->plain; i++)
        TRY(write_field(w, &fields[i], depth));
    if (s->flexible)
        TRY(write_tags(w, fields + s->plain, s->tagged, depth));
    for (uint16_t i = 0; i < s->absent; i++) {
        const kl_wire_field_t *absent = &fields[s->plain + s->tagged + i];
        if (absent->flags & KL_WIRE_IGNORABLE)
            continue;
        w->location->depth = depth + 1;
        w->location->steps[depth].field = absent;
        w->location->steps[depth].index = -1;
        int omitted = w->source->omit(w->context, absent);
        TRY(omitted);
        if (!omitted)
            return KL_ENOFIELD;
    }
    return w->source->end(w->context);
}

int kl_wire_encode(const kl_wire_program_t *program, const kl_wire_source_t *source, void *context, kl_wire_out_t *out,
                   kl_wire_location_t *location) {
    writer_t w = {program, source, context, out, location};
    location->at = NULL;
    location->depth = 0;
    int status = source->begin(context, NULL, 0);
    TRY(status);
    return status == KL_WIRE_NULL ? KL_ENULL : write_struct(&w, 0, 0);
}
