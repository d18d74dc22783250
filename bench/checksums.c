/* The checksum kernels of csrc/crc32c.c, and their peer: a single chain of the crc32 instruction,
 * eight bytes a step.  bench/checksum_contests.py loads it. */
#include <stdint.h>
#include <string.h>

#include "crc32c.h"

enum {
    DISPATCHED = -1, /* what kl_crc32c picks on this processor */
    ONE_STREAM = -2,
};

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("sse4.2"))) static uint32_t one_stream(uint32_t start, const uint8_t *data, size_t size) {
    uint64_t crc = (uint32_t)~start;
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    for (; size != 0; data++, size--)
        crc = _mm_crc32_u8((uint32_t)crc, *data);
    return ~(uint32_t)crc;
}
#endif

static kl_crc32c_fn kernel_of(int number) {
    const char *name;
    if (number == DISPATCHED)
        return kl_crc32c;
#if defined(__x86_64__)
    if (number == ONE_STREAM)
        return __builtin_cpu_supports("sse4.2") ? one_stream : NULL;
#endif
    return number >= 0 ? kl_crc32c_kernel(number, &name) : NULL;
}

/* The name of a kernel, or NULL after the last one. */
const char *checksum_name(int number) {
    const char *name = NULL;
    kl_crc32c_kernel(number, &name);
    return name;
}

/* 1 if the processor supports this kernel, else 0. */
int checksum_there(int number) { return kernel_of(number) != NULL; }

/* The checksum of data[0 .. size) repeated `times` times, computed piece by piece: each call of the kernel continues
 * from the checksum of the call before. */
uint32_t checksum_run(int number, const uint8_t *data, size_t size, size_t piece, int times) {
    const kl_crc32c_fn kernel = kernel_of(number);
    uint32_t crc = 0;
    while (times-- > 0)
        for (size_t at = 0; at < size; at += piece)
            crc = kernel(crc, data + at, piece < size - at ? piece : size - at);
    return crc;
}
