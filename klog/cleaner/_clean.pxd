from klog._c.batch cimport kl_batch_t
from klog._c.clean cimport kl_prediction_t
from klog._c.lz4 cimport kl_lz4_t
from klog._c.osio cimport kl_io_t
from klog.disk._io cimport LogFile
from klog.record._batch cimport Source
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t


cdef class SegmentPass:
    cdef readonly int64_t bytes_read
    cdef readonly int64_t records_read
    cdef int64_t next_offset    # no batch begins below it
    cdef int64_t limit          # all end below it
    cdef int32_t bad            # number of the record that failed
    cdef int16_t slow_bits      # a batch with one of these attributes goes to take_slowly()
    cdef uint8_t *memory        # holds the bytes that were read, `capacity` bytes
    cdef int64_t capacity
    cdef const uint8_t *window  # bytes [window_position, + window_size) of the file; those before window_at are done
    cdef int64_t window_position
    cdef int64_t window_size
    cdef int64_t window_at
    cdef int64_t windows        # number of windows so far
    cdef int64_t plain_left     # bytes that may still be decompressed before the next tick
    cdef int error              # errno of a failed read
    cdef const kl_lz4_t *lz4    # NULL if lz4 needs the GIL, as other codecs do
    cdef uint8_t *unpacked      # decompressed records of one batch
    cdef int64_t unpacked_capacity

    # Take the batch at data, with these plain records. Anything but KL_OK ends the pass.
    cdef int take(self, const uint8_t *data, kl_batch_t *b, const uint8_t *records, int64_t size) noexcept nogil
    # Does a batch that has one of slow_bits go to take_unpacked() nevertheless?
    cdef bint is_direct(self, const kl_batch_t *b) noexcept nogil
    # unpack(), then take(): KL_OK, KL_EFULL, NO_MEMORY, or SLOW if the path with the GIL must decide or raise.
    cdef int take_unpacked(self, const uint8_t *data, kl_batch_t *b) noexcept nogil
    # Decompress an lz4 payload into self.unpacked. Returns its size, SLOW or NO_MEMORY.
    cdef int64_t unpack(self, const uint8_t *payload, int64_t size) noexcept nogil
    # take() for a batch that has one of slow_bits, or an old format.
    cdef int take_slowly(self, Source source, kl_batch_t *b, const uint8_t *records, Py_ssize_t size) except? -1
    cdef int run(self, const uint8_t *data, int64_t size, int64_t *at, kl_batch_t *b) noexcept nogil
    cdef int take_plain_of(self, Source source, kl_batch_t *b) except? -1
    cdef bint slow(self, Source source, int64_t *at, kl_batch_t *b) except -1
    cdef int check_order(self, Source source, const kl_batch_t *b) except -1
    cdef bint full(self) noexcept
    cdef int after_chunk(self) except -1
    # The result for a batch if it is known without its records; use_prediction() then handles it, compressed or not.
    cdef kl_prediction_t predict(self, const kl_batch_t *b) noexcept nogil
    cdef int use_prediction(self, const uint8_t *data, const kl_batch_t *b, kl_prediction_t predicted) noexcept nogil
    cdef int64_t more(self, const kl_io_t *io, int fd, int64_t end, int64_t need) noexcept nogil
    cdef int chunk(self, const kl_io_t *io, int fd, int64_t stop, int64_t end, kl_batch_t *b) noexcept nogil
    cdef int one_chunk(self, LogFile file, int fd, int64_t stop, int64_t end, kl_batch_t *b) except -1
    cdef int segment(self, LogFile file, int64_t position, int64_t end, int64_t base_offset, int64_t limit, tick) except -1
