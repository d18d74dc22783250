/* A few big buffers, kept from one call to the next: touching fresh memory costs more than filling it, since every page
 * of it is a fault, and malloc gives big blocks back to the kernel when they are freed.
 *
 *   P1  any thread may take and give at any moment, with or without Python's lock; nobody ever waits: whoever finds the
 *       pool busy goes to malloc and free instead (so a fork in the middle costs the child its pool and nothing else).
 *   P2  what a pool holds is bounded: KL_POOL_SLOTS buffers, KL_POOL_BYTES_MAX bytes in all, none of more than
 *       KL_POOL_BUFFER_MAX.  The newest stay.
 *   P3  buffers below KL_POOL_BUFFER_MIN bytes are malloc's business: it keeps these itself.
 *
 * A pool is all zero at first and lives as long as the process, because the last buffer may come back very late.
 * Buffers are 64-byte aligned, those of KL_POOL_BUFFER_MIN and more page-aligned; what is in them is left over from
 * before.  They may be given to a pool or to free().
 */
#ifndef KL_POOL_H
#define KL_POOL_H

#include <stdatomic.h>
#include <stddef.h>

enum {
    KL_POOL_SLOTS = 32,
    KL_POOL_BUFFER_MIN = 16 << 10,
    KL_POOL_BUFFER_MAX = 8 << 20,
    KL_POOL_BYTES_MAX = 16 << 20,
    KL_POOL_ALIGNMENT = 64,
};

typedef struct {
    void *data;
    size_t capacity;
} kl_pool_buffer_t;

typedef struct {
    atomic_int busy;
    int count;
    size_t bytes;
    kl_pool_buffer_t buffers[KL_POOL_SLOTS]; /* the oldest first */
} kl_pool_t;

/* A buffer of size bytes or somewhat more (*capacity); NULL without memory. */
void *kl_pool_take(kl_pool_t *pool, size_t size, size_t *capacity);

/* The same, but of the buffers here the largest: for who will grow it if it is too small. */
void *kl_pool_take_largest(kl_pool_t *pool, size_t size, size_t *capacity);

/* Give back what was taken, with the capacity that it came with.  NULL is fine. */
void kl_pool_give(kl_pool_t *pool, void *data, size_t capacity);

#endif
