"""Scans the batches of a .log file: headers only, or all bytes with their checksums.

A header scan reads 61 bytes per batch and skips the payload; batches of less than 8 KiB share a read. A checked scan
reads the file in chunks of 1 MiB, or of one batch if that is larger, never more than the file holds. Neither trusts a
length before checking it against the file's size.

Messages of magic 0 and 1 count as batches too, by their outer fields; the readers of records look inside a wrapper.
Their magic is covered by their checksum, that of magic 2 is not: a scan accepts an old message only if it is not a
batch of magic 2 with one flipped bit.
"""

cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from klog._c.batch cimport (
    KL_AT_CRC,
    KL_AT_MAGIC,
    KL_ATTR_CONTROL,
    KL_ATTR_TRANSACTIONAL,
    KL_BATCH_HEADER,
    KL_BATCH_MIN,
    kl_batch_crc,
    kl_batch_last_offset,
    kl_batch_next,
    kl_batch_size,
    kl_batch_t,
)
from klog._c.bytes cimport kl_load_u32, kl_load_u64, kl_store_u64
from klog._c.index cimport KL_OFFSET_ENTRY, kl_indexer_add, kl_offset_index_floor
from klog._c.legacy cimport KL_MESSAGE_CRC_FROM, kl_legacy_header, kl_outer_header
from klog._c.status cimport KL_ELEGACY, KL_EMAGIC, KL_ETRUNCATED, KL_OK
from klog.disk._io cimport AlignedBuffer, LogFile
from klog.record._table cimport BatchTable
from klog.segment._index cimport IndexPair

from klog.logger import logger_of
import zlib

from klog.errors import CorruptBatch

_log = logger_of("segment")

cdef enum:
    CHUNK = 1 << 20
    PAGE = 4096


@cython.final
cdef class Header:
    """One batch header, as numbers. position: of its first byte in the file."""

    @property
    def position(self):
        return self.b.position

    @property
    def size(self):
        return self.b.size

    @property
    def base_offset(self):
        return self.b.base_offset

    @property
    def last_offset(self):
        return kl_batch_last_offset(&self.b)

    @property
    def next_offset(self):
        return kl_batch_last_offset(&self.b) + 1

    @property
    def count(self):
        return self.b.count

    @property
    def leader_epoch(self):
        return self.b.leader_epoch

    @property
    def attributes(self):
        return self.b.attributes

    @property
    def max_timestamp(self):
        return self.b.max_timestamp

    @property
    def base_timestamp(self):
        return self.b.base_timestamp

    @property
    def producer_id(self):
        return self.b.producer_id

    @property
    def producer_epoch(self):
        return self.b.producer_epoch

    @property
    def base_sequence(self):
        return self.b.base_sequence

    @property
    def last_offset_delta(self):
        return self.b.last_offset_delta

    @property
    def crc(self):
        return self.b.crc

    @property
    def magic(self):
        return self.b.magic

    @property
    def is_control(self):
        return (self.b.attributes & KL_ATTR_CONTROL) != 0

    @property
    def is_transactional(self):
        return (self.b.attributes & KL_ATTR_TRANSACTIONAL) != 0


cdef Header header_of(const kl_batch_t *b):
    cdef Header header = Header.__new__(Header)
    header.b = b[0]
    return header


cdef bint sound_message(message, const kl_batch_t *b) except -1:
    """Does the checksum of this message of magic 0 or 1 match?"""
    return zlib.crc32(message[KL_MESSAGE_CRC_FROM:b.size]) == b.crc


cdef int message_header(const uint8_t *at, object message, kl_batch_t *b) except -1:
    """Parse the whole message for which kl_batch_next() has returned KL_ELEGACY. Returns KL_OK, even for a damaged one;
    KL_ELENGTH; KL_EMAGIC for a batch of magic 2 with a flipped bit.

    message: the same bytes as a memoryview.
    """
    cdef int status = kl_legacy_header(at, <size_t>b.size, b)
    if status != KL_OK or sound_message(message, b):
        return status
    if b.size >= KL_BATCH_HEADER and kl_batch_crc(at, b.size) == kl_load_u32(at + KL_AT_CRC):
        return KL_EMAGIC
    return KL_OK


