/* Which keys take most bytes among records that go: heavy hitters of a stream, in memory that the caller brings.
 *
 *   table := counter{slots}       slots is a power of two; a counter is empty where records is 0; linear probing
 *
 *   W1  at most slots * 3 / 4 keys are counted at a time. Where one more comes, every counter gives up as many bytes as the
 *       median one has, and those that are left with none make room: what a key is said to take is at most what it takes,
 *       and at least that less `given_up` (Misra and Gries, weighted)
 *   W2  while given_up is 0 every number is exact; then records, too, are at least as many as said
 *   W3  given_up <= 2 * all bytes / (slots * 3 / 4): at least half of the counters give as much each time
 *
 * A key is its keyed 128-bit hash (keymap.h) and the offset of one of its records, where whoever wants the key reads it.
 */
#ifndef KL_WASTE_H
#define KL_WASTE_H

#include <stdint.h>

#include "keymap.h"

typedef struct {
    uint64_t high, low;
    int64_t bytes;
    int64_t records;
    int64_t offset; /* of the record that was counted last */
} kl_wasted_t;

typedef struct {
    const kl_keyhash_t *hash;
    kl_wasted_t *table;
    kl_wasted_t *scratch; /* slots of them, too */
    int64_t slots;
    int64_t keys;
    int64_t given_up; /* bytes */
} kl_waste_t;

/* n bytes more of a key. */
void kl_waste_add(kl_waste_t *waste, kl_key_t key, int64_t n, int64_t offset);

#endif
