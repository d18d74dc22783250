from libc.stdint cimport int64_t, uint8_t

from klog._c.batch cimport kl_batch_t
from klog.disk._io cimport LogFile
from klog.segment._index cimport IndexPair

cdef enum:
    WINDOW = 8448      # two batches of 4 KiB, between whose index entries a search reads, and a header


cdef class Header:
    cdef kl_batch_t b


cdef Header header_of(const kl_batch_t *b)


cdef class HeaderIterator:
    cdef LogFile file
    cdef uint8_t window[WINDOW]
    cdef int64_t window_at
    cdef int64_t window_size
    cdef readonly int64_t position
    cdef readonly int64_t end
    cdef readonly str reason

    # Read the next header; False at the end.
    cdef bint next_header(self, kl_batch_t *b) except -1


cdef bint header_at(LogFile file, int64_t position, int64_t end, kl_batch_t *b) except -1
cdef bint locate_shortly(LogFile file, IndexPair index, int64_t end, int64_t offset, int64_t base_offset,
                         kl_batch_t *b) except -1
