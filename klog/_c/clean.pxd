from klog._c.batch cimport kl_batch_t
from klog._c.keymap cimport kl_key_t, kl_keymap_t
from klog._c.waste cimport kl_waste_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef extern from "clean.h" nogil:
    int kl_clean_put_keys(kl_keymap_t *map, const kl_batch_t *b, const uint8_t *records, size_t size, int64_t start,
                      int64_t *latest, int32_t *bad)

    ctypedef struct kl_clean_rules_t:
        const kl_keymap_t *map
        int64_t latest_offset
        int64_t now
        int64_t new_horizon
        int32_t keep_legacy_tombstones
        kl_key_t purged
        kl_waste_t *waste

    ctypedef struct kl_clean_run_t:
        uint32_t from_ "from"
        uint32_t to

    ctypedef struct kl_cleaned_t:
        int64_t base_timestamp
        int64_t max_timestamp
        int64_t first_offset
        int64_t last_offset
        int64_t bytes_max
        int32_t count
        int32_t runs
        int32_t keyless
        int32_t sets_horizon
        int32_t whole

    size_t kl_clean_runs_max(int32_t count)

    ctypedef enum kl_prediction_t:
        KL_PREDICT_NOTHING
        KL_PREDICT_EMPTY
        KL_PREDICT_WHOLE

    kl_prediction_t kl_clean_predict(const kl_clean_rules_t *rules, const kl_batch_t *b)
    int kl_clean_choose(const kl_clean_rules_t *rules, const kl_batch_t *b, const uint8_t *records, size_t size, int all_,
                        int marker_done, kl_clean_run_t *runs, kl_cleaned_t *out, int32_t *bad)
    int64_t kl_clean_write(const kl_batch_t *b, const uint8_t *records, const kl_clean_run_t *runs,
                           const kl_cleaned_t *out, int64_t base_offset, uint8_t *to)
    void kl_clean_seal(const kl_batch_t *b, const kl_cleaned_t *cleaned, int64_t base_offset, int codec, int64_t size,
                       uint8_t *at)
    void kl_clean_empty(const kl_batch_t *b, uint8_t *at)

    ctypedef struct kl_found_t:
        kl_key_t key
        int64_t records
        int64_t bytes
        int64_t first_offset
        int64_t last_offset

    int kl_clean_find(kl_found_t *found, const kl_batch_t *b, const uint8_t *records, size_t size, int32_t *bad)
    int32_t kl_clean_control_type(const kl_batch_t *b, const uint8_t *records, size_t size)
