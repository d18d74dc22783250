/* See keymap.h for the contract of every function here. */
#include "keymap.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* --- SipHash (Aumasson, Bernstein) with 128 bits out -------------------------------------------------------------- */

#define ROTATE(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
#define SIP_ROUND                                                                                                      \
    do {                                                                                                               \
        v0 += v1, v1 = ROTATE(v1, 13), v1 ^= v0, v0 = ROTATE(v0, 32);                                                  \
        v2 += v3, v3 = ROTATE(v3, 16), v3 ^= v2;                                                                       \
        v0 += v3, v3 = ROTATE(v3, 21), v3 ^= v0;                                                                       \
        v2 += v1, v1 = ROTATE(v1, 17), v1 ^= v2, v2 = ROTATE(v2, 32);                                                  \
    } while (0)

static inline uint64_t load64(const uint8_t *at) {
    uint64_t v;
    memcpy(&v, at, 8);
    return v;
}

static inline uint32_t load32(const uint8_t *at) {
    uint32_t v;
    memcpy(&v, at, 4);
    return v;
}

/* Load size < 8 bytes as a number, little-endian, without reading beyond them. */
static inline uint64_t load_few(const uint8_t *at, size_t size) {
    if (size >= 4)
        return load32(at) | (uint64_t)load32(at + size - 4) << (8 * (size - 4));
    if (size == 0)
        return 0;
    return at[0] | (uint64_t)at[size >> 1] << (8 * (size >> 1)) | (uint64_t)at[size - 1] << (8 * (size - 1));
}

__attribute__((always_inline)) static inline kl_hash_t sip(uint64_t k0, uint64_t k1, const uint8_t *at, size_t size,
                                                           int rounds, int last_rounds) {
    uint64_t v0 = k0 ^ 0x736f6d6570736575u, v1 = k1 ^ 0x646f72616e646f6du ^ 0xee;
    uint64_t v2 = k0 ^ 0x6c7967656e657261u, v3 = k1 ^ 0x7465646279746573u;
    for (size_t left = size; left >= 8; left -= 8, at += 8) {
        uint64_t m = load64(at);
        v3 ^= m;
        for (int i = 0; i < rounds; i++)
            SIP_ROUND;
        v0 ^= m;
    }
    uint64_t last = (uint64_t)size << 56 | load_few(at, size & 7);
    v3 ^= last;
    for (int i = 0; i < rounds; i++)
        SIP_ROUND;
    v0 ^= last;
    v2 ^= 0xee;
    for (int i = 0; i < last_rounds; i++)
        SIP_ROUND;
    kl_hash_t out = {.high = v0 ^ v1 ^ v2 ^ v3};
    v1 ^= 0xdd;
    for (int i = 0; i < last_rounds; i++)
        SIP_ROUND;
    out.low = v0 ^ v1 ^ v2 ^ v3;
    return out;
}

void kl_siphash128(const uint8_t secret[16], const uint8_t *at, size_t size, int rounds, int last_rounds,
                   uint8_t *out) {
    kl_hash_t hash = sip(load64(secret), load64(secret + 8), at, size, rounds, last_rounds);
    memcpy(out, &hash.high, 8);
    memcpy(out + 8, &hash.low, 8);
}

static void sip_many(const kl_keyhash_t *hash, const kl_key_t *keys, int32_t n, kl_hash_t *out) {
    for (int32_t i = 0; i < n; i++)
        out[i] = sip(hash->k0, hash->k1, keys[i].at, keys[i].size, 1, 3);
}

/* --- AES-128-CMAC (RFC 4493) -------------------------------------------------------------------------------------- */

#if defined(__x86_64__)

#define AES __attribute__((target("aes,sse4.1,ssse3")))
#define AES_INLINE __attribute__((target("aes,sse4.1,ssse3"), always_inline)) static inline

enum { LANES = 4 }; /* a round waits 4 cycles for the previous one; this many keys at once keep the unit busy */

AES_INLINE __m128i next_round_key(__m128i key, __m128i assisted) {
    assisted = _mm_shuffle_epi32(assisted, 0xff);
    key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
    key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
    key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
    return _mm_xor_si128(key, assisted);
}

/* Twice the block, in the field of CMAC: big-endian, x^128 = x^7 + x^2 + x + 1. */
static void twice(const uint8_t *from, uint8_t *to) {
    uint8_t carry = from[0] >> 7;
    for (int i = 0; i < 15; i++)
        to[i] = (uint8_t)(from[i] << 1 | from[i + 1] >> 7);
    to[15] = (uint8_t)(from[15] << 1) ^ (carry ? 0x87 : 0);
}

