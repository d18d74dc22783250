cdef extern from "pool.h" nogil:
    enum:
        KL_POOL_BUFFER_MIN

    ctypedef struct kl_pool_t:
        pass

    void *kl_pool_take(kl_pool_t *pool, size_t size, size_t *capacity)
    void *kl_pool_take_largest(kl_pool_t *pool, size_t size, size_t *capacity)
    void kl_pool_give(kl_pool_t *pool, void *data, size_t capacity)
