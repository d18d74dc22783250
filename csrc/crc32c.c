/* CRC-32C in two kernels: slicing-by-8 tables for any machine, and three interleaved streams of the SSE4.2 instruction.
 *
 * crc32 has a latency of three cycles and a throughput of one, so a single chain uses a third of the unit.  The hardware
 * kernel cuts a block in three, runs three chains side by side, and joins them: a crc over A|B is the crc of A moved
 * past |B| zero bytes, xor the crc of B.  Moving past n zero bytes is multiplication by x^(8n) modulo the polynomial,
 * which is linear, so four 256-entry tables do it.
 *
 * All tables are filled once, when the library is loaded, before any thread can ask; from then on they are constants.
 */
#include "crc32c.h"

#include <string.h>

#include "bytes.h"

enum {
    LONG_PART = 4096, /* bytes per stream and join; the joins cost some 10 ns each */
    SHORT_PART = 256,
};

static const uint32_t POLYNOMIAL = 0x82f63b78u; /* reflected: the highest bit is x^0 */

static uint32_t slices[8][256];
static uint32_t long_shift[4][256];
static uint32_t short_shift[4][256];
static kl_crc32c_fn best;

static uint32_t crc_table(uint32_t crc, const uint8_t *data, size_t size) {
    crc = ~crc;
    while (size >= 8) {
        uint64_t v;
        memcpy(&v, data, 8);
        v ^= crc;
        crc = slices[7][v & 0xff] ^ slices[6][(v >> 8) & 0xff] ^ slices[5][(v >> 16) & 0xff] ^
              slices[4][(v >> 24) & 0xff] ^ slices[3][(v >> 32) & 0xff] ^ slices[2][(v >> 40) & 0xff] ^
              slices[1][(v >> 48) & 0xff] ^ slices[0][v >> 56];
        data += 8;
        size -= 8;
    }
    while (size-- != 0)
        crc = (crc >> 8) ^ slices[0][(crc ^ *data++) & 0xff];
    return ~crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>

static inline uint32_t shift(uint32_t tables[4][256], uint64_t crc) {
    return tables[0][crc & 0xff] ^ tables[1][(crc >> 8) & 0xff] ^ tables[2][(crc >> 16) & 0xff] ^
           tables[3][(crc >> 24) & 0xff];
}

static inline uint64_t load64(const uint8_t *at) {
    uint64_t v;
    memcpy(&v, at, 8);
    return v;
}

/* One block of three parts behind the running (inverted) crc. */
__attribute__((target("sse4.2"))) static inline uint64_t three_parts(uint64_t crc, const uint8_t *data, size_t part,
                                                                     uint32_t tables[4][256]) {
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < part; i += 8) {
        crc = _mm_crc32_u64(crc, load64(data + i));
        second = _mm_crc32_u64(second, load64(data + part + i));
        third = _mm_crc32_u64(third, load64(data + 2 * part + i));
    }
    crc = shift(tables, crc) ^ second;
    return shift(tables, crc) ^ third;
}

__attribute__((target("sse4.2"))) static uint32_t crc_sse42(uint32_t start, const uint8_t *data, size_t size) {
    uint64_t crc = (uint32_t)~start;
    while (size >= 3 * LONG_PART) {
        crc = three_parts(crc, data, LONG_PART, long_shift);
        data += 3 * LONG_PART;
        size -= 3 * LONG_PART;
    }
    while (size >= 3 * SHORT_PART) {
        crc = three_parts(crc, data, SHORT_PART, short_shift);
        data += 3 * SHORT_PART;
        size -= 3 * SHORT_PART;
    }
    for (; size >= 8; data += 8, size -= 8)
        crc = _mm_crc32_u64(crc, load64(data));
    for (; size != 0; data++, size--)
        crc = _mm_crc32_u8((uint32_t)crc, *data);
    return ~(uint32_t)crc;
}
#endif

/* a * b modulo the polynomial, both reflected. */
static uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = (b >> 1) ^ ((b & 1) ? POLYNOMIAL : 0);
    }
    return product;
}

/* Tables that move a crc past `part` zero bytes. */
static void fill_shift(uint32_t tables[4][256], size_t part) {
    uint32_t power = 0x80000000u; /* x^0 */
    uint32_t square = 0x40000000u; /* x^1, then x^2, x^4 ... */
    for (size_t n = 8 * part; n != 0; n >>= 1, square = multiply(square, square))
        if (n & 1)
            power = multiply(power, square);
    for (unsigned k = 0; k < 4; k++) {
        tables[k][0] = 0;
        for (unsigned byte = 1; byte < 256; byte++) {
            unsigned low = byte & (0u - byte); /* linear: all but the lowest bit are there already */
            tables[k][byte] = low == byte ? multiply(power, (uint32_t)byte << (8 * k))
                                          : tables[k][byte ^ low] ^ tables[k][low];
        }
    }
}

__attribute__((constructor)) static void fill_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1) ? POLYNOMIAL : 0);
        slices[0][byte] = crc;
    }
    for (unsigned k = 1; k < 8; k++)
        for (unsigned byte = 0; byte < 256; byte++)
            slices[k][byte] = (slices[k - 1][byte] >> 8) ^ slices[0][slices[k - 1][byte] & 0xff];
    fill_shift(long_shift, LONG_PART);
    fill_shift(short_shift, SHORT_PART);
    for (int number = 0;; number++) { /* numbered from slow to fast */
        const char *name = NULL;
        kl_crc32c_fn kernel = kl_crc32c_kernel(number, &name);
        if (name == NULL)
            break;
        if (kernel != NULL)
            best = kernel;
    }
}

kl_crc32c_fn kl_crc32c_kernel(int number, const char **name) {
    switch (number) {
    case 0:
        *name = "table";
        return crc_table;
    case 1:
        *name = "sse4.2";
#if defined(__x86_64__)
        __builtin_cpu_init();
        if (__builtin_cpu_supports("sse4.2"))
            return crc_sse42;
#endif
        return NULL;
    default:
        return NULL;
    }
}

uint32_t kl_crc32c(uint32_t crc, const uint8_t *data, size_t size) { return best(crc, data, size); }
