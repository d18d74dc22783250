from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from "bytes.h" nogil:
    uint32_t kl_load_u32(const uint8_t *at)
    uint64_t kl_load_u64(const uint8_t *at)
    void kl_store_u32(uint8_t *at, uint32_t v)
    void kl_store_u64(uint8_t *at, uint64_t v)
