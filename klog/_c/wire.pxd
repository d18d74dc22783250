from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

cdef extern from "wire.h":
    enum:
        KL_WIRE_BOOL
        KL_WIRE_STRING
        KL_WIRE_UUID
        KL_WIRE_RECORDS
        KL_WIRE_ARRAY
        KL_WIRE_DEPTH
        KL_WIRE_STRING_MAX
        KL_WIRE_NULL

    ctypedef struct kl_wire_field_t:
        uint8_t kind
        uint8_t flags
        uint16_t child
        uint32_t tag
        uint32_t element_min

    ctypedef struct kl_wire_struct_t:
        uint32_t first
        uint16_t plain
        uint16_t tagged
        uint16_t absent
        uint16_t flexible

    ctypedef struct kl_wire_program_t:
        const kl_wire_struct_t *structs
        const kl_wire_field_t *fields

    # -1 from a function of a sink or source: it has raised an exception.
    ctypedef struct kl_wire_sink_t:
        int (*begin)(void *context, const kl_wire_field_t *field, uint32_t number) except -1
        int (*array)(void *context, const kl_wire_field_t *field, uint32_t count) except -1
        int (*end)(void *context) except -1
        int (*integer)(void *context, const kl_wire_field_t *field, int64_t value) except -1
        int (*real)(void *context, const kl_wire_field_t *field, double value) except -1
        int (*blob)(void *context, const kl_wire_field_t *field, const uint8_t *at, size_t size) except -1
        int (*null)(void *context, const kl_wire_field_t *field) except -1

    ctypedef struct kl_wire_source_t:
        int (*begin)(void *context, const kl_wire_field_t *field, uint32_t number) except -1
        int (*array)(void *context, const kl_wire_field_t *field, uint32_t *count) except -1
        int (*end)(void *context) except -1
        int (*integer)(void *context, const kl_wire_field_t *field, int64_t *value) except -1
        int (*real)(void *context, const kl_wire_field_t *field, double *value) except -1
        int (*blob)(void *context, const kl_wire_field_t *field, const uint8_t **at, size_t *size) except -1
        int (*omit)(void *context, const kl_wire_field_t *field) except -1
        int (*splice)(void *context, size_t position, size_t size) except -1

    ctypedef struct kl_wire_step_t:
        const kl_wire_field_t *field
        int64_t index

    ctypedef struct kl_wire_location_t:
        const uint8_t *at
        int depth
        kl_wire_step_t steps[8]

    ctypedef struct kl_wire_out_t:
        uint8_t *at
        size_t used
        size_t capacity
        int (*grow)(kl_wire_out_t *out, size_t more) except -1

    int kl_wire_decode(const kl_wire_program_t *program, const uint8_t *at, size_t size, const kl_wire_sink_t *sink,
                       void *context, size_t *used, kl_wire_location_t *location) except -1
    int kl_wire_encode(const kl_wire_program_t *program, const kl_wire_source_t *source, void *context,
                       kl_wire_out_t *out, kl_wire_location_t *location) except -1
