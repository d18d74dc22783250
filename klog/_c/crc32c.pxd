from libc.stdint cimport uint8_t, uint32_t

cdef extern from "crc32c.h" nogil:
    uint32_t kl_crc32c(uint32_t crc, const uint8_t *data, size_t size)
    ctypedef uint32_t (*kl_crc32c_fn)(uint32_t crc, const uint8_t *data, size_t size) noexcept nogil
    kl_crc32c_fn kl_crc32c_kernel(int number, const char **name)
