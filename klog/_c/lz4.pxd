from libc.stdint cimport int64_t, uint8_t

cdef extern from "lz4.h" nogil:
    ctypedef int (*kl_lz4_block_t)(const char *source, char *to, int size, int space) noexcept nogil

    ctypedef struct kl_lz4_t:
        kl_lz4_block_t decompress
        kl_lz4_block_t compress

    int64_t kl_lz4_plain_max(const uint8_t *payload, size_t size)
    int64_t kl_lz4_unpack(const kl_lz4_t *lz4, const uint8_t *payload, size_t size, uint8_t *to, int64_t capacity)
    int64_t kl_lz4_packed_max(int64_t size)
    int64_t kl_lz4_pack(const kl_lz4_t *lz4, const uint8_t *plain, int64_t size, uint8_t *to)
