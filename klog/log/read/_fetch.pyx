# cython: auto_pickle=False
"""The fast path of a fetch, and the sending of its slice. fetch.py has the full path, and describes F1 to F4.

Most fetches are of sound batches in a log that does not change meanwhile. They need the log's numbers and a few short
reads: of headers beside an index entry, for where the slice begins and, if it is long, for where it ends. A long slice
that begins where the last one ended needs only the latter; near the log end no read is needed. Anything else is left to
the full path, which starts again from the beginning.
"""

cimport cython
from cpython.long cimport PyLong_AsLongLongAndOverflow
from libc.stdint cimport int64_t

from klog._c.batch cimport KL_BATCH_MIN, kl_batch_last_offset, kl_batch_t
from klog.disk._handles cimport found_file, found_index
from klog.disk._io cimport LogFile
from klog.disk._send cimport check_target, send_slice
from klog.log.state._counters cimport Counters
from klog.log.state._fetch_positions cimport end_t
from klog.log.state._fields cimport ProducerFields
from klog.log.state._log_core cimport LogCore
from klog.log.state._segment_list cimport SegmentList
from klog.segment._index cimport IndexPair, batch_position_t
from klog.segment._scan cimport header_at, locate_shortly
from klog.segment._span cimport NEAR, reach
from klog.segment._state cimport SegmentState, number_of

from klog.arguments import whole
from klog.disk import view_of
from klog.errors import CorruptBatch, CorruptData
from klog.log.read.aborted_transactions import aborted_in_slice
from klog.log.read import isolation as isolation_levels
from klog.log.read.sending import send_whole
from klog.log.read.steady import check_there
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.shown import first_few