cdef str reason_of(int status):
    """Why a scan ends at bytes that are not a batch."""
    if status == KL_ETRUNCATED:
        return "truncated"
    return "magic" if status == KL_EMAGIC else "length"


@cython.final
cdef class HeaderIterator:
    """Iterator of Header over [position, end) of a file.

    It ends where no whole batch begins. `position` is then that byte, and `reason` the cause: "" (the end),
    "truncated" (a batch goes past the end, or too few bytes for one), "length" or "magic".
    """

    def __cinit__(self, LogFile file, int64_t position, int64_t end):
        self.file = file
        self.position = position
        self.end = end
        self.reason = ""

    cdef bint next_header(self, kl_batch_t *b) except -1:
        cdef int64_t left = self.end - self.position
        cdef int64_t skip
        cdef int status
        cdef AlignedBuffer message
        if self.reason or left <= 0:
            return False
        skip = self.position - self.window_at
        if skip < 0 or skip + KL_BATCH_HEADER > self.window_size:
            self.window_size = 0
            self.window_size = self.file.read_at(
                self.window, <size_t>min(left, WINDOW if skip < WINDOW else KL_BATCH_HEADER), self.position)
            self.window_at = self.position
            skip = 0
        status = kl_batch_next(self.window + skip, <size_t>(self.window_size - skip), <size_t>left, b)
        if status == KL_ELEGACY:
            message = self.file.read(self.position, b.size)
            if message.size < b.size:
                status = KL_ETRUNCATED
            else:
                status = message_header(message.data, memoryview(message), b)
        if status != KL_OK:
            self.reason = reason_of(status)
            return False
        b.position = self.position
        self.position += b.size
        return True

    def __iter__(self):
        return self

    def __next__(self):
        cdef kl_batch_t b
        if not self.next_header(&b):
            raise StopIteration
        return header_of(&b)


def find_offset(LogFile file, int64_t position, int64_t end, int64_t offset):
    """Header of the first batch from position on whose last offset is at or above offset; None if there is none."""
    cdef HeaderIterator headers = HeaderIterator(file, position, end)
    cdef kl_batch_t b
    while headers.next_header(&b):
        if kl_batch_last_offset(&b) >= offset:
            return header_of(&b)
    return None


def locate_offset(LogFile file, int64_t position, int64_t end, int64_t offset, int64_t base_offset,
                  int64_t next_offset):
    """The same within a segment of offsets [base_offset, next_offset), where damage must not look like a gap.

    None: the segment has nothing at or above offset. Raises CorruptBatch if the scan ends early, or has found a batch
    with decreasing offsets, and the offset may be after that.
    """
    cdef HeaderIterator headers = HeaderIterator(file, position, end)
    cdef kl_batch_t b
    cdef int64_t before = base_offset, wrong = -1
    while headers.next_header(&b):
        if b.base_offset < before and wrong < 0:
            wrong = b.position
        before = kl_batch_last_offset(&b) + 1
        if before > offset:
            if b.base_offset <= offset or wrong < 0:
                return header_of(&b)
            break
    if wrong >= 0:
        raise CorruptBatch("a batch with decreasing offsets: run `klog verify` on the directory", path=file.path,
                           position=wrong, offset=offset, kind="offset_order")
    if headers.reason and before < next_offset:
        raise CorruptBatch("no valid batch begins here: run `klog verify` on the directory", path=file.path,
                           position=headers.position, offset=before)
    return None


cdef bint header_at(LogFile file, int64_t position, int64_t end, kl_batch_t *b) except -1:
    """Does a batch of magic 2 begin at this byte, and end at or before byte `end`? One short read."""
    cdef uint8_t head[KL_BATCH_HEADER]
    if end - position < KL_BATCH_HEADER or file.read_at(head, KL_BATCH_HEADER, position) < KL_BATCH_HEADER:
        return False
    if kl_batch_next(head, KL_BATCH_HEADER, <size_t>(end - position), b) != KL_OK:
        return False
    b.position = position   # only now: the rest of b is not set if it is no batch
    return True


