/* klog's search of an offset index, and Kafka's: AbstractIndex.indexSlotRangeFor in C.  bench/lookup_contests.py loads it. */
#include <stdint.h>

#include "bytes.h"
#include "index.h"

enum { WARM = 8192 / KL_OFFSET_ENTRY }; /* the end of an index, which Kafka searches first */

static inline int32_t key(const uint8_t *entries, int32_t i) {
    return (int32_t)kl_load_u32(entries + (size_t)i * KL_OFFSET_ENTRY);
}

static int32_t between(const uint8_t *entries, int32_t low, int32_t high, int32_t target) {
    while (low < high) {
        int32_t middle = (int32_t)(((uint32_t)low + (uint32_t)high + 1) / 2), found = key(entries, middle);
        if (found > target)
            high = middle - 1;
        else if (found < target)
            low = middle;
        else
            return middle;
    }
    return low;
}

static int32_t as_kafka(const uint8_t *entries, int32_t n, int32_t target) {
    if (n == 0)
        return -1;
    int32_t warm = n - 1 - WARM > 0 ? n - 1 - WARM : 0;
    if (key(entries, warm) < target)
        return between(entries, warm, n - 1, target);
    if (key(entries, 0) > target)
        return -1;
    return between(entries, 0, warm, target);
}

/* Search for each of `count` targets, by klog's search or Kafka's.  Returns the sum of the slots found. */
int64_t lookup_run(int kafka, const uint8_t *entries, int32_t n, const int32_t *targets, int32_t count) {
    int64_t sum = 0;
    for (int32_t i = 0; i < count; i++)
        sum += kafka ? as_kafka(entries, n, targets[i]) : kl_offset_index_floor(entries, n, targets[i]);
    return sum;
}
