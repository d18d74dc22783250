/* Kafka's wire protocol: one decoder and one encoder for every message; the layout of a message is data.
 *
 * A program is the layout of one version of one message.  Its structs lie in one array, its fields in another:
 *
 *   program := struct+ field*                          struct 0 is the message
 *   struct  := plain fields, then tagged fields by tag, then the fields that this version lacks
 *   field   := kind, flags, child (a struct), tag, minimum size of an element
 *
 * This code handles bytes and lengths.  The caller provides a source that returns the values, and a sink that takes
 * them.  Nothing here allocates.  Programs are trusted: they are compiled from klog's own schemas.  The bytes are not:
 *
 *   W1  no byte outside at[0..size) is read
 *   W2  an array's count is at most the remaining bytes divided by the minimum size of an element, so what a sink
 *       allocates for it is proportional to the bytes that have arrived
 *   W3  recursion is no deeper than the schema, which KL_WIRE_DEPTH limits
 *
 * Kafka: the generated classes of org.apache.kafka.common.message, ByteBufferAccessor.
 */
#ifndef KL_WIRE_H
#define KL_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

enum {
    KL_WIRE_BOOL,
    KL_WIRE_INT8,
    KL_WIRE_INT16,
    KL_WIRE_UINT16,
    KL_WIRE_INT32,
    KL_WIRE_INT64,
    KL_WIRE_FLOAT64,
    KL_WIRE_UUID,
    KL_WIRE_STRING,
    KL_WIRE_BYTES,
    KL_WIRE_RECORDS,
    KL_WIRE_STRUCT,
    KL_WIRE_KINDS,
};

enum {
    KL_WIRE_ARRAY = 1,     /* kind and child are those of an element */
    KL_WIRE_NULLABLE = 2,
    KL_WIRE_COMPACT = 4,   /* lengths and counts are unsigned varints of n + 1 */
    KL_WIRE_IGNORABLE = 8, /* a value that the version lacks is dropped */
    KL_WIRE_TAGGED = 16,   /* before a struct that may be null is a varint, not a byte */
};

enum {
    KL_WIRE_DEPTH = 8,
    KL_WIRE_STRING_MAX = INT16_MAX, /* compact strings, too, as in Kafka */
    KL_WIRE_NULL = 1,               /* what a source returns for null */
};

typedef struct {
    uint8_t kind;
    uint8_t flags;
    uint16_t child;
    uint32_t tag;
    uint32_t element_min;
} kl_wire_field_t;

typedef struct {
    uint32_t first; /* its first field */
    uint16_t plain, tagged, absent;
    uint16_t flexible; /* whether tagged fields follow the plain ones */
} kl_wire_struct_t;

typedef struct {
    const kl_wire_struct_t *structs;
    const kl_wire_field_t *fields;
} kl_wire_program_t;

/* Takes the values of a message in the order of their bytes; a tagged field only if it is present.  Each function
 * returns KL_OK, or a negative number, which ends the decoding.  field is NULL for the message itself; an element has
 * the field of its array.  Bytes of a blob are valid as long as the input. */
typedef struct {
    int (*begin)(void *context, const kl_wire_field_t *field, uint32_t number); /* a struct, until its end() */
    int (*array)(void *context, const kl_wire_field_t *field, uint32_t count);  /* an array, until its end() */
    int (*end)(void *context);
    int (*integer)(void *context, const kl_wire_field_t *field, int64_t value);
    int (*real)(void *context, const kl_wire_field_t *field, double value);
    int (*blob)(void *context, const kl_wire_field_t *field, const uint8_t *at, size_t size);
    int (*null)(void *context, const kl_wire_field_t *field);
} kl_wire_sink_t;

/* Returns the values of a message in the same order.  begin, array and blob may return KL_WIRE_NULL.
 *
 * omit: 1 if the field's value is its default, else 0.  It is called for tagged fields, whose default is not written,
 * and for fields that the version lacks and that are not ignorable.
 * splice: called for records whose blob() returned no address: the caller must insert `size` bytes at this position of
 * the output.  A tagged field has no records, because its bytes are moved after they have been written.
 */
typedef struct {
    int (*begin)(void *context, const kl_wire_field_t *field, uint32_t number);
    int (*array)(void *context, const kl_wire_field_t *field, uint32_t *count);
    int (*end)(void *context);
    int (*integer)(void *context, const kl_wire_field_t *field, int64_t *value);
    int (*real)(void *context, const kl_wire_field_t *field, double *value);
    int (*blob)(void *context, const kl_wire_field_t *field, const uint8_t **at, size_t *size);
    int (*omit)(void *context, const kl_wire_field_t *field);
    int (*splice)(void *context, size_t position, size_t size);
} kl_wire_source_t;

/* The path to the current value, for the text of an error: one step for each nested field.  index: of an array's
 * element, or -1. */
typedef struct {
    const kl_wire_field_t *field;
    int64_t index;
} kl_wire_step_t;

typedef struct {
    const uint8_t *at; /* decoding: the first byte of the value that failed */
    int depth;         /* steps in use */
    kl_wire_step_t steps[KL_WIRE_DEPTH];
} kl_wire_location_t;

/* at[0..used) is written.  grow() makes capacity - used at least `more`, or returns a negative number. */
typedef struct kl_wire_out {
    uint8_t *at;
    size_t used, capacity;
    int (*grow)(struct kl_wire_out *out, size_t more);
} kl_wire_out_t;

/* Read one message from at[0..size); *used is its size.  Unknown tagged fields are skipped.
 * KL_OK | KL_ETRUNCATED | KL_EOVERLONG | KL_ELENGTH (negative, or too large) | KL_ECOUNT (more elements than the bytes
 * can hold) | KL_ENULL | KL_EORDER (tags that do not rise) | KL_ESLACK (bytes left in a tagged field) | what a sink
 * returned.  After a failure *location has the path and the position of the value that failed. */
int kl_wire_decode(const kl_wire_program_t *program, const uint8_t *at, size_t size, const kl_wire_sink_t *sink,
                   void *context, size_t *used, kl_wire_location_t *location);

/* Append one message to *out.
 * KL_OK | KL_ENULL | KL_ERANGE (an integer outside its type) | KL_ENOFIELD (a value that the version cannot carry) |
 * KL_ELENGTH (a string above KL_WIRE_STRING_MAX, a uuid that has not 16 bytes, or anything above INT32_MAX) | what a
 * source or grow() returned. */
int kl_wire_encode(const kl_wire_program_t *program, const kl_wire_source_t *source, void *context, kl_wire_out_t *out,
                   kl_wire_location_t *location);

#endif