@cython.final
@cython.freelist(8)
cdef class FetchData:
    """The result of one fetch: a slice of `size` bytes, whole batches of one segment, from `position` on.

    position: where the slice begins, or where reading continues if it is empty. first_entry_incomplete: the first batch
    is larger than max_bytes. aborted_transactions: for read_committed, those whose records in the slice do not count.

    The slice keeps its file open. The result of memory() never changes. If the log is truncated before memory() or
    send_to() is called, the call raises or gives the new bytes. Any thread.
    """

    cdef readonly int64_t offset
    cdef readonly int64_t high_watermark
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t log_end_offset
    cdef public int64_t size
    cdef public bint first_entry_incomplete
    cdef public tuple aborted_transactions
    cdef readonly LogFile _file
    cdef readonly LogCore _log
    cdef int64_t stable             # last_stable_offset, -1: not known yet
    cdef int64_t base_offset
    cdef readonly int64_t _byte     # of position

    def __init__(self, int64_t offset, int64_t high_watermark, last_stable_offset, int64_t log_start_offset,
                 int64_t log_end_offset, position, int64_t size=0, bint first_entry_incomplete=False,
                 tuple aborted_transactions=(), LogFile file=None, log=None):
        self.offset = offset
        self.high_watermark = high_watermark
        self.stable = -1 if last_stable_offset is None else last_stable_offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.position = position
        self.size = size
        self.first_entry_incomplete = first_entry_incomplete
        self.aborted_transactions = aborted_transactions
        self._file = file
        self._log = log

    def _keep(self, LogFile file):
        """Keep the file of the slice open, None for an empty slice."""
        self._file = file

    cdef void begin(self, LogCore log, int64_t offset, int64_t high_watermark, int64_t stable, int64_t start,
                    int64_t end) noexcept:
        """Set the offsets of the fetch. Its slice is empty."""
        self._log = log
        self.offset, self.high_watermark, self.stable = offset, high_watermark, stable
        self.log_start_offset, self.log_end_offset = start, end
        self.aborted_transactions = ()

    cdef bint slice_shortly(self, LogCore log, tuple segments, int64_t bound, int64_t max_bytes, bint min_one,
                            bint writes, end_t *end) except -1:
        """Set the slice, below bound, and what is known at its end. False: the full path is needed."""
        cdef Py_ssize_t number = number_of(segments, self.offset), count = len(segments)
        cdef SegmentState segment
        cdef IndexPair index
        cdef LogFile file
        cdef kl_batch_t b, after
        cdef batch_position_t found
        cdef const end_t *known
        cdef int64_t offset = self.offset, position, limit, stop, next_offset
        cdef int64_t first = 0      # bytes of the first batch, 0: not known
        cdef int64_t second = -1    # the offset after it, -1: not certain
        cdef bint certain = True
        if count == 0:
            return False
        segment = <SegmentState>segments[number]
        if offset < segment.base_offset:
            return False
        limit, next_offset = segment.size, -1
        if number + 1 == count and segment.next_offset <= bound:
            # An append sets next_offset before size, so that size is the end of the batches below the bound.
            next_offset = bound
            if offset == bound:
                self.base_offset, self._byte = segment.base_offset, limit
                return True
        elif offset == bound:
            return False
        active = segment._active
        if active is not None:
            file, index = active.file, active.index
        else:
            file, index = <LogFile?>(found_file(segment) or segment.file), <IndexPair?>(found_index(segment) or segment.index)
        if next_offset < 0 and (number + 1 == count or bound < (<SegmentState>segments[number + 1]).base_offset):
            limit, next_offset = position_of(file, index, segment, bound), bound
        position = -1
        if index.find_newest(offset, &found) and found.base_offset <= offset:
            position, first, second = found.position, found.size, found.last_offset + 1
        elif writes:
            known = log.fetch_positions.find(offset, segment.base_offset)
            if known is not NULL:
                position, first, second, certain = known.position, known.size, known.next_offset, known.certain
        if position < 0:
            if not locate_shortly(file, index, segment.size, offset, segment.base_offset, &b) or not trusted(&b, offset):
                return False
            position, first = b.position, b.size
            if b.base_offset == offset:
                second = kl_batch_last_offset(&b) + 1
        elif first == 0 and (not certain or (max_bytes <= NEAR and max_bytes < limit - position)):
            if not header_at(file, position, limit, &b) or b.base_offset != offset or not trusted(&b, offset):
                return False
            first, second = b.size, kl_batch_last_offset(&b) + 1
        if limit <= position:
            return False
        certain = True
        if limit - position <= max_bytes:
            stop = limit
        elif first == 0:
            next_offset = offset
            stop = reach(file, index, position, limit, position + max_bytes, 0, &next_offset, &after)
            if stop == position:
                return False
        elif first > limit - position:
            return False
        elif max_bytes - KL_BATCH_MIN < first <= max_bytes:    # nothing fits after it
            next_offset, certain, stop = second, False, position + first
        elif first <= max_bytes:
            next_offset = second
            stop = reach(file, index, position + first, limit, position + max_bytes, first, &next_offset, &after)
        else:
            next_offset, certain = second, False    # its length may be damaged
            stop = position + first if min_one else position
            self.first_entry_incomplete = not min_one
        self.base_offset, self._byte, self.size = segment.base_offset, position, stop - position
        if self.size:
            self._file = file
            if next_offset >= 0 and writes:
                end.offset, end.base_offset, end.position, end.certain = next_offset, segment.base_offset, stop, certain
                end.size, end.next_offset = 0, -1
                if certain and stop < limit:    # reach() has read its header
                    end.size, end.next_offset = after.size, kl_batch_last_offset(&after) + 1
        return True

    def file_range(self):
        """(file, position, size) of a slice that is not empty, for a server that sends it by sendfile. The file stays
        open while the caller keeps it. Raises ValueError for an empty slice."""
        if self._file is None:
            raise ValueError("the slice is empty: it has no position in a file")
        return self._file, self._byte, self.size

    def memory(self):
        """The batches, read-only, valid as long as the caller keeps the view.

        For a log that is open for writing the view is the page cache itself, without a copy: a page that the disk
        cannot read raises a signal (SIGBUS), not an error. Log.close(), or a fork, copies the pages of the views that
        exist then. For a read-only log the bytes are copied at once.
        """
        segment_dir = None if self._log is None else self._log.directory.segment_dir
        if self._file is not None and segment_dir is not None and segment_dir.mappable:
            view = view_of(self._file, self._byte, self.size)
            if view is not None and segment_dir.mappable:  # again: close() clears `mappable`, then releases the maps
                return view
        return self._copy()

    cdef _copy(self):
        cdef LogCore log = self._log
        if self._file is None:
            return memoryview(b"")
        try:
            data = self._file.read(self._byte, self.size)
        except OSError as error:
            if log is not None:
                log.read_failed(error)
            raise
        if log is not None:
            log.health.read_worked()
        if len(data) < self.size:
            raise CorruptBatch(
                f"{len(data)} of {self.size} bytes are left: the log was truncated after the fetch",
                path=self._file.path, position=self._byte, offset=self.offset)
        return memoryview(data)

    def send_to(self, target, start=0):
        """Send the slice from byte `start` on, without a copy where the kernel can. Returns the number of bytes sent.

        target: a socket, also with TLS, or anything with a fileno(): a pipe, a file (at its current position; flush it
        first). A blocking target takes all bytes. A non-blocking one takes what it can now; call again with start= what
        it has. Raises PeerGone, SendTimeout, OSError; CorruptBatch if the log was truncated meanwhile. If the bytes
        were truncated and written again, this is not detected: the new bytes are sent.
        """
        cdef int64_t first = self._start_of(start)
        return self._send(target, first, self.size - first)

    def send_part(self, target, start, size):
        """Send `size` bytes from byte `start` on, or as many of them as the target takes. Returns their number."""
        cdef int64_t first = whole("start", start, 0), count = whole("size", size, 0)
        if count > self.size - first:
            raise ValueError(f"start={start}, size={size}: the slice has {self.size} bytes")
        return self._send(target, first, count)

    def send_to_async(self, target, start=0):
        """Send the whole slice from byte `start` on to a non-blocking target, in the running event loop. A coroutine.

        Yields to other tasks. An exception, also a cancellation, has the number of bytes sent as `sent`; an Outgoing
        continues from there by itself.
        """
        return send_whole(target, self.send_part, self._start_of(start), self.size)

    cdef int64_t _start_of(self, start) except -1:
        """`start` as an int, checked: a byte of the slice or its end."""
        if type(start) is not int or not 0 <= start <= self.size:
            start = whole("start", start)
            if not 0 <= start <= self.size:
                raise ValueError(f"start={start}: the slice has {self.size} bytes")
        return start

    cdef int64_t _send(self, target, int64_t start, int64_t size) except -1:
        cdef LogCore log = self._log
        cdef LogFile file = self._file
        cdef int64_t sent
        if file is None or size == 0:
            check_target(target)
            return 0
        try:
            sent = send_slice(target, file, self._byte + start, size, None if log is None else log.sends)
        except EOFError as error:
            cut = CorruptBatch(
                f"the file ends inside the slice of {self.size} bytes: the log was truncated after the fetch",
                path=file.path, position=self._byte, offset=self.offset)
            cut.sent = error.sent
            raise cut from None
        except OSError as error:
            if error.filename == file.path and log is not None:     # an error of the target has no file name
                log.read_failed(error)
            raise
        if sent and log is not None:
            log.health.read_worked()
        return sent

    @property
    def last_stable_offset(self):
        """Exclusive bound of read_committed. A reader beside a writer computes it on the first access, which may need
        a replay of all batches: other isolation levels do not wait for it."""
        if self.stable < 0:
            self.stable = min(<int64_t>isolation_levels.last_stable_offset(self._log), self.high_watermark)
        return self.stable

    @property
    def position(self):
        return OffsetMetadata(self.offset, self.base_offset, self._byte)

    @position.setter
    def position(self, metadata):
        if metadata.offset != self.offset:
            raise ValueError(f"position of offset {metadata.offset}: the slice begins at {self.offset}")
        self.base_offset = metadata.segment_base_offset
        self._byte = metadata.position

    def __eq__(self, other):
        if type(other) is not FetchData:
            return NotImplemented
        return what(self) == what(other)

    def __repr__(self):
        return (
            f"FetchData(offset={self.offset}, high_watermark={self.high_watermark}, "
            f"log_start_offset={self.log_start_offset}, log_end_offset={self.log_end_offset}, "
            f"position={self.position!r}, size={self.size}, first_entry_incomplete={self.first_entry_incomplete}, "
            f"aborted_transactions=({first_few(self.aborted_transactions)}))"
        )


