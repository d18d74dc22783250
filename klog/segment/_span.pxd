from libc.stdint cimport int64_t

from klog.disk._io cimport LogFile
from klog.segment._index cimport IndexPair

cdef enum:
    NEAR = 16384    # a scan that ends within this many bytes needs no index


cdef int64_t reach(LogFile file, IndexPair index, int64_t at, int64_t end, int64_t limit, int64_t size,
                   int64_t *next_offset) except -1
