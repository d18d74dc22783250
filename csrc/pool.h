/* A few large buffers, kept from one call to the next.  The first access to new memory costs more than filling it,
 * because it causes a page fault for every page, and malloc returns large blocks to the kernel when they are freed.
 *
 *   P1  any thread may take and give at any moment, with or without the GIL; no thread ever waits: if the pool is busy,
 *       the call uses malloc and free instead (so a fork in the middle costs the child its pool and nothing else).
 *   P2  a pool is bounded: KL_POOL_SLOTS buffers, KL_POOL_BYTES_MAX bytes in all, none of more than
 *       KL_POOL_BUFFER_MAX.  It keeps the newest ones.
 *   P3  buffers below KL_POOL_BUFFER_MIN bytes come from malloc, which keeps these itself.
 *
 * A pool is all zero at first and lives as long as the process, because the last buffer may be given back very late.
 * Buffers are 64-byte aligned, those of KL_POOL_BUFFER_MIN and more page-aligned; their content is undefined.  They may
 * be given to a pool or to free().
 */
#ifndef KL_POOL_H
#define KL_POOL_H

#include <stdatomic.h>
#include <stddef.h>

enum {
    KL_POOL_SLOTS = 32,
    KL_POOL_BUFFER_MIN = 8 << 10,
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

/* Take a buffer of size bytes or slightly more (*capacity); NULL if there is no memory. */
void *kl_pool_take(kl_pool_t *pool, size_t size, size_t *capacity);

/* Take the largest buffer of the pool, if any: for a caller that grows it if necessary. */
void *kl_pool_take_largest(kl_pool_t *pool, size_t size, size_t *capacity);

/* Give back a buffer with its capacity.  NULL is allowed. */
void kl_pool_give(kl_pool_t *pool, void *data, size_t capacity);

#endif