def locate(LogFile file, IndexPair index, int64_t end, int64_t offset, int64_t base_offset, int64_t next_offset):
    """Return the result of locate_offset(), using the index and a few short reads."""
    cdef kl_batch_t b
    if locate_shortly(file, index, end, offset, base_offset, &b):
        return header_of(&b)
    return locate_offset(file, start_of(file, index, end, offset), end, offset, base_offset, next_offset)


cdef bint locate_shortly(LogFile file, IndexPair index, int64_t end, int64_t offset, int64_t base_offset,
                         kl_batch_t *b) except -1:
    """Find the batch of locate_offset() by the index and a few short reads. False: something is unexpected; the caller
    needs start_of() and locate_offset().

    The batch is after the entry below offset, and at the latest at the entry above it: an entry is written with the first
    batch after more than the interval. So batches of one size, at a distance of more than twice the interval, all have
    entries, and the batch is at the entry above; at more than one and a half times of it there is at most one batch
    between, and the batch is at the nearer entry. There its header is read, else all bytes between that the window can
    take: copying 4 KiB takes as long as another call.
    """
    cdef const uint8_t *entries = index.offsets.data  # x.offset_entries is out of date while a roll trims the file
    cdef int32_t below = -1, count = index.x.offset_count, interval = index.x.interval
    cdef int64_t relative = offset - index.x.base_offset, entry = -1, position = 0, last, above = end
    if count and 0 < relative <= INT32_MAX:
        below = kl_offset_index_floor(entries, count, <int32_t>relative - 1)
        if below >= 0:
            entry = index.x.base_offset + kl_load_u32(entries + <int64_t>below * KL_OFFSET_ENTRY)
            position = kl_load_u32(entries + <int64_t>below * KL_OFFSET_ENTRY + 4)
        if below + 1 < count:
            last = index.x.base_offset + kl_load_u32(entries + <int64_t>(below + 1) * KL_OFFSET_ENTRY)
            above = kl_load_u32(entries + <int64_t>(below + 1) * KL_OFFSET_ENTRY + 4)
            if (above - position > <int64_t>2 * interval and below >= 0
                    or above - position > <int64_t>interval + interval // 2
                    and last - offset < offset - max(entry, base_offset)) and \
                    header_at(file, above, end, b) and kl_batch_last_offset(b) == last and b.base_offset <= offset:
                return True
    return in_window(file, position, entry, min(end, above + KL_BATCH_HEADER), end, offset, base_offset,
                     WINDOW if above - position <= WINDOW - KL_BATCH_HEADER else KL_BATCH_HEADER, b)


cdef bint in_window(LogFile file, int64_t position, int64_t entry, int64_t upto, int64_t end, int64_t offset,
                    int64_t base_offset, int64_t step, kl_batch_t *b) except -1:
    """Is the batch that locate_offset() looks for soon after `position`, with nothing invalid before it?"""
    cdef uint8_t window[WINDOW]
    cdef int64_t at = position, before = base_offset, window_at = position, size = 0
    while at < upto:
        if at + KL_BATCH_HEADER > window_at + size:
            window_at = at
            size = file.read_at(window, <size_t>min(upto - at, step), at)
        if kl_batch_next(window + (at - window_at), <size_t>(window_at + size - at), <size_t>(end - at), b) != KL_OK \
                or b.base_offset < before or (at == position and entry >= 0 and b.base_offset > entry):
            return False
        before = kl_batch_last_offset(b) + 1
        if before > offset:
            b.position = at
            return True
        at += b.size
    return False


def start_of(LogFile file, IndexPair index, int64_t end, int64_t offset):
    """Return a byte where a batch begins, at or before the first batch whose last offset is at or above offset.

    Not at the entry of offset itself: a scan from there would not notice that the base offset of its batch is damaged.
    """
    cdef kl_batch_t b
    cdef int64_t entry, position
    cdef Header header
    entry, position = index.floor(offset - 1)
    if position == 0:
        return 0
    b.position = -1
    if not header_at(file, position, end, &b):
        header = <Header>find_offset(file, position, end, index.x.base_offset)  # it may be an old message
        if header is not None:
            b = header.b
    # Kafka before 3.9.1 stored the last offset of a whole append there, which may be batches after its first.
    if b.position == position and b.base_offset <= entry:
        return position
    _log.warning("event=index_entry_misses path=%s offset=%d position=%d", file.path, entry, position)
    return 0


