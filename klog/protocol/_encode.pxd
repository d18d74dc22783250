from klog._c.wire cimport kl_wire_out_t
from libc.stdint cimport uint8_t

cdef enum:
    ON_STACK = 512


# Memory for the bytes of a message: at first some of the stack, then of the heap. finish() releases it.
cdef struct Output:
    kl_wire_out_t c             # the first member: the walker gives its address to grow()
    uint8_t first[ON_STACK]


cdef void start(Output *out) noexcept
cdef void finish(Output *out) noexcept
