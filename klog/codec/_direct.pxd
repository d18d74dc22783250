from klog._c.lz4 cimport kl_lz4_t

# For csrc/lz4.h, or NULL where there is no way around Python. What it points to stays for ever.
cdef const kl_lz4_t *direct_lz4() noexcept nogil
