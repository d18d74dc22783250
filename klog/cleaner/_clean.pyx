# cython: auto_pickle=False
"""The two passes over the segments of a log: putting keys into the map, and rewriting batches. They read a chunk of
1 MiB at a time, and handle plain and lz4 batches (codec/_direct.pyx) without the GIL. Batches of other codecs,
transactional and control batches and old formats are handled one by one, with the GIL.

  P1  every checksum is checked, also of a batch that is copied or dropped. A damaged batch ends the cleaning with
      CorruptBatch: it is never copied or given a new checksum (Kafka's cleaner does both)
  P2  offsets rise from batch to batch, inside the segment's range; else the cleaning ends with CorruptBatch
  P3  one batch in gives at most one batch out, of the same base and last offset, codec, producer and flags. It is
      uncompressed only if readers would refuse what is left of it as a bomb

Kafka: Cleaner.buildOffsetMapForSegment, cleanInto; MemoryRecords.filterTo.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from klog._c.batch cimport (
    KL_ATTR_CODEC, KL_ATTR_CONTROL, KL_ATTR_DELETE_HORIZON, KL_ATTR_TRANSACTIONAL, KL_BATCH_HEADER, KL_CODEC_LZ4,
    KL_RECORD_MIN, kl_batch_crc, kl_batch_fields, kl_batch_last_offset, kl_batch_next, kl_batch_t,
)
from klog._c.clean cimport (
    KL_PREDICT_NOTHING, KL_PREDICT_WHOLE, kl_clean_choose, kl_clean_control_type, kl_clean_empty, kl_clean_predict,
    kl_clean_put_keys, kl_clean_rules_t, kl_clean_run_t, kl_clean_runs_max, kl_clean_seal, kl_clean_write, kl_cleaned_t,
    kl_prediction_t,
)
from klog._c.index cimport kl_indexer_add
from klog._c.lz4 cimport kl_lz4_pack, kl_lz4_packed_max, kl_lz4_plain_max, kl_lz4_unpack
from klog._c.osio cimport kl_io_t, kl_pread
from klog._c.status cimport (
    KL_ECOUNT, KL_ECRC, KL_EFULL, KL_ELEGACY, KL_ELENGTH, KL_EMAGIC, KL_EORDER, KL_ETRUNCATED, KL_OK,
)
from klog.cleaner._keymap cimport KeyMap
from klog.cleaner._waste cimport Waste
from klog.codec._direct cimport direct_lz4
from klog.codec._kept cimport decompressed_bytes_max
from klog.disk._io cimport LogFile
from klog.record._batch cimport Source
from klog.segment._index cimport IndexPair
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

import os

from klog.codec import compress
from klog.disk.faults import naming_the_next_step, read_error
from klog.errors import CorruptBatch

cdef extern from "stdlib.h" nogil:
    int posix_memalign(void **out, size_t alignment, size_t size)

cdef enum:
    CHUNK = 1 << 20     # between two ticks
    PLAIN = 64 << 20    # decompressed between two ticks: a hostile chunk, or one of zeros, may expand to any size
    PIECE = 1 << 18     # read at once: small enough that bytes just copied are still in the L2 cache
    PAGE = 4096
    UNPACKED_MAX = 4 << 20  # of a batch without the GIL: few are larger, and their memory must not be kept
    SLOW = -9001        # the batch needs the GIL
    NO_MEMORY = -9002
    NOT_READ = -9003


cdef class SegmentPass:
    """One pass over the batches of segments, one after the other. tick(bytes) is called after each chunk, and may
    raise."""

    def __cinit__(self):
        self.slow_bits = KL_ATTR_CODEC | KL_ATTR_CONTROL | KL_ATTR_TRANSACTIONAL
        self.lz4 = direct_lz4()

    def __dealloc__(self):
        free(self.memory)
        free(self.unpacked)

    cdef int take(self, const uint8_t *data, kl_batch_t *b, const uint8_t *records, int64_t size) noexcept nogil:
        return KL_OK

    cdef int take_slowly(self, Source source, kl_batch_t *b, const uint8_t *records, Py_ssize_t size) except? -1:
        return KL_OK

    cdef kl_prediction_t predict(self, const kl_batch_t *b) noexcept nogil:
        return KL_PREDICT_NOTHING

    cdef int use_prediction(self, const uint8_t *data, const kl_batch_t *b, kl_prediction_t predicted) noexcept nogil:
        return KL_OK

    cdef bint is_direct(self, const kl_batch_t *b) noexcept nogil:
        return (self.lz4 != NULL and b.attributes & self.slow_bits == KL_CODEC_LZ4 and b.count != 0
                and not b.attributes & KL_ATTR_CONTROL)

    cdef int64_t unpack(self, const uint8_t *payload, int64_t size) noexcept nogil:
        cdef int64_t capacity = kl_lz4_plain_max(payload, <size_t>size)
        if capacity < 0 or capacity > UNPACKED_MAX:
            return SLOW
        if capacity > self.unpacked_capacity:
            free(self.unpacked)
            self.unpacked = <uint8_t *>malloc(<size_t>capacity)
            self.unpacked_capacity = 0 if self.unpacked == NULL else capacity
            if self.unpacked == NULL:
                return NO_MEMORY
        size = kl_lz4_unpack(self.lz4, payload, <size_t>size, self.unpacked, self.unpacked_capacity)
        return size if size >= 0 else SLOW

    cdef int take_unpacked(self, const uint8_t *data, kl_batch_t *b) noexcept nogil:
        cdef int64_t size = self.unpack(data + KL_BATCH_HEADER, b.size - KL_BATCH_HEADER)
        cdef int status
        if size < 0:
            return <int>size
        if b.count > size // KL_RECORD_MIN:
            return SLOW
        self.plain_left -= size
        status = self.take(data, b, self.unpacked, size)
        return status if status in (KL_OK, KL_EFULL, NO_MEMORY) else SLOW

    cdef int run(self, const uint8_t *data, int64_t size, int64_t *at, kl_batch_t *b) noexcept nogil:
        """Take batches that do not need the GIL, from at[0] on. Returns KL_ETRUNCATED where the bytes end, with b.size
        0 or the size of the batch there; KL_OK when enough has been decompressed; or the first other status."""
        cdef bint direct
        cdef kl_prediction_t predicted
        cdef int status
        while at[0] < size:
            status = kl_batch_next(data + at[0], <size_t>(size - at[0]), <size_t>(size - at[0]), b)
            if status == KL_ELEGACY or status == KL_EMAGIC:
                return SLOW
            if status != KL_OK:
                return status
            b.position = at[0]
            predicted = self.predict(b)
            direct = self.is_direct(b)
            if predicted == KL_PREDICT_NOTHING and b.attributes & self.slow_bits and not direct:
                return SLOW
            if kl_batch_crc(data + at[0], b.size) != b.crc:
                return KL_ECRC
            if b.base_offset < self.next_offset or kl_batch_last_offset(b) >= self.limit:
                return KL_EORDER
            if predicted != KL_PREDICT_NOTHING:
                status = self.use_prediction(data + at[0], b, predicted)
            elif direct:
                status = self.take_unpacked(data + at[0], b)
            elif b.count > (b.size - KL_BATCH_HEADER) // KL_RECORD_MIN:
                return KL_ECOUNT
            else:
                status = self.take(data + at[0], b, data + at[0] + KL_BATCH_HEADER, b.size - KL_BATCH_HEADER)
            if status == KL_ETRUNCATED:
                return KL_ELENGTH   # of a record in a complete batch: more bytes of the file do not help
            if status != KL_OK:
                return status
            self.records_read += b.count
            self.next_offset = kl_batch_last_offset(b) + 1
            at[0] += b.size
            if self.plain_left <= 0:
                return KL_OK
        b.size = 0
        return KL_ETRUNCATED

    cdef bint slow(self, Source source, int64_t *at, kl_batch_t *b) except -1:
        """Take the batch at at[0] with the GIL. Returns 0 if the bytes end before it does, or if the map is full."""
        cdef int status
        if not source.batch_at(at[0], True, b):
            return False
        b.position = at[0]
        self.check_order(source, b)
        status = self.take_plain_of(source, b)
        if status == KL_EFULL:
            return False
        if status == NO_MEMORY:
            raise MemoryError
        if status != KL_OK:
            source.raise_record(status, b, self.bad)
        self.records_read += b.count
        self.next_offset = kl_batch_last_offset(b) + 1
        at[0] += b.size
        return True

    cdef int take_plain_of(self, Source source, kl_batch_t *b) except? -1:
        """Call take_slowly() with the plain records."""
        cdef const uint8_t *payload = source.data + b.position + KL_BATCH_HEADER
        cdef Py_buffer view
        cdef int64_t size = SLOW
        if self.lz4 != NULL and b.magic >= 2 and b.attributes & KL_ATTR_CODEC == KL_CODEC_LZ4 and b.count != 0:
            with nogil:
                size = self.unpack(payload, b.size - KL_BATCH_HEADER)
        if size >= 0:
            source.check_count(b, size)
            self.plain_left -= size
            return self.take_slowly(source, b, self.unpacked, size)
        plain = source.plain_records(b)
        if plain is None:
            return self.take_slowly(source, b, payload, b.size - KL_BATCH_HEADER)
        PyObject_GetBuffer(plain, &view, PyBUF_SIMPLE)
        self.plain_left -= view.len
        try:
            return self.take_slowly(source, b, <const uint8_t *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    cdef int check_order(self, Source source, const kl_batch_t *b) except -1:
        if b.base_offset < self.next_offset or kl_batch_last_offset(b) >= self.limit:
            raise CorruptBatch(
                f"a batch has offsets {b.base_offset} to {kl_batch_last_offset(b)}, expected within "
                f"[{self.next_offset}, {self.limit})", path=source.path, position=source.file_position + b.position,
                offset=b.base_offset, kind="offset_order",
            )
        return 0

    cdef bint full(self) noexcept:
        return False

    cdef int after_chunk(self) except -1:
        return 0

    # ---- reading a file --------------------------------------------------------------------------------------------

    cdef int64_t more(self, const kl_io_t *io, int fd, int64_t end, int64_t need) noexcept nogil:
        """Read the file's next piece after the rest of the window, at least so much that it is `need` bytes long.
        Returns the number of bytes read, 0 at the end, or a status."""
        cdef int64_t left = self.window_size - self.window_at, high = self.window_position + self.window_size
        cdef int64_t size = min(max(PIECE - high % PIECE, need - left), end - high)
        cdef int64_t lead = (left + PAGE - 1) & ~<int64_t>(PAGE - 1)
        cdef int64_t got, capacity = lead + PAGE + max(size, <int64_t>PIECE)
        cdef uint8_t *to
        cdef void *memory = self.memory
        if size <= 0:
            return 0
        if capacity > self.capacity:
            if posix_memalign(&memory, PAGE, <size_t>capacity) != 0:
                return NO_MEMORY
        to = <uint8_t *>memory + lead + high % PAGE   # same offset in the page as in the file: the kernel copies faster
        if left:
            memmove(to - left, self.window + self.window_at, <size_t>left)
        if memory != self.memory:
            free(self.memory)
            self.memory, self.capacity = <uint8_t *>memory, capacity
        self.window = to - left
        self.window_position += self.window_at
        self.window_size, self.window_at = left, 0
        self.windows += 1
        got = kl_pread(io, fd, to, <size_t>size, high)
        if got < 0:
            self.error = <int>-got
            return NOT_READ
        self.window_size += got
        return got

    cdef int chunk(self, const kl_io_t *io, int fd, int64_t stop, int64_t end, kl_batch_t *b) noexcept nogil:
        """Call run() until the window is beyond `stop`: KL_OK. Returns the first other status; KL_ETRUNCATED at the end
        of the file."""
        cdef int64_t got
        cdef int status
        while True:
            status = self.run(self.window, self.window_size, &self.window_at, b)
            if status != KL_ETRUNCATED:
                return status
            if self.window_position + self.window_at >= stop:
                return KL_OK
            got = self.more(io, fd, end, b.size)
            if got <= 0:
                return <int>got if got else KL_ETRUNCATED

    cdef int segment(self, LogFile file, int64_t position, int64_t end, int64_t base_offset, int64_t limit, tick) except -1:
        """Take all batches of file[position:end), of a segment with the offsets [base_offset, limit)."""
        cdef int64_t begun = position
        cdef kl_batch_t b
        cdef int status
        # A concurrent close() closes its own descriptor, not this one: its number could be another file's by the next
        # read.
        cdef int fd = -1
        with naming_the_next_step(file.path, reading=True):
            fd = os.dup(file.fileno())
        self.next_offset, self.limit = base_offset, limit
        self.window_position = position
        self.window_size = self.window_at = 0
        try:
            while begun < end and not self.full():
                file.fileno()
                status = self.one_chunk(file, fd, min(begun + CHUNK, end), end, &b)
                self.after_chunk()
                position = self.window_position + self.window_at
                self.bytes_read += position - begun
                if tick is not None:
                    tick(position - begun)
                if status == KL_ETRUNCATED:
                    raise CorruptBatch(
                        f"the last {end - position} bytes of the segment are not a complete batch", path=file.path,
                        position=position, offset=self.next_offset,
                    )
                begun = position
        finally:
            os.close(fd)
        return 0

    cdef int one_chunk(self, LogFile file, int fd, int64_t stop, int64_t end, kl_batch_t *b) except -1:
        """chunk(), including the batches that need the GIL. Returns KL_OK, KL_EFULL or KL_ETRUNCATED."""
        cdef Source source = None
        cdef int64_t seen = -1, got
        cdef int status
        self.plain_left = PLAIN
        while True:
            with nogil:
                status = self.chunk(file.io, fd, stop, end, b)
            if status in (KL_OK, KL_EFULL, KL_ETRUNCATED):
                return status
            if status == NO_MEMORY:
                raise MemoryError
            if status == NOT_READ:
                raise read_error(self.error, file.path, self.window_position + self.window_size)
            if seen != self.windows:
                source = Source(PyMemoryView_FromMemory(<char *>self.window, self.window_size, PyBUF_READ), file.path,
                                self.window_position, False)
                seen = self.windows
            if status == SLOW:
                if self.slow(source, &self.window_at, b):
                    if self.plain_left <= 0:
                        return KL_OK
                    continue
                if self.full():
                    return KL_EFULL
                with nogil:
                    got = self.more(file.io, fd, end, b.size)
                if got == 0:
                    return KL_ETRUNCATED
                if got == NO_MEMORY:
                    raise MemoryError
                if got < 0:
                    raise read_error(self.error, file.path, self.window_position + self.window_size)
                continue
            if status == KL_EORDER and self.bad < 0:
                self.check_order(source, b)
            if status == KL_ECRC or self.bad < 0:
                source.batch_at(self.window_at, True, b)       # raises the exact error
                source.check_count(b, b.size - KL_BATCH_HEADER)
            source.raise_record(status, b, self.bad)


@cython.final
cdef class KeySurvey(SegmentPass):
    """Pass 1: puts the keys at or above start into the map, until it is full. transactions: CleanedTransactions."""

    cdef KeyMap map
    cdef int64_t start
    cdef object transactions
    cdef bint is_full

    def __cinit__(self, KeyMap map not None, int64_t start, transactions):
        self.map = map
        self.start = start
        self.transactions = transactions
        map.track_stale(start)

    cdef bint full(self) noexcept:
        return self.is_full

    def note(self, LogFile file not None, int64_t position, int64_t end, int64_t base_offset, int64_t limit, tick=None):
        """Put the keys of file[position:end), of a segment with the offsets [base_offset, limit), into the map. Returns
        True if it is full; if not, it has all keys below limit."""
        self.bad = -1
        self.segment(file, position, end, base_offset, limit, tick)
        if not self.is_full:
            self.map.latest_offset = max(self.map.latest_offset, limit - 1)
        return self.is_full

    cdef int take(self, const uint8_t *data, kl_batch_t *b, const uint8_t *records, int64_t size) noexcept nogil:
        return self.put(b, records, size)

    cdef int put(self, kl_batch_t *b, const uint8_t *records, int64_t size) noexcept nogil:
        cdef int32_t bad = -1
        cdef int status
        if kl_batch_last_offset(b) < self.start:
            return KL_OK
        status = kl_clean_put_keys(&self.map.map, b, records, <size_t>size, self.start, &self.map.latest_offset, &bad)
        self.bad = bad
        if status == KL_OK:
            self.map.latest_offset = kl_batch_last_offset(b)
        self.is_full = status == KL_EFULL
        return status

    cdef int take_slowly(self, Source source, kl_batch_t *b, const uint8_t *records, Py_ssize_t size) except? -1:
        cdef int64_t last = kl_batch_last_offset(b)
        cdef int status
        if b.attributes & KL_ATTR_CONTROL:
            self.transactions.on_control(b.producer_id, last, kl_clean_control_type(b, records, size))
        elif not (b.attributes & KL_ATTR_TRANSACTIONAL and self.transactions.on_batch(b.producer_id, last)):
            with nogil:
                status = self.put(b, records, size)
            return status
        if last >= self.start:
            self.map.latest_offset = last
        return KL_OK


@cython.final
cdef class Rewriter(SegmentPass):
    """Pass 2: writes the retained records of segments to out, from its beginning, and adds their index entries.

    upper_bound: the end of the round; the batch that ends there is kept, without records if necessary. last_offsets: of
    Producers. waste: counts what is dropped. With purged, only the records of this key are dropped, whatever the map
    holds; every batch is kept, without records if necessary, whatever its transaction; transactions is not used.
    """

    cdef KeyMap map
    cdef kl_clean_rules_t rules
    cdef int64_t upper_bound
    cdef object transactions
    cdef dict last_epochs           # of producers without data: {producer id: epoch}
    cdef int64_t *kept_offsets      # last offsets of producers with data, sorted
    cdef int64_t *kept_producers
    cdef Py_ssize_t kept
    cdef object out
    cdef IndexPair index
    cdef readonly int64_t size      # bytes written or buffered
    cdef readonly int64_t batches
    cdef readonly int64_t next_offset_out
    cdef readonly int64_t records_kept
    cdef readonly int64_t markers_kept      # among them
    cdef readonly int64_t records_dropped   # of data
    cdef readonly int64_t keyless
    cdef uint8_t *data              # not written yet: data_size bytes, from byte size - data_size on
    cdef int64_t data_size
    cdef int64_t data_capacity
    cdef kl_batch_t *table          # the batches in data
    cdef int64_t table_size
    cdef int64_t table_capacity
    cdef kl_clean_run_t *runs
    cdef int64_t runs_capacity
    cdef uint8_t *plain             # records of a batch that will be compressed
    cdef int64_t plain_capacity
    cdef bytes purged
    cdef Waste waste

    def __cinit__(self, KeyMap map not None, int64_t now_ms, int64_t delete_retention_ms, int64_t upper_bound,
                  transactions, dict last_offsets not None, *, bytes purged=None, Waste waste=None):
        cdef Py_ssize_t i
        self.purged, self.waste = purged, waste
        if purged is not None:
            self.rules.purged.at, self.rules.purged.size = <const uint8_t *>purged, <size_t>len(purged)
            self.slow_bits = KL_ATTR_CODEC
        self.rules.waste = NULL if waste is None else &waste.waste
        self.map = map
        self.rules.map = &map.map
        self.rules.latest_offset = map.latest_offset
        self.rules.now = now_ms
        self.rules.new_horizon = now_ms + min(delete_retention_ms, INT64_MAX - max(now_ms, 0))
        self.upper_bound = upper_bound
        self.transactions = transactions
        self.last_epochs = {pid: epoch for pid, (offset, epoch) in last_offsets.items() if offset is None}
        kept = sorted((offset, pid) for pid, (offset, _) in last_offsets.items() if offset is not None)
        self.kept = len(kept)
        self.kept_offsets = <int64_t *>malloc((self.kept + 1) * sizeof(int64_t))
        self.kept_producers = <int64_t *>malloc((self.kept + 1) * sizeof(int64_t))
        if self.kept_offsets == NULL or self.kept_producers == NULL:
            raise MemoryError
        for i in range(self.kept):
            self.kept_offsets[i], self.kept_producers[i] = kept[i]

    def __dealloc__(self):
        free(self.kept_offsets)
        free(self.kept_producers)
        free(self.data)
        free(self.table)
        free(self.runs)
        free(self.plain)

    def begin(self, out, IndexPair index not None):
        """Write the following batches to another segment."""
        self.out, self.index = out, index
        self.size = self.batches = self.data_size = self.table_size = 0
        self.next_offset_out = index.base_offset

    def rewrite(self, LogFile file not None, int64_t end, int64_t base_offset, int64_t limit, bint keep_legacy_tombstones, tick=None):
        """Rewrite the batches of file[0:end), of a segment with the offsets [base_offset, limit). The result is in out
        when this returns."""
        self.rules.keep_legacy_tombstones = keep_legacy_tombstones
        self.bad = -1
        self.segment(file, 0, end, base_offset, limit, tick)
        self.flush()

    cdef int after_chunk(self) except -1:
        if self.data_size >= CHUNK:
            self.flush()
        return 0

    cdef int flush(self) except -1:
        cdef int64_t i
        if self.data_size == 0:
            return 0
        self.out.write(PyMemoryView_FromMemory(<char *>self.data, self.data_size, PyBUF_READ),
                       self.size - self.data_size)
        self.index.reserve(<int32_t>self.table_size)
        for i in range(self.table_size):
            kl_indexer_add(&self.index.x, &self.table[i], self.table[i].position)
        self.batches += self.table_size
        self.data_size = self.table_size = 0
        return 0

    # ---- memory ----------------------------------------------------------------------------------------------------

    cdef int reserve(self, int64_t bytes, int32_t count) noexcept nogil:
        """Reserve memory for one more batch of at most `bytes` bytes."""
        cdef void *memory
        cdef int64_t capacity
        if self.data_size + bytes > self.data_capacity:
            capacity = max(2 * CHUNK, 2 * (self.data_size + bytes))
            memory = realloc(self.data, <size_t>capacity)
            if memory == NULL:
                return NO_MEMORY
            self.data = <uint8_t *>memory
            self.data_capacity = capacity
        if self.table_size == self.table_capacity:
            capacity = max(1024, 2 * self.table_capacity)
            memory = realloc(self.table, <size_t>capacity * sizeof(kl_batch_t))
            if memory == NULL:
                return NO_MEMORY
            self.table = <kl_batch_t *>memory
            self.table_capacity = capacity
        return KL_OK

    cdef int runs_for(self, int32_t count) noexcept nogil:
        cdef void *memory
        cdef int64_t capacity = <int64_t>kl_clean_runs_max(count)
        if capacity > self.runs_capacity:
            memory = realloc(self.runs, <size_t>(2 * capacity) * sizeof(kl_clean_run_t))
            if memory == NULL:
                return NO_MEMORY
            self.runs = <kl_clean_run_t *>memory
            self.runs_capacity = 2 * capacity
        return KL_OK

    cdef void wrote(self, int64_t bytes, int32_t count) noexcept nogil:
        """Count a batch of magic 2, of `bytes` bytes, that was written to the end of data."""
        kl_batch_fields(self.data + self.data_size, &self.table[self.table_size])
        self.noted(bytes, count)

    cdef void noted(self, int64_t bytes, int32_t count) noexcept nogil:
        """The same if its fields are in the table already."""
        cdef kl_batch_t *b = &self.table[self.table_size]
        b.position = self.size
        self.table_size += 1
        self.data_size += bytes
        self.size += bytes
        self.records_kept += count
        if b.attributes & KL_ATTR_CONTROL:
            self.markers_kept += count
        self.next_offset_out = kl_batch_last_offset(b) + 1

    # ---- one batch -------------------------------------------------------------------------------------------------

    cdef bint ends_producer(self, const kl_batch_t *b) noexcept nogil:
        """Is this the batch with the last sequence of a producer that has data?"""
        cdef Py_ssize_t low = 0, high = self.kept, middle
        cdef int64_t last = kl_batch_last_offset(b)
        if b.producer_id < 0:
            return False
        while low < high:
            middle = (low + high) // 2
            if self.kept_offsets[middle] < last:
                low = middle + 1
            else:
                high = middle
        return low < self.kept and self.kept_offsets[low] == last and self.kept_producers[low] == b.producer_id

    cdef bint ends_round(self, const kl_batch_t *b) noexcept nogil:
        return kl_batch_last_offset(b) + 1 == self.upper_bound

    cdef bint stays(self, const kl_batch_t *b) noexcept nogil:
        """Is the batch kept even without records?"""
        return self.rules.purged.at != NULL or self.ends_producer(b) or self.ends_round(b)

    cdef bint purges_around(self, const kl_batch_t *b) noexcept nogil:
        """Is it a batch without a key's records, while one key is purged?"""
        return self.rules.purged.at != NULL and (b.count == 0 or b.attributes & KL_ATTR_CONTROL != 0)

    cdef int empty(self, const kl_batch_t *b) noexcept nogil:
        cdef int status = self.reserve(KL_BATCH_HEADER, 0)
        if status == KL_OK:
            kl_clean_empty(b, self.data + self.data_size)
            self.wrote(KL_BATCH_HEADER, 0)
        return status

    cdef int copy(self, const uint8_t *data, const kl_batch_t *b) noexcept nogil:
        cdef int status = self.reserve(b.size, b.count)
        if status == KL_OK:
            memcpy(self.data + self.data_size, data, b.size)
            self.table[self.table_size] = b[0]
            self.noted(b.size, b.count)
        return status

    cdef kl_prediction_t predict(self, const kl_batch_t *b) noexcept nogil:
        return kl_clean_predict(&self.rules, b)

    cdef int use_prediction(self, const uint8_t *data, const kl_batch_t *b, kl_prediction_t predicted) noexcept nogil:
        if predicted == KL_PREDICT_WHOLE:
            return self.copy(data, b)
        self.records_dropped += b.count
        return self.empty(b) if self.stays(b) else KL_OK

    cdef int choose(self, const kl_batch_t *b, const uint8_t *records, int64_t size, bint all_, bint marker_done,
                    kl_cleaned_t *cleaned) noexcept nogil:
        cdef int32_t bad = -1
        cdef int status = self.runs_for(b.count)
        if status == KL_OK:
            status = kl_clean_choose(&self.rules, b, records, <size_t>size, all_, marker_done, self.runs, cleaned, &bad)
            self.bad = bad
        if status == KL_OK:
            self.keyless += cleaned.keyless
            self.records_dropped += b.count - cleaned.count
            if cleaned.count and cleaned.bytes_max > INT32_MAX - KL_BATCH_HEADER:
                self.bad = 0
                return KL_ECOUNT
        return status

    cdef int take(self, const uint8_t *data, kl_batch_t *b, const uint8_t *records, int64_t size) noexcept nogil:
        cdef kl_cleaned_t cleaned
        cdef int status
        if self.purges_around(b):
            return self.copy(data, b)
        status = self.choose(b, records, size, False, False, &cleaned)
        if status != KL_OK:
            return status
        if cleaned.count == 0:
            return self.empty(b) if self.stays(b) else KL_OK
        if cleaned.whole:
            return self.copy(data, b)
        if b.attributes & KL_ATTR_CODEC:
            return self.write_packed(b, records, &cleaned, b.base_offset)
        return self.write_plain(b, records, &cleaned, b.base_offset)

    cdef int write_plain(self, const kl_batch_t *b, const uint8_t *records, const kl_cleaned_t *cleaned,
                         int64_t base_offset) noexcept nogil:
        cdef int64_t size
        cdef int status = self.reserve(KL_BATCH_HEADER + cleaned.bytes_max, cleaned.count)
        if status == KL_OK:
            size = kl_clean_write(b, records, self.runs, cleaned, base_offset,
                                  self.data + self.data_size + KL_BATCH_HEADER)
            kl_clean_seal(b, cleaned, base_offset, 0, size, self.data + self.data_size)
            self.wrote(size + KL_BATCH_HEADER, cleaned.count)
        return status

    cdef int plain_for(self, int64_t bytes) noexcept nogil:
        cdef void *memory
        if bytes > self.plain_capacity:
            memory = realloc(self.plain, <size_t>(2 * bytes))
            if memory == NULL:
                return NO_MEMORY
            self.plain = <uint8_t *>memory
            self.plain_capacity = 2 * bytes
        return KL_OK

    cdef int write_packed(self, const kl_batch_t *b, const uint8_t *records, const kl_cleaned_t *cleaned,
                          int64_t base_offset) noexcept nogil:
        cdef int64_t size, plain_size
        cdef int status = self.plain_for(cleaned.bytes_max)
        if status != KL_OK:
            return status
        plain_size = kl_clean_write(b, records, self.runs, cleaned, base_offset, self.plain)
        status = self.reserve(KL_BATCH_HEADER + kl_lz4_packed_max(plain_size), cleaned.count)
        if status == KL_OK:
            size = kl_lz4_pack(self.lz4, self.plain, plain_size, self.data + self.data_size + KL_BATCH_HEADER)
            if plain_size > decompressed_bytes_max(size):
                return self.write_plain(b, records, cleaned, base_offset)
            kl_clean_seal(b, cleaned, base_offset, KL_CODEC_LZ4, size, self.data + self.data_size)
            self.wrote(size + KL_BATCH_HEADER, cleaned.count)
        return status

    cdef int take_slowly(self, Source source, kl_batch_t *b, const uint8_t *records, Py_ssize_t size) except? -1:
        cdef bint control = (b.attributes & KL_ATTR_CONTROL) != 0
        cdef bint discard = False, stays = self.stays(b), marker_done = False
        cdef kl_cleaned_t cleaned
        cdef int64_t last = kl_batch_last_offset(b), base_offset
        cdef int status, codec = b.attributes & KL_ATTR_CODEC
        if self.purges_around(b):
            return self.copy(source.data + b.position, b)
        if self.purged is not None:
            pass
        elif control:
            marker_done = self.transactions.on_control(b.producer_id, last, kl_clean_control_type(b, records, size))
            discard = (marker_done and (b.attributes & KL_ATTR_DELETE_HORIZON) != 0
                       and b.base_timestamp <= self.rules.now)
            if not stays and b.producer_id >= 0:
                stays = self.last_epochs.get(b.producer_id) == b.producer_epoch
        elif b.attributes & KL_ATTR_TRANSACTIONAL:
            discard = self.transactions.on_batch(b.producer_id, last)
        if discard:
            self.records_dropped += 0 if control else b.count
            return self.empty(b) if stays else KL_OK
        with nogil:
            status = self.choose(b, records, size, control, marker_done, &cleaned)
        if status != KL_OK:
            return status
        if cleaned.count == 0:
            return self.empty(b) if stays else KL_OK
        if cleaned.whole:
            return self.copy(source.data + b.position, b)
        base_offset = b.base_offset if b.magic >= 2 else cleaned.first_offset
        if codec == 0:
            return self.write_plain(b, records, &cleaned, base_offset)
        return self.write_compressed(b, records, &cleaned, base_offset, codec)

    cdef int write_compressed(self, const kl_batch_t *b, const uint8_t *records, const kl_cleaned_t *cleaned,
                              int64_t base_offset, int codec) except? -1:
        cdef Py_buffer view
        cdef int64_t size
        cdef int status
        if codec == KL_CODEC_LZ4 and self.lz4 != NULL:
            with nogil:
                status = self.write_packed(b, records, cleaned, base_offset)
            return status
        status = self.plain_for(cleaned.bytes_max)
        if status != KL_OK:
            return status
        with nogil:
            size = kl_clean_write(b, records, self.runs, cleaned, base_offset, self.plain)
        payload = compress(codec, PyMemoryView_FromMemory(<char *>self.plain, size, PyBUF_READ))
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            if size > decompressed_bytes_max(view.len):
                return self.write_plain(b, records, cleaned, base_offset)
            status = self.reserve(KL_BATCH_HEADER + view.len, cleaned.count)
            if status == KL_OK:
                memcpy(self.data + self.data_size + KL_BATCH_HEADER, view.buf, view.len)
                kl_clean_seal(b, cleaned, base_offset, codec, view.len, self.data + self.data_size)
                self.wrote(view.len + KL_BATCH_HEADER, cleaned.count)
        finally:
            PyBuffer_Release(&view)
        return status
