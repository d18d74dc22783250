"""Log: one partition's records, in order, in a directory of segments.

  L1  an append that returned is in the page cache: it survives the death of this process (P1)
  L2  an append that raised left log_end_offset and the readable bytes as they were
  L3  the previous segment is on disk before a new one is created, so what a crash loses is a tail, never a hole (P3)
  L4  after a failed fsync or a failed roll-back of a write, the log takes no more appends until it is reopened (P6)

One writer at a time: append, roll, flush and close take the log's lock, any thread may call them. Reads take no lock:
they work on an immutable tuple of segments and on a log end that is set after the bytes are there.
Kafka: UnifiedLog, LocalLog.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from klog.clock import Clock, SystemClock
from klog.config import LogConfig
from klog.disk import Files, HandleCache, RealFiles
from klog.errors import (
    CorruptBatch,
    CorruptCheckpoint,
    ForkedHandle,
    LogClosed,
    OffsetOutOfRange,
    ReadOnly,
    RecordBatchTooLarge,
    RecordTooLarge,
    StorageOffline,
)
from klog.log import checkpoint
from klog.log.load import (
    Inputs,
    Loaded,
    Policy,
    Recovery,
    has_producers,
    load_read_only,
    load_writable,
    new_segment,
    producers_at,
    rebuild_txn_index,
)
from klog.log.producers import ProducerState, write_snapshot
from klog.log.reader import CHUNK_BYTES, FetchData, FetchedChunk, Isolation, LogReader, LogTail, aborted_ranges
from klog.log.times import Position, resolve, whole_number
from klog.record import BatchGroup, Encoder, Record, iter_records
from klog.segment import AbortedTransaction, Segment, count_records, names
from klog.segment import base_offset as group_base_offset
from klog.segment import next_offset as group_next_offset

if TYPE_CHECKING:
    from klog.inspect import Report
    from klog.progress import Progress

_log = logging.getLogger("klog.log")
Durability = Literal["os", "sync"]
Compression = str | tuple[str, int] | None
Records = Iterable[Any]
BATCH_BYTES = 256 << 10
GROUP_BYTES = 8 << 20
_NO_BOUND = 2**62
_TIMESTAMP_LOW, _TIMESTAMP_HIGH = -(2**63), 2**63 - 1


class TimestampOffset(NamedTuple):
    """A record found by time."""

    timestamp: int
    offset: int


@dataclass(frozen=True, slots=True)
class AppendInfo:
    """What an append did. log_append_time and max_timestamp in ms, -1 for none. Kafka: LogAppendInfo."""

    first_offset: int
    last_offset: int
    count: int
    max_timestamp: int
    log_append_time: int


@dataclass(frozen=True, slots=True)
class Terms:
    """What a configuration means for an append, worked out once. stamps: is the time that of the append?"""

    compression: Compression
    batch_bytes_max: int
    message_bytes_max: int
    before_max_ms: int
    after_max_ms: int
    stamps: bool
    key_required: bool

    @classmethod
    def of(cls, config: LogConfig) -> Terms:
        """The terms of a topic's configuration."""
        kind: str = config.compression_type
        compression: Compression = "none"
        if kind not in ("producer", "uncompressed"):
            compression = kind if kind == "snappy" else (kind, config[f"compression.{kind}.level"])
        message_bytes_max = min(config.max_message_bytes, config.segment_size)
        return cls(
            compression,
            min(BATCH_BYTES, message_bytes_max),
            message_bytes_max,
            min(config.message_timestamp_before_max_ms, _NO_BOUND),
            min(config.message_timestamp_after_max_ms, _NO_BOUND),
            config.message_timestamp_type == "LogAppendTime",
            config.compacts,
        )


@dataclass(slots=True)
class Options:
    """How a log is to be opened; filled by Log.open or by the manager of its directory."""

    topic: str
    partition: int
    config: LogConfig
    read_only: bool
    recovery: Policy
    durability: Durability
    clean_shutdown: bool
    recovery_point: int
    log_start_offset: int
    high_watermark: int | None
    topic_id: uuid.UUID | None
    clock: Clock
    files: Files
    handles: HandleCache
    producer_expiration_ms: int = 86_400_000
    config_known: bool = False
    high_watermark_path: str | None = None  # the checkpoint that high_watermark came from, for readers who follow it


