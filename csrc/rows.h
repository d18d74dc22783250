/* Rows of Arrow columns in any memory, written as records of a batch: encode.h with columns as its source.
 *
 *   key, value   binary, string, their large and view forms, fixed_size_binary, null
 *   timestamp    of any unit, finer ones are rounded down; or int64 of milliseconds, with -1 for none
 *   headers      list, large list or map of a struct of key and value
 *
 * kl_rows_bind checks the types once per schema, and kl_rows_point sets the pointers once per array: after that a row
 * needs no type check.  Offsets, sizes and pointers inside an array are trusted, as in the Arrow C interface.  The
 * memory that a kl_rows_t points to must stay allocated and unchanged as long as the kl_rows_t is used.
 * Nothing here allocates or touches Python.
 */
#ifndef KL_ROWS_H
#define KL_ROWS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "arrow.h"
#include "batch.h"

typedef enum {
    KL_BYTES_NULL, /* every row is null: type null, or no such column */
    KL_BYTES_32,
    KL_BYTES_64,
    KL_BYTES_VIEW,
    KL_BYTES_FIXED,
} kl_bytes_kind_t;

typedef enum {
    KL_TIME_NULL,
    KL_TIME_S,
    KL_TIME_MS,
    KL_TIME_US,
    KL_TIME_NS,
    KL_TIME_INT64,
} kl_time_kind_t;

typedef enum {
    KL_LIST_NULL,
    KL_LIST_32,
    KL_LIST_64,
} kl_list_kind_t;

/* A bitmap: NULL if all rows are valid, else bit first + i is set if row i is. */
typedef struct {
    const uint8_t *bits;
    int64_t first;
} kl_valid_t;

typedef struct {
    kl_bytes_kind_t kind;
    kl_valid_t valid;
    const uint8_t *entries;        /* of row 0: offsets, views, or the fixed bytes themselves */
    const uint8_t *bytes;
    const uint8_t *const *blocks;  /* that views point into */
    int64_t width;                 /* of fixed-size rows */
} kl_bytes_column_t;

typedef struct {
    kl_time_kind_t kind;
    kl_valid_t valid;
    const int64_t *values;
} kl_time_column_t;

typedef struct {
    kl_list_kind_t kind;
    int key_child, value_child; /* of the struct */
    kl_valid_t valid;
    const uint8_t *entries;
    kl_valid_t item_valid;
    kl_bytes_column_t key, value;
} kl_list_column_t;

typedef struct {
    kl_bytes_column_t key, value;
    kl_time_column_t timestamp;
    kl_list_column_t headers;
    int key_child, value_child, timestamp_child, headers_child; /* of the struct of rows, -1 for none */
    kl_valid_t valid;                                           /* a null row has null fields */
    int64_t length;
    const int64_t *picked; /* NULL, or length numbers of the rows to take */
} kl_rows_t;

enum {
    KL_ROWS_MESSAGE = 256, /* space for the messages of bind and point */
};

/* Find the columns in a schema.  KL_OK | KL_EMAGIC (an unsupported type) | KL_ELENGTH (an unknown or a missing column),
 * with a message.  In rows, only the fields that are not pointers are set. */
int kl_rows_bind(const struct ArrowSchema *schema, kl_rows_t *rows, char *message);

/* Let rows that were bound to its schema point into an array.  KL_OK | KL_ELENGTH with a message if children or buffers
 * are not those of the type. */
int kl_rows_point(kl_rows_t *rows, const struct ArrowArray *array, char *message);

/* Estimate the bytes of keys and values from row `from` on, without reading all of them: for the size of a buffer. */
int64_t kl_rows_bytes(const kl_rows_t *rows, int64_t from);

/* Why kl_rows_write ended. */
typedef enum {
    KL_ROWS_DONE,       /* no more rows */
    KL_ROWS_FULL,       /* the next row belongs to another batch */
    KL_ROWS_SPACE,      /* the next row needs `more` bytes after size */
    KL_ROWS_SIZE,       /* the next row is larger than a batch may be: the batch would have `more` bytes */
    KL_ROWS_KEY,        /* the next row has no key, but a key is required */
    KL_ROWS_NEGATIVE,   /* its timestamp is an int64 below -1 */
    KL_ROWS_TIMESTAMP,  /* its timestamp is out of range */
    KL_ROWS_OVERFLOW,   /* its timestamp does not fit into 64 bits of milliseconds */
    KL_ROWS_EARLY,      /* its timestamp is a moment before 1970 */
    KL_ROWS_HEADER_KEY, /* one of its headers has no key */
} kl_rows_end_t;

/* The limits of a batch. */
typedef struct {
    int64_t batch_bytes_max;   /* a single record may exceed it ... */
    int64_t message_bytes_max; /* ... but not past this; at most INT32_MAX */
    int64_t timestamp_default; /* for null */
    int64_t timestamp_min;     /* the range for timestamps other than -1 */
    int64_t timestamp_max;
    int key_required;
    int base_given;            /* the batch's base_timestamp is set already, else the first record's is used */
} kl_rows_rules_t;

/* The bytes of a batch: size of capacity are used, including the space for the header. */
typedef struct {
    uint8_t *at;
    size_t size;
    size_t capacity;
    size_t more;
    int64_t timestamp; /* the invalid one */
} kl_rows_out_t;

/* Write rows from *row on after out->size.  Advances *row to the first row not written, and b->count, base_timestamp
 * and max_timestamp with it. */
kl_rows_end_t kl_rows_write(const kl_rows_t *rows, const kl_rows_rules_t *rules, int64_t *row, kl_batch_t *b,
                            kl_rows_out_t *out);

static inline int kl_valid_at(kl_valid_t valid, int64_t i) {
    return valid.bits == NULL || (valid.bits[(valid.first + i) >> 3] >> ((valid.first + i) & 7) & 1) != 0;
}

/* The bytes of row i and their number, -1 for null. */
static inline const uint8_t *kl_bytes_at(const kl_bytes_column_t *column, int64_t i, int64_t *size) {
    if (column->kind == KL_BYTES_NULL || !kl_valid_at(column->valid, i)) {
        *size = -1;
        return NULL;
    }
    switch (column->kind) {
    case KL_BYTES_32: {
        int32_t ends[2];
        memcpy(ends, column->entries + 4 * i, sizeof ends);
        *size = (int64_t)ends[1] - ends[0];
        return column->bytes + ends[0];
    }
    case KL_BYTES_64: {
        int64_t ends[2];
        memcpy(ends, column->entries + 8 * i, sizeof ends);
        *size = ends[1] - ends[0];
        return column->bytes + ends[0];
    }
    case KL_BYTES_VIEW: { /* size, then up to 12 bytes, or 4 bytes that repeat the first ones, block and position */
        const uint8_t *view = column->entries + 16 * i;
        int32_t fields[4];
        memcpy(fields, view, sizeof fields);
        *size = fields[0];
        return fields[0] <= 12 ? view + 4 : column->blocks[fields[2]] + fields[3];
    }
    default:
        *size = column->width;
        return column->entries + column->width * i;
    }
}

/* The number in the array of the i-th selected row. */
static inline int64_t kl_rows_at(const kl_rows_t *rows, int64_t i) {
    return rows->picked != NULL ? rows->picked[i] : i;
}

/* A stream's functions, for callers that cannot call a pointer: they may run for long, and may take the GIL. */
static inline int kl_stream_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    return stream->get_schema(stream, out);
}
static inline int kl_stream_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    return stream->get_next(stream, out);
}

#endif
