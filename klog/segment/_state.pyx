# cython: auto_pickle=False
"""The numbers of a segment that each append and each fetch needs: struct members here, attributes for Python code."""

from klog._c.batch cimport kl_batch_last_offset
from klog.disk._io cimport LogFile
from libc.stdint cimport INT64_MIN

cdef int64_t NEVER = INT64_MIN


cdef class ActiveState:
    """Base of Active, its only writer: the file, its index, and where it takes an append without further steps."""


cdef class SegmentDirState:
    """Base of SegmentDir, its only writer."""


cdef class TxnIndexState:
    """Base of TxnIndex, its only writer."""


cdef class SegmentState(Holder):
    """Base of Segment, its only writer. Its file and its index are held by the caches of klog.disk while it is closed.

    base_offset, next_offset    of the segment: its offsets are in [base_offset, next_offset)
    size                        the end of its last whole batch
    appended_ms                 when this process last appended, by the log's clock; None: it has not
    _active                     the state for appends, None in a closed segment; Segment._ready() makes it
    _txn_index                  the index of its aborted transactions, None before it is first needed
    plain_from                  the bytes from here to the end are appends of this process, which knows of each abort;
                                INT64_MAX: it has not appended
    plain_to                    headers of the bytes up to here show no transaction
    """

    @property
    def appended_ms(self):
        return None if self.appended == NEVER else self.appended

    @appended_ms.setter
    def appended_ms(self, now):
        self.appended = NEVER if now is None else now

    def append(self, BatchTable group, int32_t first, int32_t stop, int64_t now):
        """Write batches [first, stop) at the end, and index them. After an error none of them counts; the caller undoes
        the write. After the write nothing can fail or be interrupted."""
        self.write_batches(group, first, stop, now)

    cdef int write_batches(self, BatchTable group, int32_t first, int32_t stop, int64_t now) except -1:
        cdef ActiveState active = self._ready() if self._active is None else self._active
        cdef LogFile file = active.file
        cdef int64_t start = group.batches[first].position, position = self.size
        cdef int64_t size = (group.nbytes if stop == group.n else group.batches[stop].position) - start
        active.index.reserve(stop - first)
        if position + size > active.stop:
            active.extend(position, position + size)
        if type(file) is LogFile:
            file.write_at(group.bytes_at + start, <size_t>size, position)
        else:
            file.write(memoryview(group)[start:start + size], position)
        active.index.add(group, first, stop, position)
        self.plain_from = min(self.plain_from, position)
        self.next_offset = kl_batch_last_offset(&group.batches[stop - 1]) + 1
        self.size = position + size     # after next_offset: a reader takes them in the other order
        self.appended = now
        return 0


cdef inline int64_t base_of(tuple segments, Py_ssize_t number) noexcept:
    return (<SegmentState>segments[number]).base_offset


cdef Py_ssize_t number_of(tuple segments, int64_t offset) noexcept:
    """Index of the segment of an offset: the last one that begins at or below it, else the first."""
    cdef Py_ssize_t low = 0, high = len(segments) - 1, step = 1, middle
    cdef int64_t first, last
    if high < 0 or base_of(segments, high) <= offset:   # the newest one, in most calls
        return max(high, 0)
    first, last = base_of(segments, 0), base_of(segments, high)
    if offset < first:
        return 0
    # Base offsets rise almost evenly: look where offset would be then, and gallop from there. A binary search would
    # touch many segments that no cache of the processor holds.
    middle = min(<Py_ssize_t>(<double>(offset - first) / <double>(last - first) * <double>high), high - 1)
    if base_of(segments, middle) <= offset:
        low = middle
        while low + step < high and base_of(segments, low + step) <= offset:
            low += step
            step *= 2
        high = min(low + step, high)
    else:
        high = middle
        while high - step > 0 and base_of(segments, high - step) > offset:
            high -= step
            step *= 2
        low = max(high - step, 0)
    while high - low > 1:   # base of low <= offset < base of high
        middle = (low + high) // 2
        if base_of(segments, middle) <= offset:
            low = middle
        else:
            high = middle
    return low