def check_records(records: object) -> None:
    """Raise TypeError, and say what to give instead, for what is no iterable of records though it may look like one."""
    if isinstance(records, Record):
        raise TypeError("records is an iterable: put a single klog.Record into a list, [record]")
    if hasattr(records, "__arrow_c_stream__") or hasattr(records, "__arrow_c_array__"):
        raise TypeError(
            f"{type(records).__name__}: Arrow data are not taken yet; give tuples, such as "
            f"zip(table['key'].to_pylist(), table['value'].to_pylist())"
        )
    if isinstance(records, str | bytes | Mapping) or not isinstance(records, Iterable):
        raise TypeError(f"records is an iterable of klog.Record or tuples, not {type(records).__name__}")


class Log:
    """One partition. Get it from LogManager.log() or Log.open(); see the module for who may call what.

    A log that is forgotten instead of closed warns with ResourceWarning, and the next open is an unclean one.
    """

    def __init__(self, directory: str, options: Options) -> None:
        self._lock = threading.RLock()
        self._closed = True
        self._pid = os.getpid()
        self._directory = directory
        self._options = options
        self._config = options.config
        self._terms = Terms.of(options.config)
        self._offline: str | None = None
        self._owner: Any = None  # what to release at close: the locks of Log.open
        self._on_flush: Any = None
        loaded = self._load()
        self._segments: tuple[Segment, ...] = tuple(loaded.segments)
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self._log_start_offset = loaded.log_start_offset
        self._recovery_point = loaded.recovery_point
        self._recovery = loaded.recovery
        end = loaded.segments[-1].next_offset if loaded.segments else loaded.log_start_offset
        self._log_end_offset = max(end, loaded.log_start_offset)
        self._flushed_ms = options.clock.wall_ms()
        self._directory_mtime = -1
        self._high_watermark_state: tuple[int, int] | None = None
        if not options.read_only:
            self._prepare_to_write()
        self._closed = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        config: LogConfig | Mapping[str, Any] | None = None,
        recovery: Policy = "strict",
        read_only: bool = False,
        durability: Durability | None = None,
        clean_shutdown: bool | None = None,
        recovery_point: int | None = None,
        log_start_offset: int | None = None,
        high_watermark: int | None = None,
        topic_id: uuid.UUID | str | None = None,
        clock: Clock | None = None,
        files: Files | None = None,
    ) -> Self:
        """Open one partition directory, `<topic>-<n>`, alone; for writing it is created if it is not there.

        What is None comes from the checkpoints and the clean-shutdown marker of the parent directory where they exist:
        no marker means an unclean stop, no checkpoint 0. Raises AlreadyLocked, CorruptLog, InvalidConfig,
        UnknownTopicOrPartition.
        """
        from klog.log.standalone import open_standalone

        return open_standalone(
            cls,
            os.fspath(path),
            config=config,
            recovery=recovery,
            read_only=read_only,
            durability=durability or "os",
            clean_shutdown=clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            topic_id=topic_id,
            clock=clock or SystemClock(),
            files=files or RealFiles(),
        )

    # ---- loading -------------------------------------------------------------------------------------------------

    def _load(self) -> Loaded:
        options = self._options
        inputs = self._inputs()
        return load_read_only(inputs) if options.read_only else load_writable(inputs)

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
        )

    def _prepare_to_write(self) -> None:
        active = self._segments[-1]
        fresh = not os.path.exists(active.path)
        active.activate()
        if fresh:
            self._options.files.fsync_dir(self._directory)
        if not os.path.exists(self._epochs.path):
            self._epochs.flush()
        if self._options.topic_id is not None:
            self._write_metadata(self._options.topic_id)

    def _write_metadata(self, topic_id: uuid.UUID) -> None:
        path = os.path.join(self._directory, names.METADATA)
        if not os.path.exists(path) or os.stat(path).st_size == 0:
            self._options.files.replace(path, checkpoint.format_metadata(topic_id))

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
        try:
            with open(os.path.join(self._directory, names.METADATA), "rb") as file:
                return checkpoint.parse_metadata(file.read(), file.name)
        except (FileNotFoundError, CorruptCheckpoint):
            return self._options.topic_id

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
        first_open = self._producer_state().first_open_transaction
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
        return [
            entry
            for segment in self._segments
            if segment.next_offset > low or segment is self._segments[-1]
            for entry in self._aborted_in(segment)
            if entry.last_offset >= low and entry.first_offset < high
        ]

    def _aborted_in(self, segment: Segment) -> Sequence[AbortedTransaction]:
        """A segment's aborted transactions. Where the file is missing in a log that has producers, the markers are
        looked up once: a lost cache must not make aborted records visible."""
        index = segment.txn_index
        if not index.checked:
            with self._lock:
                if not index.checked and not index.present and has_producers(self._directory):
                    rebuild_txn_index(self._inputs(), self._segments, segment)
                index.checked = True
        return index.entries

    # ---- append ----------------------------------------------------------------------------------------------------

    def append(self, records: Records, *, compression: Compression = None) -> AppendInfo:
        """Append records; they are numbered from log_end_offset on.

        records: an iterable of klog.Record or of (key, value[, timestamp[, headers]]) tuples. key and value are bytes
        or None, timestamp ms since 1970 (None: now, -1: none), headers [(str, bytes or None), ...]. They are cut into
        batches of at most min(256 KiB, max.message.bytes). A list is appended whole or not at all; of an iterator, each
        group of 8 MiB is. compression: "none", "gzip", "snappy", "lz4", "zstd", or ("zstd", level); None is the
        topic's compression.type.

        Raises RecordTooLarge, InvalidTimestamp, InvalidRecord, TypeError (str instead of bytes), StorageOffline,
        ReadOnly, LogClosed, OSError (disk full: nothing was appended).
        """
        self._check_writable()
        now = self.clock.wall_ms()
        sized = isinstance(records, Sequence)
        if not sized:
            check_records(records)
        encoder = self._encoder(records, compression, now)
        info: AppendInfo | None = None
        while True:
            group = self._next_group(encoder, _NO_BOUND if sized else GROUP_BYTES)
            if group is None:
                break
            with self._lock:
                self._check_writable()
                appended = self._append_group_locked(group, now)
            if info is not None:
                appended = AppendInfo(
                    info.first_offset,
                    appended.last_offset,
                    info.count + appended.count,
                    max(info.max_timestamp, appended.max_timestamp),
                    appended.log_append_time,
                )
            info = appended
        if info is None:
            end = self._log_end_offset
            return AppendInfo(end, end - 1, 0, -1, -1)
        return info

    def _next_group(self, encoder: Encoder, bytes_max: int) -> BatchGroup | None:
        """The encoder's next group; the bound it was given is the smaller of two, and each has its own error."""
        try:
            return encoder.next_group(bytes_max)
        except RecordTooLarge as error:
            if self._config.segment_size >= self._config.max_message_bytes:
                raise
            raise RecordBatchTooLarge(str(error).replace("max.message.bytes", "segment.bytes")) from None

    def _encoder(self, records: Records, compression: Compression, now: int) -> Encoder:
        terms = self._terms
        return Encoder(
            records,
            compression=terms.compression if compression is None else compression,
            batch_bytes_max=terms.batch_bytes_max,
            message_bytes_max=terms.message_bytes_max,
            timestamp_default=now,
            timestamp_min=_TIMESTAMP_LOW if terms.stamps else now - terms.before_max_ms,
            timestamp_max=_TIMESTAMP_HIGH if terms.stamps else now + terms.after_max_ms,
            log_append_time=now if terms.stamps else -1,
            key_required=terms.key_required,
        )

    def _append_group_locked(self, group: BatchGroup, now: int) -> AppendInfo:
        """Number a group and write it, rolling where a segment is full. All of it, or none of it."""
        first = self._log_end_offset
        epoch = self._epochs.latest
        if epoch is None:
            epoch = 0
            self._epochs.assign(0, first)
            self._guard(self._epochs.flush)
        group.assign(first, epoch)
        before, mark = self._segments, self._segments[-1].mark()
        try:
            self._write_locked(group, now)
            if self._options.durability == "sync":
                self._guard(self._segments[-1].sync_data)
            self._log_end_offset = self._segments[-1].next_offset
        except BaseException as error:  # Ctrl-C in the middle, too, leaves the whole group or nothing
            if self._log_end_offset == first:
                self._undo_locked(before, mark, error)
            raise
        unflushed, waited = self._log_end_offset - self._recovery_point, now - self._flushed_ms
        if unflushed >= self._config.flush_messages or waited >= self._config.flush_ms:
            self.flush()
        append_time = now if self._terms.stamps else -1
        return AppendInfo(first, self._log_end_offset - 1, group.count, group.max_timestamp, append_time)

    def _write_locked(self, group: BatchGroup, now: int) -> None:
        done = 0
        while done < group.n:
            active = self._segments[-1]
            fits = active.fit(group, done, now)
            if fits == 0:
                if active.size == 0:
                    raise RecordBatchTooLarge(
                        f"a batch does not fit into a segment of segment.bytes={self._config.segment_size}; raise it"
                    )
                self._roll_locked(group_base_offset(group, done))
                continue
            active.append(group, done, done + fits)
            done += fits
        self._producers.end_offset = group_next_offset(group, group.n - 1)

    def _undo_locked(self, before: tuple[Segment, ...], mark: tuple[int, int, bytes], error: BaseException) -> None:
        """Take back what a failed append or roll has written; if that fails too, or a sync was what failed, the log
        goes (or is) offline and the next load decides from disk.

        Durably: what was taken back must not come back behind the next append (P3).
        """
        if self._offline is not None:
            return
        self._offline = f"{error!r}, not undone yet"
        try:
            added, self._segments = self._segments[len(before) :], before
            for segment in added:
                segment.delete_files()
                self._options.files.unlink(names.file_path(self._directory, segment.base_offset, names.SNAPSHOT))
            before[-1].reopen()
            before[-1].rewind(mark)
            if added:
                self._options.files.fsync_dir(self._directory)
            self._recovery_point = min(self._recovery_point, self._log_end_offset)
            self._offline = None
        except OSError as second:
            self._go_offline(f"{error!r}; undoing it failed: {second}")

    # ---- roll, flush, close ------------------------------------------------------------------------------------------

    def roll(self) -> Segment:
        """Close the active segment and begin a new one at the log end; an empty active segment stays as it is."""
        self._check_writable()
        with self._lock:
            self._check_writable()
            before = self._segments
            if before[-1].size:
                mark = before[-1].mark()
                try:
                    self._roll_locked(self._log_end_offset)
                except BaseException as error:
                    self._undo_locked(before, mark, error)
                    raise
            return self._segments[-1]

    def _roll_locked(self, base_offset: int) -> None:
        """L3: the old segments are durable before the new one exists."""
        self._guard(self._sync_closed_locked)
        self._guard(lambda: self._segments[-1].deactivate(sync=True))
        segment = new_segment(self._inputs(), base_offset, writable=True)
        segment.delete_files()
        self._segments = (*self._segments, segment)  # before it is there, so that undoing finds it
        segment.activate()
        write_snapshot(
            self._options.files,
            names.file_path(self._directory, base_offset, names.SNAPSHOT),
            self._producers.states,
        )
        self._recovery_point = base_offset
        _log.info("event=roll log=%s base_offset=%d segments=%d", self.name, base_offset, len(self._segments))
        if self._on_flush is not None:
            self._on_flush(self)

    def _sync_closed_locked(self) -> None:
        """Closed segments above the recovery point: another process wrote them, before a crash."""
        for segment in self._segments[:-1]:
            if segment.next_offset > self._recovery_point:
                segment.sync()

    def flush(self) -> None:
        """Everything appended so far is on disk when this returns (P2). OSError takes the log offline."""
        self._check_writable()
        with self._lock:
            self._check_writable()
            self._guard(self._flush_locked)

    def _flush_locked(self) -> None:
        end = self._log_end_offset
        self._sync_closed_locked()
        self._segments[-1].sync()
        self._options.files.fsync_dir(self._directory)
        self._recovery_point = end
        self._flushed_ms = self.clock.wall_ms()
        if self._on_flush is not None:
            self._on_flush(self)

    @property
    def recovery_point(self) -> int:
        """Offset below which everything is known to be on disk."""
        return self._recovery_point

    def close(self) -> None:
        """Flush, trim the indexes, write the producer snapshot; a second time is no error.

        OSError: the log is closed all the same, and the next open recovers it.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            clean = False
            try:
                if not self.read_only and self._offline is None and os.getpid() == self._pid:
                    self._finish_locked()
                    clean = True
            finally:
                for segment in self._segments:
                    segment.close()
                if self._owner is not None:
                    self._owner.release(self, clean)

    def _finish_locked(self) -> None:
        self._flush_locked()
        self._segments[-1].deactivate(sync=True)
        end = self._log_end_offset
        if end > self._log_start_offset:
            write_snapshot(
                self._options.files, names.file_path(self._directory, end, names.SNAPSHOT), self._producers.states
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self, _warn: Any = warnings.warn) -> None:
        if not getattr(self, "_closed", True) and os.getpid() == self._pid:
            _warn(f"{self!r} was never closed: use `with`, or call close()", ResourceWarning, source=self)
            with contextlib.suppress(Exception):
                self._abandon()

    def _abandon(self) -> None:
        """Let go of handles and locks as a crash would: nothing is flushed, nothing called clean."""
        self._closed = True
        for segment in self._segments:
            segment.close()
        if self._owner is not None:
            self._owner.release(self, False)

    @property
    def closed(self) -> bool:
        """Has close() been called?"""
        return self._closed

    @property
    def offline(self) -> str | None:
        """Why it takes no more appends, None while it does."""
        return self._offline

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed(f"{self.name} is closed: open it again")

    def _check_writable(self) -> None:
        self._check_open()
        if self.read_only:
            raise ReadOnly(f"{self.name} was opened with read_only=True: open it for writing to append")
        if os.getpid() != self._pid:
            raise ForkedHandle(f"{self.name} belongs to process {self._pid}: open it again in this one")
        if self._offline is not None:
            raise StorageOffline(f"{self.name} is offline since {self._offline}: close it and open it again")

    def _go_offline(self, reason: str) -> None:
        self._offline = reason
        _log.error("event=offline log=%s reason=%s", self.name, reason)

    def _guard(self, action: Any) -> None:
        """Run something whose failure is final."""
        try:
            action()
        except OSError as error:
            self._go_offline(str(error))
            raise

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
                    aborted = self.aborted_transactions(offset, next_offset)
                yield FetchedChunk(
                    chunk, segment.path, position, offset, min(stop, next_offset), aborted_ranges(aborted)
                )
                position += len(chunk)
                offset = max(offset, next_offset)
            offset = max(offset, segment.next_offset)

    def _locate(self, offset: int) -> tuple[Segment, int] | None:
        """Segment and byte of the first batch whose last offset is at or above offset; None behind the last one."""
        segments = self._segments
        low, high = 0, len(segments)
        while low < high:
            middle = (low + high) // 2
            if segments[middle].base_offset <= offset:
                low = middle + 1
            else:
                high = middle
        for segment in segments[max(low - 1, 0) :]:
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
        offset = whole_number("offset", offset)
        if max_bytes < 0:
            raise ValueError(f"max_bytes={max_bytes}: not negative")
        high_watermark, stable = self.high_watermark, self.last_stable_offset
        start, end, bound = self._log_start_offset, self._log_end_offset, self.bound(isolation)
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end, self.name)
        chunk, next_offset = None, offset
        found = self._locate(offset) if offset < bound else None
        if found is not None:
            chunk, next_offset = self._fetch_chunk(*found, bound, max_bytes, min_one_message)
        aborted: tuple[AbortedTransaction, ...] = ()
        if isolation == "read_committed":
            aborted = tuple(self.aborted_transactions(offset, next_offset))
        return FetchData(offset, high_watermark, stable, start, aborted, chunk)

    def _fetch_chunk(
        self, segment: Segment, position: int, bound: int, max_bytes: int, min_one: bool
    ) -> tuple[Any, int]:
        limit = segment.size
        if bound < segment.next_offset:
            beyond = segment.locate(bound)
            limit = segment.size if beyond is None else beyond.position
        first = segment.locate_at(position)
        if limit <= position or (first.size > max_bytes and not min_one):
            return None, first.base_offset
        return segment.read_chunk(position, max(first.size, min(max_bytes, limit - position)))

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
            records, crossing, end, reason = count_records(segment.file, position, segment.size, low, high)
            if reason:
                raise CorruptBatch(
                    "no batch begins here: run `klog verify` on the directory", path=segment.path, position=end
                )
            total += records
            for header in crossing:
                data = segment.file.read(header.position, header.size)
                records_in = iter_records(data, start=low, stop=high, path=segment.path, file_position=header.position)
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
                    return TimestampOffset(*found)
        return None

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