def youngest(LogFile file, int64_t position, int64_t end, bint emptied=True):
    """Return (largest timestamp, last offset of the first batch with it) from position on; (-1, -1) for no batch.

    emptied: also of batches without records, which the cleaner has left with their timestamps.
    """
    cdef HeaderIterator headers = HeaderIterator(file, position, end)
    cdef kl_batch_t b
    cdef int64_t timestamp = -1, offset = -1
    while headers.next_header(&b):
        if b.max_timestamp > timestamp and (emptied or b.count != 0):
            timestamp = b.max_timestamp
            offset = kl_batch_last_offset(&b)
    return timestamp, offset


def find_timestamp(LogFile file, int64_t position, int64_t end, int64_t timestamp, int64_t offset):
    """Return the header of the first batch from position on that may hold a record at or above both, or None."""
    cdef HeaderIterator headers = HeaderIterator(file, position, end)
    cdef kl_batch_t b
    while headers.next_header(&b):
        if b.max_timestamp >= timestamp and kl_batch_last_offset(&b) >= offset:
            return header_of(&b)
    return None


def frame(AlignedBuffer chunk, str path, int64_t position, int64_t limit, int64_t base_offset):
    """Cut a chunk read at `position` to its whole batches. Returns (their bytes, the offset after the last, bytes
    needed).

    The last number is 0, or the size of the first batch if the chunk is too short for it. Raises CorruptBatch if the
    very first batch is invalid; a later invalid batch ends the chunk before it.

    If a batch's base offset is above that of the next batch, it is invalid: the field is outside the checksum, so a
    flipped bit passes. If the neighbours allow only one value, the chunk in memory gets that base offset; the file is
    not changed. limit: the offsets of this segment are below it, which reveals an invalid base offset at the start or
    the end of the chunk. base_offset: where the first batch of the segment should begin, for a chunk that begins there.
    If the neighbours allow more than one value, the batch is not returned: the chunk ends before it, and a chunk that
    begins with it raises CorruptBatch.
    """
    cdef kl_batch_t b
    cdef int64_t at = 0, next_offset = -1, left, before = 0, unmoved = -1
    cdef int32_t span = 0
    cdef int status
    cdef bint overlaps = False
    while at < chunk.size:
        left = chunk.size - at
        # Of a message of magic 0 or 1 the reader of its record verifies the checksum. A first batch that is cut short
        # returns its offset and size: hence no kl_batch_next().
        status = kl_outer_header(chunk.data + at, <size_t>left, &b)
        if status == KL_ETRUNCATED:
            if at == 0:
                raise CorruptBatch("the file ends inside a batch header", path=path, position=position)
            break
        if status != KL_OK and at > 0:
            break
        if status != KL_OK:
            raise CorruptBatch("no valid batch begins here: run `klog verify` on the directory", path=path,
                               position=position)
        if b.size > left:
            if at == 0:
                return 0, b.base_offset, b.size
            break
        if b.base_offset < next_offset:
            if b.base_offset != unmoved and not (before == 0 and next_offset > limit
                                                 and b.base_offset - span >= base_offset):
                overlaps = True
                break
            _mend(chunk, path, position, before, b.base_offset - span)
            next_offset = b.base_offset
        span = b.last_offset_delta + 1
        if next_offset >= 0:
            unmoved = next_offset + span
        else:
            unmoved = (base_offset if position == 0 else b.base_offset) + span
        before = at
        at += b.size
        next_offset = kl_batch_last_offset(&b) + 1
    # If only the segment's end contradicts a batch in its place, the next segment's name is wrong.
    if next_offset > limit and (overlaps or not (before and next_offset == unmoved)):
        if unmoved == limit and (before or position == 0):
            _mend(chunk, path, position, before, limit - span)
            next_offset = limit
        elif before:
            at, next_offset = before, unmoved - span
        else:
            raise CorruptBatch("a batch is beyond the end of its segment: run `klog verify` on the directory",
                               path=path, position=position, offset=next_offset - 1, kind="offset_order")
    chunk.size = at
    return at, next_offset, 0