/* The last block of a key: its last bytes, 1 to 16 of them or none at all, then a bit of 1 and zeros. */
AES_INLINE __m128i last_block(const kl_keyhash_t *hash, const uint8_t *at, size_t size) {
    size_t left = size & 15;
    if (size != 0 && left == 0)
        return _mm_xor_si128(_mm_loadu_si128((const __m128i *)(at + size - 16)),
                             _mm_loadu_si128((const __m128i *)hash->subkey_1));
    uint64_t low, high = 0;
    if (size > left)
        at += size - left; /* not for a NULL key, which has no bytes */
    if (left >= 8) {
        low = load64(at);
        high = left == 8 ? 0 : load64(at + left - 8) >> (8 * (16 - left));
        high |= (uint64_t)0x80 << (8 * (left - 8));
    } else {
        low = load_few(at, left) | (uint64_t)0x80 << (8 * left);
    }
    return _mm_xor_si128(_mm_set_epi64x((int64_t)high, (int64_t)low), _mm_loadu_si128((const __m128i *)hash->subkey_2));
}

AES_INLINE void store_hash(__m128i x, kl_hash_t *out) {
    out->high = (uint64_t)_mm_cvtsi128_si64(x);
    out->low = (uint64_t)_mm_extract_epi64(x, 1);
}

AES_INLINE size_t blocks_of(size_t size) { return size == 0 ? 1 : (size + 15) / 16; }

/* Hash keys in lanes of as many blocks each. */
AES_INLINE void cmac(const kl_keyhash_t *hash, const kl_key_t *keys, int lanes, size_t blocks, kl_hash_t *out) {
    __m128i x[LANES];
    for (int i = 0; i < lanes; i++)
        x[i] = _mm_setzero_si128();
    for (size_t block = 0; block < blocks; block++) {
        for (int i = 0; i < lanes; i++) {
            __m128i m = block + 1 == blocks ? last_block(hash, keys[i].at, keys[i].size)
                                            : _mm_loadu_si128((const __m128i *)(keys[i].at + 16 * block));
            x[i] = _mm_xor_si128(_mm_xor_si128(x[i], m), _mm_loadu_si128((const __m128i *)hash->rounds[0]));
        }
        for (int round = 1; round < 10; round++) {
            __m128i key = _mm_loadu_si128((const __m128i *)hash->rounds[round]);
            for (int i = 0; i < lanes; i++)
                x[i] = _mm_aesenc_si128(x[i], key);
        }
        for (int i = 0; i < lanes; i++)
            x[i] = _mm_aesenclast_si128(x[i], _mm_loadu_si128((const __m128i *)hash->rounds[10]));
    }
    for (int i = 0; i < lanes; i++)
        store_hash(x[i], out + i);
}

AES static void cmac_many(const kl_keyhash_t *hash, const kl_key_t *keys, int32_t n, kl_hash_t *out) {
    int32_t i = 0;
    while (i < n) {
        size_t blocks = blocks_of(keys[i].size);
        if (i + LANES <= n && blocks == blocks_of(keys[i + 1].size) && blocks == blocks_of(keys[i + 2].size) &&
            blocks == blocks_of(keys[i + 3].size)) {
            cmac(hash, keys + i, LANES, blocks, out + i);
            i += LANES;
        } else {
            cmac(hash, keys + i, 1, blocks, out + i);
            i++;
        }
    }
}

AES static void aes_init(kl_keyhash_t *hash, const uint8_t *secret) {
    __m128i key = _mm_loadu_si128((const __m128i *)secret);
    _mm_storeu_si128((__m128i *)hash->rounds[0], key);
#define NEXT(round, constant)                                                                                          \
    key = next_round_key(key, _mm_aeskeygenassist_si128(key, constant));                                               \
    _mm_storeu_si128((__m128i *)hash->rounds[round], key)
    NEXT(1, 0x01);
    NEXT(2, 0x02);
    NEXT(3, 0x04);
    NEXT(4, 0x08);
    NEXT(5, 0x10);
    NEXT(6, 0x20);
    NEXT(7, 0x40);
    NEXT(8, 0x80);
    NEXT(9, 0x1b);
    NEXT(10, 0x36);
#undef NEXT
    __m128i x = _mm_loadu_si128((const __m128i *)hash->rounds[0]);
    for (int round = 1; round < 10; round++)
        x = _mm_aesenc_si128(x, _mm_loadu_si128((const __m128i *)hash->rounds[round]));
    x = _mm_aesenclast_si128(x, _mm_loadu_si128((const __m128i *)hash->rounds[10]));
    uint8_t zero[16];
    _mm_storeu_si128((__m128i *)zero, x);
    twice(zero, hash->subkey_1);
    twice(hash->subkey_1, hash->subkey_2);
}

