"""Batch headers of a segment as Arrow columns, from a scan that skips the payloads.

  H1  rows are the batches that a reader of records finds: the same base offsets are mended, and the same damage raises
      CorruptBatch. Only checksums are not verified: they cover the payload, which is not read.
  H2  count is exact. A batch that crosses a bound of the range, and a wrapper of magic 0 or 1, whose header has neither
      its count nor its base offset, is read and opened; no other is.
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport INT64_MAX, int32_t, int64_t

from klog._c.arrow cimport ArrowArray, ArrowSchema
from klog._c.batch cimport KL_ATTR_CODEC, KL_BATCH_HEADER, KL_RECORD_MIN, kl_batch_last_offset, kl_batch_t
from klog._c.headers cimport (
    KL_HEADER_KINDS,
    KL_HEADERS_MAX,
    kl_header_name,
    kl_header_t,
    kl_headers_export,
    kl_headers_schema,
)
from klog._c.status cimport KL_OK
from klog.disk._io cimport LogFile
from klog.record._columns cimport ArrowColumns, Layout, names_of
from klog.segment._scan cimport HeaderIterator, header_of

from klog.logger import logger_of

from klog.codec import CODECS as _CODECS
from klog.errors import CorruptBatch
from klog.record import decode, iter_records

_log = logger_of("segment")

HEADER_FIELDS = tuple(kl_header_name(<kl_header_t>kind).decode() for kind in range(<int>KL_HEADER_KINDS))
ROWS_MAX = 1 << 16     # of one set of columns: about 5 MiB


@cython.final
cdef class HeaderFields(Layout):
    """Names of header columns in order; None: all of HEADER_FIELDS."""

    cdef kl_header_t kinds[<int>KL_HEADER_KINDS]
    cdef int n

    def __cinit__(self, names=None):
        cdef int i
        self.names = HEADER_FIELDS if names is None else names_of(names, HEADER_FIELDS)
        self.n = len(self.names)
        for i, name in enumerate(self.names):
            self.kinds[i] = <kl_header_t><int>HEADER_FIELDS.index(name)

    cdef int fill_schema(self, ArrowSchema *out) except -1:
        if kl_headers_schema(self.kinds, self.n, out) != KL_OK:
            raise MemoryError
        return 0


@cython.final
cdef class HeaderColumns(ArrowColumns):
    """Headers of batches of one segment as one Arrow struct array, exported by capsule any number of times.

    The scan ended at byte `end`, with offsets up to next_offset, for a `reason` as of HeaderIterator; "": at the end of
    the range, or after as many rows as were asked for.
    """

    cdef kl_batch_t *rows
    cdef Py_ssize_t n
    cdef Py_ssize_t space
    cdef readonly int64_t segment_base_offset
    cdef readonly int64_t end
    cdef readonly int64_t next_offset
    cdef readonly str reason

    def __init__(self):
        raise TypeError("get header columns from a LogReader: log.read().batch_headers()")

    def __dealloc__(self):
        PyMem_Free(self.rows)

    def __len__(self):
        return self.n

    @property
    def last(self):
        """The last header, None if there is none."""
        return header_of(&self.rows[self.n - 1]) if self.n else None

    cdef int fill_array(self, ArrowArray *out) except -1:
        cdef HeaderFields layout = <HeaderFields>self.columns_layout
        if kl_headers_export(self.rows, self.n, self.segment_base_offset, layout.kinds, layout.n, out) != KL_OK:
            raise MemoryError
        return 0

    cdef int add(self, const kl_batch_t *b) except -1:
        cdef void *grown
        if self.n == self.space:
            grown = PyMem_Realloc(self.rows, <size_t>(2 * self.space + 64) * sizeof(kl_batch_t))
            if grown == NULL:
                raise MemoryError
            self.rows = <kl_batch_t *>grown
            self.space = 2 * self.space + 64
        self.rows[self.n] = b[0]
        self.n += 1
        return 0

    def __repr__(self):
        return f"HeaderColumns({self.n} batches: {', '.join(self.fields)})"


cdef int check_fields(LogFile file, const kl_batch_t *b) except -1:
    """Raise CorruptBatch for what a reader of the records would notice before it reads them."""
    cdef int64_t space = b.size - <int64_t>KL_BATCH_HEADER
    cdef int codec = b.attributes & KL_ATTR_CODEC
    if codec >= len(_CODECS):
        raise CorruptBatch(f"codec bits {codec} are not a known codec", path=file.path, position=b.position,
                           offset=b.base_offset)
    if codec == 0 and b.magic >= 2 and b.count > space // KL_RECORD_MIN:
        raise CorruptBatch(f"{b.count} records cannot be in {space} bytes", path=file.path, position=b.position,
                           offset=b.base_offset)
    return 0


cdef int open_batch(LogFile file, kl_batch_t *b, int64_t start, int64_t stop) except -1:
    """Read the batch, and set its count to that of its records with start <= offset < stop; of a wrapper, whose header
    does not have them, also the first offset and time."""
    cdef int64_t moved = 0, low, high
    data = file.read(b.position, b.size)
    batch = next(decode(data, path=file.path, file_position=b.position))
    if b.magic < 2:
        b.base_offset = batch.base_offset
        b.last_offset_delta = <int32_t>(batch.last_offset - batch.base_offset)
        b.base_timestamp = batch.base_timestamp
    else:
        moved = <int64_t>batch.base_offset - b.base_offset  # of a mended one
    b.count = batch.count
    if b.base_offset < start or kl_batch_last_offset(b) >= stop:
        low, high = max(start, b.base_offset), min(stop, kl_batch_last_offset(b) + 1)
        records = iter_records(data, start=low + moved, stop=high + moved, include_control=True, path=file.path,
                               file_position=b.position, lazy=True)
        b.count = sum(1 for _ in records)
    return 0


cdef int settle(HeaderColumns found, LogFile file, kl_batch_t *b, int64_t start, int64_t stop) except -1:
    """Add the batch if it has offsets of the range. Its base offset is known to be valid."""
    if b.count >= 0 and b.base_offset >= stop:
        return 0
    check_fields(file, b)
    if kl_batch_last_offset(b) < start:
        return 0
    if b.count < 0 or (b.count and b.base_offset < stop and (b.base_offset < start or kl_batch_last_offset(b) >= stop)):
        open_batch(file, b, start, stop)
    if b.base_offset < stop:
        found.add(b)
    return 0


cdef int mend(LogFile file, kl_batch_t *b, int64_t base_offset) except -1:
    _log.warning("event=base_offset_mended path=%s position=%d found=%d mended=%d", file.path, b.position,
                 b.base_offset, base_offset)
    b.base_offset = base_offset


cdef int raise_order(str text, LogFile file, const kl_batch_t *b, int64_t offset) except -1:
    raise CorruptBatch(f"{text}: run `klog verify`", path=file.path, position=b.position, offset=offset,
                       kind="offset_order")


def read_headers(LogFile file, int64_t position, int64_t end, int64_t start, int64_t stop, HeaderFields fields, *,
                 int64_t base_offset=-1, int64_t limit=INT64_MAX, int64_t segment_base_offset=0,
                 Py_ssize_t rows_max=ROWS_MAX):
    """Return the columns of the batches with offsets of [start, stop), from the one at byte `position` on.

    base_offset: where the first batch should begin, -1 if that is not known; limit: the offsets of the segment are
    below it. With both, a base offset that is too large (one flipped bit, outside the checksum) is mended as in reads
    of records. Raises CorruptBatch with file, position and offset.
    """
    cdef HeaderIterator headers = HeaderIterator(file, position, end)
    cdef HeaderColumns found = HeaderColumns.__new__(HeaderColumns)
    cdef kl_batch_t b, last       # last: not settled before the next one shows that its base offset is valid
    cdef int64_t next_offset = -1, unmoved = -1, span
    cdef bint any = False, first = True
    if not 0 < rows_max <= KL_HEADERS_MAX:
        raise ValueError(f"rows_max={rows_max}: 1 to {KL_HEADERS_MAX} expected")
    found.columns_layout = fields
    found.segment_base_offset = segment_base_offset
    found.reason = ""
    while headers.next_header(&b):
        if any:
            if b.base_offset < next_offset:
                if b.base_offset != unmoved and not (first and base_offset < 0 and next_offset > limit):
                    if next_offset >= stop and next_offset == unmoved:      # the range ends before this batch
                        break
                    raise_order(f"a batch begins at offset {b.base_offset}, but the one before it reaches "
                                f"{next_offset - 1}", file, &b, b.base_offset)
                mend(file, &last, b.base_offset - last.last_offset_delta - 1)
                next_offset = b.base_offset
            first = False
            settle(found, file, &last, start, stop)
            if last.base_offset >= stop or found.n >= rows_max:
                found.end, found.next_offset = b.position, next_offset
                return found
        span = <int64_t>b.last_offset_delta + 1
        unmoved = (next_offset if any else base_offset if base_offset >= 0 else b.base_offset) + span
        last, any = b, True
        next_offset = kl_batch_last_offset(&b) + 1
    if any:
        if next_offset > limit:
            if unmoved != limit:
                raise_order("a batch is beyond the end of its segment", file, &last, next_offset - 1)
            mend(file, &last, limit - last.last_offset_delta - 1)
            next_offset = limit
        settle(found, file, &last, start, stop)
    found.end, found.next_offset, found.reason = headers.position, max(next_offset, base_offset), headers.reason
    return found
