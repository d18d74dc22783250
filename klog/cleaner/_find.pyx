# cython: auto_pickle=False
"""Finds the records of one key: pass 1 of a purge. Every checksum is checked on the way (P1, P2 of _clean)."""

cimport cython
from klog._c.batch cimport KL_ATTR_CODEC, KL_ATTR_CONTROL, kl_batch_t
from klog._c.clean cimport kl_clean_find, kl_found_t
from klog._c.status cimport KL_OK
from klog.cleaner._clean cimport SegmentPass
from klog.record._batch cimport Source
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset


@cython.final
cdef class KeySearch(SegmentPass):
    """Counts the records of a key, in any transaction; never a marker. One thread."""

    cdef bytes key
    cdef kl_found_t found

    def __cinit__(self, bytes key not None):
        self.key = key
        self.slow_bits = KL_ATTR_CODEC
        self.reset()

    cdef void reset(self) noexcept:
        memset(&self.found, 0, sizeof(self.found))
        self.found.key.at, self.found.key.size = <const uint8_t *>self.key, <size_t>len(self.key)

    def count(self, file, int64_t end, int64_t base_offset, int64_t limit, tick=None):
        """(records, their uncompressed bytes, first offset, last offset) in file[0:end), of a segment with the offsets
        [base_offset, limit). The offsets are -1 if there are no records."""
        self.bad = -1
        self.reset()
        self.segment(file, 0, end, base_offset, limit, tick)
        if self.found.records == 0:
            return 0, 0, -1, -1
        return self.found.records, self.found.bytes, self.found.first_offset, self.found.last_offset

    cdef int take(self, const uint8_t *data, kl_batch_t *b, const uint8_t *records, int64_t size) noexcept nogil:
        return self.count_batch(b, records, size)

    cdef int count_batch(self, const kl_batch_t *b, const uint8_t *records, int64_t size) noexcept nogil:
        cdef int32_t bad = -1
        cdef int status
        if b.attributes & KL_ATTR_CONTROL:
            return KL_OK
        status = kl_clean_find(&self.found, b, records, <size_t>size, &bad)
        self.bad = bad
        return status

    cdef int take_slowly(self, Source source, kl_batch_t *b, const uint8_t *records, Py_ssize_t size) except? -1:
        cdef int status
        with nogil:
            status = self.count_batch(b, records, size)
        return status
