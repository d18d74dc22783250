from klog._c.arrow cimport ArrowArray, ArrowSchema
from klog._c.batch cimport kl_batch_t
from klog._c.pool cimport kl_pool_t
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from "columns.h" nogil:
    ctypedef enum kl_column_t:
        KL_COLUMN_OFFSET
        KL_COLUMN_TIMESTAMP
        KL_COLUMN_TIMESTAMP_TYPE
        KL_COLUMN_KEY
        KL_COLUMN_VALUE
        KL_COLUMN_HEADERS
        KL_COLUMN_LEADER_EPOCH
        KL_COLUMN_TOPIC
        KL_COLUMN_PARTITION
        KL_COLUMN_KINDS

    enum:
        KL_COLUMNS_VIEWS
        KL_COLUMNS_SPARK

    ctypedef struct kl_columns_t:
        pass

    int kl_columns_new(kl_pool_t *pool, const kl_column_t *kinds, int n, int flags, kl_columns_t **out)
    void kl_columns_drop(kl_columns_t *columns)
    int kl_columns_pin(kl_columns_t *columns, const uint8_t *bytes, size_t size, void (*release)(void *) noexcept,
                       void *owner)
    void kl_columns_from(kl_columns_t *columns, int pinned)
    void kl_columns_origin(kl_columns_t *columns, const char *topic, size_t size, int32_t partition)
    void kl_columns_pick(kl_columns_t *columns, const int64_t *offsets, size_t n)
    int kl_columns_append(kl_columns_t *columns, const kl_batch_t *b, const uint8_t *payload, size_t size,
                          int64_t start, int64_t stop, double hint, int32_t *bad)
    int kl_columns_append_unverified(kl_columns_t *columns, const kl_batch_t *b, const uint8_t *batch, int64_t start,
                                     int64_t stop, double hint, int32_t *bad)
    int64_t kl_columns_rows(const kl_columns_t *columns)
    int64_t kl_columns_nbytes(const kl_columns_t *columns)
    int kl_columns_schema(const kl_column_t *kinds, int n, int flags, ArrowSchema *out)
    int kl_columns_export(kl_columns_t *columns, ArrowArray *out)
