"""LogView: the reading half of a log, for its own writer and for readers beside another process's writer.

Reads take no lock: they work on an immutable tuple of segments and on a log end that is set after the bytes are there.
refresh() and what a reader works out late (producers, lost transaction indexes) take it. Kafka: UnifiedLog, LocalLog.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from klog.clock import Clock
from klog.config import LogConfig
from klog.errors import (
    CorruptBatch,
    CorruptCheckpoint,
    LogClosed,
    OffsetOutOfRange,
)
from klog.log import checkpoint
from klog.log.fetching import FetchData, Isolation, fetch
from klog.log.load import (
    Inputs,
    Loaded,
    Recovery,
    has_producers,
    load_read_only,
    load_writable,
    new_segment,
    producers_at,
    rebuild_txn_index,
)
from klog.log.offset_lookup import ListedOffset, list_offset, offsets_before
from klog.log.producers import ProducerState
from klog.log.reader import CHUNK_BYTES, FetchedChunk, LogReader, LogTail, aborted_ranges
from klog.log.terms import Options
from klog.log.times import Position, resolve, whole_number
from klog.record import iter_records
from klog.segment import AbortedTransaction, Home, Segment, count_records, names

if TYPE_CHECKING:
    from klog.inspect import Report
    from klog.progress import Progress

_log = logging.getLogger("klog.log")


class TimestampOffset(NamedTuple):
    """A record found by time."""

    timestamp: int
    offset: int


def _number(segments: Sequence[Segment], offset: int) -> int:
    """Which segment an offset belongs to: the last one that begins at or below it, else the first."""
    return max(bisect.bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0)


class LogView:
    """The reading half of a Log: what a loaded directory holds, and every way to read it."""

    def __init__(self, directory: str, options: Options) -> None:
        self._lock = threading.RLock()
        self._closed = True
        self._directory = directory
        self._options = options
        self._config = options.config
        self._home: Home | None = None
        loaded = self._load()
        self._segments: tuple[Segment, ...] = tuple(loaded.segments)
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self._log_start_offset = loaded.log_start_offset
        self._recovery_point = loaded.recovery_point
        self._recovery = loaded.recovery
        end = loaded.segments[-1].next_offset if loaded.segments else loaded.log_start_offset
        self._log_end_offset = max(end, loaded.log_start_offset)
        self._directory_mtime = -1
        self._high_watermark_state: tuple[int, int] | None = None
        self._closed = False

    # ---- loading -------------------------------------------------------------------------------------------------

    def _load(self) -> Loaded:
        options = self._options
        inputs = self._inputs()
        loaded = load_read_only(inputs) if options.read_only else load_writable(inputs)
        self._home = inputs.home
        return loaded

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
        """Exclusive bound of what consumers see. A single copy's log end; for a reader, what a checkpoint says."""
        bound = self._options.high_watermark
        if bound is None or not self.read_only:
            return self._log_end_offset
        return min(max(bound, self._log_start_offset), self._log_end_offset)

    @property
    def last_stable_offset(self) -> int:
        """Exclusive bound of what read_committed consumers see: no transaction is open below it."""
        first_open = self._producer_state().first_undecided_offset
        return self.high_watermark if first_open is None else min(first_open, self.high_watermark)

    def bound(self, isolation: Isolation) -> int:
        """The exclusive bound of an isolation level."""
        if isolation == "log_end":
            return self._log_end_offset
        if isolation == "high_watermark":
            return self.high_watermark
        if isolation == "read_committed":
            return self.last_stable_offset
        raise ValueError(f"isolation {isolation!r}: choose from 'log_end', 'high_watermark', 'read_committed'")

    @property
    def size(self) -> int:
        """Bytes of all .log files."""
        return sum(segment.size for segment in self._segments)

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
                producers = producers_at(self._inputs(), self._segments, {}, start, end, trusted)
                producers.expire(self.clock.wall_ms(), self._options.producer_expiration_ms)
                self._producers = producers
        return producers

    def aborted_transactions(self, start: int | None = None, stop: int | None = None) -> list[AbortedTransaction]:
        """Aborted transactions with records or marker in [start, stop), in the order of their markers."""
        low = self._log_start_offset if start is None else start
        high = self._log_end_offset if stop is None else stop
        return list(self._aborted(low, high, self._has_producers()))

    def _has_producers(self) -> Callable[[], bool]:
        """Whether producers write here: one scan of the directory for all questions of one caller, and none if there
        are none."""
        return functools.cache(lambda: has_producers(self._directory))

    def _aborted(self, low: int, high: int, producers: Callable[[], bool]) -> Iterator[AbortedTransaction]:
        """What aborted_transactions() lists."""
        segments = self._segments
        for segment in segments[_number(segments, low) :]:
            for entry in self._aborted_in(segment, producers):
                if entry.last_offset >= low and entry.first_offset < high:
                    yield entry
                if high <= entry.last_stable_offset <= entry.last_offset + 1:
                    return  # what aborts later began at or behind high

    def _aborted_in(self, segment: Segment, producers: Callable[[], bool]) -> Sequence[AbortedTransaction]:
        """A segment's aborted transactions. Where the file is missing in a log that has producers, the markers are
        looked up once: a lost cache must not make aborted records visible."""
        index = segment.txn_index
        if not index.checked:
            with self._lock:
                if not index.checked and not index.present and producers():
                    rebuild_txn_index(self._inputs(), self._segments, segment)
                index.checked = True
        return index.entries

    # ---- read ------------------------------------------------------------------------------------------------------

    def read(
        self,
        start: Position | None = None,
        stop: Position | None = None,
        *,
        isolation: Isolation = "high_watermark",
        include_control: bool = False,
    ) -> LogReader:
        """The records of [start, stop): an offset, "earliest", "latest", an aware datetime, ISO text or "-3h" each.

        Iterate it for Record objects, or ask it for .batches(), .to_arrow(). The end is fixed now: records appended
        later are not in it. Raises OffsetOutOfRange, ValueError.
        """
        self._check_open()
        now = self.clock.wall_ms()
        bound = self.bound(isolation)
        first = resolve(self, start, self._log_start_offset, now)
        last = min(resolve(self, stop, bound, now), bound)
        if not self._log_start_offset <= first <= self._log_end_offset:
            raise OffsetOutOfRange(first, self._log_start_offset, self._log_end_offset, self.name)
        return LogReader([(self, first, max(first, last))], isolation, include_control)

    def tail(
        self,
        start: Position | None = "latest",
        *,
        timeout: float | None = None,
        isolation: Isolation = "high_watermark",
    ) -> LogTail:
        """Records from start on, as they arrive; `for` or `async for`. Ends after `timeout` seconds without any."""
        self._check_open()
        first = resolve(self, start, self._log_start_offset, self.clock.wall_ms())
        if not self._log_start_offset <= first <= self._log_end_offset:
            raise OffsetOutOfRange(first, self._log_start_offset, self._log_end_offset, self.name)
        return LogTail(self, first, timeout, isolation)

    def chunks(
        self, start: int, stop: int, isolation: Isolation = "log_end", max_bytes: int = CHUNK_BYTES
    ) -> Iterator[FetchedChunk]:
        """Raw batches of [start, stop), chunk by chunk."""
        self._check_open()
        offset = start
        producers = self._has_producers()
        while offset < stop:
            found = self._locate(offset)
            if found is None:
                return
            segment, position = found
            located = position
            while offset < stop and position < segment.size:
                try:
                    chunk, next_offset = segment.read_chunk(position, max_bytes)
                except CorruptBatch as error:
                    if segment is self._segments[-1] or offset < segment.next_offset:
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
                    aborted = list(self._aborted(offset, next_offset, producers))
                yield FetchedChunk(
                    chunk, segment.path, position, offset, min(stop, next_offset), aborted_ranges(aborted)
                )
                position += len(chunk)
                offset = max(offset, next_offset)
            offset = max(offset, segment.next_offset)

    def _locate(self, offset: int) -> tuple[Segment, int] | None:
        """Segment and byte of the first batch whose last offset is at or above offset; None behind the last one."""
        segments = self._segments
        for segment in segments[_number(segments, offset) :]:
            if segment.size:
                header = segment.locate(offset)
                if header is not None:
                    return segment, header.position
        return None

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

        Raises OffsetOutOfRange, CorruptBatch.
        """
        self._check_open()
        return fetch(self, whole_number("offset", offset), max_bytes, isolation, min_one_message)

    def count(self, start: Position | None = None, stop: Position | None = None) -> int:
        """Number of records in [start, stop), control records not counted, from batch headers.

        Only batches that cross a bound are opened. Aborted transactions count, as for any reader but read_committed.
        """
        self._check_open()
        now = self.clock.wall_ms()
        low = max(resolve(self, start, self._log_start_offset, now), self._log_start_offset)
        high = min(resolve(self, stop, self._log_end_offset, now), self._log_end_offset)
        total = 0
        for segment in self._segments:
            if segment.base_offset >= high or not segment.size or (segment.next_offset <= low):
                continue
            located = segment.locate(low) if low > segment.base_offset else None
            position = located.position if located is not None else 0
            records, crossing, end, reason = count_records(
                segment.file, position, segment.size, low, high, segment.next_offset
            )
            if reason:
                raise CorruptBatch(
                    "no batch begins here: run `klog verify` on the directory", path=segment.path, position=end
                )
            total += records
            for header in crossing:
                data = segment.file.read(header.position, header.size)
                records_in = iter_records(
                    data, start=low, stop=high, path=segment.path, file_position=header.position, lazy=True
                )
                total += sum(1 for _ in records_in)
        return total

    def offset_for_timestamp(self, ms: int) -> TimestampOffset | None:
        """The first record at or above log_start_offset whose timestamp is >= ms, or None.

        Exact, through the time index. Control records and aborted data count, as for Kafka. A segment that promises a
        hit and has none does not end the search.
        """
        self._check_open()
        ms = whole_number("ms", ms)
        segments = self._segments
        for segment in segments:
            if segment.size and (segment is segments[-1] or segment.next_offset > self._log_start_offset):
                if segment.max_timestamp < ms and ms > 0:  # a lone record of 1970 looks like an empty time index
                    continue
                found = segment.find_timestamp(ms, self._log_start_offset)
                if found is not None:
                    # Beyond the log end: an append that is not through yet, and may be taken back.
                    return TimestampOffset(*found) if found[1] < self._log_end_offset else None
        return None

    def list_offset(self, target: str | int, *, isolation: Isolation = "log_end") -> ListedOffset | None:
        """The offset that "earliest", "latest", "max_timestamp", a time in ms, or one of Kafka's numbers for such words
        stands for, with the record's timestamp and leader epoch; None where there is no such record.

        isolation: what "latest" means, and what counts as there at all. Raises ValueError.
        """
        self._check_open()
        return list_offset(self, target, isolation)

    def legacy_fetch_offsets_before(self, ms: int, count: int) -> list[int]:
        """First offsets of at most `count` segments whose files were last written at or before ms, the newest first.

        -1 (latest) begins with the log end, -2 (earliest) is the log start alone.
        """
        self._check_open()
        return offsets_before(self, whole_number("ms", ms), count)

    def verify(self, progress: Progress | None = None) -> Report:
        """Check every invariant of the directory, reading all of it and changing nothing."""
        from klog.inspect import verify

        return verify(self._directory, progress=progress)

    # ---- following another process -----------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Look what a writer in another process has done since: new records, new segments, segments gone.

        A writable log is always up to date.
        """
        self._check_open()
        if not self.read_only:
            return
        with self._lock:
            self._follow_high_watermark()
            mtime = os.stat(self._directory).st_mtime_ns
            try:
                if mtime != self._directory_mtime or self._has_rolled():
                    self._relist()
                    self._directory_mtime = mtime
                self._follow_end()
            except FileNotFoundError:  # deleted since it was listed
                self._directory_mtime = -1

    def _has_rolled(self) -> bool:
        """Is there a segment at the log end? The directory's time alone may miss one: on older kernels it moves in
        ticks of some milliseconds."""
        end = self._log_end_offset
        return (not self._segments or self._segments[-1].base_offset != end) and os.path.exists(
            names.file_path(self._directory, end, names.LOG)
        )

    def _follow_end(self) -> None:
        if not self._segments:
            return
        active = self._segments[-1]
        size = os.stat(active.path).st_size
        if size < active.size:
            self._reload()
        elif size > active.size:
            active.extend(size)
            self._log_end_offset = max(self._log_end_offset, active.next_offset)

    def _follow_high_watermark(self) -> None:
        """Look what the checkpoint says now: a broker moves it on, a klog that writes takes it away."""
        path = self._options.high_watermark_path
        if path is None:
            return
        state = None
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(path)
            state = found.st_ino, found.st_mtime_ns
        if state is not None and state == self._high_watermark_state:
            return
        with contextlib.suppress(CorruptCheckpoint):
            self._options.high_watermark = checkpoint.read_offsets(path).get((self.topic, self.partition))
            self._high_watermark_state = state

    def _relist(self) -> None:
        """Follow rolls and deletions."""
        present = {}
        for name in os.listdir(self._directory):
            parsed = names.parse_name(name)
            if parsed is not None and parsed[1] == names.LOG:
                present[parsed[0]] = name
        known = {segment.base_offset: segment for segment in self._segments}
        if not set(known) - set(present) and max(known, default=-1) == max(present, default=-1):
            return
        bases = sorted(present)
        if known and bases and max(known) not in present:
            self._reload()
            return
        segments: list[Segment] = []
        for number, base in enumerate(bases):
            segment = known.get(base) or new_segment(self._inputs(), base, writable=False)
            if base not in known or segment is self._segments[-1]:
                segment.extend(os.stat(segment.path).st_size)
            if number + 1 < len(bases):
                segment.next_offset = max(segment.next_offset, bases[number + 1])
            segments.append(segment)
        self._segments = tuple(segments)
        if segments:
            self._log_start_offset = max(self._log_start_offset, segments[0].base_offset)
            self._log_end_offset = max(self._log_end_offset, segments[-1].next_offset)

    def _reload(self) -> None:
        """Start afresh: the writer has truncated or replaced what this reader knew."""
        for segment in self._segments:
            segment.close()  # a file of the same name may be another one now
        loaded = self._load()
        self._segments = tuple(loaded.segments)
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self._log_start_offset = loaded.log_start_offset
        end = loaded.segments[-1].next_offset if loaded.segments else loaded.log_start_offset
        self._log_end_offset = max(end, loaded.log_start_offset)
