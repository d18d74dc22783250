"""LogView: the reading half of a log, for its writer and for readers beside a writer in another process.

Reads take no lock: they use an immutable tuple of segments, and a log end that is set after the bytes are written.
refresh(), and computing producers and lost transaction indexes on demand, take the lock. Kafka: UnifiedLog, LocalLog.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from klog.arguments import INT_MAX, LONG_MAX, LONG_MIN, flag, function, seconds, whole
from klog.clock import Clock
from klog.config import LogConfig
from klog.disk import Bell, SendCounts, is_final, let_go
from klog.disk.warm_up import WarmedUp, warm_up
from klog.errors import (
    CorruptBatch,
    CorruptData,
    ForkedHandle,
    LogClosed,
    OffsetOutOfRange,
    StorageOffline,
    UnknownTopicOrPartition,
)
from klog.locks import CallLock
from klog.log.directory import checkpoint
from klog.log.load.loader import (
    Inputs,
    Loaded,
    Recovery,
    has_producers,
    load_read_only,
    load_writable,
    producers_at,
    rebuild_txn_index,
)
from klog.log.options import Options
from klog.log.read import warm_ranges
from klog.log.read._fetch import FetchState, fetch_shortly
from klog.log.read.aborted_transactions import AbortedFinder
from klog.log.read.fetch import ISOLATIONS, FetchData, Isolation, aborted_of, fetch, unknown_isolation
from klog.log.read.fetch_range import FetchRange, fetch_range
from klog.log.read.lookup import (
    ListedOffset,
    NewestBefore,
    TimestampOffset,
    count,
    list_offset,
    offset_for_timestamp,
    offsets_before,
)
from klog.log.read.positions import Position, resolve, whole_number
from klog.log.read.read_policy import Reading
from klog.log.read.reader import CHUNK_BYTES, FetchedChunk, LogReader, aborted_ranges
from klog.log.read.refresh import Moment, overtaken, refresh_locked, steady, tail_fingerprint
from klog.log.read.tail import LogTail
from klog.log.state import forks, high_watermark
from klog.log.state._fetch_positions import FetchPositions
from klog.log.state._flush_state import FlushState
from klog.log.state._log_state import LogState
from klog.log.state.high_watermark_rules import OffsetMetadata, OffsetSnapshot
from klog.log.state.leader_epochs import LeaderEpochCache
from klog.log.state.metrics import metrics_of
from klog.log.state.producers import ProducerState
from klog.log.state.segments import Sizes, locate, number_of
from klog.segment import AbortedTransaction, Segment

if TYPE_CHECKING:
    from klog.inspect import Report
    from klog.log.read.page_cache import LogPageCache
    from klog.progress import Progress

_log = logging.getLogger("klog.log")


_READS_FAILED_MAX = 3
T = TypeVar("T")


class LogView(LogState):
    """The reading half of a Log: its state after the load, and all ways to read it."""

    def __init__(self, directory: str, options: Options) -> None:
        self._pid = forks.process_id()
        self._lock = CallLock()
        self._sends = SendCounts()
        self._bell = Bell()  # rung when a reader can read more
        self._closed = True
        self._unreadable = None
        self._directory = directory
        self._options = options
        self._config = options.config
        self._home = None
        self._aborted_finder = AbortedFinder()
        self._fetch_positions = FetchPositions()
        self._newest = NewestBefore()
        self._reading = Reading()
        self._sizes = Sizes(())
        loaded = self._load()
        self._take(loaded)
        self._flush_state = FlushState(loaded.recovery_point, options.clock.wall_ms())
        self._recovery = loaded.recovery
        self._leftovers = loaded.to_unlink
        self._high_watermark = None
        self._keeps_metadata = True
        self._directory_mtime = -1  # of a read-only log, for refresh
        self._checkpoint_states: dict[str, tuple[int, int] | None] = {}  # of a read-only log, for refresh
        self._forked = False
        self._closed = False
        forks.register(self)

    # ---- loading -------------------------------------------------------------------------------------------------

    def _load(self) -> Loaded:
        options = self._options
        inputs = self._inputs()
        loaded = load_read_only(inputs) if options.read_only else load_writable(inputs)
        self._home = inputs.home
        return loaded

    def _take(self, loaded: Loaded) -> None:
        """Set the state of the log to the result of a load."""
        self._segments = tuple(loaded.segments)
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self._log_start_offset = loaded.log_start_offset
        end = loaded.segments[-1].next_offset if loaded.segments else loaded.log_start_offset
        self._log_end_offset = max(end, loaded.log_start_offset)
        follows = self.read_only and loaded.segments
        self._tail_fingerprint = tail_fingerprint(loaded.segments[-1], loaded.last_at) if follows else None

    def _inputs(self) -> Inputs:
        options = self._options
        return Inputs(
            directory=self._directory,
            config=options.config,
            files=options.files,
            handles=options.handles,
            clock=options.clock,
            policy=options.recovery,
            clean_shutdown=options.clean_shutdown,
            recovery_point=options.recovery_point,
            log_start_offset=options.log_start_offset,
            producer_expiration_ms=options.producer_expiration_ms,
            check_gaps=options.config_known and not options.config.compacts,
            cleaned_to=options.cleaned_to,
            segments_left=options.segments_left,
            home=self._home,
        )

    # ---- properties ------------------------------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._options.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self._options.partition

    @property
    def name(self) -> str:
        """`<topic>-<partition>`, the name of the directory."""
        return f"{self.topic}-{self.partition}"

    @property
    def path(self) -> str:
        """Path of the directory."""
        return self._directory

    @property
    def config(self) -> LogConfig:
        """The configuration."""
        return self._config

    @property
    def clock(self) -> Clock:
        """The clock that the log uses."""
        return self._options.clock

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The topic's id from partition.metadata, None if there is none."""
        if not self._keeps_metadata:
            return None
        return checkpoint.read_topic_id(self._directory) or self._options.topic_id

    @property
    def recovery(self) -> Recovery:
        """The findings of the load."""
        return self._recovery

    @property
    def read_only(self) -> bool:
        """Was it opened with read_only=True?"""
        return self._options.read_only

    def __repr__(self) -> str:
        state = "closed" if self._closed else "read-only" if self.read_only else "open"
        return f"<Log {self.name} [{self.log_start_offset}, {self.log_end_offset}) {state}>"

    @property
    def closed(self) -> bool:
        """Has close() been called?"""
        return self._closed

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed(f"{self.name} is closed: open it again")
        if self._unreadable is not None:
            raise StorageOffline(f"{self.name} is offline: {self._unreadable}")
        if self._forked:
            raise ForkedHandle(f"{self.name} belongs to process {self._pid}: open it again in this one")

    def _after_fork(self) -> None:
        self._lock = CallLock()
        self._bell.renew()
        self._options.handles.renew()
        if self._commits is not None:
            self._commits.renew()
        self._forked = not self.read_only
        if self._home is not None:
            self._home.renew()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} belongs to its process: send its path, and open that there with read_only=True")

    # ---- offsets ---------------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log_end_offset

    @property
    def high_watermark(self) -> int:
        """The exclusive bound of what consumers read. It is the log end until it is set; for a read-only log it comes
        from a checkpoint."""
        watermark = self._high_watermark
        if watermark is not None:
            return watermark.offset
        bound = self._options.high_watermark
        if bound is None or not self.read_only:
            return self._log_end_offset
        return min(max(bound, self._log_start_offset), self._log_end_offset)

    @property
    def is_managed(self) -> bool:
        """Has the high watermark been set? Until then it is the log end."""
        return self._high_watermark is not None

    @property
    def last_stable_offset(self) -> int:
        """The exclusive bound of what read_committed consumers read: below it no transaction is open, and none has a
        marker at or above the high watermark."""
        high_watermark, producers = self.high_watermark, self._producer_state()
        if self.read_only:  # a writable log is notified by high_watermark.moved_locked
            with self._lock:
                producers.on_high_watermark_updated(high_watermark)
        first = producers.first_unstable_offset
        return high_watermark if first is None else min(max(first.offset, self._log_start_offset), high_watermark)

    @property
    def high_watermark_metadata(self) -> OffsetMetadata:
        """The high watermark and its position."""
        with self._lock:
            return high_watermark.positioned_locked(self)

    def fetch_offset_snapshot(self) -> OffsetSnapshot:
        """Log start, log end, high watermark and last stable offset of one moment, with positions."""
        with self._lock:
            return high_watermark.snapshot_locked(self)

    def maybe_convert_to_offset_metadata(self, offset: int) -> OffsetMetadata:
        """An offset, with its position if the log holds it."""
        offset = whole_number("offset", offset)
        return high_watermark.metadata_of(self, offset)

    def check_held(self, offset: int) -> None:
        """Raise OffsetOutOfRange for an offset below the log start or above the log end."""
        if type(offset) is not int:
            offset = whole_number("offset", offset)
        if not self._log_start_offset <= offset <= self._log_end_offset:
            raise OffsetOutOfRange(offset, self._log_start_offset, self._log_end_offset, self.name)

    def bound(self, isolation: Isolation) -> int:
        """The exclusive bound of an isolation level."""
        if isolation == "log_end":
            return self._log_end_offset
        if isolation == "high_watermark":
            return self.high_watermark
        if isolation == "read_committed":
            return self.last_stable_offset
        raise unknown_isolation(isolation)

    @property
    def size(self) -> int:
        """Bytes of all .log files."""
        sizes = self._sizes_of(self._segments)
        return sizes.before(len(sizes.segments))

    def _sizes_of(self, segments: tuple[Segment, ...]) -> Sizes:
        """The prefix sums of these segments, computed at the first call."""
        known = self._sizes
        if known.segments is not segments:
            known = self._sizes = Sizes(segments)
        return known

    def metrics(self, *, page_cache: bool = False) -> dict[str, float]:
        """Gauges, and for a writable log the counters since it was opened, under the names of Kafka's metrics.

        PageCacheSampledReadBytes, PageCacheHitReadBytes: bytes of sampled reads (one in sixteen), and how many of them
        were in the page cache. page_cache: also PageCacheBytes, PageCacheDirtyBytes, PageCacheWritebackBytes and
        PageCacheEvictedBytes, which need system calls for each segment; see page_cache().
        """
        return metrics_of(self, None if self.read_only else self._metrics, flag("page_cache", page_cache))

    def warm_up(
        self,
        start: Position | None = None,
        stop: Position | None = None,
        *,
        bytes: int | None = None,
        timeout: float | None = None,
        progress: Progress | None = None,
        cancel: threading.Event | None = None,
    ) -> WarmedUp:
        """Read [start, stop), or its newest `bytes`, with the indexes into the page cache, by a few threads.

        Takes at most `timeout` seconds. cancel: set it to stop. Returns what was read. Files that cannot be read are
        logged and skipped. Raises ValueError.
        """
        self._check_open()
        now = self.clock.wall_ms()
        warm_ranges.check(bytes, timeout, progress, cancel)
        first = resolve(self, start, self._log_start_offset, now)
        last = min(resolve(self, stop, self._log_end_offset, now, "stop"), self._log_end_offset)
        return warm_up(
            self._options.files,
            warm_ranges.ranges_of(self, first, last, bytes),
            timeout=timeout,
            progress=progress,
            cancel=cancel,
        )

    def page_cache(self, *, cells: int = 0) -> LogPageCache:
        """How much of each segment is in the page cache: cached, dirty, being written, evicted. Reads no data.

        cells: number of parts of each segment for which to return the cached share; 0: none. Raises PermissionError if
        the kernel does not report it: the user needs write permission on the files.
        """
        self._check_open()
        cells = whole("cells", cells, 0, INT_MAX)
        from klog.log.read.page_cache import look

        segments = [(segment.base_offset, segment.path) for segment in self._segments]
        return look(self._options.files, self.topic, self.partition, self._directory, segments, cells)

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, oldest first: base_offset, next_offset, size, path, max_timestamp of each."""
        return self._segments

    @property
    def leader_epochs(self) -> list[tuple[int, int]]:
        """[(epoch, first offset written in it), ...]"""
        return self._epochs.entries

    @property
    def producers(self) -> dict[int, ProducerState]:
        """{producer id: its state}"""
        return dict(sorted(self._producer_state().states.items()))

    def _producer_state(self) -> Any:
        """The producers at the log end. A read-only log computes them on demand."""
        producers = self._producers
        if self.read_only and producers.end_offset != self._log_end_offset:
            with self._lock:
                start, end, trusted = self._log_start_offset, self._log_end_offset, None
                if not self._options.clean_shutdown:
                    point = self._options.recovery_point
                    trusted = max((s.base_offset for s in self._segments if s.base_offset <= point), default=start)
                try:
                    producers = producers_at(self._inputs(), self._segments, start, end, trusted)
                except FileNotFoundError as error:
                    self._check_there(error)
                    raise
                producers.expire(self.clock.wall_ms(), self._options.producer_expiration_ms)
                self._producers = producers
                self._aborted_finder.forget()  # the replay may have found markers that are missing in an index
        return producers

    def aborted_transactions(self, start: int | None = None, stop: int | None = None) -> list[AbortedTransaction]:
        """Aborted transactions with records or marker in [start, stop), in the order of their markers."""
        low = self._log_start_offset if start is None else whole_number("start", start)
        high = self._log_end_offset if stop is None else whole_number("stop", stop)
        return self._steadily(lambda: self._aborted(self._segments, low, high, self._has_producers()))

    def _has_producers(self) -> Callable[[], bool]:
        """A function: do producers write here? Scans the directory at its first call."""
        return functools.cache(lambda: has_producers(self._directory))

    def _aborted(
        self, segments: Sequence[Segment], low: int, high: int, producers: Callable[[], bool]
    ) -> list[AbortedTransaction]:
        """aborted_transactions() of these segments, from which the data is read. A cleaner may have replaced them
        meanwhile by segments without the transactions that it has removed."""
        return self._aborted_finder.find(segments, low, high, lambda segment: self._aborted_in(segment, producers))

    def _aborted_in(self, segment: Segment, producers: Callable[[], bool]) -> Sequence[AbortedTransaction]:
        """The aborted transactions of a segment. In a log with producers the index is checked once against the markers:
        a missing or invalid index must not make aborted records visible."""
        index = segment.txn_index
        if index.settled:
            return index.entries
        with self._lock:
            self._lock.check(self, "a first look at aborted transactions")
            index = segment.txn_index  # a new object if the directory was renamed meanwhile
            if not index.checked and producers():
                rebuild_txn_index(self._inputs(), self._segments, segment)
            entries = index.entries
            try:
                segment.check_place()
            except FileNotFoundError:
                segment.forget_paths()
                raise
            index.checked = True
            return entries

    # ---- read ------------------------------------------------------------------------------------------------------

    def read(
        self,
        start: Position | None = None,
        stop: Position | None = None,
        *,
        isolation: Isolation = "high_watermark",
        include_control: bool = False,
        scan: bool = False,
    ) -> LogReader:
        """The records of [start, stop), each an offset, "earliest", "latest", an aware datetime, ISO text or "-3h".

        Iterate the result for Record objects, or call .batches() or .to_arrow(). The end is fixed now: it does not
        include records appended later. scan: the records will not be read again soon; pages that this reads are dropped
        from the page cache (klog.io.scan.drop.behind). Raises OffsetOutOfRange, ValueError; during the read ReadFailed.
        """
        self._check_open()
        now = self.clock.wall_ms()
        bound = self.bound(isolation)
        first = resolve(self, start, self._log_start_offset, now)
        last = min(resolve(self, stop, bound, now, "stop"), bound)
        self.check_held(first)
        if type(include_control) is not bool or type(scan) is not bool:
            include_control, scan = flag("include_control", include_control), flag("scan", scan)
        return LogReader([(self, first, max(first, last))], isolation, include_control, scan)

    def tail(
        self,
        start: Position | None = "latest",
        *,
        timeout: float | None = None,
        isolation: Isolation = "high_watermark",
    ) -> LogTail:
        """Records from start on, as they arrive, for `for` or `async for`. Ends after `timeout` seconds without any.

        Sleeps until a writer in this or another process appends. Raises OffsetOutOfRange if the next record was deleted
        or truncated before it was read.
        """
        self._check_open()
        timeout = seconds("timeout", timeout)
        self.bound(isolation)
        first = resolve(self, start, self._log_start_offset, self.clock.wall_ms())
        self.check_held(first)
        return LogTail(self, first, timeout, isolation)

    def chunks(
        self,
        start: int,
        stop: int,
        isolation: Isolation = "log_end",
        max_bytes: int = CHUNK_BYTES,
        *,
        scan: bool = False,
    ) -> Iterator[FetchedChunk]:
        """Raw batches of [start, stop), chunk by chunk.

        Raises OffsetOutOfRange if the next batch was truncated or deleted before it was read, by any process.
        """
        self._check_open()
        if type(start) is not int or type(stop) is not int or type(max_bytes) is not int or type(scan) is not bool:
            start, stop, scan = whole_number("start", start), whole_number("stop", stop), flag("scan", scan)
            max_bytes = whole("max_bytes", max_bytes)
        if not 0 < max_bytes <= LONG_MAX or not LONG_MIN <= start <= LONG_MAX or not LONG_MIN <= stop <= LONG_MAX:
            raise ValueError(
                f"start={start}, stop={stop}, max_bytes={max_bytes}: 64-bit integers expected, max_bytes above 0"
            )
        if isolation not in ISOLATIONS:
            raise unknown_isolation(isolation)
        offset = start
        while offset < stop:
            self.check_held(offset)
            moment = self._moment()
            try:
                for chunk, next_offset in self._chunks(offset, stop, isolation, max_bytes, scan):
                    if not steady(self, moment):
                        break  # the chunk may mix two states of the file: read again
                    self._reads_failed = 0
                    yield chunk
                    offset = max(offset, next_offset)
                else:
                    if self._generation == moment.generation and offset >= self._log_start_offset:
                        return
            except (CorruptData, FileNotFoundError) as error:
                if not overtaken(self, moment):
                    self._note_next_offset(error, offset)
                    self._check_there(error)
                    raise
            except OSError as error:
                self._read_failed(error)
                raise

    def _note_next_offset(self, error: Exception, offset: int) -> None:
        """Set next_offset of an error that a reader at this offset got."""
        if not isinstance(error, CorruptBatch) or error.next_offset is not None:
            return
        segments = self._segments
        number = next((n for n, segment in enumerate(segments) if segment.path == error.path), None)
        if number is None:
            return
        try:
            found = segments[number].sound_behind(error.position or 0, offset + 1)
        except OSError:  # the segment was deleted meanwhile: report the damage without next_offset
            return
        if found is not None:
            error.next_offset = max(found.base_offset, offset + 1)
            return
        later = (segment.base_offset for segment in segments[number + 1 :] if segment.base_offset > offset)
        error.next_offset = next(later, max(self._log_end_offset, offset))

    def _read_failed(self, error: OSError) -> None:
        """Count a failed read. Several in a row mean that the disk has failed, and take the log offline (P6)."""
        self._reads_failed += is_final(error)
        if self._reads_failed >= _READS_FAILED_MAX and not self.read_only and self._offline is None:
            self._disk_failed(f"{self._reads_failed} reads in a row failed: {error}")

    def _noting(self, offset: int, look: Callable[[], T]) -> T:
        """_steadily(look) for a reader at this offset; counts failed reads. A success does not reset their count, since
        headers may come from memory."""
        try:
            return self._steadily(look)
        except CorruptBatch as error:
            self._note_next_offset(error, offset)
            raise
        except FileNotFoundError:
            raise
        except OSError as error:
            self._read_failed(error)
            raise

    def _let_go(self) -> None:
        """Before the directory is unlocked: end all views of files that another process may truncate, and make none."""
        if self._home is None or not self._home.mappable:
            return
        self._home.mappable = False
        try:
            let_go(self._directory)
        except (OSError, MemoryError) as error:
            _log.error("event=views_not_kept log=%s reason=%s", self.name, error)
        for segment in self._segments:
            segment.unmap()

    def _disk_failed(self, reason: str) -> None:
        """Called after several failed reads in a row. Log goes offline."""

    def _chunks(
        self, offset: int, stop: int, isolation: Isolation, max_bytes: int, scan: bool
    ) -> Iterator[tuple[FetchedChunk, int]]:
        """Each chunk with the offset after it."""
        producers = self._has_producers()
        while offset < stop:
            drop_behind, segments = None, self._segments
            if scan and segments:
                guess = segments[number_of(segments, offset)]
                drop_behind = self._reading.drop_behind(self, guess)
            found = locate(segments, offset)
            if found is None:
                return
            segment, position = found
            if drop_behind is not None and segment is not guess:
                drop_behind.finish()
                drop_behind = self._reading.drop_behind(self, segment)
            if offset < segment.base_offset and offset < self._log_start_offset:
                return  # the next record was deleted; readers that are inside a deleted segment may continue
            located = position
            with self._reading.way(self, segment, scan, drop_behind) as way:
                while offset < stop and position < segment.size:
                    try:
                        chunk, next_offset = way.chunk(position, max_bytes)
                    except CorruptBatch as error:
                        if segment is segments[-1] or offset < segment.next_offset or error.offset is not None:
                            raise
                        # Bytes after the last record of a closed segment: nothing is missing, read the next segment.
                        _log.warning("event=trailing_bytes reason=%s", error)
                        break
                    if position > located and (base := int.from_bytes(memoryview(chunk)[:8])) < offset:
                        raise CorruptBatch(
                            f"a batch begins at offset {base}, but the one before it reaches {offset - 1}: "
                            f"run `klog verify`",
                            path=segment.path,
                            position=position,
                            offset=base,
                            kind="offset_order",
                        )
                    aborted: Sequence[AbortedTransaction] = ()
                    if isolation == "read_committed":
                        aborted = self._aborted(segments, offset, next_offset, producers)
                    fetched = FetchedChunk(
                        chunk,
                        segment.path,
                        position,
                        offset,
                        min(stop, next_offset),
                        aborted_ranges(aborted),
                        way.payloads,
                    )
                    yield fetched, next_offset
                    position += len(chunk)
                    offset = max(offset, next_offset)

    def fetch(
        self,
        offset: int,
        max_bytes: int = CHUNK_BYTES,
        *,
        isolation: Isolation = "log_end",
        min_one_message: bool = True,
    ) -> FetchData:
        """Raw batches from the one that holds `offset` on: whole batches of one segment, at most max_bytes.

        min_one_message: returns the first batch even if it is larger. At or beyond the isolation's bound the size is 0.
        Raises OffsetOutOfRange, CorruptBatch, OSError (several failures in a row take the log offline).
        """
        found = fetch_shortly(FetchData, self, offset, max_bytes, isolation, min_one_message)
        if found is not None:
            return found
        self._check_open()
        if type(offset) is not int or type(max_bytes) is not int or type(min_one_message) is not bool:
            offset, max_bytes = whole_number("offset", offset), whole_number("max_bytes", max_bytes)
            min_one_message = flag("min_one_message", min_one_message)
        return self._noting(offset, lambda: fetch(self, offset, max_bytes, isolation, min_one_message))

    def _aborted_of(self, segments: Sequence[Segment], found: FetchState) -> tuple[AbortedTransaction, ...]:
        return aborted_of(self, segments, found)

    def fetch_range(self, start: int, stop: int | None = None, *, isolation: Isolation = "log_end") -> FetchRange:
        """Raw batches of [start, stop), or up to the isolation's bound, as one slice per segment, to be sent in order.

        Whole batches: the last one may reach beyond stop. Raises OffsetOutOfRange, CorruptBatch.
        """
        self._check_open()
        start, stop = whole_number("start", start), None if stop is None else whole_number("stop", stop)
        return self._noting(start, lambda: fetch_range(self, start, stop, isolation))

    def count(self, start: Position | None = None, stop: Position | None = None) -> int:
        """The number of records in [start, stop) without control records, from batch headers.

        Decodes only batches that cross a bound. Records of aborted transactions count.
        """
        self._check_open()
        return self._steadily(lambda: count(self, start, stop))

    def offset_for_timestamp(self, ms: int) -> TimestampOffset | None:
        """The first record at or above log_start_offset with a timestamp >= ms, or None.

        Exact, by the time index. Control records and aborted data count, as in Kafka. If the index of a segment is
        wrong and the segment has no such record, the search continues in the next one.
        """
        self._check_open()
        ms = whole_number("ms", ms)
        return self._steadily(lambda: offset_for_timestamp(self, ms))

    def list_offset(self, target: str | int, *, isolation: Isolation = "log_end") -> ListedOffset | None:
        """The offset of "earliest", "latest", "max_timestamp", a time in ms, or one of Kafka's numbers for these names,
        with the record's timestamp and leader epoch. None if there is no such record.

        isolation: the bound of the records that count, and so the meaning of "latest". Raises ValueError.
        """
        self._check_open()
        self.bound(isolation)
        return self._steadily(lambda: list_offset(self, target, isolation))

    def legacy_fetch_offsets_before(self, ms: int, count: int) -> list[int]:
        """First offsets of at most `count` segments whose files were last written at or before ms, newest first.

        -1 (latest) also returns the log end, as the first; -2 (earliest) returns only the log start.
        """
        self._check_open()
        return offsets_before(self, whole_number("ms", ms), whole("count", count, 0))

    def verify(self, progress: Progress | None = None) -> Report:
        """Check every invariant of the directory. Reads all of it and changes nothing.

        Bytes after the end of a log that is open for writing, such as preallocated zeros, are not part of the log.
        """
        from klog.inspect.verify import verify_partition

        function("progress", progress)
        active = None if self.read_only or not self._segments else self._segments[-1]
        end = 0 if active is None else active.size
        report = verify_partition(self._directory, self._log_start_offset, progress)
        if active is not None and active.active:
            report.problems = [
                one
                for one in report.problems
                if not (one.kind == "length" and one.path == active.path and (one.position or 0) >= end)
            ]
        return report

    # ---- refresh -----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Follow the writer in another process: new records, new and deleted segments, truncations.

        klog/log/read/refresh.py states what a reader may rely on. A writable log is always up to date.
        """
        self._check_open()
        if self.read_only:
            with self._lock:
                refresh_locked(self)

    def _moment(self) -> Moment:
        return Moment(self._generation, self._taken_back, self._segments)

    def _follow_epochs(self) -> None:
        """Load the leader epochs again: the writer may have begun a new one."""
        epochs = LeaderEpochCache(self._directory, self._options.files)
        epochs.load()
        if epochs.problem is None and epochs.entries:
            self._epochs = epochs

    def _steadily(self, work: Callable[[], T]) -> T:
        """The result of work(), which reads files; repeated if a writer has changed them meanwhile.

        A truncation is counted before it removes the first byte, and a removal beyond the log end after it is done. So
        with unchanged counters the result is of one moment.
        """
        while True:
            moment, rewritten = self._moment(), self._rewritten
            try:
                found = work()
                if (self._rewritten, self._taken_back) == (rewritten, moment.taken_back):
                    return found
            except (CorruptData, FileNotFoundError) as error:
                if not overtaken(self, moment):
                    self._check_there(error)
                    raise

    def _check_there(self, error: Exception) -> None:
        """Raise UnknownTopicOrPartition if the error is due to the deletion of the whole log."""
        if isinstance(error, FileNotFoundError) and self._is_gone():
            parent = os.path.dirname(self._directory)
            raise UnknownTopicOrPartition(
                f"{self.name} is no longer in {parent}: it was deleted, or moved to another log.dir while it was "
                f"read. `klog ls {parent}` lists what is there"
            ) from error

    def _is_gone(self) -> bool:
        """Has the directory been removed from an existing log.dir?"""
        parent = os.path.dirname(self._directory)
        return not os.path.isdir(self._directory) and os.path.isdir(parent)
