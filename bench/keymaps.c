/* The cleaner's map of keys beside one like Kafka's SkimpyOffsetMap: MD5 of each key, 24-byte slots, thirteen probes
 * from the hash, then linear probing. Both in C, with the same keys in the same groups. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "keymap.h"

/* --- MD5 (RFC 1321) ------------------------------------------------------------------------------------------------- */

static const uint32_t sines[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};

#define ROTATE(x, n) ((x) << (n) | (x) >> (32 - (n)))
#define STEP(f, a, b, c, d, k, n, i) a = b + ROTATE(a + (f) + m[k] + sines[i], n)
#define F(b, c, d) (d ^ (b & (c ^ d)))
#define G(b, c, d) (c ^ (d & (b ^ c)))
#define H(b, c, d) (b ^ c ^ d)
#define I(b, c, d) (c ^ (b | ~d))
#define FOUR(f, i, k0, k1, k2, k3, n0, n1, n2, n3)                                                                     \
    STEP(f(b, c, d), a, b, c, d, k0, n0, i);                                                                           \
    STEP(f(a, b, c), d, a, b, c, k1, n1, i + 1);                                                                       \
    STEP(f(d, a, b), c, d, a, b, k2, n2, i + 2);                                                                       \
    STEP(f(c, d, a), b, c, d, a, k3, n3, i + 3)

static void block(uint32_t *state, const uint8_t *at) {
    uint32_t m[16], a = state[0], b = state[1], c = state[2], d = state[3];
    memcpy(m, at, 64);
    FOUR(F, 0, 0, 1, 2, 3, 7, 12, 17, 22);
    FOUR(F, 4, 4, 5, 6, 7, 7, 12, 17, 22);
    FOUR(F, 8, 8, 9, 10, 11, 7, 12, 17, 22);
    FOUR(F, 12, 12, 13, 14, 15, 7, 12, 17, 22);
    FOUR(G, 16, 1, 6, 11, 0, 5, 9, 14, 20);
    FOUR(G, 20, 5, 10, 15, 4, 5, 9, 14, 20);
    FOUR(G, 24, 9, 14, 3, 8, 5, 9, 14, 20);
    FOUR(G, 28, 13, 2, 7, 12, 5, 9, 14, 20);
    FOUR(H, 32, 5, 8, 11, 14, 4, 11, 16, 23);
    FOUR(H, 36, 1, 4, 7, 10, 4, 11, 16, 23);
    FOUR(H, 40, 13, 0, 3, 6, 4, 11, 16, 23);
    FOUR(H, 44, 9, 12, 15, 2, 4, 11, 16, 23);
    FOUR(I, 48, 0, 7, 14, 5, 6, 10, 15, 21);
    FOUR(I, 52, 12, 3, 10, 1, 6, 10, 15, 21);
    FOUR(I, 56, 8, 15, 6, 13, 6, 10, 15, 21);
    FOUR(I, 60, 4, 11, 2, 9, 6, 10, 15, 21);
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
}

