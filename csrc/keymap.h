/* The cleaner's map of keys: a keyed 128-bit hash of each -> the last offset seen for it, in the caller's memory.
 *
 *   table := entry{slots + tail + 1}          entry := ~high:u64 low:u64 offset+1:u64     24 bytes, zeros where empty
 *
 *   K1  entries are in the order of their hashes, each at or after its home, home = high * slots / 2^64; no slot
 *       between an entry's home and the entry is empty
 *   K2  so a search for a missing key ends at the first larger hash, long before the first empty slot
 *   K3  the last slot of the table is always empty: no search needs a bound
 *   K4  the table begins small and doubles in place, as it fills, up to slots_max: few keys fit into the CPU cache
 *
 * The hash is keyed with a secret of the run.  A writer of keys that does not know it cannot make two keys collide,
 * which would lose records: a seeded hash such as XXH3 does not guarantee that.  Equal hashes are treated as equal
 * keys; among 10^8 random keys two collide with a probability of 10^-22.
 *
 * If keys are put in the order of their offsets, the map can also keep a bit for each offset: has a later offset been
 * put for the same key?  A second pass over the records then need not hash their keys again.  And a bit for each 64
 * offsets: has one of them been marked?  If neither bit is set, the records need not be read.
 *
 * One writer at a time.  Kafka: SkimpyOffsetMap (MD5, double hashing, fixed size).
 */
#ifndef KL_KEYMAP_H
#define KL_KEYMAP_H

#include <stddef.h>
#include <stdint.h>

enum {
    KL_KEYMAP_ENTRY = 24,
    KL_KEYMAP_GROUP = 16, /* keys in flight at once: while one is hashed, the slots of earlier ones are loaded */
    KL_KEYMAP_SLOTS_FIRST = 4096, /* at most, at the beginning */
    KL_KEYMAP_TAIL = 8192, /* slots after the last home; fewer in a table of fewer slots */
};

typedef struct {
    const uint8_t *at; /* may be NULL if size is 0 */
    size_t size;
} kl_key_t;

typedef struct {
    uint64_t high, low;
} kl_hash_t;

typedef struct kl_keyhash kl_keyhash_t;
typedef void (*kl_keyhash_fn)(const kl_keyhash_t *hash, const kl_key_t *keys, int32_t n, kl_hash_t *out);

struct kl_keyhash {
    uint8_t rounds[11][16]; /* AES round keys */
    uint8_t subkey_1[16], subkey_2[16]; /* K1 and K2 of CMAC: for a last block of 16 bytes, and for one of fewer */
    uint64_t k0, k1; /* SipHash */
    kl_keyhash_fn many;
};

/* Prepare hashing with a 16-byte secret by one kernel: 0 SipHash-1-3-128, 1 AES-128-CMAC (RFC 4493); -1 the fastest
 * here. Returns the kernel's name; NULL (and *hash untouched) for a kernel that this processor cannot run. */
const char *kl_keyhash_init(kl_keyhash_t *hash, const uint8_t secret[16], int kernel);

/* SipHash with any number of rounds: for checking against the vectors of its authors. out has 16 bytes. */
void kl_siphash128(const uint8_t secret[16], const uint8_t *at, size_t size, int rounds, int last_rounds, uint8_t *out);

typedef struct {
    uint64_t order; /* ~high: the larger, the earlier, and empty slots come last */
    uint64_t low;
    uint64_t offset_1;
} kl_entry_t;

typedef struct {
    kl_keyhash_t hash;
    kl_entry_t *entries;
    int64_t slots;     /* homes at present */
    int64_t slots_max;
    int64_t limit;     /* keys at most */
    int64_t size;      /* keys */
    int64_t grow_at;   /* number of keys at which it doubles */
    int halvings;      /* how often it can still double */
    uint64_t *stale;   /* a bit for each offset of [stale_first, stale_first + stale_count) */
    uint64_t *marked;  /* a bit for each 64 of them */
    int64_t stale_first, stale_count;
} kl_keymap_t;

/* Bytes of a table of at most this many slots, zeroed by the caller. */
size_t kl_keymap_bytes(int64_t slots_max);

/* Make an empty map in zeroed memory.  slots_max >= 1, 0 <= limit <= slots_max. kl_keyhash_init has set hash. */
void kl_keymap_init(kl_keymap_t *map, void *memory, int64_t slots_max, int64_t limit);

/* From now on track which of count offsets, starting with first, are stale.  words: count / 64 zeroed words, rounded
 * up; marked: a 64th of that.  A bit is valid only for an offset that has been put, and only until
 * kl_keymap_untrack_stale, which ends the tracking, because the offsets do not rise. */
void kl_keymap_track_stale(kl_keymap_t *map, uint64_t *words, uint64_t *marked, int64_t first, int64_t count);
void kl_keymap_untrack_stale(kl_keymap_t *map);

/* Are the n offsets from this one on among those that are tracked? */
static inline int kl_keymap_tracks(const kl_keymap_t *map, int64_t offset, int64_t n) {
    int64_t at = offset - map->stale_first;
    return offset >= map->stale_first && at <= map->stale_count - n;
}

/* Has a later offset been put for the key of this one, which is tracked? */
static inline int kl_keymap_stale(const kl_keymap_t *map, int64_t offset) {
    uint64_t at = (uint64_t)(offset - map->stale_first);
    return (int)(map->stale[at >> 6] >> (at & 63) & 1);
}

/* Count the stale ones of n offsets from this one on, all tracked. */
int64_t kl_keymap_count_stale(const kl_keymap_t *map, int64_t offset, int64_t n);

/* Mark an offset; does nothing if it is not tracked. */
static inline void kl_keymap_mark(kl_keymap_t *map, int64_t offset) {
    if (kl_keymap_tracks(map, offset, 1)) {
        uint64_t at = (uint64_t)(offset - map->stale_first) >> 6;
        map->marked[at >> 6] |= (uint64_t)1 << (at & 63);
    }
}

/* May one of n >= 1 offsets from this one on, all tracked, have been marked?  Always true if one has. */
int kl_keymap_is_marked(const kl_keymap_t *map, int64_t offset, int64_t n);

/* Put n <= KL_KEYMAP_GROUP keys in order, each with its offset (>= 0); for a key that is there already the new offset
 * replaces the old.  Returns how many were put: fewer than n if the map is full before the next key, even if it has
 * that key, as in Kafka. */
int32_t kl_keymap_put(kl_keymap_t *map, const kl_key_t *keys, const int64_t *offsets, int32_t n);

/* Get the offsets of n <= KL_KEYMAP_GROUP keys, -1 for one that is missing. */
void kl_keymap_get(const kl_keymap_t *map, const kl_key_t *keys, int32_t n, int64_t *offsets);

#endif
