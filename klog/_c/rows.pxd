from klog._c.arrow cimport ArrowArray, ArrowArrayStream, ArrowSchema
from klog._c.batch cimport kl_batch_t
from libc.stdint cimport int64_t, uint8_t

cdef extern from "rows.h" nogil:
    enum:
        KL_ROWS_MESSAGE

    ctypedef struct kl_bytes_column_t:
        pass

    ctypedef struct kl_valid_t:
        pass

    ctypedef struct kl_rows_t:
        kl_bytes_column_t key
        kl_valid_t valid
        int64_t length
        const int64_t *picked

    ctypedef enum kl_rows_end_t:
        KL_ROWS_DONE
        KL_ROWS_FULL
        KL_ROWS_SPACE
        KL_ROWS_SIZE
        KL_ROWS_KEY
        KL_ROWS_NEGATIVE
        KL_ROWS_TIMESTAMP
        KL_ROWS_OVERFLOW
        KL_ROWS_EARLY
        KL_ROWS_HEADER_KEY

    ctypedef struct kl_rows_rules_t:
        int64_t batch_bytes_max
        int64_t message_bytes_max
        int64_t timestamp_default
        int64_t timestamp_min
        int64_t timestamp_max
        bint key_required
        bint base_given

    ctypedef struct kl_rows_out_t:
        uint8_t *at
        size_t size
        size_t capacity
        size_t more
        int64_t timestamp

    int kl_rows_bind(const ArrowSchema *schema, kl_rows_t *rows, char *message)
    int kl_rows_point(kl_rows_t *rows, const ArrowArray *array, char *message)
    int64_t kl_rows_bytes(const kl_rows_t *rows, int64_t start)
    kl_rows_end_t kl_rows_write(const kl_rows_t *rows, const kl_rows_rules_t *rules, int64_t *row, kl_batch_t *b,
                                kl_rows_out_t *out)
    bint kl_valid_at(kl_valid_t valid, int64_t i)
    const uint8_t *kl_bytes_at(const kl_bytes_column_t *column, int64_t i, int64_t *size)
    int64_t kl_rows_at(const kl_rows_t *rows, int64_t i)
    int kl_stream_schema(ArrowArrayStream *stream, ArrowSchema *out)
    int kl_stream_next(ArrowArrayStream *stream, ArrowArray *out)