cdef int _mend(AlignedBuffer chunk, str path, int64_t position, int64_t at, int64_t base_offset) except -1:
    """Correct the base offset of the batch at byte `at` of a chunk."""
    _log.warning("event=base_offset_mended path=%s position=%d found=%d mended=%d", path, position + at,
                 <int64_t>kl_load_u64(chunk.data + at), base_offset)
    kl_store_u64(chunk.data + at, <uint64_t>base_offset)


def producing(BatchTable batches):
    """Return the headers of the batches that have a producer id. Positions count from the first byte of the group."""
    cdef Py_ssize_t i
    return [header_of(&batches.batches[i]) for i in range(batches.n) if batches.batches[i].producer_id >= 0]


def count_records(LogFile file, int64_t position, int64_t end, int64_t start, int64_t stop, int64_t limit=INT64_MAX):
    """Return (records, straddlers, end position, reason). records: data records with start <= offset < stop, counted
    from headers. straddlers: the headers of batches that cross a bound, or whose count is not in the header; the caller
    must read their records. The scan ends at the end position for that reason.

    The base offset of a batch that ends at or beyond stop is checked: if the next batch begins below that end, or the
    segment ends at offset `limit`, the base offset is wrong, and the batch counts with the corrected one.
    """
    cdef HeaderIterator headers = HeaderIterator(file, position, end)
    cdef kl_batch_t b, beyond
    cdef int64_t records = 0, last
    cdef bint doubted = False, crosses = False
    straddlers = []
    while headers.next_header(&b):
        last = kl_batch_last_offset(&b)
        if doubted:
            if b.base_offset >= beyond.base_offset:
                break
            doubted = crosses = False
            if b.base_offset - beyond.last_offset_delta - 1 >= start and b.base_offset <= stop:
                records += beyond.count
        if last < start or (b.attributes & KL_ATTR_CONTROL):
            continue
        if b.count < 0:  # an old wrapper, whose header does not contain its base offset either
            straddlers.append(header_of(&b))
            if last >= stop:
                break
            continue
        if last >= stop:
            beyond = b
            doubted, crosses = True, b.base_offset < stop
        elif b.base_offset < start:
            straddlers.append(header_of(&b))
        else:
            records += b.count
    if crosses:
        straddlers.append(header_of(&beyond))
    elif doubted and beyond.base_offset >= limit and limit - beyond.last_offset_delta - 1 >= start and limit <= stop:
        records += beyond.count
    return records, straddlers, headers.position, headers.reason


@cython.final
cdef class Scan:
    """Result of a scan of a segment. The scan ends at `end`, after the last valid batch.

    reason: "" (all bytes are batches), "truncated" (the last batch is cut short), "length", "crc", "magic", or
    "offset_order" (a batch with decreasing offsets, or below the segment). notable: headers of batches that change the
    leader epoch, carry a producer id or are control batches, in order.

    invalid: positions of batches whose base offset is above that of later batches. That field is outside the checksum,
    so one flipped bit is enough; the next batch, which continues where the invalid one should have ended, reveals it.
    Nothing is truncated because of it.
    """

    cdef readonly int64_t end
    cdef readonly int64_t next_offset
    cdef readonly int64_t batches
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t max_timestamp_offset
    cdef readonly int64_t first_timestamp
    cdef readonly str reason
    cdef readonly list notable
    cdef readonly list invalid
    cdef int32_t last_epoch
    cdef readonly int64_t unmoved      # the next offset if the last batch's base offset is wrong
    cdef readonly int64_t last_at      # position of the last batch

    def __cinit__(self):
        self.max_timestamp = -1
        self.first_timestamp = INT64_MIN
        self.last_epoch = -2
        self.reason = ""
        self.notable = []
        self.invalid = []

    cdef void begin(self, int64_t position, int64_t next_offset, int64_t base_offset) noexcept:
        self.end = position
        self.next_offset = next_offset
        self.unmoved = base_offset

    cdef bint in_order(self, const kl_batch_t *b) except -1:
        """Does b continue where the batches before it ended, or show that the last one has an invalid base offset?"""
        cdef Header wrong
        if b.base_offset >= self.next_offset:
            self.unmoved = self.next_offset if self.batches else self.unmoved
        elif self.batches and b.base_offset == self.unmoved:
            self.invalid.append(self.last_at)
            wrong = <Header>self.notable[len(self.notable) - 1] if self.notable else None
            if wrong is not None and wrong.b.position == self.last_at:
                wrong.b.base_offset = b.base_offset - wrong.b.last_offset_delta - 1
        else:
            return False
        self.unmoved += b.last_offset_delta + 1
        self.last_at = b.position
        return True

    cdef int note(self, const kl_batch_t *b) except -1:
        cdef int64_t last = kl_batch_last_offset(b)
        if self.batches == 0 and self.first_timestamp == INT64_MIN:
            self.first_timestamp = b.max_timestamp
        if b.max_timestamp > self.max_timestamp:
            self.max_timestamp = b.max_timestamp
            self.max_timestamp_offset = last
        if b.leader_epoch != self.last_epoch or b.producer_id >= 0 or (b.attributes & KL_ATTR_CONTROL):
            self.notable.append(header_of(b))
            self.last_epoch = b.leader_epoch
        self.batches += 1
        self.next_offset = last + 1
        self.end = b.position + b.size
        return 0


