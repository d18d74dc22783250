"""LogView: the reading half of a log, for its own writer and for readers beside another process's writer.

Reads take no lock: they work on an immutable tuple of segments and on a log end that is set after the bytes are there.
refresh() and what a reader works out late (producers, lost transaction indexes) take it. Kafka: UnifiedLog, LocalLog.
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
from klog.log._core import LogState
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
from klog.log.read.aborted_transactions import AbortedFinder
from klog.log.read.fetch import ISOLATIONS, FetchData, Isolation, fetch, unknown_isolation
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
from klog.log.state.high_watermark_rules import OffsetMetadata, OffsetSnapshot
from klog.log.state.leader_epochs import LeaderEpochCache
from klog.log.state.metrics import metrics_of
from klog.log.state.producers import ProducerState
from klog.log.state.segments import Sizes, locate, number_of
from klog.segment import AbortedTransaction, Home, Segment

if TYPE_CHECKING:
    from klog.inspect import Report
    from klog.log.read.page_cache import LogPageCache
    from klog.progress import Progress

_log = logging.getLogger("klog.log")


_READS_FAILED_MAX = 3
T = TypeVar("T")


class LogView(LogState):
    """The reading half of a Log: what a loaded directory holds, and every way to read it."""

    def __init__(self, directory: str, options: Options) -> None:
        self._pid = os.getpid()
        self._lock = CallLock()
        self._sends = SendCounts()
        self._bell = Bell()  # rung when there is something new to read
        self._closed = True
        self._unreadable: str | None = None  # why it may not even be read: its directory has failed
        self._directory = directory
        self._options = options
        self._config = options.config
        self._home: Home | None = None
        self._aborted_finder = AbortedFinder()
        self._newest = NewestBefore()
        self._reading = Reading()
        self._sizes = Sizes(())
        loaded = self._load()
        self._take(loaded)
        self._recovery_point = loaded.recovery_point
        self._recovery = loaded.recovery
        self._leftovers = loaded.to_unlink
        self._high_watermark: OffsetMetadata | None = None  # of a managed log: marks W3
        self._keeps_metadata = True
        # Of a log that is only read, for `following`. generation: how often more than appends has happened.
        self._directory_mtime = -1
        self._checkpoint_states: dict[str, tuple[int, int] | None] = {}
        self._generation = 0
        self._rewritten = 0  # times that bytes at places below the log end became, or may have become, others
        self._taken_back = 0  # times that bytes at places beyond the log end went, where a reader may have looked
        self._reads_failed = 0  # one after another
        self._forked = False
        self._closed = False
        forks.know(self)

    # ---- loading -------------------------------------------------------------------------------------------------

    def _load(self) -> Loaded:
        options = self._options
        inputs = self._inputs()
        loaded = load_read_only(inputs) if options.read_only else load_writable(inputs)
        self._home = inputs.home
        return loaded

    def _take(self, loaded: Loaded) -> None:
        """Stand where loading found the log to be."""
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

    # ---- what it is ------------------------------------------------------------------------------------------------

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
        """`<topic>-<partition>`, the name of its directory."""
        return f"{self.topic}-{self.partition}"

    @property
    def path(self) -> str:
        """Its directory."""
        return self._directory

    @property
    def config(self) -> LogConfig:
        """Its configuration."""
        return self._config

    @property
    def clock(self) -> Clock:
        """Where it gets the time."""
        return self._options.clock

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The topic's id from partition.metadata, None if there is none."""
        if not self._keeps_metadata:
            return None
        return checkpoint.read_topic_id(self._directory) or self._options.topic_id

    @property
    def recovery(self) -> Recovery:
        """What loading found."""
        return self._recovery

    @property
    def read_only(self) -> bool:
        """Was it opened only to read?"""
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

    # ---- where it stands -------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        """First offset that can be read."""
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log_end_offset

    @property
    def high_watermark(self) -> int:
        """Exclusive bound of what consumers see. A single copy's log end, until somebody sets it; for a reader, what a
        checkpoint says."""
        watermark = self._high_watermark
        if watermark is not None:
            return watermark.offset
        bound = self._options.high_watermark
        if bound is None or not self.read_only:
            return self._log_end_offset
        return min(max(bound, self._log_start_offset), self._log_end_offset)

    @property
    def is_managed(self) -> bool:
        """Has somebody set the high watermark? Until then it is the log end."""
        return self._high_watermark is not None

    @property
    def last_stable_offset(self) -> int:
        """Exclusive bound of what read_committed consumers see: no transaction is open below it, or decided by a marker
        that the high watermark has not reached."""
        high_watermark, producers = self.high_watermark, self._producer_state()
        if self.read_only:  # of a writer's log, marks says it
            with self._lock:
                producers.on_high_watermark_updated(high_watermark)
        first = producers.first_unstable_offset
        return high_watermark if first is None else min(max(first.offset, self._log_start_offset), high_watermark)

    @property
    def high_watermark_metadata(self) -> OffsetMetadata:
        """The high watermark, and where it is."""
        with self._lock:
            return high_watermark.positioned_locked(self)

    def fetch_offset_snapshot(self) -> OffsetSnapshot:
        """Log start, log end, high watermark and last stable offset of one moment, with their places."""
        with self._lock:
            return high_watermark.snapshot_locked(self)

    def maybe_convert_to_offset_metadata(self, offset: int) -> OffsetMetadata:
        """An offset, and where it is if the log holds it."""
        offset = whole_number("offset", offset)
        return high_watermark.metadata_of(self, offset)

    def check_held(self, offset: int) -> None:
        """OffsetOutOfRange for an offset below the log start or above the log end, where nothing is or will be."""
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
        """Of these segments, which are or were the log's: walked over when they are first asked for."""
        known = self._sizes
        if known.segments is not segments:
            known = self._sizes = Sizes(segments)
        return known

    def metrics(self, *, page_cache: bool = False) -> dict[str, float]:
        """Gauges, and of a log that is written the counters since it was opened, under the names of Kafka's metrics.

        PageCacheSampledReadBytes and PageCacheHitReadBytes: of the bytes that were read, one read in sixteen, how many
        came from memory. page_cache: also PageCacheBytes, PageCacheDirtyBytes, PageCacheWritebackBytes and
        PageCacheEvictedBytes, for which the kernel is asked about every segment; see page_cache().
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
        """Read [start, stop), or its newest `bytes`, into the page cache before somebody waits for it, with the
        indexes, on a few threads, for at most `timeout` seconds; how far that came. cancel: set it to stop. What cannot
        be read is logged and left out.

        Raises ValueError.
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
        """What of the log is in the page cache, segment by segment: cached, dirty, being written, evicted. Nothing is
        read for it. cells: into how many parts each segment is divided to show which are hot; 0: none.

        Raises PermissionError where the kernel does not tell: it tells who may write the files.
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
        """What is known of each producer id."""
        return dict(sorted(self._producer_state().states.items()))

    def _producer_state(self) -> Any:
        """Producers up to the log end; a reader works them out when first asked."""
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
                self._aborted_finder.forget()  # the replay may have met markers that an index did not know
        return producers

    def aborted_transactions(self, start: int | None = None, stop: int | None = None) -> list[AbortedTransaction]:
        """Aborted transactions with records or marker in [start, stop), in the order of their markers."""
        low = self._log_start_offset if start is None else whole_number("start", start)
        high = self._log_end_offset if stop is None else whole_number("stop", stop)
        return self._steadily(lambda: self._aborted(self._segments, low, high, self._has_producers()))

    def _has_producers(self) -> Callable[[], bool]:
        """Whether producers write here: one scan of the directory for all questions of one caller, and none if there
        are none."""
        return functools.cache(lambda: has_producers(self._directory))

    def _aborted(
        self, segments: Sequence[Segment], low: int, high: int, producers: Callable[[], bool]
    ) -> list[AbortedTransaction]:
        """What aborted_transactions() lists. segments: those that the data is read from; a cleaner may have put others
        in their place by now, which know no more of what it has removed."""
        return self._aborted_finder.find(segments, low, high, lambda segment: self._aborted_in(segment, producers))

    def _aborted_in(self, segment: Segment, producers: Callable[[], bool]) -> Sequence[AbortedTransaction]:
        """A segment's aborted transactions. In a log that has producers the markers are looked up once: a lost or
        wrong cache must not make aborted records visible."""
        index = segment.txn_index
        if index.settled:
            return index.entries
        with self._lock:
            self._lock.check(self, "a first look at aborted transactions")
            index = segment.txn_index  # another one where the directory got another name meanwhile
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
        """The records of [start, stop): an offset, "earliest", "latest", an aware datetime, ISO text or "-3h" each.

        Iterate it for Record objects, or ask it for .batches(), .to_arrow(). The end is fixed now: records appended
        later are not in it. scan: you are not coming back to them soon; what this brings into the page cache goes again
        behind it (klog.io.scan.drop.behind). Raises OffsetOutOfRange, ValueError; while you read, ReadFailed.
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
        """Records from start on, as they arrive; `for` or `async for`. Ends after `timeout` seconds without any.

        It sleeps while there is nothing, whoever writes: this process or another. Raises OffsetOutOfRange when what
        comes next was deleted or truncated before it was read.
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

        What is truncated or deleted before it was read is OffsetOutOfRange, whoever writes.
        """
        self._check_open()
        if type(start) is not int or type(stop) is not int or type(max_bytes) is not int or type(scan) is not bool:
            start, stop, scan = whole_number("start", start), whole_number("stop", stop), flag("scan", scan)
            max_bytes = whole("max_bytes", max_bytes)
        if not 0 < max_bytes <= LONG_MAX or not LONG_MIN <= start <= LONG_MAX or not LONG_MIN <= stop <= LONG_MAX:
            raise ValueError(f"start={start}, stop={stop}, max_bytes={max_bytes}: 64 bits each, max_bytes above 0")
        if isolation not in ISOLATIONS:
            raise unknown_isolation(isolation)
        offset = start
        while offset < stop:
            self.check_held(offset)
            moment = self._moment()
            try:
                for chunk, next_offset in self._chunks(offset, stop, isolation, max_bytes, scan):
                    if not steady(self, moment):
                        break  # it may be a mixture of two moments: look again
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
        """Let an error that a reader at this offset has met say where reading can go on."""
        if not isinstance(error, CorruptBatch) or error.next_offset is not None:
            return
        segments = self._segments
        number = next((n for n, segment in enumerate(segments) if segment.path == error.path), None)
        if number is None:
            return
        try:
            found = segments[number].sound_behind(error.position or 0, offset + 1)
        except OSError:  # the segment has gone meanwhile: the damage is what the reader is to know
            return
        if found is not None:
            error.next_offset = max(found.base_offset, offset + 1)
            return
        later = (segment.base_offset for segment in segments[number + 1 :] if segment.base_offset > offset)
        error.next_offset = next(later, max(self._log_end_offset, offset))

    def _read_failed(self, error: OSError) -> None:
        """Who reads is told of it; several in a row mean that the disk is broken, and so the log goes offline (P6)."""
        self._reads_failed += is_final(error)
        if self._reads_failed >= _READS_FAILED_MAX and not self.read_only and self._offline is None:
            self._disk_failed(f"{self._reads_failed} reads in a row failed: {error}")

    def _noting(self, offset: int, look: Callable[[], T]) -> T:
        """_steadily(look) for a reader at this offset, and whether the disk could not read. A good one is no news:
        headers are in memory."""
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
        """Before the lock goes: no view of a file that another process may shorten is left, and none is made."""
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
        """What a writer does about it."""

    def _chunks(
        self, offset: int, stop: int, isolation: Isolation, max_bytes: int, scan: bool
    ) -> Iterator[tuple[FetchedChunk, int]]:
        """Each chunk, and the offset behind it."""
        producers = self._has_producers()
        while offset < stop:
            behind, segments = None, self._segments
            if scan and segments:
                guess = segments[number_of(segments, offset)]
                behind = self._reading.behind(self, guess)
            found = locate(segments, offset)
            if found is None:
                return
            segment, position = found
            if behind is not None and segment is not guess:
                behind.finish()
                behind = self._reading.behind(self, segment)
            if offset < segment.base_offset and offset < self._log_start_offset:
                return  # what comes next is gone; in a segment that is, who has begun to read it may go on
            located = position
            with self._reading.way(self, segment, scan, behind) as way:
                while offset < stop and position < segment.size:
                    try:
                        chunk, next_offset = way.chunk(position, max_bytes)
                    except CorruptBatch as error:
                        if segment is segments[-1] or offset < segment.next_offset or error.offset is not None:
                            raise
                        # Bytes behind the last record of a closed segment: nothing is missing, the next one goes on.
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
        """Raw batches from the one that holds `offset` on: whole batches of one segment, at most max_bytes of them, or
        the first one alone where that is larger (min_one_message). Nothing at or beyond the isolation's bound: size 0.

        Raises OffsetOutOfRange, CorruptBatch, OSError (a disk that fails several times in a row takes the log offline).
        """
        self._check_open()
        if type(offset) is not int or type(max_bytes) is not int or type(min_one_message) is not bool:
            offset, max_bytes = whole_number("offset", offset), whole_number("max_bytes", max_bytes)
            min_one_message = flag("min_one_message", min_one_message)
        return self._noting(offset, lambda: fetch(self, offset, max_bytes, isolation, min_one_message))

    def fetch_range(self, start: int, stop: int | None = None, *, isolation: Isolation = "log_end") -> FetchRange:
        """Raw batches of all of [start, stop), or up to the isolation's bound: the slices of every segment in it, to be
        sent one after the other. Whole batches: the last one may reach beyond stop.

        Raises OffsetOutOfRange, CorruptBatch.
        """
        self._check_open()
        start, stop = whole_number("start", start), None if stop is None else whole_number("stop", stop)
        return self._noting(start, lambda: fetch_range(self, start, stop, isolation))

    def count(self, start: Position | None = None, stop: Position | None = None) -> int:
        """Number of records in [start, stop), control records not counted, from batch headers.

        Only batches that cross a bound are opened. Aborted transactions count, as for any reader but read_committed.
        """
        self._check_open()
        return self._steadily(lambda: count(self, start, stop))

    def offset_for_timestamp(self, ms: int) -> TimestampOffset | None:
        """The first record at or above log_start_offset whose timestamp is >= ms, or None.

        Exact, through the time index. Control records and aborted data count, as for Kafka. A segment that promises a
        hit and has none does not end the search.
        """
        self._check_open()
        ms = whole_number("ms", ms)
        return self._steadily(lambda: offset_for_timestamp(self, ms))

    def list_offset(self, target: str | int, *, isolation: Isolation = "log_end") -> ListedOffset | None:
        """The offset that "earliest", "latest", "max_timestamp", a time in ms, or one of Kafka's numbers for such words
        stands for, with the record's timestamp and leader epoch; None where there is no such record.

        isolation: what "latest" means, and what counts as there at all. Raises ValueError.
        """
        self._check_open()
        self.bound(isolation)
        return self._steadily(lambda: list_offset(self, target, isolation))

    def legacy_fetch_offsets_before(self, ms: int, count: int) -> list[int]:
        """First offsets of at most `count` segments whose files were last written at or before ms, the newest first.

        -1 (latest) begins with the log end, -2 (earliest) is the log start alone.
        """
        self._check_open()
        return offsets_before(self, whole_number("ms", ms), whole("count", count, 0))

    def verify(self, progress: Progress | None = None) -> Report:
        """Check every invariant of the directory, reading all of it and changing nothing.

        What lies behind the end of a log that is being written, zeros ahead of it above all, is not of the log.
        """
        from klog.inspect import verify

        function("progress", progress)
        active = None if self.read_only or not self._segments else self._segments[-1]
        end = 0 if active is None else active.size
        report = verify(self._directory, progress=progress)
        if active is not None and active.active:
            report.problems = [
                one
                for one in report.problems
                if not (one.kind == "length" and one.path == active.path and (one.position or 0) >= end)
            ]
        return report

    # ---- following another process -----------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Look what a writer in another process has done since: new records, new segments, segments gone, what was
        truncated. following says what a reader may rely on.

        A writable log is always up to date.
        """
        self._check_open()
        if self.read_only:
            with self._lock:
                refresh_locked(self)

    def _moment(self) -> Moment:
        return Moment(self._generation, self._taken_back, self._segments)

    def _follow_epochs(self) -> None:
        """The writer may have begun a new leader epoch."""
        epochs = LeaderEpochCache(self._directory, self._options.files)
        epochs.load()
        if epochs.problem is None and epochs.entries:
            self._epochs = epochs

    def _steadily(self, work: Callable[[], T]) -> T:
        """What work() finds in the files; once more, if a writer has changed them beside it. A truncation counts before
        its first byte goes, and what goes beyond the log end when it has gone: what was found by then is of one
        moment."""
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
        """UnknownTopicOrPartition in place of an error that is due to the whole log having gone."""
        if isinstance(error, FileNotFoundError) and self._is_gone():
            parent = os.path.dirname(self._directory)
            raise UnknownTopicOrPartition(
                f"{self.name} is not in {parent} any more: it was deleted, or moved to another log.dir while it was "
                f"read. `klog ls {parent}` lists what is there"
            ) from error

    def _is_gone(self) -> bool:
        """Has its directory been removed from a log.dir that is still there?"""
        parent = os.path.dirname(self._directory)
        return not os.path.isdir(self._directory) and os.path.isdir(parent)
