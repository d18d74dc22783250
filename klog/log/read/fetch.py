"""One fetch: raw batches of one segment, as a slice of its file to read into memory or send to a socket.

  F1  the log's offsets are read before the bytes are located: the data never goes beyond the returned high watermark
  F2  a slice has nothing at or beyond the isolation's bound, and nothing of an unfinished append
  F3  a slice holds whole batches. The first may begin below the requested offset: consumers skip those records
  F4  from the bound up to the log end a fetch is empty and not an error: the consumer fetches again

Without a lock, any thread. Kafka: UnifiedLog.read, LocalLog.read, FetchDataInfo. In Kafka a slice may end inside a
batch, and may be a part of the first batch (firstEntryIncomplete). Servers replace that by an empty slice, and so does
klog.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from klog.arguments import LONG_MAX, flag
from klog.disk import YIELD_BYTES, HasFileno, LogFile, send_yielding, view_of
from klog.errors import CorruptBatch, OffsetOutOfRange, PeerGone, SendTimeout
from klog.log.read._fetch import FetchState
from klog.log.read.aborted_transactions import aborted_in_slice
from klog.log.read.isolation import Isolation, last_stable_offset, unknown_isolation
from klog.log.read.positions import whole_number
from klog.log.read.steady import noting
from klog.log.state._log_core import LogCore
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.segments import number_of
from klog.segment import Segment, span

_HAD_BEEN_SENT = " bytes had been sent"


class FetchData(FetchState):
    """The result of one fetch: a slice of `size` bytes, whole batches of one segment, from `position` on.

    position: where the slice begins, or where reading continues if it is empty. first_entry_incomplete: the first batch
    is larger than max_bytes. aborted_transactions: for read_committed, those whose records in the slice do not count.

    The slice keeps its file open. The result of memory() never changes. If the log is truncated before memory() or
    send_to() is called, the call raises or gives the new bytes. Any thread.
    """

    __slots__ = ()

    def file_range(self) -> tuple[LogFile, int, int]:
        """(file, position, size) of a slice that is not empty, for a server that sends it by sendfile. The file stays
        open while the caller keeps it. Raises ValueError for an empty slice."""
        if self._file is None:
            raise ValueError("the slice is empty: it has no place in a file")
        return self._file, self._byte, self.size

    def memory(self) -> memoryview:
        """The batches, read-only, valid as long as the caller keeps the view.

        For a log that is open for writing the view is the page cache itself, without a copy: a page that the disk
        cannot read raises a signal (SIGBUS), not an error. Log.close(), or a fork, copies the pages of the views that
        exist then. For a read-only log the bytes are copied at once.
        """
        file, segment_dir = self._file, None if self._log is None else self._log.directory.segment_dir
        if file is not None and segment_dir is not None and segment_dir.mappable:
            view = view_of(file, self._byte, self.size)
            if view is not None and segment_dir.mappable:  # again: close() clears `mappable`, then releases the maps
                return view
        return self._copy()

    def _copy(self) -> memoryview:
        file = self._file
        if file is None:
            return memoryview(b"")
        start, size = self._byte, self.size
        try:
            data = file.read(start, size)
        except OSError as error:
            if self._log is not None:
                self._log.read_failed(error)
            raise
        if self._log is not None:
            self._log.health.read_worked()
        if len(data) < size:
            raise CorruptBatch(
                f"{len(data)} of {size} bytes are left: the log was truncated after the fetch",
                path=file.path,
                position=start,
                offset=self.offset,
            )
        return memoryview(data)

    async def send_to_async(self, target: HasFileno, start: int = 0) -> int:
        """Send the whole slice from byte `start` on to a non-blocking target, in the running event loop.

        Yields to other tasks. An exception, also a cancellation, has the number of bytes sent as `sent`; an Outgoing
        continues from there by itself.
        """
        done = start = self._start_of(start)

        def step() -> bool:
            nonlocal done
            try:
                done += self.send_part(target, done, min(self.size - done, YIELD_BYTES))
            except BaseException as error:  # not always the end: TLS may have to read from the peer first
                done += getattr(error, "sent", 0)
                raise
            return done == self.size

        try:
            await send_yielding(target, step)
        except BaseException as error:
            note_sent(error, done - start)
            raise
        return done - start


def note_sent(error: BaseException, sent: int) -> None:
    """Set the number of bytes sent in an error that counts only those of its last part."""
    if isinstance(error, PeerGone):
        error.__init__(error.errno, sent)  # type: ignore[misc]
    elif isinstance(error, SendTimeout):
        error.__init__(error.seconds, sent)  # type: ignore[misc]
    else:
        error.sent = sent  # type: ignore[attr-defined]
        if isinstance(error, OSError) and str(error.strerror).endswith(_HAD_BEEN_SENT):
            error.strerror = f"{os.strerror(error.errno or 0)}: {sent}{_HAD_BEEN_SENT}"


def fetch_counted(log: LogCore, offset: int, max_bytes: int, isolation: Isolation, min_one: bool) -> FetchData:
    """fetch() with arguments of any types, repeated if the writer changes the log meanwhile, and counted in the
    metrics."""
    log.check_open()
    if type(offset) is not int or type(max_bytes) is not int or type(min_one) is not bool:
        offset, max_bytes = whole_number("offset", offset), whole_number("max_bytes", max_bytes)
        min_one = flag("min_one_message", min_one)
    counters, options = log.counters, log.options
    began = counters.fetch_begins(options)
    try:
        found: FetchData = noting(log, offset, lambda: fetch(log, offset, max_bytes, isolation, min_one))
    except Exception:
        counters.count_failed_fetch()
        raise
    counters.fetch_ends(began, found.size, options)
    return found


def fetch(log: LogCore, offset: int, max_bytes: int, isolation: Isolation, min_one: bool) -> FetchData:
    """Fetch batches from an offset on, at most max_bytes; with min_one at least one whole batch."""
    if not 0 <= max_bytes <= LONG_MAX:
        raise ValueError(f"max_bytes={max_bytes}: must be from 0 to 2^63-1")
    # F1. The log end is read first: later appends are beyond it.
    start, end = log.log_start_offset, log.log_end_offset
    high_watermark = min(log.high_watermark, end)
    stable = (
        min(last_stable_offset(log), high_watermark) if isolation == "read_committed" or not log.read_only else None
    )
    bounds = {"log_end": end, "high_watermark": high_watermark, "read_committed": stable}
    bound = bounds.get(isolation) if isinstance(isolation, str) else None
    if bound is None:
        raise unknown_isolation(isolation)
    if not start <= offset <= end:
        raise OffsetOutOfRange(offset, start, end, log.name)
    found = FetchData(offset, high_watermark, stable, start, end, OffsetMetadata(offset), log=log)
    segments = log.segments
    read_up_to(found, segments, place_of(segments, bound, end), max_bytes, min_one)
    if found._file is not None and log.directory.segment_dir is not None:
        log.directory.segment_dir.sampler.probe(found._file, found.position.position, found.size)
    if isolation == "read_committed" and found.size:
        found.aborted_transactions = tuple(aborted_in_slice(log, segments, found.position, found.size, end))
    return found


def read_up_to(
    found: FetchData, segments: Sequence[Segment], bound: OffsetMetadata, max_bytes: int, min_one: bool
) -> None:
    """Set the slice of found.offset, from these segments and below the bound.

    If the bound has no position, the slice is empty. Kafka: LocalLog.read.
    """
    offset = found.offset
    if offset == bound.offset:
        found.position = bound
        return
    if offset > bound.offset:
        found.position = place_of(segments, offset, found.log_end_offset)
        return
    for segment in segments[number_of(segments, offset) :]:
        size = segment.size
        if bound.is_message_only or segment.base_offset > bound.segment_base_offset:
            break
        limit = size if segment.base_offset < bound.segment_base_offset else min(bound.position, size)
        header = segment.locate(offset) if size else None
        if header is None:
            if segment is not segments[-1]:
                segment.check_end()
            continue
        found.position = OffsetMetadata(offset, segment.base_offset, header.position)
        if header.position < limit:
            file = segment.file
            first, found.size = span(file, header.position, limit, max_bytes, segment.index)
            if found.size == 0 and first:
                found.first_entry_incomplete = not min_one
                found.size = first if min_one else 0
            found._keep(file if found.size else None)
        return
    found.position = place_of(segments, offset, found.log_end_offset)


def place_of(segments: Sequence[Segment], offset: int, end: int) -> OffsetMetadata:
    """The position of the first batch that reaches `offset`; if there is none, the end of the last batch."""
    for segment in segments[number_of(segments, offset) :]:
        size = segment.size  # read before next_offset: an append sets them in the other order
        if size and segment.next_offset > offset:
            header = segment.locate(offset)
            if header is not None:
                return OffsetMetadata(offset, segment.base_offset, header.position)
        if segment is segments[-1] and offset <= end:
            return OffsetMetadata(offset, segment.base_offset, size)
    return OffsetMetadata(offset)