void keymaps_md5(const uint8_t *at, size_t size, uint8_t *out) {
    uint32_t state[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
    uint64_t bits = (uint64_t)size * 8;
    for (; size >= 64; at += 64, size -= 64)
        block(state, at);
    uint8_t last[128] = {0};
    size_t end = size < 56 ? 64 : 128;
    memcpy(last, at, size);
    last[size] = 0x80;
    memcpy(last + end - 8, &bits, 8);
    block(state, last);
    if (end == 128)
        block(state, last + 64);
    memcpy(out, state, 16);
}

/* --- the peer's map ------------------------------------------------------------------------------------------------- */

typedef struct {
    uint8_t *slots;
    int64_t count;
} skimpy_t;

static int64_t probe(const skimpy_t *map, const uint8_t *hash, int attempt) {
    int at = attempt < 12 ? attempt : 12;
    uint32_t bits = (uint32_t)hash[at] << 24 | (uint32_t)hash[at + 1] << 16 | (uint32_t)hash[at + 2] << 8 | hash[at + 3];
    int64_t number = (int64_t)(int32_t)bits + (attempt < 12 ? 0 : attempt - 12);
    return (number < 0 ? -number : number) % map->count;
}

static uint8_t *slot_of(const skimpy_t *map, const uint8_t *hash) {
    static const uint8_t empty[24];
    for (int attempt = 0;; attempt++) {
        uint8_t *slot = map->slots + 24 * probe(map, hash, attempt);
        if (memcmp(slot, hash, 16) == 0 || memcmp(slot, empty, 24) == 0)
            return slot;
    }
}

static void skimpy_put(const skimpy_t *map, const uint8_t *key, size_t size, int64_t offset) {
    uint8_t hash[16];
    keymaps_md5(key, size, hash);
    uint8_t *slot = slot_of(map, hash);
    memcpy(slot, hash, 16);
    memcpy(slot + 16, &offset, 8);
}

static int64_t skimpy_get(const skimpy_t *map, const uint8_t *key, size_t size) {
    static const uint8_t empty[24];
    uint8_t hash[16];
    int64_t offset;
    keymaps_md5(key, size, hash);
    uint8_t *slot = slot_of(map, hash);
    if (memcmp(slot, empty, 24) == 0)
        return -1;
    memcpy(&offset, slot + 16, 8);
    return offset;
}

/* --- the race ------------------------------------------------------------------------------------------------------- */

/* Put n adjacent keys of `size` bytes, then look each up.  which: 0 klog's map, 1 the peer's.  The maps have slots * 24
 * bytes.  Returns the sum of the offsets found, which is the same for both maps, or -1 without memory. */
int64_t keymaps_run(int which, const uint8_t *keys, int64_t n, int64_t size, int64_t slots) {
    int64_t sum = 0;
    size_t bytes = which == 0 ? kl_keymap_bytes(slots) : (size_t)slots * 24;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -1;
    madvise(memory, bytes, MADV_HUGEPAGE);
    if (which == 0) {
        static const uint8_t secret[16] = "not secret here";
        kl_keymap_t map;
        kl_keyhash_init(&map.hash, secret, -1);
        kl_keymap_init(&map, memory, slots, slots / 10 * 9);
        for (int pass = 0; pass < 2; pass++)
            for (int64_t at = 0; at < n; at += KL_KEYMAP_GROUP) {
                kl_key_t group[KL_KEYMAP_GROUP];
                int64_t offsets[KL_KEYMAP_GROUP];
                int32_t count = n - at < KL_KEYMAP_GROUP ? (int32_t)(n - at) : KL_KEYMAP_GROUP;
                for (int32_t i = 0; i < count; i++) {
                    group[i] = (kl_key_t){keys + (at + i) * size, (size_t)size};
                    offsets[i] = at + i;
                }
                if (pass == 0) {
                    kl_keymap_put(&map, group, offsets, count);
                    continue;
                }
                kl_keymap_get(&map, group, count, offsets);
                for (int32_t i = 0; i < count; i++)
                    sum += offsets[i];
            }
    } else {
        skimpy_t map = {memory, slots};
        for (int64_t i = 0; i < n; i++)
            skimpy_put(&map, keys + i * size, (size_t)size, i);
        for (int64_t i = 0; i < n; i++)
            sum += skimpy_get(&map, keys + i * size, (size_t)size);
    }
    munmap(memory, bytes);
    return sum;
}

/* Hash n adjacent keys of `size` bytes, by kernel 0 (SipHash-1-3-128) or 1 (AES-128-CMAC).  Returns a sum of the hashes,
 * or 0 if this processor does not support the kernel. */
uint64_t keymaps_hash(int kernel, const uint8_t *keys, int64_t n, int64_t size) {
    static const uint8_t secret[16] = "not secret here";
    kl_keyhash_t hash;
    uint64_t sum = 0;
    if (kl_keyhash_init(&hash, secret, kernel) == NULL)
        return 0;
    for (int64_t at = 0; at < n; at += KL_KEYMAP_GROUP) {
        kl_key_t group[KL_KEYMAP_GROUP];
        kl_hash_t out[KL_KEYMAP_GROUP];
        int32_t count = n - at < KL_KEYMAP_GROUP ? (int32_t)(n - at) : KL_KEYMAP_GROUP;
        for (int32_t i = 0; i < count; i++)
            group[i] = (kl_key_t){keys + (at + i) * size, (size_t)size};
        hash.many(&hash, group, count, out);
        for (int32_t i = 0; i < count; i++)
            sum += out[i].high ^ out[i].low;
    }
    return sum;
}
