from libc.stdint cimport int64_t

from klog._c.osio cimport kl_io_t

cdef extern from "send.h" nogil:
    enum:
        KL_BY_SENDFILE
        KL_BY_SPLICE
        KL_BY_COPY
        KL_SEND_DONE
        KL_SEND_END_OF_FILE
        KL_SEND_NEEDS_MEMORY
    ctypedef struct kl_send_t:
        int64_t at
        int64_t left
        int64_t sent[3]
        int64_t wait_ns
        int64_t waited_ns
        int from_target
        char *memory
        size_t memory_size
    int kl_send(const kl_io_t *io, int to, int source, kl_send_t *send)
    void kl_send_end(kl_send_t *send)
    int kl_send_bytes(const kl_io_t *io, int to, const char *data, size_t size, size_t *done, int more,
                      int64_t wait_ns, int64_t *waited_ns)
