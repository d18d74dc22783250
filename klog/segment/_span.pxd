from libc.stdint cimport int64_t

from klog._c.batch cimport KL_BATCH_HEADER, kl_batch_t
from klog.disk._io cimport LogFile
from klog.segment._index cimport IndexPair
from klog.segment._scan cimport WINDOW

cdef enum:
    NEAR = WINDOW - KL_BATCH_HEADER     # a scan that ends within this many bytes takes one read, and needs no index


cdef int64_t reach(LogFile file, IndexPair index, int64_t at, int64_t end, int64_t limit, int64_t size,
                   int64_t *next_offset, kl_batch_t *after) except -1
