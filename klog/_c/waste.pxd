from klog._c.keymap cimport kl_key_t, kl_keyhash_t
from libc.stdint cimport int64_t, uint64_t

cdef extern from "waste.h" nogil:
    ctypedef struct kl_waste_counter_t:
        uint64_t high
        uint64_t low
        int64_t bytes
        int64_t records
        int64_t offset

    ctypedef struct kl_waste_t:
        const kl_keyhash_t *hash
        kl_waste_counter_t *table
        kl_waste_counter_t *scratch
        int64_t slots
        int64_t keys
        int64_t reduced_by

    void kl_waste_add(kl_waste_t *waste, kl_key_t key, int64_t n, int64_t offset)
