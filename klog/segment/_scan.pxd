from libc.stdint cimport int64_t

from klog._c.batch cimport kl_batch_t
from klog.disk._io cimport LogFile
from klog.segment._index cimport IndexPair


cdef bint header_at(LogFile file, int64_t position, int64_t end, kl_batch_t *b) except -1
cdef bint locate_shortly(LogFile file, IndexPair index, int64_t end, int64_t offset, int64_t base_offset,
                         kl_batch_t *b) except -1
