/* CRC-32C in four kernels: slicing-by-8 tables for any machine, three interleaved streams of the SSE4.2 instruction,
 * and folding by carry-less multiplication in registers of 256 and 512 bits.
 *
 * crc32 has a latency of three cycles and a throughput of one, so a single chain uses a third of the unit.  The SSE4.2
 * kernel cuts a block in three, runs three chains side by side, and joins them: a crc over A|B is the crc of A moved
 * past |B| zero bytes, xor the crc of B.  Moving past n zero bytes is multiplication by x^(8n) modulo the polynomial,
 * which is linear, so four 256-entry tables do it.
 *
 * A fold moves 16 bytes past n more in the same way, but without the modulo: both halves, times a constant, give 16
 * bytes with the same remainder, and these are xor'ed with the 16 bytes that are n further on.  In the end 16 bytes are
 * left, whose crc is that of all bytes before (see make_fold for the arithmetic).
 *
 * Folding leaves the unit of the crc32 instruction idle.  In blocks of 6 KiB and more, the kernel of 512 bits gives it
 * a third of the bytes, as three streams, in the same loop: 1.4 times as fast.
 *
 * All tables and constants are computed once, when the library is loaded, before any thread can use them.
 */
#include "crc32c.h"

#include <string.h>

#include "bytes.h"

enum {
    LONG_PART = 4096, /* bytes per stream and join; a join costs about 10 ns */
    SHORT_PART = 256,
    STREAM_STEP = 40, /* bytes of each stream that take as long as folding 256 */
    STREAMS_MIN = 6144, /* below that it takes as long to join them */
    STEPS_MAX = 128,
    BLOCK_MAX = 256 + STEPS_MAX * (256 + 3 * STREAM_STEP),
};

static const uint32_t POLYNOMIAL = 0x82f63b78u; /* reflected: the highest bit is x^0 */

static uint32_t slices[8][256];
static uint32_t long_shift[4][256];
static uint32_t short_shift[4][256];
static kl_crc32c_fn best;

/* For the streams beside the folds: factors that move a crc past their bytes, and past the folded ones, of n steps. */
static uint32_t past_stream[STEPS_MAX + 1], past_folds[STEPS_MAX + 1];

/* Constants that move 16 bytes by a distance: a factor for their first half and one for the second. */
typedef struct {
    uint64_t first, second;
} fold_t;
static fold_t fold_64, fold_128, fold_256;
static fold_t fold_lanes[4]; /* they move each of four neighbouring lanes to the position of the last one */

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
#include <immintrin.h>

/* clang 14 and newer does not count the instruction crc32 to SSE 4.2; older ones, and gcc before 11, do not know its
 * name. */
#if defined(__clang__) && __clang_major__ >= 14
#define SSE42 "sse4.2,crc32"
#else
#define SSE42 "sse4.2"
#endif

static inline uint32_t shift(uint32_t tables[4][256], uint64_t crc) {
    return tables[0][crc & 0xff] ^ tables[1][(crc >> 8) & 0xff] ^ tables[2][(crc >> 16) & 0xff] ^
           tables[3][(crc >> 24) & 0xff];
}

static inline uint64_t load64(const uint8_t *at) {
    uint64_t v;
    memcpy(&v, at, 8);
    return v;
}

/* The remaining bytes, one chain that continues the running (inverted) crc. */
__attribute__((target(SSE42))) static inline uint32_t one_stream(uint64_t crc, const uint8_t *data, size_t size) {
    for (; size >= 8; data += 8, size -= 8)
        crc = _mm_crc32_u64(crc, load64(data));
    for (; size != 0; data++, size--)
        crc = _mm_crc32_u8((uint32_t)crc, *data);
    return (uint32_t)crc;
}

/* One block of three parts that continues the running (inverted) crc. */
__attribute__((target(SSE42))) static inline uint64_t three_parts(uint64_t crc, const uint8_t *data, size_t part,
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

__attribute__((target(SSE42))) static uint32_t crc_sse42(uint32_t start, const uint8_t *data, size_t size) {
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
    return ~one_stream(crc, data, size);
}

#define WIDE_256 __attribute__((target("avx2,vpclmulqdq," SSE42)))
#define WIDE_512 __attribute__((target("avx512f,vpclmulqdq,pclmul," SSE42)))

/* After the folds: 16 bytes that represent all before, and the remaining bytes, fewer than 64. */
__attribute__((target(SSE42))) static inline uint32_t finish(__m128i folded, const uint8_t *data, size_t size) {
    uint64_t crc = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(folded));
    crc = _mm_crc32_u64(crc, (uint64_t)_mm_extract_epi64(folded, 1));
    return ~one_stream(crc, data, size);
}

