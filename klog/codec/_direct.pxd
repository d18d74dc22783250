from klog._c.lz4 cimport kl_lz4_t

# For csrc/lz4.h, or NULL if there are no direct calls. The struct is never freed.
cdef const kl_lz4_t *direct_lz4() except? NULL
