/* A small message of every kind of field, its bytes by hand, cut everywhere, and with wrong counts. */
#include "selftest/selftest.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "wire.h"

/* { id: int32, note: string?, items: [Item {port: uint16, weight: float64, tag 1: uuid}]?, one: Item?, records } */
static const kl_wire_struct_t structs[] = {{0, 5, 0, 1, 1}, {6, 2, 1, 0, 1}};
static const kl_wire_field_t fields[] = {
    {KL_WIRE_INT32, 0, 0, 0, 1},
    {KL_WIRE_STRING, KL_WIRE_NULLABLE | KL_WIRE_COMPACT, 0, 0, 1},
    {KL_WIRE_STRUCT, KL_WIRE_ARRAY | KL_WIRE_NULLABLE | KL_WIRE_COMPACT, 1, 0, 11},
    {KL_WIRE_STRUCT, KL_WIRE_NULLABLE, 1, 0, 1},
    {KL_WIRE_RECORDS, KL_WIRE_COMPACT, 0, 0, 1},
    {KL_WIRE_INT64, 0, 0, 0, 1}, /* lacking */
    {KL_WIRE_UINT16, 0, 0, 0, 1},
    {KL_WIRE_FLOAT64, 0, 0, 0, 1},
    {KL_WIRE_UUID, 0, 0, 1, 1},
};
static const kl_wire_program_t program = {structs, fields};

static const uint8_t bytes[] = {
    0xff, 0xff, 0xff, 0xfe,                                                       /* id */
    3, 'h', 'i',                                                                  /* note */
    3,                                                                            /* two items */
    0xff, 0xff, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0,                                  /* no tags */
    0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 16, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
    0xff,                                                                         /* one is null */
    4, 'a', 'b', 'c',                                                             /* records */
    0,                                                                            /* no tags */
};

/* Keeps the decoded values, so that the source can return them. */
typedef struct {
    const uint8_t *at[64];
    int64_t number[64];
    size_t used, next, spliced;
    int lacking, refuses, splices;
} values_t;

static int keep(values_t *v, int64_t number, const uint8_t *at) {
    if (v->used == 64)
        return -77;
    v->at[v->used] = at;
    v->number[v->used++] = number;
    return KL_OK;
}
static int on_begin(void *v, const kl_wire_field_t *field, uint32_t number) { return keep(v, number, NULL); }
static int on_array(void *v, const kl_wire_field_t *field, uint32_t count) { return keep(v, count, NULL); }
static int on_end(void *v) { return KL_OK; }
static int on_integer(void *v, const kl_wire_field_t *field, int64_t value) { return keep(v, value, NULL); }
static int on_real(void *v, const kl_wire_field_t *field, double value) { return keep(v, (int64_t)value, NULL); }
static int on_blob(void *v, const kl_wire_field_t *field, const uint8_t *at, size_t size) {
    return keep(v, (int64_t)size, at);
}
static int on_null(void *v, const kl_wire_field_t *field) { return keep(v, -1, NULL); }
static const kl_wire_sink_t sink = {on_begin, on_array, on_end, on_integer, on_real, on_blob, on_null};

static int64_t next(values_t *v, const uint8_t **at) {
    *at = v->at[v->next];
    return v->number[v->next++];
}
static int give_begin(void *v, const kl_wire_field_t *field, uint32_t number) {
    const uint8_t *at;
    return next(v, &at) < 0 ? KL_WIRE_NULL : KL_OK;
}
static int give_array(void *v, const kl_wire_field_t *field, uint32_t *count) {
    const uint8_t *at;
    int64_t number = next(v, &at);
    *count = (uint32_t)number;
    return number < 0 ? KL_WIRE_NULL : KL_OK;
}
static int give_integer(void *v, const kl_wire_field_t *field, int64_t *value) {
    const uint8_t *at;
    *value = next(v, &at);
    return KL_OK;
}
static int give_real(void *v, const kl_wire_field_t *field, double *value) {
    const uint8_t *at;
    *value = (double)next(v, &at);
    return KL_OK;
}
static int give_blob(void *context, const kl_wire_field_t *field, const uint8_t **at, size_t *size) {
    values_t *v = context;
    int64_t number = next(v, at);
    if (number < 0)
        return KL_WIRE_NULL;
    *size = (size_t)number;
    if (field->kind == KL_WIRE_RECORDS && v->splices)
        *at = NULL;
    return KL_OK;
}
static int give_omit(void *context, const kl_wire_field_t *field) {
    values_t *v = context;
    if (field->kind == KL_WIRE_INT64)
        return !v->lacking;
    return v->number[v->next] != 16 || v->at[v->next] == NULL;
}
static int give_splice(void *context, size_t position, size_t size) {
    ((values_t *)context)->spliced = position;
    return KL_OK;
}
static const kl_wire_source_t source = {give_begin, give_array, on_end,    give_integer,
                                        give_real,  give_blob,  give_omit, give_splice};