WIDE_256 static inline __m256i load256(const uint8_t *at) { return _mm256_loadu_si256((const __m256i *)at); }

WIDE_256 static inline __m256i factors256(const fold_t *fold) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)fold));
}

WIDE_256 static inline __m256i move256(__m256i from, __m256i factors, __m256i to) {
    return _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(from, factors, 0x00), to),
                            _mm256_clmulepi64_epi128(from, factors, 0x11));
}

/* Four registers, 128 bytes per iteration. */
WIDE_256 static uint32_t crc_vpclmul256(uint32_t start, const uint8_t *data, size_t size) {
    if (size < 128)
        return crc_sse42(start, data, size);
    __m256i a = load256(data), b = load256(data + 32), c = load256(data + 64), d = load256(data + 96);
    a = _mm256_xor_si256(a, _mm256_inserti128_si256(_mm256_setzero_si256(), _mm_cvtsi32_si128((int)~start), 0));
    __m256i factors = factors256(&fold_128);
    for (data += 128, size -= 128; size >= 128; data += 128, size -= 128) {
        a = move256(a, factors, load256(data));
        b = move256(b, factors, load256(data + 32));
        c = move256(c, factors, load256(data + 64));
        d = move256(d, factors, load256(data + 96));
    }
    factors = factors256(&fold_64);
    c = move256(a, factors, c);
    d = move256(b, factors, d);
    if (size >= 64) {
        c = move256(c, factors, load256(data));
        d = move256(d, factors, load256(data + 32));
        data += 64, size -= 64;
    }
    /* Four lanes of 16 bytes are left: c, d. */
    __m256i moved = move256(c, _mm256_loadu_si256((const __m256i *)&fold_lanes[0]), _mm256_setzero_si256());
    moved = move256(d, _mm256_loadu_si256((const __m256i *)&fold_lanes[2]), moved);
    __m128i last = _mm256_extracti128_si256(d, 1);
    last = _mm_xor_si128(last, _mm_xor_si128(_mm256_castsi256_si128(moved), _mm256_extracti128_si256(moved, 1)));
    return finish(last, data, size);
}

WIDE_512 static inline __m512i load512(const uint8_t *at) { return _mm512_loadu_si512(at); }

WIDE_512 static inline __m512i factors512(const fold_t *fold) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)fold));
}

WIDE_512 static inline __m512i move512(__m512i from, __m512i factors, __m512i to) {
    enum { XOR_OF_THREE = 0x96 };
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(from, factors, 0x00), to,
                                     _mm512_clmulepi64_epi128(from, factors, 0x11), XOR_OF_THREE);
}

/* A crc moved past the zero bytes that the factor was made for (make_factor). */
WIDE_512 static inline uint32_t past(uint64_t crc, uint32_t factor) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)crc), _mm_cvtsi32_si128((int)factor), 0);
    return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

/* Four registers, 256 bytes per step, beside three streams of the crc32 instruction, which another unit executes.
 *
 * The streams have the first bytes, in three parts, and the folds all others, so that they can go on alone at the end.
 * The crc of the streams is then moved to the position that the folds have reached. */
WIDE_512 static uint32_t block512(uint32_t start, const uint8_t *data, size_t size) {
    size_t steps = size < STREAMS_MIN ? 0 : (size - 256) / (256 + 3 * STREAM_STEP);
    const uint8_t *first = data, *second = first + steps * STREAM_STEP, *third = second + steps * STREAM_STEP;
    uint64_t crc = (uint32_t)~start, crc2 = 0, crc3 = 0;
    data = third + steps * STREAM_STEP;
    __m512i a = load512(data), b = load512(data + 64), c = load512(data + 128), d = load512(data + 192);
    __m512i factors = factors512(&fold_256);
    size -= 256 + 3 * steps * STREAM_STEP;
    data += 256;
    for (size_t at = 0; at < steps * STREAM_STEP; at += STREAM_STEP, data += 256, size -= 256) {
        a = move512(a, factors, load512(data));
        b = move512(b, factors, load512(data + 64));
        c = move512(c, factors, load512(data + 128));
        d = move512(d, factors, load512(data + 192));
        for (int line = 0; line < 256; line += 64) /* the processor alone does not prefetch at four positions */
            _mm_prefetch((const char *)data + 1024 + line, _MM_HINT_T0);
        for (size_t i = at; i < at + STREAM_STEP; i += 8) {
            crc = _mm_crc32_u64(crc, load64(first + i));
            crc2 = _mm_crc32_u64(crc2, load64(second + i));
            crc3 = _mm_crc32_u64(crc3, load64(third + i));
        }
    }
    if (steps != 0) {
        crc = past(crc, past_stream[steps]) ^ crc2;
        crc = past(crc, past_stream[steps]) ^ crc3;
        crc = past(crc, past_folds[steps]);
    }
    a = _mm512_xor_si512(a, _mm512_inserti32x4(_mm512_setzero_si512(), _mm_cvtsi32_si128((int)crc), 0));
    for (; size >= 256; data += 256, size -= 256) {
        a = move512(a, factors, load512(data));
        b = move512(b, factors, load512(data + 64));
        c = move512(c, factors, load512(data + 128));
        d = move512(d, factors, load512(data + 192));
    }
    factors = factors512(&fold_128);
    c = move512(a, factors, c);
    d = move512(b, factors, d);
    factors = factors512(&fold_64);
    d = move512(c, factors, d);
    for (; size >= 64; data += 64, size -= 64)
        d = move512(d, factors, load512(data));
    /* Four lanes of 16 bytes are left in d. */
    __m512i moved = move512(d, _mm512_loadu_si512(fold_lanes), _mm512_setzero_si512());
    __m128i last = _mm_xor_si128(_mm512_extracti32x4_epi32(d, 3), _mm512_castsi512_si128(moved));
    last = _mm_xor_si128(last, _mm512_extracti32x4_epi32(moved, 1));
    return finish(_mm_xor_si128(last, _mm512_extracti32x4_epi32(moved, 2)), data, size);
}

