from libc.stdint cimport int32_t, int64_t, uint8_t

from klog._c.batch cimport kl_batch_t

cdef extern from "index.h" nogil:
    enum:
        KL_OFFSET_ENTRY
        KL_TIME_ENTRY

    int32_t kl_offset_index_valid(const uint8_t *entries, int32_t n)
    int32_t kl_time_index_valid(const uint8_t *entries, int32_t n)
    int32_t kl_offset_index_floor(const uint8_t *entries, int32_t n, int32_t target)
    int32_t kl_offset_index_position(const uint8_t *entries, int32_t n, int32_t target)
    int32_t kl_time_index_floor(const uint8_t *entries, int32_t n, int64_t target)

    ctypedef struct kl_indexer_t:
        uint8_t *offset_entries
        uint8_t *time_entries
        int64_t base_offset
        int64_t bytes_since_entry
        int64_t max_timestamp
        int64_t max_timestamp_offset
        int64_t last_time
        int64_t last_time_offset
        int64_t first_timestamp
        int32_t interval
        int32_t offset_count
        int32_t offset_capacity
        int32_t time_count
        int32_t time_capacity
        int32_t last_relative

    void kl_indexer_init(kl_indexer_t *x, int64_t base_offset, int32_t interval)
    void kl_indexer_add(kl_indexer_t *x, const kl_batch_t *b, int64_t position)
    int kl_indexer_close(kl_indexer_t *x)
    int kl_indexer_must_roll(const kl_indexer_t *x, const kl_batch_t *b, int64_t size, int64_t segment_bytes,
                             int64_t segment_ms, int64_t waited_ms)
    int kl_indexer_has_space(const kl_indexer_t *x, const kl_batch_t *batches, int32_t n, int64_t size)
    int32_t kl_indexer_fit(const kl_indexer_t *x, const kl_batch_t *batches, int32_t n, int64_t size,
                           int64_t segment_bytes, int64_t segment_ms, int64_t waited_ms)