static int no_space(kl_wire_out_t *out, size_t more) { return -88; }

static int decode(const uint8_t *at, size_t size, values_t *values, kl_wire_location_t *location) {
    uint8_t *copy = exact_copy(at, size);
    size_t used = 0;
    *values = (values_t){0};
    int status = kl_wire_decode(&program, copy, size, &sink, values, &used, location);
    CHECK(status != KL_OK || used <= size);
    CHECK(location->at >= copy && location->at <= copy + size);
    location->at = at + (location->at - copy);
    free(copy);
    return status;
}

void test_wire(void) {
    static values_t values;
    kl_wire_location_t location;
    size_t used = 0;
    values = (values_t){0};
    CHECK(kl_wire_decode(&program, bytes, sizeof bytes, &sink, &values, &used, &location) == KL_OK);
    CHECK(used == sizeof bytes);
    static const int64_t expected[] = {0, -2, 2, 2, 1, 65535, 1, 1, 9, 0, 16, -1, 3};
    CHECK(values.used == sizeof expected / sizeof *expected);
    CHECK(memcmp(values.number, expected, sizeof expected) == 0);

    uint8_t space[128];
    kl_wire_out_t out = {space, 0, sizeof space, no_space};
    CHECK(kl_wire_encode(&program, &source, &values, &out, &location) == KL_OK);
    CHECK(out.used == sizeof bytes && memcmp(space, bytes, sizeof bytes) == 0);
    values.next = 0;
    values.splices = 1;
    out.used = 0;
    CHECK(kl_wire_encode(&program, &source, &values, &out, &location) == KL_OK);
    CHECK(out.used == sizeof bytes - 3 && values.spliced == sizeof bytes - 4);
    values.next = 0;
    values.lacking = 1;
    out.used = 0;
    CHECK(kl_wire_encode(&program, &source, &values, &out, &location) == KL_ENOFIELD);
    CHECK(location.steps[0].field == &fields[5]);
    for (size_t capacity = 0; capacity < 8; capacity++) { /* an integer reserves 8 bytes */
        values.next = 0;
        kl_wire_out_t small = {space, 0, capacity, no_space};
        CHECK(kl_wire_encode(&program, &source, &values, &small, &location) == -88);
    }
    values.next = 0;
    values.number[1] = (int64_t)INT32_MAX + 1;
    out.used = 0;
    CHECK(kl_wire_encode(&program, &source, &values, &out, &location) == KL_ERANGE);
    CHECK(location.steps[0].field == &fields[0]);
}

void test_wire_hostile(void) {
    static values_t values;
    kl_wire_location_t location;
    uint8_t copy[sizeof bytes];
    for (size_t size = 0; size < sizeof bytes; size++) {
        int status = decode(bytes, size, &values, &location);
        CHECK(status == KL_ETRUNCATED || status == KL_ECOUNT || status == KL_ESLACK);
    }
    static const struct {
        size_t at;
        uint8_t byte;
        int status;
        int depth;
    } rows[] = {
        {4, 0xff, KL_ETRUNCATED, 1},  /* a note of 1151 bytes */
        {7, 0x7f, KL_ECOUNT, 1},      /* 126 items */
        {30, 0x09, KL_OK, 2},         /* another tag: skipped */
        {31, 0x0f, KL_ETRUNCATED, 2}, /* one byte less for the uuid */
        {31, 0x7f, KL_ETRUNCATED, 1}, /* more than there are */
        {49, 0x00, KL_ENULL, 1},      /* records */
        {53, 0x7f, KL_ECOUNT, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        memcpy(copy, bytes, sizeof bytes);
        copy[rows[i].at] = rows[i].byte;
        int status = decode(copy, sizeof copy, &values, &location);
        CHECK(status == rows[i].status);
        CHECK(status == KL_OK || location.depth == rows[i].depth);
    }
    for (int i = 0; i < 20000; i++) {
        memcpy(copy, bytes, sizeof bytes);
        for (size_t k = random_below(4) + 1; k != 0; k--)
            copy[random_below(sizeof copy)] = (uint8_t)random_u64();
        decode(copy, 1 + random_below(sizeof copy), &values, &location);
    }
}
