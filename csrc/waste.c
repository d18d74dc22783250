/* See waste.h for the contract of every function here. */
#include "waste.h"

#include <string.h>

static inline kl_waste_counter_t *counter_of(kl_waste_t *w, uint64_t high, uint64_t low) {
    uint64_t mask = (uint64_t)w->slots - 1, at = high & mask;
    while (w->table[at].records != 0 && (w->table[at].high != high || w->table[at].low != low))
        at = (at + 1) & mask;
    return &w->table[at];
}

static inline void swap(int64_t *a, int64_t *b) {
    int64_t kept = *a;
    *a = *b;
    *b = kept;
}

/* The median of n numbers, which are reordered. */
static int64_t median(int64_t *numbers, int64_t n) {
    int64_t low = 0, high = n - 1, wanted = n / 2;
    while (low < high) {
        int64_t pivot = numbers[low + (high - low) / 2], i = low, j = high;
        while (i <= j) {
            while (numbers[i] < pivot)
                i++;
            while (numbers[j] > pivot)
                j--;
            if (i <= j)
                swap(&numbers[i++], &numbers[j--]);
        }
        if (wanted <= j)
            high = j;
        else if (wanted >= i)
            low = i;
        else
            break;
    }
    return numbers[wanted];
}

static void reduce(kl_waste_t *w) {
    int64_t *numbers = (int64_t *)(void *)w->scratch, n = 0;
    for (int64_t i = 0; i < w->slots; i++) {
        if (w->table[i].records != 0)
            numbers[n++] = w->table[i].bytes;
    }
    int64_t reduction = median(numbers, n), remaining = 0;
    w->reduced_by += reduction;
    for (int64_t i = 0; i < w->slots; i++) {
        if (w->table[i].records == 0 || w->table[i].bytes <= reduction)
            continue;
        w->scratch[remaining] = w->table[i];
        w->scratch[remaining++].bytes -= reduction;
    }
    memset(w->table, 0, (size_t)w->slots * sizeof(kl_waste_counter_t));
    for (int64_t i = 0; i < remaining; i++)
        *counter_of(w, w->scratch[i].high, w->scratch[i].low) = w->scratch[i];
    w->keys = remaining;
}

void kl_waste_add(kl_waste_t *w, kl_key_t key, int64_t n, int64_t offset) {
    kl_hash_t hash;
    w->hash->many(w->hash, &key, 1, &hash);
    kl_waste_counter_t *at = counter_of(w, hash.high, hash.low);
    if (at->records == 0) {
        if (w->keys >= w->slots / 4 * 3) {
            reduce(w);
            at = counter_of(w, hash.high, hash.low);
        }
        *at = (kl_waste_counter_t){.high = hash.high, .low = hash.low};
        w->keys++;
    }
    at->bytes += n;
    at->records++;
    at->offset = offset;
}
