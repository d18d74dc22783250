from libc.stdint cimport int64_t

cdef extern from "arrow.h" nogil:
    struct ArrowSchema:
        void (*release)(ArrowSchema *) noexcept nogil

    struct ArrowArray:
        int64_t length
        void (*release)(ArrowArray *) noexcept nogil

    struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream *, ArrowSchema *) noexcept
        int (*get_next)(ArrowArrayStream *, ArrowArray *) noexcept
        const char *(*get_last_error)(ArrowArrayStream *) noexcept
        void (*release)(ArrowArrayStream *) noexcept nogil
        void *private_data