def scan_headers(LogFile file, int64_t position, int64_t end, int64_t next_offset, int64_t base_offset=-1,
                 IndexPair index=None):
    """Scan [position, end) by headers. Offsets must not fall below next_offset and must rise.

    base_offset: where the first batch should begin, next_offset if not given. If given, index gets each batch as in an
    append.
    """
    cdef HeaderIterator headers = HeaderIterator(file, position, end)
    cdef Scan scan = Scan()
    cdef kl_batch_t b
    scan.begin(position, next_offset, next_offset if base_offset < 0 else base_offset)
    while headers.next_header(&b):
        if not scan.in_order(&b):
            scan.reason = "offset_order"
            return scan
        if index is not None:
            index.reserve(1)
            kl_indexer_add(&index.x, &b, b.position)
        scan.note(&b)
    scan.reason = headers.reason
    return scan


def plain_up_to(LogFile file, int64_t position, int64_t end, int64_t at_most=INT64_MAX):
    """Position of the first transactional batch or marker in [position, end), or of what is not a whole batch; else end.
    It stops after at_most headers."""
    cdef HeaderIterator headers = HeaderIterator(file, position, end)
    cdef kl_batch_t b
    while at_most > 0 and headers.next_header(&b):
        if b.attributes & KL_ATTR_TRANSACTIONAL:
            return b.position
        at_most -= 1
    return headers.position


def scan_checked(LogFile file, int64_t position, int64_t end, int64_t next_offset, IndexPair index=None,
                 progress=None):
    """Scan [position, end) with every checksum. If given, index gets each valid batch as in an append."""
    cdef Scan scan = Scan()
    cdef AlignedBuffer chunk
    cdef kl_batch_t b
    cdef int64_t at, left, asked, want = CHUNK
    cdef Py_ssize_t invalid
    cdef int status = KL_OK
    scan.begin(position, next_offset, next_offset)
    while scan.end < end:
        asked = min(want, end - scan.end)
        chunk = file.read(scan.end, asked)
        if chunk.size == 0:
            scan.reason = "truncated"
            return scan
        want = CHUNK
        at = 0
        position = scan.end
        while at < chunk.size:
            left = chunk.size - at
            status = kl_batch_next(chunk.data + at, <size_t>left, <size_t>left, &b)
            if status == KL_ETRUNCATED:
                want = max(CHUNK, b.size)
                break
            if status == KL_ELEGACY:
                status = message_header(chunk.data + at, memoryview(chunk)[at:at + b.size], &b)
            if status != KL_OK:
                scan.reason = reason_of(status)
                return scan
            if b.magic < 2:
                status = not sound_message(memoryview(chunk)[at:at + b.size], &b)
            elif b.size <= CHUNK // 4:
                status = kl_batch_crc(chunk.data + at, b.size) != b.crc
            else:
                with nogil:
                    status = kl_batch_crc(chunk.data + at, b.size) != b.crc
            if status:
                scan.reason = "crc"
                return scan
            b.position = scan.end
            invalid = len(scan.invalid)
            if not scan.in_order(&b):
                scan.reason = "offset_order"
                return scan
            if index is not None:
                if len(scan.invalid) > invalid:
                    index.truncate_to(b.base_offset)  # an invalid entry: Kafka takes its log end from the last one
                index.reserve(1)
                kl_indexer_add(&index.x, &b, b.position)
            scan.note(&b)
            at += b.size
        if at == 0 and (b.size == 0 or b.size > end - scan.end or chunk.size < asked):
            scan.reason = "truncated"  # all of it was read: the file has become shorter than end
            return scan
        if progress is not None:
            progress(scan.end - position)
    return scan


