"""Log: the records of one partition, in order, in a directory of segments.

  L1  an append that returned is in the page cache: it survives the death of this process (P1)
  L2  an append that raised left log_end_offset and the readable bytes as they were
  L3  the previous segment is on disk before a new one is created, so a crash loses only a tail, and leaves no gap (P3)
  L4  after a failed fsync, or a failed undo of a write, the log refuses appends until it is reopened (P6)

One writer at a time: append, roll, flush and close take the log's lock; any thread may call them. Reads take no lock:
they use an immutable tuple of segments, and a log end that is set after the bytes are written. state/_log_core.pyx
lists the owners of the state and the order of the locks. Kafka: UnifiedLog, LocalLog.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from klog.arguments import (
    INT_MAX,
    LONG_MAX,
    LONG_MIN,
    chosen,
    file_name,
    flag,
    function,
    having,
    instance,
    optional_whole,
    seconds,
    text,
    whole,
)
from klog.clock import Clock, SystemClock
from klog.codec import load_libraries
from klog.config import LogConfig
from klog.disk import Files, Notifier, RealFiles, Waiter
from klog.disk.warm_up import WarmedUp, warm_up
from klog.log import closing, lifecycle, works
from klog.log.load.loader import Recovery
from klog.log.opening import open_log, options_of_snapshot
from klog.log.options import Compression, Durability, Options, Policy, check_tools, settled
from klog.log.read import isolation as isolation_levels
from klog.log.read import lookup, tail, warm_ranges
from klog.log.read._fetch import FetchData, fetch_shortly
from klog.log.read.aborted_transactions import aborted_in_range
from klog.log.read.chunks import CHUNK_BYTES, FetchedChunk, chunks
from klog.log.read.fetch import fetch_counted
from klog.log.read.fetch_range import FetchRange, fetch_range
from klog.log.read.gauges import metrics_of, page_cache_of
from klog.log.read.isolation import ISOLATIONS, Isolation, producer_state
from klog.log.read.lookup import ListedOffset, TimestampOffset, resolve
from klog.log.read.optional_decoding import optional_decoding
from klog.log.read.positions import Position, whole_number
from klog.log.read.preview import log_html
from klog.log.read.reader import LogReader
from klog.log.read.refresh import refresh
from klog.log.read.steady import check_there, noting, steadily
from klog.log.retain import retention
from klog.log.state import high_watermark
from klog.log.state._log_core import LogCore
from klog.log.state.high_watermark_rules import OffsetMetadata, OffsetSnapshot
from klog.log.state.producers import ProducerState
from klog.log.write import flush, leading, truncate
from klog.log.write._append import append, append_batches
from klog.log.write._append_info import AppendInfo
from klog.log.write.append_batches import Origin
from klog.log.write.roll import roll
from klog.record import Records, column_names
from klog.segment import AbortedTransaction, Segment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from typing_extensions import Buffer

    from klog.decode import Decode
    from klog.log.read.decoding import DeadLetter, OnBad
    from klog.log.read.latest import LatestByKey, LogAsOf
    from klog.log.read.page_cache import LogPageCache
    from klog.log.retain.cleaning_stats import CompactionStats, PurgeStats
    from klog.log.write.shaping import ColumnNames, Shape, Unserialized
    from klog.progress import Progress
    from klog.report import Report

_SNAPSHOTS_MAX = 20  # attempts beside a writer that replaces files


class Log:
    """One partition, from LogManager.log() or Log.open(). Any thread: writes take the log's lock, reads take none.

    A log that is garbage-collected before close() warns with ResourceWarning, and the next open runs a recovery.
    """

    def __init__(self, directory: str, options: Options) -> None:
        self._core = open_log(directory, options)

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
        """Open one partition directory, `<topic>-<n>`, without a manager; for writing it is created if missing.

        Arguments that are None come from the checkpoints and the clean-shutdown marker of the parent directory: no
        marker means an unclean shutdown, no checkpoint means 0. config: a LogConfig, or a dict that may also have
        broker-level keys. recovery, read_only, clock: as in klog.open. durability="interval" flushes during an append
        after flush.ms: without a manager there is no thread. files: the disk, for tests of klog. Raises AlreadyLocked,
        CorruptLog, InvalidConfig, UnknownTopicOrPartition.
        """
        from klog.log.standalone import open_standalone

        check_tools(clock, files)
        if not flag("read_only", read_only):
            load_libraries()
        return open_standalone(
            cls,
            path,
            config=config,
            recovery=recovery,
            read_only=read_only,
            durability="os" if durability is None else durability,
            clean_shutdown=clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            topic_id=topic_id,
            clock=clock or SystemClock(),
            files=files or RealFiles(),
        )

    # ---- what it is --------------------------------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._core.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self._core.partition

    @property
    def name(self) -> str:
        """`<topic>-<partition>`, the name of the directory."""
        return self._core.name

    @property
    def path(self) -> str:
        """Path of the directory."""
        return self._core.path

    @property
    def config(self) -> LogConfig:
        """The configuration."""
        return self._core.config

    @property
    def clock(self) -> Clock:
        """The clock that the log uses."""
        return self._core.clock

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The topic's id from partition.metadata, None if there is none."""
        return self._core.directory.topic_id(self._core.options)

    @property
    def recovery(self) -> Recovery:
        """The findings of the load."""
        return self._core.recovery

    @property
    def read_only(self) -> bool:
        """Was it opened with read_only=True?"""
        return self._core.read_only

    @property
    def closed(self) -> bool:
        """Has close() been called?"""
        return self._core.closed

    @property
    def offline(self) -> str | None:
        """Why the log is offline and refuses appends, None if it is online."""
        return self._core.health.offline

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, oldest first: base_offset, next_offset, size, path, max_timestamp of each."""
        return self._core.now.segments

    @property
    def leader_epochs(self) -> list[tuple[int, int]]:
        """[(epoch, first offset written in it), ...]"""
        return list(self._core.now.epochs.entries)

    @property
    def leader_epoch(self) -> int:
        """The epoch of the partition's leader, and of its next records: the newest of leader_epochs, or a later one
        that had no record when the log was loaded or truncated; 0 for a log without any."""
        return self._core.now.epochs.current

    @property
    def producers(self) -> dict[int, ProducerState]:
        """{producer id: its state}"""
        return dict(sorted(producer_state(self._core.now).states.items()))

    def has_producer(self, producer_id: int) -> bool:
        """Is it one of `producers`? This makes no copy of them all."""
        return whole("producer_id", producer_id) in producer_state(self._core.now).entries

    @property
    def size(self) -> int:
        """Bytes of all .log files."""
        return self._core.now.size

    # ---- offsets -----------------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._core.now.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._core.now.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The exclusive bound of what consumers read. It is the log end until it is set; for a read-only log it comes
        from a checkpoint."""
        return self._core.now.high_watermark

    @property
    def is_managed(self) -> bool:
        """Has the high watermark been set? Until then it is the log end."""
        return self._core.is_managed

    @property
    def last_stable_offset(self) -> int:
        """The exclusive bound of what read_committed consumers read: below it no transaction is open, and none has a
        marker at or above the high watermark."""
        return isolation_levels.last_stable_offset(self._core.now)

    @property
    def high_watermark_metadata(self) -> OffsetMetadata:
        """The high watermark and its position."""
        core = self._core.now
        with core.lock:
            return high_watermark.positioned_locked(core)

    def fetch_offset_snapshot(self) -> OffsetSnapshot:
        """Log start, log end, high watermark and last stable offset of one moment, with positions."""
        core = self._core.now
        with core.lock:
            return isolation_levels.snapshot_locked(core)

    def maybe_convert_to_offset_metadata(self, offset: int) -> OffsetMetadata:
        """An offset, with its position if the log holds it."""
        return high_watermark.metadata_of(self._core.now, whole_number("offset", offset))

    def check_held(self, offset: int) -> None:
        """Raise OffsetOutOfRange for an offset below the log start or above the log end."""
        self._core.now.check_held(offset)

    def bound(self, isolation: Isolation) -> int:
        """The exclusive bound of an isolation level."""
        return isolation_levels.bound(self._core.now, isolation)

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """(epoch, offset): the largest known epoch at or below this one, and its end offset; (-1, -1) if unknown.

        A replica whose last epoch is `epoch` can agree with this one up to that offset. Kafka: OffsetsForLeaderEpoch.
        """
        core = self._core.now
        with core.lock:
            return core.epochs.end_offset_for(whole_number("epoch", epoch), core.log_end_offset)

    # ---- append ------------------------------------------------------------------------------------------------------

    @overload
    def append(
        self, records: Records, *, compression: Compression = None, **shape: Unpack[ColumnNames]
    ) -> AppendInfo: ...
    @overload
    def append(
        self, records: Unserialized, *, compression: Compression = None, **shape: Unpack[Shape]
    ) -> AppendInfo: ...
    def append(self, records: Any, *, compression: Compression = None, **shape: Any) -> AppendInfo:
        """Append records. They get the offsets from log_end_offset on.

        records: an iterable of klog.Record or of (key, value[, timestamp[, headers]]) tuples. key and value are bytes
        or None, timestamp ms since 1970 (None: now, -1: none), headers [(str, bytes or None), ...]. Or a
        klog.record.Lists, or an object with the Arrow C interface (a frame of pyarrow, polars, duckdb, pandas): column
        value and optionally key, timestamp (of any unit, or int64 of ms; null: now) and headers.

        Batches have at most min(256 KiB, max.message.bytes). A list or a single Arrow array is appended atomically; an
        iterator or a stream, also a table, in atomic groups of 8 MiB. compression: "none", "gzip", "snappy", "lz4",
        "zstd", or ("zstd", level); None is the topic's compression.type.

        serializer=, key_serializer=: make bytes of values and keys that are other objects: "utf8", "json", or a
        function that takes the object and returns bytes. None stays None. value=, key=, timestamp=, headers=: names of
        a frame's columns, if they are not these words. A list of columns for the value becomes one by "json", as an
        object in their order, or by a function, which gets a dict. Other columns are an error, unless
        ignore_other_columns=True.

        Raises RecordTooLarge, InvalidTimestamp, InvalidRecord, TypeError (str instead of bytes), StorageOffline,
        ReadOnly, LogClosed, OSError (disk full: nothing was appended).
        """
        if shape:
            from klog.log.write.shaping import shaped

            with shaped(records, **shape) as ready:
                return append(self._core, ready, compression)
        return append(self._core, records, compression)

    @overload
    async def append_async(
        self, records: Records, *, compression: Compression = None, **shape: Unpack[ColumnNames]
    ) -> AppendInfo: ...
    @overload
    async def append_async(
        self, records: Unserialized, *, compression: Compression = None, **shape: Unpack[Shape]
    ) -> AppendInfo: ...
    async def append_async(self, records: Any, *, compression: Compression = None, **shape: Any) -> AppendInfo:
        """append() for asyncio, with the same arguments. With durability="sync" other tasks run during the fdatasync,
        and tasks that append meanwhile share it, without a thread each. Records are encoded in the loop's thread.

        The appends of one task that awaits each are in order. If a task is cancelled before its commit begins, nothing
        is appended; later the append completes, and its result is dropped.

        Without durability="sync" only a due flush blocks: if flush.ms, flush.messages or klog.flush.bytes are set, a
        thread of the loop's executor appends.
        """
        from klog.log.write.append_async import append_async  # asyncio takes a fifth of the time of `import klog`

        if shape:
            from klog.log.write.shaping import shaped

            with shaped(records, **shape) as ready:
                return await append_async(self._core, ready, compression)
        return await append_async(self._core, records, compression)

    def append_batches(
        self, buffer: Buffer, *, origin: Origin = "client", leader_epoch: int | None = None
    ) -> AppendInfo:
        """Append encoded batches, as in a Produce request or in a follower's fetch.

        origin   "client": one batch of magic 2 with offsets from 0, or old messages, which become one batch. Checks
                 every record; sets offsets, epoch and, by the topic's configuration, timestamps and codec. A batch that
                 is among the last five of its producer is not appended again: returns the result of the first append.
                 "coordinator": the same for markers and records of coordinators: no sequence numbers, no duplicates.
                 "replication": batches as the leader stored them, with their offsets; may begin beyond the log end.
                 "raft": the same for a metadata log; begins at the log end.
        leader_epoch: for clients the epoch to set, None is the log's. For replication that of the leader: batches from
        the first with a later epoch on are skipped. For raft the epoch that every batch must have.

        Skips a truncated batch at the end. Never writes to the buffer. Appends all batches, or nothing if it raises:
        CorruptBatch, InvalidRecord, InvalidTimestamp, RecordTooLarge (max.message.bytes, not for replication),
        RecordBatchTooLarge (segment.bytes), OffsetsOutOfOrder, UnexpectedAppendOffset, SegmentOffsetOverflow; for
        producers OutOfOrderSequence, InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced;
        StorageOffline, ReadOnly, LogClosed, OSError.
        """
        return append_batches(
            self._core, buffer, origin if type(origin) is str else text("origin", origin), leader_epoch
        )

    def begin_leader_epoch(self, epoch: int) -> None:
        """A new leader: the epoch of records that are appended from now on, durable on return. Any thread.

        epoch: leader_epoch or a higher one. Raises ValueError, StorageOffline, ReadOnly, LogClosed, OSError.
        """
        leading.begin_epoch(self._core, whole("epoch", epoch, 0, 2**31 - 1))

    # ---- read --------------------------------------------------------------------------------------------------------

    def read(
        self,
        start: Position | None = None,
        stop: Position | None = None,
        *,
        isolation: Isolation = "high_watermark",
        include_control: bool = False,
        scan: bool = False,
        columns: Iterable[str] | None = None,
        decode: Decode | None = None,
        on_bad: OnBad = "raise",
        dead_letter: DeadLetter | None = None,
    ) -> LogReader:
        """The records of [start, stop), each an offset, "earliest", "latest", "now", an aware datetime, a date (0:00 in
        UTC), ISO text, which needs a zone if it has a time of day, or "-3h".

        Iterate the result for Record objects, or call .batches() or .to_arrow(). The end is fixed now: it does not
        include records appended later. scan: the records will not be read again soon; pages that this reads are dropped
        from the page cache (klog.io.scan.drop.behind). columns: names of the columns in Arrow, in order, of offset,
        timestamp, timestamp_type, key, value, headers (the default), leader_epoch, topic and partition.

        decode: the format of the values, "utf8", "json", or klog.decode.Json, Avro or Protobuf with a schema; or of
        both, {"key": "utf8", "value": "json"}. The Arrow columns of the reader are decoded, and .decoded() iterates
        Python objects. on_bad: "raise" raises BadValue with the offset, "null" reads null. dead_letter: a log, or a
        tuple of a LogManager and a topic, to which records with a bad key or value are appended; the reader leaves them
        out. Their headers __connect.errors.topic, .partition, .offset, .stage, .exception.class.name and
        .exception.message are those of Kafka Connect. Each read of the range appends them.

        Raises OffsetOutOfRange, ValueError, ImportError; during the read ReadFailed, BadValue, OffsetOutOfRange, and
        LogTruncated if the log was truncated below what was read.
        """
        core = self._core.now
        core.check_open()
        now = core.clock.wall_ms()
        bound = isolation_levels.bound(core, isolation)
        first = resolve(core, start, core.log_start_offset, now)
        last = min(resolve(core, stop, bound, now, "stop"), bound)
        core.check_held(first)
        if type(include_control) is not bool or type(scan) is not bool:
            include_control, scan = flag("include_control", include_control), flag("scan", scan)
        decoding = optional_decoding(core.topic, decode, on_bad, dead_letter, include_control)
        names = None if columns is None else column_names(columns)
        parts = [(core, first, max(first, last))]
        return LogReader(parts, isolation, include_control, scan, columns=names, decoding=decoding)

    def latest_by_key(
        self, *, isolation: Isolation = "high_watermark", decode: Decode | None = None, on_bad: OnBad = "raise"
    ) -> LatestByKey:
        """The latest record of each key as of now, as a mapping {key: Record} and as Arrow, without compacting.

        Keys whose latest record is a tombstone and records without a key are left out; with "read_committed" records of
        aborted transactions are, too. The first use reads the log once and keeps the keys with their offsets in memory.
        decode, on_bad: of the tables and of decoded(), as in read().
        """
        from klog.log.read.latest import LatestByKey, LatestOfLog

        core = self._core.now
        core.check_open()
        return LatestByKey([LatestOfLog(core, isolation)], optional_decoding(core.topic, decode, on_bad, None))

    def as_of(self, moment: Position) -> LogAsOf:
        """The log as it was at a moment. For a time: all records with a timestamp at or before it, wherever they are,
        and those without one. For an offset, "earliest" or "latest": the records below it.

        as_of("2013-02-08").latest_by_key() has the latest of these for each key. Raises OffsetOutOfRange, ValueError.
        """
        from klog.log.read.latest import LogAsOf

        core = self._core.now
        core.check_open()
        return LogAsOf(self._core, *lookup.moment(core, moment))

    def tail(
        self,
        start: Position | None = "latest",
        *,
        timeout: float | None = None,
        isolation: Isolation = "high_watermark",
        include_control: bool = False,
        decode: Decode | None = None,
        on_bad: OnBad = "raise",
        dead_letter: DeadLetter | None = None,
    ) -> tail.LogTail:
        """Records from start on, as they arrive, for `for` or `async for`. Ends after `timeout` seconds without any.
        include_control, as in read(). decode, on_bad, dead_letter: of decoded(), as there.

        Sleeps until a writer in this or another process appends. Raises OffsetOutOfRange if the next record was deleted
        before it was read, LogTruncated if the log was truncated below it.
        """
        core = self._core.now
        core.check_open()
        timeout = seconds("timeout", timeout)
        isolation_levels.bound(core, isolation)
        first = resolve(core, start, core.log_start_offset, core.clock.wall_ms())
        core.check_held(first)
        include_control = flag("include_control", include_control)
        decoding = optional_decoding(core.topic, decode, on_bad, dead_letter, include_control)
        return tail.LogTail(core, first, timeout, isolation, include_control, decoding)

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

        Raises OffsetOutOfRange if the next batch was deleted before it was read, by any process, LogTruncated if the
        log was truncated below it.
        """
        core = self._core.now
        core.check_open()
        if type(start) is not int or type(stop) is not int or type(max_bytes) is not int or type(scan) is not bool:
            start, stop, scan = whole_number("start", start), whole_number("stop", stop), flag("scan", scan)
            max_bytes = whole("max_bytes", max_bytes)
        if not 0 < max_bytes <= LONG_MAX or not LONG_MIN <= start <= LONG_MAX or not LONG_MIN <= stop <= LONG_MAX:
            raise ValueError(
                f"start={start}, stop={stop}, max_bytes={max_bytes}: 64-bit integers expected, max_bytes above 0"
            )
        chosen("isolation", isolation, ISOLATIONS)
        return chunks(core, start, stop, isolation, max_bytes, scan, bounded=False)

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
        found = fetch_shortly(self._core, offset, max_bytes, isolation, min_one_message)
        if found is not None:
            return found
        return fetch_counted(self._core, offset, max_bytes, isolation, min_one_message)

    def fetch_range(self, start: int, stop: int | None = None, *, isolation: Isolation = "log_end") -> FetchRange:
        """Raw batches of [start, stop), or up to the isolation's bound, as one slice per segment, to be sent in order.

        Whole batches: the last one may reach beyond stop. Raises OffsetOutOfRange, CorruptBatch.
        """
        core = self._core.now
        core.check_open()
        start, stop = whole_number("start", start), None if stop is None else whole_number("stop", stop)
        return noting(core, start, lambda: fetch_range(core, start, stop, isolation))

    def count(self, start: Position | None = None, stop: Position | None = None) -> int:
        """The number of records in [start, stop) without control records, from batch headers.

        Decodes only batches that cross a bound. Records of aborted transactions count.
        """
        core = self._core.now
        core.check_open()
        return steadily(core, lambda: lookup.count(core, start, stop))

    def offset_for_timestamp(self, ms: int) -> TimestampOffset | None:
        """The first record at or above log_start_offset with a timestamp >= ms, or None.

        Exact, by the time index. Control records and aborted data count, as in Kafka. If the index of a segment is
        wrong and the segment has no such record, the search continues in the next one.
        """
        core = self._core.now
        core.check_open()
        ms = whole_number("ms", ms)
        return steadily(core, lambda: lookup.offset_for_timestamp(core, ms))

    def list_offset(self, target: str | int, *, isolation: Isolation = "log_end") -> ListedOffset | None:
        """The offset of "earliest", "latest", "max_timestamp", a time in ms, or one of Kafka's numbers for these names,
        with the record's timestamp and leader epoch. None if there is no such record.

        isolation: the bound of the records that count, and so the meaning of "latest". Raises ValueError.
        """
        core = self._core.now
        core.check_open()
        isolation_levels.bound(core, isolation)
        return steadily(core, lambda: lookup.list_offset(core, target, isolation))

    def legacy_fetch_offsets_before(self, ms: int, count: int) -> list[int]:
        """First offsets of at most `count` segments whose files were last written at or before ms, newest first.

        -1 (latest) also returns the log end, as the first; -2 (earliest) returns only the log start.
        """
        core = self._core.now
        core.check_open()
        return lookup.offsets_before(core, whole_number("ms", ms), whole("count", count, 0))

    def aborted_transactions(self, start: int | None = None, stop: int | None = None) -> list[AbortedTransaction]:
        """Aborted transactions with records or marker in [start, stop), in the order of their markers."""
        core = self._core.now
        low = core.log_start_offset if start is None else whole_number("start", start)
        high = core.log_end_offset if stop is None else whole_number("stop", stop)
        return steadily(core, lambda: aborted_in_range(core, core.segments, low, high))

    def snapshot(self) -> Self:
        """A reader that stays at this moment: log start, log end, high watermark and last stable offset no longer move.
        Close it, or use `with`.

        Records that the writer deletes or compacts away later are gone from it, too; a truncation below its log end
        ends it with StorageOffline. size, segments and verify() are of whole files. Raises LogClosed, OSError,
        UnknownTopicOrPartition.
        """
        core = self._core.now
        for left in reversed(range(_SNAPSHOTS_MAX)):
            try:
                return type(self)(core.path, options_of_snapshot(core))
            except FileNotFoundError as error:  # a writer has replaced a file meanwhile, or has deleted the log
                check_there(core, error)
                if not left:
                    raise
        raise AssertionError

    def refresh(self) -> None:
        """Follow the writer in another process, as each other call of a read-only log does, but page_cache(): new
        records, new and deleted segments, truncations.

        klog/log/read/refresh.py states what a reader may rely on. A writable log is always up to date.
        """
        refresh(self._core)

    # ---- page cache, metrics, checks ---------------------------------------------------------------------------------

    def metrics(self, *, page_cache: bool = False) -> dict[str, float]:
        """Gauges, and for a writable log the counters since it was opened, under the names of Kafka's metrics.

        PageCacheSampledReadBytes, PageCacheHitReadBytes: bytes of sampled reads (one in sixteen), and how many of them
        were in the page cache. page_cache: also PageCacheBytes, PageCacheDirtyBytes, PageCacheWritebackBytes and
        PageCacheEvictedBytes, which need system calls for each segment; see page_cache().
        """
        return metrics_of(self._core.now, flag("page_cache", page_cache))

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
        core = self._core.now
        core.check_open()
        now = core.clock.wall_ms()
        bytes, timeout = warm_ranges.checked(bytes, timeout, progress, cancel)
        first = resolve(core, start, core.log_start_offset, now)
        last = min(resolve(core, stop, core.log_end_offset, now, "stop"), core.log_end_offset)
        ranges = warm_ranges.ranges_of(core, first, last, bytes)
        return warm_up(core.options.files, ranges, timeout=timeout, progress=progress, cancel=cancel)

    def page_cache(self, *, cells: int = 0) -> LogPageCache:
        """How much of each segment is in the page cache: cached, dirty, being written, evicted.

        Reads no data, and so does not follow the writer: refresh() does.
        cells: number of parts of each segment for which to return the cached share; 0: none. Raises PermissionError if
        the kernel does not report it: the user needs write permission on the files.
        """
        core = self._core
        core.check_open()
        return page_cache_of(core, whole("cells", cells, 0, INT_MAX))

    def verify(self, progress: Progress | None = None) -> Report:
        """Check every invariant of the directory. Reads all of it and changes nothing.

        Bytes after the end of a log that is open for writing, such as preallocated zeros, are not part of the log.
        Raises UnknownTopicOrPartition if the log is deleted meanwhile, OSError.
        """
        function("progress", progress)
        core = self._core.now
        try:
            return works.bound().verify(core, progress)
        except FileNotFoundError as error:
            check_there(core, error)
            raise

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the segments over time: size, clean or dirty for the cleaner, share of tombstones, share in the page
        cache. klog/inspect/log_plot.py states what each part of the picture means.

        ax: where to draw, by default a new figure. Returns the axes. Shows the newest 1,000 segments, and reads at most
        64 MiB for the tombstones. Needs matplotlib: pip install 'klog[plot]'. Raises LogClosed, OSError.
        """
        if ax is not None:
            having("ax", ax, ("bar", "set_title"), "a matplotlib.axes.Axes")
        core = self._core.now
        core.check_open()
        try:
            cached = page_cache_of(core, 0)
        except PermissionError:  # the kernel reports it only to a user that may write the files
            cached = None
        return works.bound().plot(core, cached, ax)

    # ---- high watermark ----------------------------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, limited to the log. Returns the new one. From here on appends no longer move it.

        ValueError for a negative offset.
        """
        core = self._core
        with core.lock:
            core.check_idle("a move of the high watermark")
            return high_watermark.update_locked(core, whole_number("offset", offset))

    def maybe_increment_high_watermark(self, offset: int | OffsetMetadata) -> int | None:
        """Raise the high watermark, never lower it, for a leader. Returns the old one, None if nothing changed.

        The same offset on a newer segment is a change, too. ValueError for an offset beyond the log end.
        """
        core = self._core
        new = offset if isinstance(offset, OffsetMetadata) else OffsetMetadata(whole_number("offset", offset))
        with core.lock:
            core.check_idle("a move of the high watermark")
            return high_watermark.increment_locked(core, new)

    def maybe_update_high_watermark(self, offset: int) -> int | None:
        """Set the high watermark to that of the leader, limited to the log, for a follower. Returns the new one, None
        if nothing changed."""
        core = self._core
        with core.lock:
            core.check_idle("a move of the high watermark")
            return high_watermark.follow_locked(core, whole_number("offset", offset))

    def set_offsets_listener(self, listener: Callable[[int], None] | None) -> None:
        """Call the listener with every new high watermark, under the log's lock. Its exceptions are logged."""
        function("listener", listener)
        with self._core.lock:
            self._core.watermark.listen(listener)

    # ---- truncation, retention, compaction ---------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Remove all records at and above an offset, durably. The log then ends at offset. False if there were none.

        A batch that contains offset is removed whole, with its records below offset: Kafka's rule, since replicas agree
        at batch boundaries. Epochs, producers, high watermark, recovery point and log start follow. Committed positions
        of named readers fall to the new end; a reader that is open keeps its own, until seek() moves it.

        If the last remaining batch then ends below offset (the batch at offset was removed, or a cleaning had removed
        records below it), the log ends after that batch when it is opened again, as in Kafka, and assigns the offsets
        in between again. A roll() after the truncation keeps the log end.

        Raises ValueError for a negative offset, CorruptBatch if damage hides the position (nothing has changed),
        OSError (the log is offline; opened again it is a prefix of what it was).
        """
        offset = whole_number("offset", offset)
        if offset < 0:
            raise ValueError(f"offset={offset}: a log cannot end below 0")
        return truncate.truncate_to(self._core, offset)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove all records and continue at an offset, durably. Log start, log end and a managed high watermark are
        then at offset. log_start_offset, at or below it, is for a log whose earlier records are in a tier.

        Raises ValueError, OSError (the log is offline).
        """
        offset = whole_number("offset", offset)
        start = offset if log_start_offset is None else whole_number("log_start_offset", log_start_offset)
        if not 0 <= start <= offset:
            raise ValueError(f"offset={offset}, log_start_offset={start}: 0 <= log_start_offset <= offset expected")
        truncate.truncate_fully(self._core, offset, start)

    def maybe_increment_log_start_offset(self, offset: int, reason: str = "leader_offset_incremented") -> bool:
        """Raise the log start to offset. False if it is there already or above. The next retention deletes the files.

        A checkpoint stores the log start at close and periodically; after a crash before that the old one is back.
        Raises OffsetOutOfRange beyond the high watermark.
        """
        reason = text("reason", reason)
        return retention.increment_log_start(self._core, whole_number("offset", offset), reason)

    def delete_records(self, before: int) -> int:
        """Delete the records below an offset (-1: the high watermark) by raising the log start. Returns the log start.

        It is stored when this returns: neither a kill nor a power cut brings the records back. Only if the disk is full
        it is stored later. Kafka stores it once a minute.

        Raises PolicyViolation if cleanup.policy has no `delete`, OffsetOutOfRange beyond the high watermark.
        """
        return retention.delete_records(self._core, whole_number("before", before))

    def apply_retention(self) -> int:
        """Run retention now, by log start, retention.bytes and retention.ms. Returns the number of deleted segments.

        The files are renamed to `.deleted`, and unlinked after file.delete.delay.ms. Many segments are deleted in
        batches, with appends in between. Raises ConfigUnknown if the configuration is not known.
        """
        return retention.apply(self._core)

    def compact(
        self,
        *,
        roll: bool = False,
        rounds: int | None = None,
        dry_run: bool = False,
        top: int = 10,
        progress: Progress | None = None,
    ) -> CompactionStats:
        """Compact now, whatever the dirty ratio: keep only the latest record of each key, by the configuration and
        rules of Kafka's cleaner.

        The active segment is not compacted; roll closes it first. rounds: maximum number of rounds if the key map
        (log.cleaner.dedupe.buffer.size) is too small for one; None: as many as needed. dry_run writes nothing, does not
        roll, and reports what one round would do, and the `top` keys that waste most bytes; also for a read-only log.
        Readers and appenders continue meanwhile.

        Raises CorruptBatch for damage, which stays as it is, ConfigUnknown, PolicyViolation if cleanup.policy has no
        `compact`, Overtaken if other calls have interrupted a round ten times, OSError (a full disk: the log is as
        before).
        """
        roll, dry_run = flag("roll", roll), flag("dry_run", dry_run)
        core = self._core.now if dry_run else self._core
        rounds, top = optional_whole("rounds", rounds, 1), whole("top", top, 0, INT_MAX)
        function("progress", progress)
        core.lock.check(core, "a compaction")
        if not dry_run:
            core.cleaning.check_reentry()
        core.check_open() if dry_run else core.check_writable()
        return works.bound().compact(core, roll=roll, rounds=rounds, dry_run=dry_run, top=top, progress=progress)

    def purge_key(
        self, key: bytes, *, roll: bool = False, dry_run: bool = False, progress: Progress | None = None
    ) -> PurgeStats:
        """Remove every record of a key from the closed segments, under any cleanup.policy: for deletion requests.
        Everything else stays as it is: other records, offsets, timestamps, markers, the producer state.

        The active segment is not purged; roll closes it first, if it has the key. Segments above the last stable offset
        are not purged either: records_left counts the records there. The old files are unlinked at once, and a line in
        klog-audit.jsonl of the log.dir records the purge, without the key. Consumers are not notified: append a
        tombstone before, and let them read it. dry_run writes nothing. Readers and appenders continue meanwhile.

        Raises TypeError, CorruptBatch for damage, CorruptAudit, Overtaken if other calls have interrupted it ten times,
        OSError (a full disk: each segment is either as before or purged).
        """
        roll, dry_run = flag("roll", roll), flag("dry_run", dry_run)
        core = self._core.now if dry_run else self._core
        function("progress", progress)
        core.lock.check(core, "a purge")
        if not dry_run:
            core.cleaning.check_reentry()
        return works.bound().purge_key(core, key, roll=roll, dry_run=dry_run, progress=progress)

    # ---- roll, flush, close ------------------------------------------------------------------------------------------

    def roll(self, expected_next_offset: int | None = None) -> Segment:
        """Close the active segment and begin a new one at the log end, or at expected_next_offset if that is beyond.
        Returns the new segment. An empty active segment of the same offset is replaced.

        The log end stays. If the new segment begins beyond it, only replicated batches can reach that offset; other
        appends raise SegmentOffsetOverflow. ValueError if the new segment would begin below the active one, CorruptLog
        if that has only batches below its base offset.
        """
        expected = 0 if expected_next_offset is None else whole("expected_next_offset", expected_next_offset, 0)
        return roll(self._core, expected)

    def flush(self, offset: int | None = None) -> None:
        """Sync everything appended so far, or everything below an offset, to disk (P2).

        Appends continue meanwhile, except with durability="sync". An OSError takes the log and its log.dir offline.
        """
        flush.flush(self._core, offset)

    @property
    def unflushed_bytes(self) -> int:
        """Bytes that were appended since the last flush or roll."""
        return self._core.unflushed_bytes

    @property
    def last_flush_ms(self) -> int:
        """When the whole log was last flushed, by its clock; before the first flush the time of opening."""
        return self._core.flush_state.flushed_ms

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is on disk."""
        return self._core.recovery_point

    def close(self) -> None:
        """Flush, trim the indexes, write the producer snapshot. A second call is not an error.

        After an OSError the log is closed, and the next open recovers it. After close_handlers() nothing can be
        flushed: raises StorageOffline, and the next open recovers the log. In a signal handler that interrupts an
        append, a flush or a similar call to this log in the same thread it raises ReentrantCall, and the log stays
        open: let the handler raise or set a flag, and close after it.
        """
        closing.close(self._core)

    def close_handlers(self) -> None:
        """Close the files of a log whose directory has failed, without a flush. A second call is not an error. Locks
        are held until close()."""
        closing.close_handlers(self._core)

    def rename_dir(self, name: str, reinitialise: bool = True) -> bool:
        """Rename the directory durably. False if it has that name. Readers and appenders continue.

        reinitialise False: for a log marked for deletion, which from here on keeps its epochs only in memory, and no
        topic id. Raises FileExistsError; another OSError takes the log offline.
        """
        name, reinitialise = file_name("name", name), flag("reinitialise", reinitialise)
        return lifecycle.rename(self._core, name, reinitialise)

    def delete(self) -> None:
        """Delete the log with its directory, and close it. Raises StorageOffline if that fails."""
        closing.delete(self._core)

    def update_config(self, config: LogConfig) -> None:
        """Set another configuration, from the next append on. With durability="interval" and no flush interval in it,
        flush.ms is still that of the durability. Raises InvalidConfig."""
        instance("config", config, LogConfig, "a klog.LogConfig")
        configure(self._core, config, known=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._core)

    def _repr_html_(self) -> str:
        return log_html(self._core)

    def __reduce__(self) -> Any:
        core, options = self._core, self._core.options
        if core.read_only and options.end_max is not None and options.held_by is None:
            raise TypeError(f"{self!r} is a snapshot, which belongs to its process: send its path, or a reader of it")
        if not core.read_only:
            core.__reduce__()  # raises
        return partial(type(self).open, read_only=True, config=self.config, recovery=options.recovery), (self.path,)


def waiter_for(logs: Iterable[Log], directories: Iterable[str] = (), others: Iterable[Notifier] = ()) -> Waiter:
    """A Waiter that wakes when one of these logs changes, an entry of these directories, or what others notify of.
    Either all of the logs or none are read-only."""
    return tail.waiter_for([log._core for log in logs], directories, others)


def configure(log: LogCore, config: LogConfig, *, known: bool) -> None:
    """Log.update_config. known: False for a topic without a configuration of its own in a broker's directory: what it
    has is not known, so retention and cleaner leave the log alone."""
    with log.lock:
        log.lock.begins(log, "a change of configuration")
        if not known:
            log.options.know_config(False)  # before there is another configuration, which must not be applied
        log.configure(settled(config, log.options.durability))
        log.options.know_config(known)


def begin_deletion(log: Log, before: int) -> int:
    """Log.delete_records without storing the log start: store_log_starts() follows."""
    return retention.delete_records(log._core, before, store=False)


def store_log_starts(logs: Iterable[Log]) -> None:
    """End deletions that begin_deletion() has begun, with one write for each log.dir. Raises OSError."""
    retention.store_starts([log._core for log in logs])
