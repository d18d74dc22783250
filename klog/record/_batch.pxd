from klog._c.batch cimport kl_batch_t
from klog.record._legacy cimport LegacyBatch
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t


cdef enum:
    FLAG_TIMESTAMP = 1      # a timestamp was given; without it, "now" at append
    FLAG_TRANSACTIONAL = 2
    FLAG_CONTROL = 4


cdef class Record:
    # What own() answers for: key, value and headers, or where they lie until somebody asks.
    cdef object own_key
    cdef object own_value
    cdef tuple own_headers
    cdef object pin                 # holds the bytes at at_key and at_value; None once the fields are the record's own
    cdef const uint8_t *at_key
    cdef const uint8_t *at_value
    cdef const uint8_t *at_headers
    cdef int32_t key_size
    cdef int32_t value_size
    cdef int32_t header_count
    cdef int32_t headers_size
    cdef readonly int64_t offset
    cdef readonly int64_t producer_id
    cdef int64_t timestamp_ms
    cdef readonly int32_t leader_epoch
    cdef readonly int32_t sequence
    cdef readonly int16_t producer_epoch
    cdef int16_t control_number
    cdef int8_t kind                # of timestamp
    cdef uint8_t flags

    # Make key, value and headers the record's own, before own_key, own_value or own_headers is read.
    cdef int own(self) except -1


cdef class Source:
    """A pinned buffer of whole batches, and where it came from. Lives as long as anything that points into it."""
    cdef Py_buffer view
    cdef const uint8_t *data
    cdef Py_ssize_t size
    cdef readonly object path
    cdef readonly int64_t file_position
    cdef bint newer_magic           # from a file, magic above 2 is read as 2; from memory it is refused. As Kafka does
    cdef bint refuses_legacy        # magic 0 and 1 are UnsupportedBatch
    cdef bint lazy                  # records may point into the bytes, which never change
    cdef LegacyBatch legacy         # of magic 0 and 1, the one read last
    cdef object payloads            # find() and keep() what was decompressed; None: nobody keeps it

    # Read and check the batch at byte `at`: 1, or 0 where the bytes end before the batch does; raises on bad bytes.
    # b.position is the byte in this source.
    cdef int batch_at(self, Py_ssize_t at, bint verify_crc, kl_batch_t *b) except -1
    cdef int refuse(self, Py_ssize_t at, const kl_batch_t *b, bint verify_crc) except -1
    # The message of magic 0 or 1 of size bytes at byte `at`, which are there, as a batch of magic 2.
    cdef LegacyBatch legacy_at(self, Py_ssize_t at, int32_t size, bint verify_crc)
    # The plain records of a batch: None where they lie in the source as they are, else the object that holds them.
    # Checks that the count of records can be true.
    cdef object plain_records(self, const kl_batch_t *b)
    # Raises where size plain bytes cannot hold that many records.
    cdef int check_count(self, const kl_batch_t *b, Py_ssize_t size) except -1
    cdef int raise_record(self, int status, const kl_batch_t *b, int32_t number) except -1


ctypedef struct aborted_t:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset


cdef class Selection:
    """Which records of a source somebody wants."""
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
    cdef object pin                 # what lazy records of this batch hold; None: they copy
    cdef kl_batch_t batch
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


cdef class PairIterator(RecordIterator):
    pass


cdef class RecordBatch:
    cdef Source source
    cdef kl_batch_t header


cdef class BatchIterator:
    cdef Source source
    cdef Py_ssize_t at
    cdef bint verify_crc
    cdef bint allow_partial
