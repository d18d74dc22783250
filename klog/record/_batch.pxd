from klog._c.batch cimport KL_ATTR_CONTROL, kl_batch_t, kl_record_scan_common, kl_record_t
from klog.record._legacy cimport LegacyBatch
from klog.record._record cimport Record
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef enum:
    PREFETCH = 512              # bytes ahead of the record being read: the checksum has passed there long before

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void *at) noexcept nogil


cdef class Source:
    """A pinned buffer of whole batches, and its origin. Lives as long as anything that points into it."""
    cdef Py_buffer view
    cdef const uint8_t *data
    cdef Py_ssize_t size
    cdef readonly object path
    cdef readonly int64_t file_position
    cdef bint newer_magic           # magic above 2 is read as 2 from a file, refused from memory, as in Kafka
    cdef bint refuses_legacy        # magic 0 and 1 are UnsupportedBatch
    cdef int32_t origin             # of its records, a number in ORIGINS
    cdef bint lazy                  # records may point into the bytes, which never change
    cdef LegacyBatch legacy         # the last one read of magic 0 or 1
    cdef object payloads            # find() and keep() of decompressed records; None: they are not kept

    # Read and check the batch at byte `at`. Returns 1, or 0 if the bytes end before the batch does; raises on invalid
    # bytes. b.position is the byte in this source.
    cdef int batch_at(self, Py_ssize_t at, bint verify_crc, kl_batch_t *b) except -1
    cdef int refuse(self, Py_ssize_t at, const kl_batch_t *b, bint verify_crc) except -1
    # Read the message of magic 0 or 1 of size bytes at byte `at`, which must be there, as a batch of magic 2.
    cdef LegacyBatch legacy_at(self, Py_ssize_t at, int32_t size, bint verify_crc)
    # Return the object that holds the plain records of a batch; None if they are uncompressed in the source. Checks
    # that the count of records is possible.
    cdef object plain_records(self, const kl_batch_t *b)
    # Raise if size plain bytes cannot hold that many records.
    cdef int check_count(self, const kl_batch_t *b, Py_ssize_t size) except -1
    cdef int raise_record(self, int status, const kl_batch_t *b, int32_t number) except -1


ctypedef struct aborted_t:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset


cdef class Selection:
    """Which records of a source to return."""
    cdef int64_t start
    cdef int64_t stop
    cdef bint include_control
    cdef aborted_t *aborted
    cdef Py_ssize_t aborted_count

    cdef bint wants(self, const kl_batch_t *b) noexcept nogil


cdef class RecordIterator:
    cdef Source source
    cdef Selection selection
    cdef Py_ssize_t at
    cdef Py_ssize_t end
    cdef bint verify_crc
    cdef bint busy
    cdef bint plain_held
    cdef Py_buffer plain
    cdef object pin                 # held by lazy records of this batch; None: they copy
    cdef kl_batch_t batch
    cdef int32_t origin
    cdef int32_t done               # records of the batch read so far
    cdef int64_t start
    cdef int64_t stop
    cdef int64_t passed             # the offset after the last record returned
    cdef object on_damage           # is called with a CorruptBatch and `passed`, before it is raised; or None
    cdef const uint8_t *records
    cdef const uint8_t *records_end

    cdef void drop_plain(self) noexcept
    cdef void let_go(self) noexcept
    cdef bint open_next(self) except -1
    cdef Record read_next(self)
    cdef Record read_slowly(self)


cdef inline int64_t record_offset(const kl_batch_t *b, const kl_record_t *r) noexcept nogil:
    return <int64_t>(<uint64_t>b.base_offset + <uint64_t><int64_t>r.offset_delta)


# Read the next wanted record of the open batch, if it has one and the record is plain. Otherwise False: read_slowly()
# goes to the next batch, reads control records and raises all errors.
cdef inline bint next_plain(RecordIterator records, kl_record_t *r) noexcept:
    cdef const uint8_t *after
    cdef int64_t offset
    while records.done < records.batch.count and not records.batch.attributes & KL_ATTR_CONTROL:
        after = kl_record_scan_common(records.records, records.records_end, r)
        if after == NULL:
            return False
        records.records = after
        records.done += 1
        prefetch(after + PREFETCH)
        offset = record_offset(&records.batch, r)
        if records.start <= offset < records.stop:
            records.passed = offset + 1
            return True
    return False


cdef class PairIterator(RecordIterator):
    cdef tuple last

    cdef tuple pair(self, key, value)


cdef class RecordBatch:
    cdef Source source
    cdef kl_batch_t header


cdef class BatchIterator:
    cdef Source source
    cdef Py_ssize_t at
    cdef bint verify_crc
    cdef bint allow_partial
