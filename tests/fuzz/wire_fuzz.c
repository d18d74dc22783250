/* Messages of the wire protocol: a message that is decoded can be encoded, and decodes again to the same values;
 * encoded a second time it has the same bytes.  The first two bytes of the input choose the message and its version:
 * wire_programs.h, made by programs.py, has the program of each. */
#include "fuzz.h"

#include "status.h"
#include "wire.h"
#include "wire_programs.h"

enum { INTEGER, REAL, BLOB, NIL, BEGIN, ARRAY, END };

typedef struct {
    const kl_wire_field_t *field;
    const uint8_t *at;
    int64_t number; /* an integer, the bits of a real, a size or a count */
    int what;
} event_t;

typedef struct {
    event_t *events;
    size_t used, capacity, next;
    size_t spliced;
    int splices; /* records are not copied */
} tape_t;

static int add(tape_t *tape, int what, const kl_wire_field_t *field, int64_t number, const uint8_t *at) {
    if (tape->used == tape->capacity) {
        tape->capacity = 2 * tape->capacity + 64;
        tape->events = realloc(tape->events, tape->capacity * sizeof *tape->events);
        CLAIM(tape->events != NULL);
    }
    tape->events[tape->used++] = (event_t){field, at, number, what};
    return KL_OK;
}

static int sink_begin(void *tape, const kl_wire_field_t *field, uint32_t number) {
    return add(tape, BEGIN, field, number, NULL);
}
static int sink_array(void *tape, const kl_wire_field_t *field, uint32_t count) {
    return add(tape, ARRAY, field, count, NULL);
}
static int sink_end(void *tape) { return add(tape, END, NULL, 0, NULL); }
static int sink_integer(void *tape, const kl_wire_field_t *field, int64_t value) {
    return add(tape, INTEGER, field, value, NULL);
}
static int sink_real(void *tape, const kl_wire_field_t *field, double value) {
    int64_t bits;
    memcpy(&bits, &value, 8);
    return add(tape, REAL, field, bits, NULL);
}
static int sink_blob(void *tape, const kl_wire_field_t *field, const uint8_t *at, size_t size) {
    return add(tape, BLOB, field, (int64_t)size, at);
}
static int sink_null(void *tape, const kl_wire_field_t *field) { return add(tape, NIL, field, 0, NULL); }

static const kl_wire_sink_t sink = {sink_begin, sink_array, sink_end, sink_integer, sink_real, sink_blob, sink_null};

static event_t *take(tape_t *tape, const kl_wire_field_t *field) {
    CLAIM(tape->next < tape->used);
    event_t *event = &tape->events[tape->next++];
    CLAIM(event->field == field);
    return event;
}

static int source_begin(void *tape, const kl_wire_field_t *field, uint32_t number) {
    event_t *event = take(tape, field);
    CLAIM(event->what == NIL || (event->what == BEGIN && event->number == number));
    return event->what == NIL ? KL_WIRE_NULL : KL_OK;
}
static int source_array(void *tape, const kl_wire_field_t *field, uint32_t *count) {
    event_t *event = take(tape, field);
    CLAIM(event->what == NIL || event->what == ARRAY);
    *count = (uint32_t)event->number;
    return event->what == NIL ? KL_WIRE_NULL : KL_OK;
}
static int source_end(void *tape) {
    CLAIM(take(tape, NULL)->what == END);
    return KL_OK;
}
static int source_integer(void *tape, const kl_wire_field_t *field, int64_t *value) {
    event_t *event = take(tape, field);
    CLAIM(event->what == INTEGER);
    *value = event->number;
    return KL_OK;
}
static int source_real(void *tape, const kl_wire_field_t *field, double *value) {
    event_t *event = take(tape, field);
    CLAIM(event->what == REAL);
    memcpy(value, &event->number, 8);
    return KL_OK;
}
static int source_blob(void *context, const kl_wire_field_t *field, const uint8_t **at, size_t *size) {
    tape_t *tape = context;
    event_t *event = take(tape, field);
    CLAIM(event->what == NIL || event->what == BLOB);
    *size = (size_t)event->number;
    *at = field->kind == KL_WIRE_RECORDS && tape->splices ? NULL : event->at;
    return event->what == NIL ? KL_WIRE_NULL : KL_OK;
}

/* A tagged field is next on the tape if it was there; a field that the version lacks was not. */
static int source_omit(void *context, const kl_wire_field_t *field) {
    tape_t *tape = context;
    return tape->events[tape->next].field != field;
}
static int source_splice(void *context, size_t position, size_t size) {
    ((tape_t *)context)->spliced += size;
    return KL_OK;
}

static const kl_wire_source_t source = {source_begin, source_array, source_end,  source_integer,
                                        source_real,  source_blob,  source_omit, source_splice};

static int grow(kl_wire_out_t *out, size_t more) {
    uint8_t *larger = malloc(out->used + more); /* exactly, so that a write past it is detected */
    CLAIM(larger != NULL);
    if (out->used != 0)
        memcpy(larger, out->at, out->used);
    free(out->at);
    out->at = larger;
    out->capacity = out->used + more;
    return KL_OK;
}

static kl_wire_out_t write_all(const kl_wire_program_t *program, tape_t *tape, int splices) {
    kl_wire_out_t out = {.grow = grow};
    kl_wire_location_t location;
    tape->next = tape->spliced = 0;
    tape->splices = splices;
    CLAIM(kl_wire_encode(program, &source, tape, &out, &location) == KL_OK);
    CLAIM(tape->next == tape->used);
    return out;
}

static void claim_same(const tape_t *a, const tape_t *b) {
    CLAIM(a->used == b->used);
    for (size_t i = 0; i < a->used; i++) {
        const event_t *x = &a->events[i], *y = &b->events[i];
        CLAIM(x->field == y->field && x->what == y->what && x->number == y->number);
        if (x->what == BLOB && x->number != 0)
            CLAIM(memcmp(x->at, y->at, (size_t)x->number) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *choices = fuzz_choices(&data, &size, 2);
    const kl_wire_program_t *program = &programs[(choices[0] | choices[1] << 8) % (sizeof programs / sizeof *programs)];
    uint8_t *copy = fuzz_exact(data, size);
    tape_t tape = {0}, again = {0};
    kl_wire_location_t location;
    size_t used = 0;
    int status = kl_wire_decode(program, copy, size, &sink, &tape, &used, &location);
    CLAIM(location.at >= copy && location.at <= copy + size && location.depth >= 0 && location.depth <= KL_WIRE_DEPTH);
    if (status != KL_OK) {
        CLAIM(status == KL_ETRUNCATED || status == KL_EOVERLONG || status == KL_ELENGTH || status == KL_ECOUNT ||
              status == KL_ENULL || status == KL_EORDER || status == KL_ESLACK);
    } else {
        CLAIM(used <= size);
        kl_wire_out_t out = write_all(program, &tape, 0);
        CLAIM(kl_wire_decode(program, out.at, out.used, &sink, &again, &used, &location) == KL_OK && used == out.used);
        claim_same(&tape, &again);
        kl_wire_out_t apart = write_all(program, &again, 1);
        CLAIM(apart.used + again.spliced == out.used);
        kl_wire_out_t twice = write_all(program, &again, 0);
        CLAIM(twice.used == out.used && (out.used == 0 || memcmp(twice.at, out.at, out.used) == 0));
        free(out.at);
        free(apart.at);
        free(twice.at);
    }
    free(tape.events);
    free(again.events);
    free(copy);
    return 0;
}