cdef bint sound_body(AlignedBuffer body, const kl_batch_t *b) except -1:
    return sound_message(memoryview(body), b) if b.magic < 2 else kl_batch_crc(body.data, b.size) == b.crc


def has_sound_batch(LogFile file, int64_t position, int64_t end):
    """Is there a batch of magic 2 at this position that ends at or before `end` and has a valid checksum? Its magic,
    which the checksum does not cover, is not checked."""
    cdef AlignedBuffer body = file.read(position, KL_BATCH_HEADER)
    cdef int32_t size
    cdef uint32_t crc
    if body.size < KL_BATCH_HEADER:
        return False
    size = kl_batch_size(body.data)
    if size < KL_BATCH_HEADER or size > end - position:
        return False
    body = file.read(position, size)
    if body.size < size:
        return False
    with nogil:
        crc = kl_batch_crc(body.data, size)
    return crc == kl_load_u32(body.data + KL_AT_CRC)


def search_batch(LogFile file, int64_t position, int64_t end, int64_t base_offset, int64_t next_offset):
    """Return the header of the first whole batch with a valid checksum and a rising offset that begins after position;
    or None.

    It distinguishes a torn tail from damage with valid batches after it. Reads every byte, with the memory of one batch.
    The work is limited for a file made to look like headers everywhere: past a budget the next likely header counts.
    """
    cdef AlignedBuffer chunk, body
    cdef kl_batch_t b
    cdef int64_t at, tries, here = position + 1
    cdef int status
    cdef bint at_end
    cdef int64_t budget = 8 * (end - position) + (64 << 20)
    while here + KL_BATCH_MIN <= end:
        chunk = file.read(here, min(CHUNK, end - here))
        at_end = here + chunk.size >= end
        tries = chunk.size - (KL_BATCH_MIN if at_end else KL_BATCH_HEADER) + 1
        if tries <= 0:
            return None
        for at in range(tries):
            if chunk.data[at + KL_AT_MAGIC] > 2 or chunk.data[at] & 0x80:
                continue
            status = kl_batch_next(chunk.data + at, <size_t>(chunk.size - at), <size_t>(end - here - at), &b)
            if status == KL_ELEGACY:
                status = kl_legacy_header(chunk.data + at, <size_t>(chunk.size - at), &b)
            if status != KL_OK or b.base_offset < next_offset:
                continue
            if kl_batch_last_offset(&b) - base_offset > INT32_MAX:
                continue
            budget -= b.size
            body = file.read(here + at, b.size if budget > 0 else 0)
            if budget <= 0 or (body.size == b.size and sound_body(body, &b)):
                b.position = here + at
                return header_of(&b)
        if at_end:
            return None
        here += tries
    return None


def nul_page_within(LogFile file, int64_t position, int64_t end):
    """Return the position of the first 4 KiB page of NULs in [position, end); -1 if there is none.

    Such a page means that write-back did not happen: the file grew, but a page of it did not reach the disk. Of the
    page that contains position only the rest counts, if it is at least as long as a batch header: every small base
    offset begins with fewer zeros. A page that contains end has reached the disk.
    """
    cdef AlignedBuffer chunk
    cdef int64_t here = position, stop, page_end, i
    while here < end:
        chunk = file.read(here, min(CHUNK - here % PAGE, end - here))
        if chunk.size == 0:
            return -1
        i = 0
        while i < chunk.size:
            page_end = (here + i) // PAGE * PAGE + PAGE - here
            if page_end > chunk.size:
                break
            stop = i
            while stop < page_end and chunk.data[stop] == 0:
                stop += 1
            if stop == page_end and page_end - i >= KL_BATCH_HEADER:
                return here + i
            i = page_end
        here += chunk.size
    return -1
