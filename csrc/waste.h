/* Finds the keys that take the most bytes among removed records: heavy hitters of a stream, in the caller's memory.
 *
 *   table := counter{slots}       slots is a power of two; a counter is empty where records is 0; linear probing
 *
 *   W1  at most slots * 3 / 4 keys are counted at a time. When another one comes, every counter is reduced by the
 *       median of their bytes, and counters that reach zero are removed: the bytes reported for a key are at most its
 *       real bytes, and at least those minus `reduced_by` (Misra and Gries, weighted)
 *   W2  while reduced_by is 0 every number is exact; afterwards the real records are at least as many as reported
 *   W3  reduced_by <= 2 * all bytes / (slots * 3 / 4): each time at least half of the counters are reduced by
 *       that median
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
} kl_waste_counter_t;

typedef struct {
    const kl_keyhash_t *hash;
    kl_waste_counter_t *table;
    kl_waste_counter_t *scratch; /* as large as table */
    int64_t slots;
    int64_t keys;
    int64_t reduced_by; /* the sum of the medians, in bytes */
} kl_waste_t;

/* Add n bytes to a key. */
void kl_waste_add(kl_waste_t *waste, kl_key_t key, int64_t n, int64_t offset);

#endif
