from klog._c.index cimport kl_indexer_t
from klog.disk._mapping cimport Mapping


cdef class IndexPair:
    cdef kl_indexer_t x
    cdef Mapping offsets
    cdef Mapping times
    cdef readonly str offsets_path
    cdef readonly str times_path
    cdef readonly bint writable
    cdef int attach(self) except -1
