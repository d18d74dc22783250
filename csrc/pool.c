/* See pool.h. */
#include "pool.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(data, size) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(data, size) ((void)0)
#endif

enum {
    PAGE = 4096,
    SIZE_RATIO_MAX = 2, /* times the requested size: a larger buffer is kept for a call that needs it */
};

static int try_lock(kl_pool_t *pool) { return atomic_exchange_explicit(&pool->busy, 1, memory_order_acquire) == 0; }
static void unlock(kl_pool_t *pool) { atomic_store_explicit(&pool->busy, 0, memory_order_release); }

/* Four to eight sizes to each doubling, so that the buffer of one call fits the next one, which needs slightly more. */
static size_t rounded(size_t size) {
    size_t step = KL_POOL_ALIGNMENT;
    if (size >= KL_POOL_BUFFER_MIN)
        for (step = PAGE; step < size / 8; step *= 2)
            ;
    return size > SIZE_MAX - step ? size : (size + step - 1) / step * step;
}

static void *allocate(size_t size, size_t *capacity) {
    void *memory;
    size = rounded(size);
    if (posix_memalign(&memory, size >= KL_POOL_BUFFER_MIN ? PAGE : KL_POOL_ALIGNMENT, size) != 0)
        return NULL;
    *capacity = size;
    return memory;
}

/* Remove buffer i from the list. */
static kl_pool_buffer_t remove_at(kl_pool_t *pool, int i) {
    kl_pool_buffer_t found = pool->buffers[i];
    pool->count--;
    pool->bytes -= found.capacity;
    memmove(&pool->buffers[i], &pool->buffers[i + 1], (size_t)(pool->count - i) * sizeof found);
    return found;
}

/* The smallest buffer that holds size bytes and not much more, or the largest of all. */
static void *take(kl_pool_t *pool, size_t size, int largest, size_t *capacity) {
    kl_pool_buffer_t found = {NULL, 0};
    if (size >= KL_POOL_BUFFER_MIN && size <= KL_POOL_BUFFER_MAX && try_lock(pool)) {
        int best = -1;
        for (int i = pool->count - 1; i >= 0; i--) { /* of equal ones the newest: it may still be in the cache */
            size_t has = pool->buffers[i].capacity;
            if (has < size || (!largest && has > SIZE_RATIO_MAX * size))
                continue;
            if (best < 0 || (largest ? has > pool->buffers[best].capacity : has < pool->buffers[best].capacity))
                best = i;
        }
        if (best >= 0)
            found = remove_at(pool, best);
        unlock(pool);
    }
    if (found.data == NULL)
        return allocate(size, capacity);
    ASAN_UNPOISON_MEMORY_REGION(found.data, found.capacity);
    *capacity = found.capacity;
    return found.data;
}

void *kl_pool_take(kl_pool_t *pool, size_t size, size_t *capacity) { return take(pool, size, 0, capacity); }

void *kl_pool_take_largest(kl_pool_t *pool, size_t size, size_t *capacity) { return take(pool, size, 1, capacity); }

void kl_pool_give(kl_pool_t *pool, void *data, size_t capacity) {
    if (capacity < KL_POOL_BUFFER_MIN || capacity > KL_POOL_BUFFER_MAX || !try_lock(pool)) {
        free(data);
        return;
    }
    kl_pool_buffer_t old[KL_POOL_SLOTS]; /* freed outside the lock: that may be a system call */
    int n = 0;
    while (pool->count == KL_POOL_SLOTS || pool->bytes + capacity > KL_POOL_BYTES_MAX)
        old[n++] = remove_at(pool, 0);
    ASAN_POISON_MEMORY_REGION(data, capacity);
    pool->buffers[pool->count++] = (kl_pool_buffer_t){data, capacity};
    pool->bytes += capacity;
    unlock(pool);
    while (n != 0) {
        n--;
        ASAN_UNPOISON_MEMORY_REGION(old[n].data, old[n].capacity);
        free(old[n].data);
    }
}
