/* Big-endian load and store at any alignment.  The caller checks bounds. */
#ifndef KL_BYTES_H
#define KL_BYTES_H

#include <stdint.h>
#include <string.h>

static inline uint16_t kl_load_u16(const uint8_t *at) {
    uint16_t v;
    memcpy(&v, at, 2);
    return __builtin_bswap16(v);
}

static inline uint32_t kl_load_u32(const uint8_t *at) {
    uint32_t v;
    memcpy(&v, at, 4);
    return __builtin_bswap32(v);
}

static inline uint64_t kl_load_u64(const uint8_t *at) {
    uint64_t v;
    memcpy(&v, at, 8);
    return __builtin_bswap64(v);
}

static inline void kl_store_u16(uint8_t *at, uint16_t v) {
    v = __builtin_bswap16(v);
    memcpy(at, &v, 2);
}

static inline void kl_store_u32(uint8_t *at, uint32_t v) {
    v = __builtin_bswap32(v);
    memcpy(at, &v, 4);
}

static inline void kl_store_u64(uint8_t *at, uint64_t v) {
    v = __builtin_bswap64(v);
    memcpy(at, &v, 8);
}

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "klog is built for little-endian machines (x86-64, aarch64)"
#endif

#endif
