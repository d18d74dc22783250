/* Finds the keys that take the most bytes among removed records: heavy hitters of a stream, in the caller's memory.
 *
 *   table := counter{slots}       slots is a power of two; a counter is empty where records is 0; linear probing
 *
 *   W1  at most slots * 3 / 4 keys are counted at a time. When another one comes, every counter is reduced by the
 *       median of their bytes, and counters that reach zero are removed: the bytes reported for a key are at most its
 *       real bytes, and at least those less `given_up` (Misra and Gries, weighted)
 *   W2  while given_up is 0 every number is exact; afterwards the real records are at least as many as reported
 *   W3  given_up <= 2 * all bytes / (slots * 3 / 4): at least half of the counters are reduced by as much each time
 *
 * A key is stored as its keyed 128-bit hash (keymap.h) and the offset of one of its records, from which the key can be
 * read.
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
    kl_wasted_t *scratch; /* also slots of them */
    int64_t slots;
    int64_t keys;
    int64_t given_up; /* bytes */
} kl_waste_t;

/* Add n bytes to a key. */
void kl_waste_add(kl_waste_t *waste, kl_key_t key, int64_t n, int64_t offset);

#endif