static int has_aes(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("aes") && __builtin_cpu_supports("sse4.1");
}

#endif

const char *kl_keyhash_init(kl_keyhash_t *hash, const uint8_t secret[16], int kernel) {
#if defined(__x86_64__)
    if ((kernel == 1 || kernel == -1) && has_aes()) {
        memset(hash, 0, sizeof *hash);
        aes_init(hash, secret);
        hash->many = cmac_many;
        return "aes-128-cmac";
    }
#endif
    if (kernel == 1)
        return NULL;
    memset(hash, 0, sizeof *hash);
    hash->k0 = load64(secret);
    hash->k1 = load64(secret + 8);
    hash->many = sip_many;
    return "siphash-1-3-128";
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static inline int64_t tail_of(int64_t slots) { return slots < KL_KEYMAP_TAIL ? slots : KL_KEYMAP_TAIL; }

/* Without the slot that stays empty. */
static inline int64_t all_slots_of(int64_t slots) { return slots + tail_of(slots); }

enum { COMPARED = 4 }; /* entries compared at a time, of which one is empty at the latest */

size_t kl_keymap_bytes(int64_t slots_max) { return (size_t)(all_slots_of(slots_max) + COMPARED) * sizeof(kl_entry_t); }

/* Set the table to one of its sizes: slots_max halved this many times.  So each size is at least twice the previous. */
static void set_size(kl_keymap_t *map, int halvings) {
    map->halvings = halvings;
    map->slots = map->slots_max >> halvings;
    /* At three quarters an unsuccessful search passes two slots, and an insertion moves as many. */
    map->grow_at = halvings == 0 ? map->limit : map->slots / 4 * 3;
}

void kl_keymap_track_stale(kl_keymap_t *map, uint64_t *words, uint64_t *marked, int64_t first, int64_t count) {
    map->stale = words;
    map->marked = marked;
    map->stale_first = first;
    map->stale_count = count;
}

void kl_keymap_untrack_stale(kl_keymap_t *map) { map->stale_count = 0; }

/* How many of bits [at, end) are set. */
static int64_t count_bits(const uint64_t *words, uint64_t at, uint64_t end) {
    int64_t found = 0;
    while (at < end) {
        uint64_t left = end - at, in_word = 64 - (at & 63), taken = left < in_word ? left : in_word;
        uint64_t word = words[at >> 6] >> (at & 63);
        if (taken < 64)
            word &= ((uint64_t)1 << taken) - 1;
        found += __builtin_popcountll(word);
        at += taken;
    }
    return found;
}

int64_t kl_keymap_count_stale(const kl_keymap_t *map, int64_t offset, int64_t n) {
    uint64_t at = (uint64_t)(offset - map->stale_first);
    return count_bits(map->stale, at, at + (uint64_t)n);
}

int kl_keymap_is_marked(const kl_keymap_t *map, int64_t offset, int64_t n) {
    uint64_t at = (uint64_t)(offset - map->stale_first);
    return count_bits(map->marked, at >> 6, ((at + (uint64_t)n - 1) >> 6) + 1) != 0;
}

static inline void mark_stale(kl_keymap_t *map, int64_t offset, int64_t later) {
    if (offset < later && kl_keymap_tracks(map, offset, 1)) {
        uint64_t at = (uint64_t)(offset - map->stale_first);
        map->stale[at >> 6] |= (uint64_t)1 << (at & 63);
    }
}

void kl_keymap_init(kl_keymap_t *map, void *memory, int64_t slots_max, int64_t limit) {
    _Static_assert(sizeof(kl_entry_t) == KL_KEYMAP_ENTRY, "24 bytes for each key");
    map->entries = memory;
    map->slots_max = slots_max;
    map->limit = limit;
    map->size = 0;
    kl_keymap_track_stale(map, NULL, NULL, 0, 0);
    int halvings = 0;
    while (slots_max >> halvings > KL_KEYMAP_SLOTS_FIRST)
        halvings++;
    set_size(map, halvings);
}

static inline int64_t home_of(const kl_keymap_t *map, uint64_t high) {
    return (int64_t)((unsigned __int128)high * (uint64_t)map->slots >> 64);
}

/* The slot of a hash: the first entry at or after its home that is not before it in order. An empty slot, whose
 * order is 0, ends the search by itself. */
static inline kl_entry_t *slot_of(const kl_keymap_t *map, const kl_hash_t *hash) {
    kl_entry_t *e = map->entries + home_of(map, hash->high);
    uint64_t order = ~hash->high;
    for (;;) { /* four at a time: the number passed is unpredictable, and a mispredicted branch costs more */
        int passed = (e[0].order > order) + (e[1].order > order) + (e[2].order > order) + (e[3].order > order);
        e += passed;
        if (passed < 4)
            break;
    }
    while (e->order == order && e->low < hash->low && e->offset_1 != 0) /* half the hash is the same */
        e++;
    return e;
}

static inline int holds(const kl_entry_t *e, const kl_hash_t *hash) {
    return e->order == ~hash->high && e->low == hash->low && e->offset_1 != 0;
}

/* Double the slots, in the same memory: all entries, which are in order, are moved side by side to the end of the new
 * table and from there, first to last, to their new slots.  A new slot is never after the position that is read: the
 * entries from there on fit between their first one's home and the old table's end, and that distance has not shrunk.
 * Which slots are taken and how far apart homes are is unpredictable, so neither loop branches on it. */
static void grow(kl_keymap_t *map) {
    static const kl_entry_t empty;
    kl_entry_t *entries = map->entries;
    int64_t old_slots = all_slots_of(map->slots), n = 0;
    for (int64_t i = 0; i < old_slots; i++) {
        entries[n] = entries[i];
        n += entries[i].offset_1 != 0;
    }
    set_size(map, map->halvings - 1);
    int64_t row = all_slots_of(map->slots) - n;
    kl_entry_t *from = entries + row;
    memmove(from, entries, (size_t)n * sizeof *entries);
    /* The rest of the old table before the row.  No slot after it has ever been written. */
    memset(entries, 0, (size_t)(old_slots < row ? old_slots : row) * sizeof *entries);
    int64_t at = 0; /* below this the new table is complete */
    for (int64_t i = 0; i < n; i++) {
        kl_entry_t entry = from[i];
        int64_t home = home_of(map, ~entry.order);
        from[i] = empty;
        at = home > at ? home : at;
        entries[at++] = entry;
    }
}

/* Put one key; returns 0, or 1 if the table's tail is full. */
static inline int put_one(kl_keymap_t *map, const kl_hash_t *hash, int64_t offset) {
    kl_entry_t *e = slot_of(map, hash), *free = e;
    if (holds(e, hash)) {
        mark_stale(map, (int64_t)e->offset_1 - 1, offset);
        e->offset_1 = (uint64_t)offset + 1;
        return 0;
    }
    while (free->offset_1 != 0)
        free++;
    if (free == map->entries + all_slots_of(map->slots))
        return 1;
    if (free != e)
        memmove(e + 1, e, (size_t)(free - e) * sizeof *e);
    *e = (kl_entry_t){~hash->high, hash->low, (uint64_t)offset + 1};
    map->size++;
    return 0;
}

enum { STEP = 4 }; /* keys that are hashed at once */

/* Hash a group and prefetch its slots: the first ones arrive while the last keys are hashed. */
static inline void hash_ahead(const kl_keymap_t *map, const kl_key_t *keys, int32_t n, kl_hash_t *hashes) {
    for (int32_t i = 0; i < n; i += STEP) {
        int32_t step = n - i < STEP ? n - i : STEP;
        map->hash.many(&map->hash, keys + i, step, hashes + i);
        for (int32_t j = i; j < i + step; j++) {
            const kl_entry_t *e = map->entries + home_of(map, hashes[j].high);
            __builtin_prefetch(e);
            __builtin_prefetch((const uint8_t *)e + 63); /* most searches continue into the next line */
        }
    }
}

int32_t kl_keymap_put(kl_keymap_t *map, const kl_key_t *keys, const int64_t *offsets, int32_t n) {
    kl_hash_t hashes[KL_KEYMAP_GROUP];
    while (map->size + n > map->grow_at && map->halvings > 0)
        grow(map);
    hash_ahead(map, keys, n, hashes);
    for (int32_t i = 0; i < n; i++) {
        if (map->size >= map->limit)
            return i;
        while (put_one(map, hashes + i, offsets[i]) != 0) {
            if (map->halvings == 0)
                return i;
            grow(map);
        }
    }
    return n;
}

void kl_keymap_get(const kl_keymap_t *map, const kl_key_t *keys, int32_t n, int64_t *offsets) {
    kl_hash_t hashes[KL_KEYMAP_GROUP];
    hash_ahead(map, keys, n, hashes);
    for (int32_t i = 0; i < n; i++) {
        const kl_entry_t *e = slot_of(map, hashes + i);
        offsets[i] = holds(e, hashes + i) ? (int64_t)e->offset_1 - 1 : -1;
    }
}
