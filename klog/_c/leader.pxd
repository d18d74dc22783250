from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

cdef extern from "leader.h" nogil:
    ctypedef struct kl_leader_rules_t:
        int64_t now
        int64_t before_max
        int64_t after_max
        bint range_checked
        bint negative_refused
        bint key_required
        bint log_append_time

    ctypedef enum kl_refused_t:
        KL_REFUSED_NOT
        KL_REFUSED_MAGIC
        KL_REFUSED_KEY
        KL_REFUSED_LOG_APPEND_TIME
        KL_REFUSED_TIMESTAMP
        KL_REFUSED_NEGATIVE

    ctypedef struct kl_refusal_t:
        int64_t timestamp
        int32_t number
        int32_t reason

    ctypedef struct kl_leader_result_t:
        int64_t max_timestamp
        int64_t first_timestamp
        int64_t size
        int32_t count
        int32_t misnumbered
        int32_t may_be_refused

    int kl_leader_scan(const uint8_t *payload, size_t size, int32_t count, int64_t base_timestamp,
                       const kl_leader_rules_t *rules, kl_leader_result_t *out, int32_t *bad)
    int32_t kl_leader_refusals(const uint8_t *payload, size_t size, int32_t count, int64_t base_timestamp,
                               const kl_leader_rules_t *rules, kl_refusal_t *to, int32_t space)
    int64_t kl_leader_rewrite_size(const uint8_t *payload, size_t size, int32_t count)
    void kl_leader_rewrite(const uint8_t *payload, size_t size, int32_t count, uint8_t *to)

    ctypedef struct kl_set_t:
        const uint8_t *at
        size_t size
        int64_t offset
        int8_t magic
        bint wrapped

    int kl_set_scan(const kl_set_t *set, const kl_leader_rules_t *rules, kl_leader_result_t *out, int32_t *bad)
    int32_t kl_set_refusals(const kl_set_t *set, int32_t count, const kl_leader_rules_t *rules, kl_refusal_t *to,
                            int32_t space)
    void kl_set_write(const kl_set_t *set, const kl_leader_result_t *result, uint8_t *to)
