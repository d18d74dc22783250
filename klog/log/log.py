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
import uuid
import warnings
from collections.abc import Mapping
from typing import Any, Self

from klog.clock import Clock, SystemClock
from klog.config import LogConfig
from klog.disk import Files, RealFiles
from klog.errors import (
    ForkedHandle,
    ReadOnly,
    RecordBatchTooLarge,
    RecordTooLarge,
    StorageOffline,
)
from klog.log import checkpoint
from klog.log.load import (
    Policy,
    new_segment,
)
from klog.log.reader import LogReader
from klog.log.terms import (
    NO_BOUND,
    AppendInfo,
    Compression,
    Durability,
    Options,
    Records,
    Terms,
    check_records,
    is_whole,
)
from klog.log.view import LogView
from klog.record import BatchGroup, Encoder
from klog.segment import Segment, names
from klog.segment import base_offset as group_base_offset
from klog.segment import next_offset as group_next_offset

_log = logging.getLogger("klog.log")
GROUP_BYTES = 8 << 20
_TIMESTAMP_LOW, _TIMESTAMP_HIGH = -(2**63), 2**63 - 1


class Log(LogView):
    """One partition. Get it from LogManager.log() or Log.open(); see the module for who may call what.

    A log that is forgotten instead of closed warns with ResourceWarning, and the next open is an unclean one.
    """

    def __init__(self, directory: str, options: Options) -> None:
        self._pid = os.getpid()
        self._terms = Terms.of(options.config)
        self._offline: str | None = None
        self._owner: Any = None  # what to release at close: the locks of Log.open
        self._on_flush: Any = None
        self._flushed_ms = options.clock.wall_ms()
        super().__init__(directory, options)
        if not options.read_only:
            self._closed = True
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

    def _prepare_to_write(self) -> None:
        active = self._segments[-1]
        if active.size == 0 and not os.path.exists(active.path):
            active.activate()
            self._options.files.fsync_dir(self._directory)
        if not os.path.exists(self._epochs.path):
            self._epochs.flush()
        if self._options.topic_id is not None:
            self._write_metadata(self._options.topic_id)

    def _write_metadata(self, topic_id: uuid.UUID) -> None:
        path = os.path.join(self._directory, names.METADATA)
        if not os.path.exists(path) or os.stat(path).st_size == 0:
            self._options.files.replace(path, checkpoint.format_metadata(topic_id))

    # ---- append ----------------------------------------------------------------------------------------------------

    def append(self, records: Records, *, compression: Compression = None) -> AppendInfo:
        """Append records; they are numbered from log_end_offset on.

        records: an iterable of klog.Record or of (key, value[, timestamp[, headers]]) tuples. key and value are bytes
        or None, timestamp ms since 1970 (None: now, -1: none), headers [(str, bytes or None), ...]. Or a
        klog.record.Lists, or anything with the Arrow C interface (a frame of pyarrow, polars, duckdb, pandas): column
        value and, where wanted, key, timestamp (of any unit, or int64 of ms; null: now) and headers.

        They are cut into batches of at most min(256 KiB, max.message.bytes). A list or a single Arrow array is appended
        whole or not at all; of an iterator or a stream, which a table is, each group of 8 MiB is. compression: "none",
        "gzip", "snappy", "lz4", "zstd", or ("zstd", level); None is the topic's compression.type.

        Raises RecordTooLarge, InvalidTimestamp, InvalidRecord, TypeError (str instead of bytes), StorageOffline,
        ReadOnly, LogClosed, OSError (disk full: nothing was appended).
        """
        self._check_writable()
        now = self.clock.wall_ms()
        whole = is_whole(records)
        if not whole:
            check_records(records)
        if isinstance(records, LogReader):
            records = iter(records)  # its Arrow form would have text for header keys
        encoder = self._encoder(records, compression, now)
        info: AppendInfo | None = None
        while True:
            group = self._next_group(encoder, NO_BOUND if whole else GROUP_BYTES)
            if group is None:
                break
            appended = self._append_group(group, now)
            info = appended if info is None else info.joined(appended)
        if info is None:
            end = self._log_end_offset
            return AppendInfo(end, end - 1, 0, -1, -1)
        return info

    def _encode_whole(self, records: Records, compression: Compression) -> tuple[BatchGroup, int]:
        """A list that is not empty as one group, and the time it was given: what _append_group takes."""
        self._check_writable()
        now = self.clock.wall_ms()
        group = self._next_group(self._encoder(records, compression, now), NO_BOUND)
        assert group is not None
        return group, now

    def _append_group(self, group: BatchGroup, now: int) -> AppendInfo:
        """All of an encoded group, or none of it."""
        with self._lock:
            self._check_writable()
            return self._append_group_locked(group, now)

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
            self._bell.ring()
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
                self._producers.take_back_snapshot(segment.base_offset)
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
        self._producers.end_offset = base_offset
        self._producers.take_snapshot()
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
        if end == self._recovery_point and not self._segments[-1].active:
            return  # as the last stop has left it
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
            self._bell.ring()
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
        self._producers.take_snapshot()

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
    def offline(self) -> str | None:
        """Why it takes no more appends, None while it does."""
        return self._offline

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
