"""Batches of a buffer that is already encoded and numbered: a follower appends them unchanged.

  W1  the bytes are not copied and not changed; the buffer is held from the first access to release()
  W2  every checksum is compared, every header and its codec are checked, offsets rise from batch to batch
  W3  a batch that is cut short at the end is ignored

Stricter than Kafka in one point: a batch may not begin at or below the last offset of the one before it. Kafka compares
only last offsets, and its own readers would skip records. Kafka: UnifiedLog.analyzeAndValidateRecords.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from klog._c.batch cimport (
    KL_ATTR_CODEC, kl_batch_crc, kl_batch_frame, kl_batch_last_offset, kl_batch_t,
)
from klog._c.legacy cimport kl_message_crc, kl_outer_header
from klog._c.status cimport KL_ETRUNCATED, KL_OK
from klog.codec.status cimport status_text
from klog.record._arguments cimport check_buffer, long_of
from klog.record._table cimport BatchTable, raise_frame
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from klog.codec import CODECS as _CODECS
from klog.errors import CorruptBatch, InvalidRecord, OffsetsOutOfOrder, RecordTooLarge
from klog.record._batch import decode

cdef enum:
    NOGIL_MIN = 1 << 18         # bytes whose checksum takes some microseconds
    LEGACY_NOGIL_MIN = 1 << 14


@cython.final
cdef class EncodedBatches(BatchTable):
    """The whole batches of a buffer, checked; n is 0 if there is none.

    bytes_max: the largest batch allowed (RecordTooLarge), -1 for no limit. epoch_max: batches from the first one of a
    later leader epoch on are ignored. epoch: all batches must have this one (InvalidRecord), -1 for any.

    first_offset is -1 if the first batch is a wrapper of magic 0 or 1, whose header has only its last offset; so it is
    for all messages of these magics, as in Kafka. Raises CorruptBatch, OffsetsOutOfOrder.
    """

    def __init__(self, buffer, *, bytes_max=-1, epoch_max=INT32_MAX, epoch=-1):
        self.check(buffer, long_of("bytes_max", bytes_max), long_of("epoch_max", epoch_max), long_of("epoch", epoch))

    cdef int check(self, buffer, int64_t bytes_max, int64_t epoch_max, int64_t epoch) except -1:
        """The body of __init__, called once."""
        cdef kl_batch_t b
        cdef Py_ssize_t at = 0, left
        cdef const uint8_t *data
        cdef uint32_t crc
        cdef int status
        cdef bint rising = True
        check_buffer("buffer", buffer)
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True
        self.bytes_at = <uint8_t *>self.view.buf
        self.batches = self.few
        self.capacity = FEW
        self.first_offset = self.last_offset = self.last_offset_of_first_batch = -1
        self.max_timestamp = self.shallow_offset_of_max_timestamp = self.last_leader_epoch = -1
        self.one_leader_epoch = True
        while True:
            left = self.view.len - at
            data = self.bytes_at + at
            status = kl_batch_frame(data, <size_t>left, &b)
            if status == KL_ETRUNCATED:
                break
            if status != KL_OK:
                return raise_frame(status, data, at)
            status = kl_outer_header(data, <size_t>left, &b)
            if status == KL_OK and b.size > left:   # the bytes have changed since: a map of a log that is written
                status = KL_ETRUNCATED
            if b.magic == 2 and status == KL_OK:
                if b.leader_epoch > epoch_max:
                    break
                if epoch >= 0 and b.leader_epoch != epoch:
                    raise InvalidRecord(f"a batch of leader epoch {b.leader_epoch} from the leader of epoch {epoch}")
            if bytes_max >= 0 and b.size > bytes_max:
                raise RecordTooLarge(f"a batch of {b.size} bytes is larger than max.message.bytes={bytes_max}")
            if status != KL_OK:
                raise CorruptBatch(f"not a valid batch: {status_text(status)}", position=at)
            if b.magic == 2:
                if b.size >= NOGIL_MIN:
                    with nogil:
                        crc = kl_batch_crc(data, b.size)
                else:
                    crc = kl_batch_crc(data, b.size)
            elif b.size >= LEGACY_NOGIL_MIN:
                with nogil:
                    crc = kl_message_crc(data, b.size)
            else:
                crc = kl_message_crc(data, b.size)
            if crc != b.crc:
                raise CorruptBatch(
                    f"the checksum of a batch of {b.size} bytes is {b.crc:08x}, its bytes make {crc:08x}",
                    position=at, offset=b.base_offset, kind="crc",
                )
            if b.attributes & KL_ATTR_CODEC >= len(_CODECS):
                raise CorruptBatch(f"codec bits {b.attributes & KL_ATTR_CODEC} are not a known codec", position=at,
                                   offset=b.base_offset)
            b.position = at
            if self.n != 0 and b.base_offset <= self.last_offset:
                rising = False
            self.take(&b, b.magic == 2)
            at += b.size
        self.nbytes = at
        if not rising:
            raise OffsetsOutOfOrder(
                f"the offsets of {self.n} batches do not rise from batch to batch: {self.offsets()}")
        return 0

    def __dealloc__(self):
        self.release()
        if self.batches != NULL and self.batches != self.few:
            PyMem_Free(self.batches)

    cdef int take(self, const kl_batch_t *b, bint first_known) except -1:
        cdef int64_t last = kl_batch_last_offset(b)
        if self.n == self.capacity:
            self.grow()
        self.batches[self.n] = b[0]
        if self.n == 0:
            self.first_offset = b.base_offset if first_known else -1
            self.last_offset_of_first_batch = last
        self.n += 1
        self.last_offset = last
        if b.max_timestamp > self.max_timestamp:
            self.max_timestamp = b.max_timestamp
            self.shallow_offset_of_max_timestamp = last
        if not first_known:
            self.has_legacy = True
        else:
            if self.n != 1 and b.leader_epoch != self.last_leader_epoch:
                self.one_leader_epoch = False
            self.last_leader_epoch = b.leader_epoch
            if b.producer_id >= 0:
                self.has_producers = True
        if b.attributes & KL_ATTR_CODEC:
            self.codec = b.attributes & KL_ATTR_CODEC
        return 0

    cdef int grow(self) except -1:
        cdef kl_batch_t *more
        cdef Py_ssize_t capacity = 8 * self.capacity
        if self.batches == self.few:
            more = <kl_batch_t *>PyMem_Malloc(capacity * sizeof(kl_batch_t))
            if more != NULL:
                memcpy(more, self.few, self.n * sizeof(kl_batch_t))
        else:
            more = <kl_batch_t *>PyMem_Realloc(self.batches, capacity * sizeof(kl_batch_t))
        if more == NULL:
            raise MemoryError(f"{capacity} batch headers")
        self.batches = more
        self.capacity = capacity
        return 0

    cdef str codec_sent(self):
        """source_compression, without the attribute's look-up."""
        return _CODECS[self.codec]

    cpdef release(self):
        """Release the caller's buffer; the bytes must not be used any more. Releasing twice is allowed."""
        if self.held:
            self.held = False
            self.nbytes = self.n = 0
            self.bytes_at = NULL
            PyBuffer_Release(&self.view)

    def __len__(self):
        return self.n

    @property
    def source_compression(self):
        """The last codec that is not none, as in Kafka."""
        return self.codec_sent()

    @property
    def base_offset(self):
        """The base offset of the first batch; for magic 0 or 1 that of its first record."""
        if self.first_offset >= 0 or self.n == 0:
            return self.first_offset
        return next(decode(memoryview(self)[:self.batches[0].size])).base_offset

    def offsets(self):
        """Return [(first offset, last offset), ...] of the batches, from their headers."""
        return [(self.batches[i].base_offset, kl_batch_last_offset(&self.batches[i])) for i in range(self.n)]

    def epoch_starts(self):
        """Return [(leader epoch, base offset), ...] of the batches where it changes; None is the epoch of magic 0 and
        1."""
        starts = []
        for i in range(self.n):
            epoch = None if self.batches[i].magic < 2 else self.batches[i].leader_epoch
            if not starts or starts[len(starts) - 1][0] != epoch:
                starts.append((epoch, self.batches[i].base_offset))
        return starts
