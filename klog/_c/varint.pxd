from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from "varint.h" nogil:
    enum:
        KL_VARINT_MAX
        KL_VARLONG_MAX

    int kl_varint_decode(const uint8_t *at, size_t left, int32_t *out, size_t *used)
    int kl_varlong_decode(const uint8_t *at, size_t left, int64_t *out, size_t *used)
    size_t kl_varint_size(int32_t v)
    size_t kl_varlong_size(int64_t v)
    size_t kl_varint_encode(uint8_t *at, int32_t v)
    size_t kl_varlong_encode(uint8_t *at, int64_t v)