WIDE_512 static uint32_t crc_vpclmul512(uint32_t start, const uint8_t *data, size_t size) {
    for (; size > BLOCK_MAX; data += BLOCK_MAX, size -= BLOCK_MAX)
        start = block512(start, data, BLOCK_MAX);
    return size < 256 ? crc_vpclmul256(start, data, size) : block512(start, data, size);
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

/* x^n modulo the polynomial. */
static uint32_t x_power(size_t n) {
    uint32_t power = 0x80000000u; /* x^0 */
    uint32_t square = 0x40000000u; /* x^1, then x^2, x^4 ... */
    for (; n != 0; n >>= 1, square = multiply(square, square))
        if (n & 1)
            power = multiply(power, square);
    return power;
}

/* Factors that move 16 bytes past n more, that is by N = 8n powers of x.
 *
 * Bit 0 of the 16 bytes is x^127, and bit 0 of each half is x^63 of that half: they represent first * x^64 + second,
 * and must become first * x^(64+N) + second * x^N.  The factors are remainders of 32 bits in the same order, so they go
 * to the upper end of 64 bits, where bit 63 is x^0.  The product of two halves has 127 bits, of which the highest
 * power, x^126, is bit 0 again: read as 128 bits it is the product times x.  The factors compensate for it. */
static fold_t make_fold(size_t n) {
    return (fold_t){.first = (uint64_t)x_power(8 * n + 64 - 1) << 32, .second = (uint64_t)x_power(8 * n - 1) << 32};
}

/* The factor that moves a crc past n zero bytes.  The product of two numbers of 32 bits, read as 64 bits, is the
 * product times x, and its crc is that times x^32. */
static uint32_t make_factor(size_t n) { return x_power(8 * n - 33); }

/* Tables that move a crc past `part` zero bytes. */
static void fill_shift(uint32_t tables[4][256], size_t part) {
    uint32_t power = x_power(8 * part);
    for (unsigned k = 0; k < 4; k++) {
        tables[k][0] = 0;
        for (unsigned byte = 1; byte < 256; byte++) {
            unsigned low = byte & (0u - byte); /* linear: all but the lowest bit are already computed */
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
    fold_64 = make_fold(64);
    fold_128 = make_fold(128);
    fold_256 = make_fold(256);
    uint32_t stream_step = x_power(8 * STREAM_STEP), fold_step = x_power(8 * 256);
    past_stream[1] = make_factor(STREAM_STEP);
    past_folds[1] = make_factor(256);
    for (size_t steps = 2; steps <= STEPS_MAX; steps++) {
        past_stream[steps] = multiply(past_stream[steps - 1], stream_step);
        past_folds[steps] = multiply(past_folds[steps - 1], fold_step);
    }
    for (unsigned lane = 0; lane < 3; lane++)
        fold_lanes[lane] = make_fold(16 * (3 - lane));
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
    case 2:
        *name = "vpclmul-256";
#if defined(__x86_64__)
        __builtin_cpu_init();
        if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq"))
            return crc_vpclmul256;
#endif
        return NULL;
    case 3:
        *name = "vpclmul-512";
#if defined(__x86_64__)
        __builtin_cpu_init();
        if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("avx512f") &&
            __builtin_cpu_supports("vpclmulqdq"))
            return crc_vpclmul512;
#endif
        return NULL;
    default:
        return NULL;
    }
}

uint32_t kl_crc32c(uint32_t crc, const uint8_t *data, size_t size) { return best(crc, data, size); }