cdef tuple what(FetchData it):
    """What two equal results have in common."""
    return (
        it.offset, it.high_watermark, it.stable, it.log_start_offset, it.log_end_offset, it.base_offset,
        it._byte, it.size, it.first_entry_incomplete, it.aborted_transactions, it._file,
    )


def fetch_shortly(LogCore log not None, offset, max_bytes, isolation, min_one_message):
    """Return the result of Log.fetch(). None: the full path is needed, also to raise any error of the
    arguments or of the bytes. Raises OSError."""
    cdef Counters counters = log.counters
    cdef FetchData found
    cdef int64_t first, most, began
    cdef int overflow
    log.follow_writer()
    if log.follower is not None and log.follower.is_gone:
        log.check_open()
    if not log.health.takes_reads() or type(offset) is not int or type(max_bytes) is not int or \
            type(min_one_message) is not bool or type(isolation) is not str:
        return None
    first = PyLong_AsLongLongAndOverflow(offset, &overflow)
    most = PyLong_AsLongLongAndOverflow(max_bytes, &overflow)
    if first < 0 or most < 0:   # also -1 for an overflow
        return None
    began = counters.fetch_begins(log.clock)
    try:
        found = found_shortly(log, first, most, isolation, min_one_message)
        if found is not None:
            counters.fetch_ends(began, found.size, log.clock)
        return found
    except CorruptData:
        return None
    except FileNotFoundError as error:
        check_there(log, error)
        return None
    except OSError as error:
        counters.count_failed_fetch()
        log.read_failed(error)
        raise


