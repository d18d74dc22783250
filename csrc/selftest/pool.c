/* Buffers are reused, within the limits of a pool. */
#include "selftest/selftest.h"

#include <string.h>

#include "pool.h"

void test_pool(void) {
    static kl_pool_t few;
    size_t capacity = 0, again = 0;
    uint8_t *data = kl_pool_take(&few, 100000, &capacity);
    CHECK(data != NULL && capacity >= 100000 && ((uintptr_t)data & 4095) == 0);
    memset(data, 1, capacity);
    kl_pool_give(&few, data, capacity);
    CHECK(few.count == 1 && few.bytes == capacity);
    CHECK(kl_pool_take(&few, capacity, &again) == data && again == capacity && few.count == 0 && few.bytes == 0);
    memset(data, 2, capacity);
    kl_pool_give(&few, data, capacity);
    /* Much too large for this request, so it stays; but not for a request for the largest. */
    uint8_t *small = kl_pool_take(&few, capacity / 4, &again);
    CHECK(small != data && again >= capacity / 4 && few.count == 1);
    CHECK(kl_pool_take_largest(&few, capacity / 4, &capacity) == data && few.count == 0);
    kl_pool_give(&few, small, again);
    kl_pool_give(&few, data, capacity);
    /* Smaller and larger than what a pool keeps. */
    uint8_t *tiny = kl_pool_take(&few, 1, &capacity);
    CHECK(((uintptr_t)tiny & 63) == 0 && capacity == 64);
    kl_pool_give(&few, tiny, capacity);
    uint8_t *huge = kl_pool_take(&few, KL_POOL_BUFFER_MAX + 1, &capacity);
    CHECK(huge != NULL && capacity > KL_POOL_BUFFER_MAX);
    kl_pool_give(&few, huge, capacity);
    kl_pool_give(&few, NULL, 0);
    CHECK(few.count == 2);
    /* A pool that is in use is bypassed (P1). */
    atomic_store(&few.busy, 1);
    uint8_t *other = kl_pool_take(&few, 100000, &capacity);
    CHECK(other != data && few.count == 2);
    kl_pool_give(&few, other, capacity);
    CHECK(few.count == 2);
    atomic_store(&few.busy, 0);
    /* Never past its limits, and the newest stay (P2). */
    struct {
        void *data;
        size_t capacity;
    } held[100];
    for (int round = 0; round < 20; round++) {
        size_t n = 1 + random_below(100);
        for (size_t i = 0; i < n; i++) {
            size_t size = random_below(2) ? random_below(100000) : random_below(1 << 22);
            held[i].data = random_below(2) ? kl_pool_take(&few, size, &held[i].capacity)
                                           : kl_pool_take_largest(&few, size, &held[i].capacity);
            CHECK(held[i].data != NULL && held[i].capacity >= size);
            memset(held[i].data, 3, size);
        }
        for (size_t i = 0; i < n; i++)
            kl_pool_give(&few, held[i].data, held[i].capacity);
        size_t bytes = 0;
        for (int i = 0; i < few.count; i++)
            bytes += few.buffers[i].capacity;
        CHECK(few.count <= KL_POOL_SLOTS && few.bytes == bytes && bytes <= KL_POOL_BYTES_MAX);
        if (held[n - 1].capacity >= KL_POOL_BUFFER_MIN)
            CHECK(few.buffers[few.count - 1].data == held[n - 1].data);
    }
}