cdef FetchData found_shortly(LogCore log, int64_t offset, int64_t max_bytes, str isolation, bint min_one):
    # F1: these first.
    cdef SegmentList known = log.segment_list
    cdef int64_t generation = known.generation, rewritten = known.rewritten, taken_back = known.taken_back
    cdef int64_t end = log.log_end_offset, start = log.log_start_offset, high_watermark, stable = -1, bound
    cdef tuple segments = known.segments
    cdef FetchData found
    cdef end_t kept
    cdef bint writes = not log.health.read_only, committed = False
    cdef ProducerFields producers = log.producers
    high_watermark = min(log.high_watermark_now(), end)
    if writes:
        stable = stable_offset(producers, start, high_watermark)
    if isolation == "log_end":
        bound = end
    elif isolation == "high_watermark":
        bound = high_watermark
    elif isolation == "read_committed":
        if not writes:
            if producers.end_offset != end or producers.unstable_at != high_watermark:
                return None     # the full path computes the state of a reader's producers
            stable = stable_offset(producers, start, high_watermark)
        bound, committed = stable, True
    else:
        return None
    if not start <= offset <= bound:
        return None
    found = FetchData.__new__(FetchData)
    found.begin(log, offset, high_watermark, stable, start, end)
    log.fetch_positions.follow(segments, generation, rewritten, taken_back)
    kept.offset = -1
    if not found.slice_shortly(log, segments, bound, max_bytes, min_one, writes, &kept):
        return None
    if found._file is not None:
        log.directory.segment_dir.sampler.probe(found._file, found._byte, found.size)
        if committed and not log.aborted_finder.knows_none(
                segments, number_of(segments, offset), found._byte, found.size):
            found.aborted_transactions = tuple(
                aborted_in_slice(log, segments, found.position, found.size, end))
    if known.generation != generation or known.rewritten != rewritten or known.taken_back != taken_back:
        return None
    if kept.offset >= 0:
        # Again: while the GIL was released, another fetch may have followed another state, to which this end is unknown.
        log.fetch_positions.follow(segments, generation, rewritten, taken_back)
        log.fetch_positions.keep(&kept)
    return found


cdef inline int64_t stable_offset(ProducerFields producers, int64_t start, int64_t high_watermark) except -1:
    """The last stable offset, by a state of the producers that has all batches."""
    first = producers._transactions.first_unstable
    return high_watermark if first is None else min(max(<int64_t>first.offset, start), high_watermark)


cdef bint trusted(const kl_batch_t *b, int64_t offset) noexcept:
    """Does this header prove that its batch holds offset? Its base offset is outside the checksum, and the last offset
    delta may be damaged: the full path looks at the batches beside it."""
    return b.base_offset == offset or (b.base_offset < offset and b.last_offset_delta + 1 == b.count)


cdef int64_t position_of(LogFile file, IndexPair index, SegmentState segment, int64_t offset) except -2:
    """Return the position of the first batch that ends at or above offset; -1: the full path is needed."""
    cdef kl_batch_t b
    cdef batch_position_t found
    if index.find_newest(offset, &found):
        return found.position
    if locate_shortly(file, index, segment.size, offset, segment.base_offset, &b) and trusted(&b, offset):
        return b.position
    return -1
