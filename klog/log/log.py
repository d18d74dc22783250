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
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from klog.arguments import INT_MAX, file_name, flag, function, having, instance, optional_whole, text, whole
from klog.clock import Clock, SystemClock
from klog.config import LogConfig
from klog.disk import Claim, Files, RealFiles, WriteBackFailed, failed_sync_in, is_final, lacks_descriptors
from klog.errors import (
    ForkedHandle,
    ReadOnly,
    RecordBatchTooLarge,
    RecordTooLarge,
    StorageOffline,
    UnknownTopicOrPartition,
)
from klog.log._core import AppendInfo, append_batches
from klog.log.directory import checkpoint, cleaner_offsets, gaps, lifecycle
from klog.log.load.loader import (
    Policy,
    new_segment,
)
from klog.log.options import (
    NO_BOUND,
    AppendPolicy,
    Compression,
    Durability,
    Options,
    check_records,
    check_tools,
    is_whole,
)
from klog.log.read.positions import whole_number
from klog.log.read.reader import LogReader
from klog.log.retain import retention
from klog.log.retain.cleaning_state import CleaningState
from klog.log.retain.removal import unlink_later_locked
from klog.log.state import high_watermark, high_watermark_rules
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.metrics import LogMetrics
from klog.log.state.producer_expiry import expire_producers_regularly
from klog.log.state.segments import check_reached
from klog.log.view import LogView
from klog.log.write import failures, flush, truncate
from klog.log.write._commit import CommitQueue, SyncLock, Ticket
from klog.log.write.append_batches import Origin, Pending
from klog.record import BatchGroup, Encoder, Records
from klog.scheduler import Task
from klog.segment import Home, Segment, names
from klog.segment import base_offset as group_base_offset
from klog.segment import next_offset as group_next_offset

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from klog.cleaner import CompactionStats, PurgeStats
    from klog.progress import Progress

_log = logging.getLogger("klog.log")
GROUP_BYTES = 8 << 20
_TIMESTAMP_LOW, _TIMESTAMP_HIGH = -(2**63), 2**63 - 1


class Log(LogView):
    """One partition. Get it from LogManager.log() or Log.open(); see the module for who may call what.

    A log that is forgotten instead of closed warns with ResourceWarning, and the next open is an unclean one.
    """

    def __init__(self, directory: str, options: Options) -> None:
        self._pid = os.getpid()
        self._append_policy = AppendPolicy.of(options.config)
        self._offline = None
        self._marked_for_deletion = False
        self._owner: Any = None  # what to release at close: the locks of Log.open
        self._on_flush: Any = None
        self._flushed_ms = options.clock.wall_ms()
        self._offsets_listener = options.offsets_listener
        self._metrics = LogMetrics()
        self._tail = None
        self._deleted: Home | None = None
        self._expiry: Task | None = None
        self._handlers_closed = False
        self._sync_lock = SyncLock()
        self._cleaning = CleaningState(options.cleanings)
        self._applied: list[Pending] = []  # what the commit under way has done to producers
        self._claim = None if options.read_only else Claim(directory)
        try:
            if self._claim is not None:
                self._claim.take()
            super().__init__(directory, options)
            if options.durability == "sync" and not options.read_only:
                self._commits = CommitQueue()
            if not options.read_only:
                self._closed = True
                self._prepare_to_write()
                self._closed = False
                if self._leftovers:
                    unlink_later_locked(self, self._leftovers)
            high_watermark.notify_listener(self, self.high_watermark)
        except BaseException:
            self._give_up_claim()
            raise

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
        no marker means an unclean stop, no checkpoint 0. durability="interval" flushes when an append finds flush.ms
        over: without a manager there is no thread. Raises AlreadyLocked, CorruptLog, InvalidConfig,
        UnknownTopicOrPartition.
        """
        from klog.log.standalone import open_standalone

        check_tools(clock, files)
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

    def _after_fork(self) -> None:
        super()._after_fork()
        self._cleaning.renew()

    def _prepare_to_write(self) -> None:
        active = self._segments[-1]
        if self._options.cleaned_to > self._log_end_offset:
            # What comes to be at these offsets is dirty. A crash before this leaves it to the next load.
            key, log_dir = (self.topic, self.partition), os.path.dirname(self._directory)
            cleaner_offsets.lower(self._options.files, log_dir, key, self._log_end_offset)
        if active.size == 0 and not os.path.exists(active.path):
            active.activate()
            self._options.files.fsync_dir(self._directory)
        if not os.path.exists(self._epochs.path):
            self._epochs.flush()
        if self._options.topic_id is not None:
            self._write_metadata(self._options.topic_id)
        self._epochs.scheduler = self._options.scheduler
        if self._options.high_watermark is not None:
            offset = high_watermark_rules.initial(
                self._options.high_watermark, self._log_start_offset, self._log_end_offset
            )
            self._high_watermark = OffsetMetadata(offset)
        self._producers.on_high_watermark_updated(self.high_watermark)
        self._expiry = expire_producers_regularly(self)

    def _belong_to(self, owner: Any, on_flush: Callable[[Log], None] | None = None) -> None:
        """Its log.dir keeps checkpoints of it from here on. A recovery point beyond what this load has found is taken
        back before the first append: records that come to be below it are not on disk. A crash before this leaves it to
        the next load."""
        self._owner, self._on_flush = owner, on_flush
        try:
            if self._options.recovery_point > self._recovery_point:
                owner.lower(self, self._recovery_point, self._log_start_offset)
        except BaseException:
            self._abandon()
            raise

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
        info: AppendInfo | None = None
        for group, now in self._groups(records, compression):
            appended = self._append_group(group, now)
            info = appended if info is None else info.joined(appended)
        self._options.scheduler.run_due()
        return self._nothing() if info is None else info

    async def append_async(self, records: Records, *, compression: Compression = None) -> AppendInfo:
        """append(), for a task: with durability="sync" others of the loop run while the disk is waited for, and tasks
        that append meanwhile share its fdatasync, without a thread each. They are encoded in the loop's own thread.

        In order: what one task awaits before it appends again is before that. A task that is cancelled has appended
        nothing if its commit had not begun; else the append goes on to its end, and nobody hears of it.

        Without durability="sync" there is nothing to wait for but a flush that is due: where flush.ms, flush.messages
        or klog.flush.bytes ask for some, a thread of the loop's executor appends.
        """
        from klog.log.write.append_async import append_async  # asyncio is a fifth of the time of `import klog`

        return await append_async(self, records, compression)

    def _nothing(self) -> AppendInfo:
        """The answer to an append without records."""
        end = self._log_end_offset
        return AppendInfo(end, end - 1, 0, -1, -1)

    def _groups(self, records: Records, compression: Compression) -> Iterator[tuple[BatchGroup, int]]:
        """Records encoded, each group to be appended whole or not at all, with the time it was given."""
        self._check_writable()
        now = self.clock.wall_ms()
        whole = is_whole(records)
        if not whole:
            check_records(records)
        if isinstance(records, LogReader):
            records = iter(records)  # its Arrow form would have text for header keys
        encoder = self._encoder(records, compression, now)
        while (group := self._next_group(encoder, NO_BOUND if whole else GROUP_BYTES)) is not None:
            yield group, now
            now = self.clock.wall_ms()  # a generator may take hours
            encoder.set_times(**self._times(now))

    def append_batches(
        self, buffer: Buffer, *, origin: Origin = "client", leader_epoch: int | None = None
    ) -> AppendInfo:
        """Append batches that are encoded already, as a Produce request or a follower's fetch carries them.

        origin   "client": one batch of magic 2, numbered from 0, or old messages, which become one; every record is
                 checked, offsets, epoch and, where the topic says so, times and codec are the log's. A producer's batch
                 that is among its last five is not appended again: the answer is that of the first time.
                 "coordinator": the same for markers and the coordinators' own records: no sequences, no duplicates.
                 "replication": batches as the leader stored them, offsets kept; they may begin beyond the log end.
                 "raft": the same for a metadata log, where they begin at the log end.
        leader_epoch: of a client, None is the latest known one. Of replication, the epoch of the leader they came from:
        batches from the first later one on are left out. Of raft, what every batch must say.

        A batch that is cut short at the end is left out; the buffer is never written to. All of it is appended, or, if
        it raises, nothing: CorruptBatch, InvalidRecord, InvalidTimestamp, RecordTooLarge (max.message.bytes, not of
        replication), RecordBatchTooLarge (segment.bytes), OffsetsOutOfOrder, UnexpectedAppendOffset,
        SegmentOffsetOverflow; of producers OutOfOrderSequence, InvalidProducerEpoch, InvalidTxnState,
        TransactionCoordinatorFenced; StorageOffline, ReadOnly, LogClosed, OSError.
        """
        return append_batches(self, buffer, origin if type(origin) is str else text("origin", origin), leader_epoch)

    def _encode_whole(self, records: Records, compression: Compression) -> tuple[BatchGroup, int]:
        """A list that is not empty as one group, and the time it was given: what _append_group takes."""
        self._check_writable()
        now = self.clock.wall_ms()
        group = self._next_group(self._encoder(records, compression, now), NO_BOUND)
        assert group is not None
        return group, now

    def _append_group(self, group: BatchGroup, now: int) -> AppendInfo:
        """All of an encoded group, or none of it."""
        if self._commits is not None:
            self._check_writable()
            return self._commits.through(self, Ticket(group, now))
        with self._lock:
            self._lock.begins(self, "an append")
            self._check_writable()
            return self._append_group_locked(group, now)

    @property
    def _append_end(self) -> int:
        """Where the next append begins: the log end, or, in a commit, behind what that has written."""
        return self._log_end_offset if self._written_end < 0 else self._written_end

    def _next_group(self, encoder: Encoder, bytes_max: int) -> BatchGroup | None:
        """The encoder's next group; the bound it was given is the smaller of two, and each has its own error."""
        try:
            return encoder.next_group(bytes_max)
        except RecordTooLarge as error:
            if self._config.segment_size >= self._config.max_message_bytes:
                raise
            raise RecordBatchTooLarge(str(error).replace("max.message.bytes", "segment.bytes")) from None

    def _encoder(self, records: Records, compression: Compression, now: int) -> Encoder:
        policy = self._append_policy
        return Encoder(
            records,
            compression=policy.compression if compression is None else compression,
            batch_bytes_max=policy.batch_bytes_max,
            message_bytes_max=policy.message_bytes_max,
            key_required=policy.key_required,
            **self._times(now),
        )

    def _times(self, now: int) -> dict[str, int]:
        """What an encoder is to know of the time."""
        policy = self._append_policy
        return {
            "timestamp_default": now,
            "timestamp_min": _TIMESTAMP_LOW if policy.stamps else now - policy.before_max_ms,
            "timestamp_max": _TIMESTAMP_HIGH if policy.stamps else now + policy.after_max_ms,
            "log_append_time": now if policy.stamps else -1,
        }

    def _append_group_locked(self, group: BatchGroup, now: int) -> AppendInfo:
        """Number a group and write it, rolling where a segment is full. All of it, or none of it."""
        first = self._append_end
        check_reached(self.name, self._segments[-1], first)
        epoch = self._epochs.latest
        if epoch is None:
            epoch = self._epochs.default
            self._epochs.assign(epoch, first)
            self._guard(self._epochs.flush)
        group.assign(first, epoch)
        if self._append_policy.stamps and (appended := self.clock.wall_ms()) != now:
            now = appended  # as Kafka: the clock's when it is appended, and not when it was encoded
            group.stamp(now)
        before, savepoint = self._segments, self._savepoint_locked()
        try:
            self._write_locked(group, now)
            self._appended_locked(self._segments[-1].next_offset)
        except BaseException as error:  # Ctrl-C in the middle, too, leaves the whole group or nothing
            if self._append_end == first:
                self._undo_locked(before, savepoint, error)
            raise
        self._metrics.messages_in += group.count
        self._metrics.bytes_in += group.nbytes
        if self._written_end < 0:
            flush.flush_if_due_locked(self, now)
        return AppendInfo(
            first,
            self._append_end - 1,
            group.count,
            group.max_timestamp,
            now if self._append_policy.stamps else -1,
            log_start_offset=self._log_start_offset,
            valid_bytes=group.nbytes,
            last_leader_epoch=epoch,
        )

    def _appended_locked(self, end: int, pending: Pending | None = None) -> None:
        """What an append has written ends here: the log does, or will when its commit has synced."""
        if self._written_end < 0:
            self._advance_end_locked(end)
            return
        self._written_end = end
        if pending is not None:
            self._applied.append(pending)

    def _advance_end_locked(self, end: int) -> None:
        """The log ends here from now on, and what follows the log end moves with it."""
        self._log_end_offset = end
        self._end_moved_locked()

    def _end_moved_locked(self) -> None:
        if self._high_watermark is None:
            end = self._log_end_offset
            self._producers.on_high_watermark_updated(end)
            high_watermark.notify_listener(self, end)
        self._bell.ring()

    def _write_locked(self, group: BatchGroup, now: int) -> None:
        done = 0
        while done < group.n:
            active = self._segments[-1]
            fits = active.fit(group, done, now)
            if fits == 0:
                base_offset = group_base_offset(group, done)
                if active.size == 0 and base_offset == active.base_offset and not active.index_full:
                    raise RecordBatchTooLarge(
                        f"a batch does not fit into a segment of segment.bytes={self._config.segment_size}; raise it"
                    )
                self._roll_locked(base_offset)
                if done == 0:
                    high_watermark.rolled_locked(self)
                continue
            active.append(group, done, done + fits)
            active.appended_ms = now
            done += fits
        self._producers.end_offset = group_next_offset(group, group.n - 1)

    def _savepoint_locked(self) -> tuple[int, int, bytes]:
        """What undoing needs of the active segment, which is made ready to be written to."""
        try:
            return self._segments[-1].savepoint()
        except OSError as error:
            if is_final(error):
                self._go_offline(str(error))
            raise

    def _undo_locked(
        self, before: tuple[Segment, ...], savepoint: tuple[int, int, bytes], error: BaseException
    ) -> None:
        """Take back what a failed append or roll has written; if that fails too, or a sync was what failed, the log
        goes (or is) offline and the next load decides from disk. So it does where the error says that the disk is
        broken: what was written is taken back, and nothing more is (P6).

        Durably: what was taken back must not come back behind the next append (P3).
        """
        end = self._producers.end_offset = self._append_end
        with contextlib.suppress(StorageOffline):
            flush.wait_locked(self)
        failed = failed_sync_in(error)
        if failed is not None and (isinstance(error, WriteBackFailed) or not isinstance(error, OSError)):
            self._go_offline(str(failed))  # nobody hears of it again
        if self._offline is not None or self._closed:
            return  # closed, it has no lock on its directory any more
        self._offline = f"{error!r}, not undone yet"
        try:
            self._take_back_locked(before, savepoint, end)
            self._offline = None
        except BaseException as second:
            if not isinstance(second, OSError):  # Ctrl-C: offline it is already, but the directory may be concerned
                failures.note_failure(self, second)
                raise
            self._go_offline(f"{error if isinstance(error, OSError) else repr(error)}; undoing it failed: {second}")
        else:
            if isinstance(error, OSError) and is_final(error):
                self._go_offline(str(error))
        finally:
            self._taken_back += 1

    def _take_back_locked(self, before: tuple[Segment, ...], savepoint: tuple[int, int, bytes], end: int) -> None:
        """The segments, and the bytes of the last of them, are those of before; the log goes on at `end`."""
        last = len(before) - 1
        added, self._segments = [segment for segment in self._segments[last:] if segment is not before[-1]], before
        high_watermark.unrolled_locked(self)
        for segment in added:
            if segment.base_offset == before[-1].base_offset:
                segment.close()  # it has taken the files of an empty one, which takes them back
                continue
            segment.delete_files()
            self._producers.take_back_snapshot(segment.base_offset)
        before[-1].reopen()
        before[-1].rewind(savepoint)
        if added:
            self._options.files.fsync_dir(self._directory)
        if self._recovery_point > end:
            self._recovery_point = end
            if self._owner is not None:
                self._owner.lower(self, self._recovery_point, self._log_start_offset)

    # ---- high watermark ----------------------------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, within the log; the new one. From here on it moves only when it is told to: appends
        leave it where it is. ValueError for a negative offset."""
        with self._lock:
            self._check_idle("a move of the high watermark")
            return high_watermark.update_locked(self, whole_number("offset", offset))

    def maybe_increment_high_watermark(self, offset: int | OffsetMetadata) -> int | None:
        """Move it on, never back: the old one, or None where nothing changed. For a leader, who has counted replicas.

        The same offset on a newer segment is a change, too. ValueError for an offset beyond the log end.
        """
        new = offset if isinstance(offset, OffsetMetadata) else OffsetMetadata(whole_number("offset", offset))
        with self._lock:
            self._check_idle("a move of the high watermark")
            return high_watermark.increment_locked(self, new)

    def maybe_update_high_watermark(self, offset: int) -> int | None:
        """Set it to what a leader says, within the log; the new one, or None where nothing changed. For a follower."""
        with self._lock:
            self._check_idle("a move of the high watermark")
            return high_watermark.follow_locked(self, whole_number("offset", offset))

    def set_offsets_listener(self, listener: Callable[[int], None] | None) -> None:
        """Call this with every high watermark from the next one on, under the log's lock. What it raises is logged."""
        function("listener", listener)
        with self._lock:
            self._offsets_listener = listener

    # ---- what goes ---------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Drop everything at and above an offset, durably; False if there was nothing. The log ends at offset then.

        The batch that holds offset goes whole, with its records below it: Kafka's rule, for replicas that agree at
        batches. Epochs, producers, high watermark, recovery point and log start follow. Where no batch reaches up to
        offset then, because one held it, or because a cleaning has taken those below it in favour of later ones that go
        now, the log opened again ends behind its last batch, in Kafka too, and gives offsets out a second time; a
        roll() behind the truncation keeps the log end. Raises ValueError for a negative offset, CorruptBatch where
        damage hides the place (nothing has changed), OSError (the log is offline, and opened again it is a prefix of
        what it was).
        """
        offset = whole_number("offset", offset)
        if offset < 0:
            raise ValueError(f"offset={offset}: a log cannot end below 0")
        with self._no_cleaning(), self._lock:
            self._check_idle("a truncation")
            flush.wait_locked(self)
            truncated = truncate.truncate_to_locked(self, offset)
        self._options.scheduler.run_due()
        return truncated

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop every record, and go on at an offset, durably. Log start, log end and a managed high watermark are there
        then; log_start_offset, at or below it, is for a log whose earlier records are elsewhere.

        Raises ValueError, OSError (the log is offline).
        """
        offset = whole_number("offset", offset)
        start = offset if log_start_offset is None else whole_number("log_start_offset", log_start_offset)
        if not 0 <= start <= offset:
            raise ValueError(f"offset={offset}, log_start_offset={start}: 0 <= log start <= offset")
        with self._no_cleaning(), self._lock:
            self._check_idle("a truncation")
            flush.wait_locked(self)
            truncate.truncate_fully_locked(self, offset, start)
        self._options.scheduler.run_due()

    def maybe_increment_log_start_offset(self, offset: int, reason: str = "leader_offset_incremented") -> bool:
        """Nothing below offset is read any more; False where that is so already. The files go with the next retention.

        A checkpoint keeps it at close and now and then: a crash before brings the old one back. Raises OffsetOutOfRange
        beyond the high watermark.
        """
        reason = text("reason", reason)
        with self._lock:
            self._check_idle("a move of the log start")
            moved = retention.increment_log_start_locked(self, whole_number("offset", offset), reason)
        self._options.scheduler.run_due()
        return moved

    def delete_records(self, before: int) -> int:
        """Records below an offset (-1: the high watermark) are not read any more; the log start offset.

        Raises PolicyViolation where cleanup.policy has no `delete`, OffsetOutOfRange beyond the high watermark.
        """
        with self._lock:
            self._check_idle("a deletion")
            start = retention.delete_records_locked(self, whole_number("before", before))
        self._options.scheduler.run_due()
        return start

    def deletable_segments(self, predicate: retention.Predicate) -> list[Segment]:
        """The segments from the oldest on for which predicate(segment, the one behind it or None) holds, as far as they
        lie below the high watermark; never the empty newest one."""
        having("predicate", predicate, ("__call__",), "a function of two segments")
        return retention.deletable(self._segments, self.high_watermark, self._log_end_offset, predicate)

    def apply_retention(self) -> int:
        """One round of retention now, by log start, retention.bytes and retention.ms; how many segments went.

        The files are renamed to `.deleted`, and unlinked after file.delete.delay.ms. Of very many segments some go at a
        time, and appends in between. Raises ConfigUnknown where nobody has given a configuration.
        """
        count = retention.apply(self)
        self._options.scheduler.run_due()
        return count

    def compact(
        self,
        *,
        roll: bool = False,
        rounds: int | None = None,
        dry_run: bool = False,
        top: int = 10,
        progress: Progress | None = None,
    ) -> CompactionStats:
        """Keep of each key the latest record alone, now, whatever the dirty ratio is; by the rules and the words of the
        configuration, as Kafka's cleaner would.

        The active segment is not touched: roll closes it first. rounds: at most so many, where the map of keys
        (log.cleaner.dedupe.buffer.size) is too small for one; None is as many as it takes. dry_run reads, writes
        nothing, not even a roll, and says what one round would do, and which `top` keys waste most bytes; of a log that
        was opened to be read, too. Others go on reading and appending.

        Raises CorruptBatch at damage, which stays as it is and where it is, ConfigUnknown, PolicyViolation where
        cleanup.policy has no `compact`, OSError (a full disk: the log is as it was).
        """
        from klog.cleaner import compact

        roll, dry_run = flag("roll", roll), flag("dry_run", dry_run)
        rounds, top = optional_whole("rounds", rounds, 1), whole("top", top, 0, INT_MAX)
        function("progress", progress)
        self._lock.check(self, "a compaction")
        if not dry_run:
            self._cleaning.check_reentry()
        self._check_open() if dry_run else self._check_writable()
        return compact(self, roll=roll, rounds=rounds, dry_run=dry_run, top=top, progress=progress)

    def purge_key(
        self, key: bytes, *, roll: bool = False, dry_run: bool = False, progress: Progress | None = None
    ) -> PurgeStats:
        """Remove every record of a key from the closed segments, whatever cleanup.policy is: for requests to delete.
        Everything else stays as it is: other records, offsets, times, markers, the state of producers.

        The active segment is not touched: roll closes it first, if it has the key. Nor is a segment above the last
        stable offset: records_left says how many are left there. The old files are unlinked at once, and a line in
        klog-audit.jsonl of the log.dir says what was done, without the key. Consumers are not told: append a tombstone
        and let them read it before. dry_run reads, and writes nothing. Others go on reading and appending.

        Raises TypeError, CorruptBatch at damage, CorruptAudit, OSError (a full disk: each segment is as it was, or
        purged).
        """
        from klog.cleaner import purge_key

        roll, dry_run = flag("roll", roll), flag("dry_run", dry_run)
        function("progress", progress)
        self._lock.check(self, "a purge")
        if not dry_run:
            self._cleaning.check_reentry()
        return purge_key(self, key, roll=roll, dry_run=dry_run, progress=progress)

    def _cleaning_session(self) -> contextlib.AbstractContextManager[None]:
        """For whoever rewrites closed segments by hand: nobody else cleans this log meanwhile, the background of its
        manager included. The caller holds no lock."""
        self._check_writable()
        return self._cleaning.by_hand()

    def _no_cleaning(self) -> contextlib.AbstractContextManager[None]:
        """For whoever takes away what a cleaning may be at work on: it ends first, and none begins meanwhile. A thread
        that has the log's lock, or cleans, does not wait for that (G3)."""
        owned = self._lock._is_owned()
        return contextlib.nullcontext() if owned or self._cleaning.mine else self._cleaning.paused()

    def _end_cleaning(self) -> None:
        """Whatever cleaning is under way; the next one sees the log as it is now."""
        with self._no_cleaning():
            pass

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """(epoch, offset): the largest known epoch at or below this one, and where it ended; (-1, -1) if unknown.

        How far a replica that last wrote in `epoch` can agree with this one. Kafka: OffsetsForLeaderEpoch.
        """
        with self._lock:
            return self._epochs.end_offset_for(whole_number("epoch", epoch), self._log_end_offset)

    # ---- roll, flush, close ------------------------------------------------------------------------------------------

    def roll(self, expected_next_offset: int | None = None) -> Segment:
        """Close the active segment and begin a new one at the log end, or at expected_next_offset where that is beyond;
        an empty active segment of that offset is made anew. The new segment.

        The log end stays: where the new segment begins beyond it, only replicated batches can reach that, and others
        raise SegmentOffsetOverflow. ValueError where the new one would begin below the active one.
        """
        expected = 0 if expected_next_offset is None else whole("expected_next_offset", expected_next_offset, 0)
        with self._lock:
            self._check_idle("a roll")
            segment = self._roll_or_undo_locked(max(self._log_end_offset, expected))
        self._options.scheduler.run_due()
        return segment

    def _roll_or_undo_locked(self, base_offset: int) -> Segment:
        """A new active segment, or everything as it was."""
        before, savepoint = self._segments, self._savepoint_locked()
        try:
            self._roll_locked(base_offset)
        except BaseException as error:
            self._undo_locked(before, savepoint, error)
            raise
        high_watermark.rolled_locked(self)
        return self._segments[-1]

    def _roll_locked(self, base_offset: int) -> None:
        """L3: the old segments are durable before the new one exists."""
        active = self._segments[-1]
        if base_offset < active.base_offset or (base_offset == active.base_offset and active.size):
            raise ValueError(
                f"{self.name}: no segment can begin at {base_offset}, the active one has [{active.base_offset}, "
                f"{active.next_offset})"
            )
        if base_offset == active.base_offset:
            self._remake_locked(active)
            return
        flush.wait_locked(self)
        self._guard_sync(lambda: flush.sync_closed_locked(self))
        self._guard_sync(lambda: self._segments[-1].deactivate(sync=True))
        if active.next_offset < base_offset:
            first = self._segments[0].base_offset
            self._guard(lambda: gaps.note(self._options.files, self._directory, active.next_offset, base_offset, first))
        segment = new_segment(self._inputs(), base_offset, writable=True)
        segment.delete_files()
        self._segments = (*self._segments, segment)  # before it is there, so that undoing finds it
        segment.activate()
        self._producers.end_offset = base_offset
        if not self._producers.take_snapshot():  # which syncs the directory: the new segment's name must last
            self._guard_sync(lambda: self._options.files.fsync_dir(self._directory))
        self._recovery_point = min(base_offset, max(self._log_end_offset, active.next_offset))
        _log.info("event=roll log=%s base_offset=%d segments=%d", self.name, base_offset, len(self._segments))
        if self._on_flush is not None:
            self._on_flush(self)

    def _remake_locked(self, empty: Segment) -> None:
        """An empty active segment with new files; the old ones go as any segment's do."""
        _log.warning("event=roll_empty log=%s base_offset=%d", self.name, empty.base_offset)
        empty.close()
        files, to_unlink = self._options.files, []
        for path in empty.paths:
            if os.path.exists(path):
                files.unlink(path + names.DELETED)
                files.rename(path, path + names.DELETED)
                to_unlink.append(os.path.basename(path) + names.DELETED)
        segment = new_segment(self._inputs(), empty.base_offset, writable=True)
        self._segments = (*self._segments[:-1], segment)
        segment.activate()
        files.fsync_dir(self._directory)
        unlink_later_locked(self, to_unlink)

    def _home_of_deleted(self) -> Home:
        """Where segments on their way out are at home."""
        if self._deleted is None:
            options = self._options
            self._deleted = Home(
                self._directory, options.config, options.files, options.handles, writable=True, beside=self._home
            )
            self._deleted.suffix = names.DELETED
        return self._deleted

    def flush(self, offset: int | None = None) -> None:
        """Everything appended so far, or everything below an offset, is on disk when this returns (P2).

        Appends go on meanwhile, but with durability="sync". OSError takes the log offline, and its directory.
        """
        flush.flush(self, offset)

    @property
    def unflushed_bytes(self) -> int:
        """Bytes appended since the last flush."""
        return self._metrics.appended_bytes - self._metrics.flushed_bytes

    @property
    def last_flush_ms(self) -> int:
        """When the log was last on disk as a whole, by its clock; when it was opened, if it has not been since."""
        return self._flushed_ms

    @property
    def recovery_point(self) -> int:
        """Offset below which everything is known to be on disk."""
        return self._recovery_point

    def close(self) -> None:
        """Flush, trim the indexes, write the producer snapshot; a second time is no error.

        OSError: the log is closed all the same, and the next open recovers it. So it is after close_handlers(), when
        nothing can be flushed any more: StorageOffline says so. ReentrantCall, and the log stays open, in a signal
        handler that interrupts an append, a flush or another such call to this log in the same thread: let it raise, or
        set a flag, and close behind that.
        """
        with self._no_cleaning(), self._lock:
            self._lock.begins(self, "a close")
            if self._owner is not None:
                self._owner.check("a close")
            if self._closed:
                if self._handlers_closed:
                    self._handlers_closed = False
                    self._abandon()
                    raise StorageOffline(f"{self.name} had its files closed before: the next open recovers it")
                self._end_interrupted_close()
                return
            self._closed = True
            clean = False
            try:
                self._cancel_expiry()
                self._bell.ring()
                if not self.read_only and self._offline is None and os.getpid() == self._pid:
                    self._finish_locked()
                    clean = True
            finally:
                try:
                    for segment in self._segments:
                        segment.close()
                    self._let_go()
                finally:
                    self._give_up_claim()
                    if self._owner is not None:
                        self._owner.release(self, clean)

    def _end_interrupted_close(self) -> None:
        """What Ctrl-C, or a signal's handler that raises, has kept a close from: nothing is held from here on, and
        nothing written. The next open recovers the log."""
        if not self._closed or (self._claim is not None and self._claim.held):
            self._abandon()

    def _await_close(self) -> None:
        """A close in another thread is through: the directory can be loaded anew. The caller holds no log's lock."""
        with self._lock:
            pass

    def _give_up_claim(self) -> None:
        """Nothing of the directory is written any more: another Log may."""
        if self._claim is not None:
            self._claim.release()

    def _finish_locked(self) -> None:
        flush.flush_locked(self)
        self._segments[-1].deactivate(sync=True)
        producers = self._producers
        producers.end_offset = min(producers.end_offset, self._segments[-1].next_offset)  # the log end of the next load
        producers.take_snapshot()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self, _warn: Any = warnings.warn) -> None:
        if not getattr(self, "_closed", True) and os.getpid() == self._pid:
            _warn(f"{self!r} was never closed: use `with`, or call close()", ResourceWarning, source=self)
            with contextlib.suppress(Exception):
                self._abandon()

    def close_handlers(self) -> None:
        """Close the files of a log whose directory has failed, and flush nothing; a second time is no error. Locks stay
        until close()."""
        with self._no_cleaning(), self._lock:
            self._lock.begins(self, "a close")
            if self._closed:
                return
            self._closed = self._handlers_closed = True
            self._cancel_expiry()
            for segment in self._segments:
                segment.close()
            self._give_up_claim()

    def rename_dir(self, name: str, reinitialise: bool = True) -> bool:
        """Give its directory another name, durably; False where it has that name. Whoever reads or appends goes on.

        reinitialise False: for a log on its way out, which keeps its epochs in memory alone from here on, and no topic
        id. Raises FileExistsError; another OSError takes the log offline.
        """
        name, reinitialise = file_name("name", name), flag("reinitialise", reinitialise)
        with self._no_cleaning(), self._lock:
            self._check_idle("a renaming")
            return lifecycle.rename_locked(self, name, reinitialise)

    def delete(self) -> None:
        """Remove the log with its directory, and close it. StorageOffline where that fails."""
        with self._no_cleaning(), self._lock:
            if self.read_only:
                raise ReadOnly(f"{self.name} was opened with read_only=True")
            self._lock.begins(self, "a deletion")
            self._closed = self._marked_for_deletion = True
            self._cancel_expiry()
            try:
                lifecycle.delete_locked(self)
            finally:
                self._give_up_claim()
            if self._home is not None:
                self._home.mappable = False  # what is mapped is of files that nobody finds any more
            if self._owner is not None:
                self._owner.forget(self)

    def _cancel_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()

    def _abandon(self) -> None:
        """Let go of handles and locks as a crash would: nothing is flushed, nothing called clean."""
        self._closed = True
        self._cancel_expiry()
        for segment in self._segments:
            segment.close()
        self._let_go()
        self._give_up_claim()
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
        if self._marked_for_deletion:
            raise UnknownTopicOrPartition(f"{self.name} has been deleted; what it held is about to go from {self.path}")

    def _check_idle(self, what: str) -> None:
        """Writable, and not in the middle of another call; this one begins. Under the lock."""
        self._lock.begins(self, what)
        self._check_writable()

    def _go_offline(self, reason: str, *, disk: bool = True) -> None:
        """No more appends. disk: that is what failed, and so the directory with all its logs is concerned."""
        self._offline = reason
        _log.error("event=offline log=%s reason=%s", self.name, reason)
        if disk and self._owner is not None:
            self._owner.failed(self, reason)

    def _disk_failed(self, reason: str) -> None:
        with self._lock:
            if self._offline is None:
                self._go_offline(reason)

    def _fail(self, reason: str, *, readable: bool) -> None:
        """Its directory is offline. Takes no lock, since another log of the directory may call it under its own."""
        if self._offline is None:
            self._offline = reason
        if not readable:
            self._unreadable = reason

    def _doom(self, name: str) -> None:
        """It has been deleted: its directory has another name from now on, and goes when the last readers are thought
        to be through."""
        with self._lock:
            self._lock.begins(self, "a deletion")
            lifecycle.rename_locked(self, name, False)
            self._marked_for_deletion = True
            self._owner = self._on_flush = None

    def _is_gone(self) -> bool:
        return self._marked_for_deletion or super()._is_gone()

    def update_config(self, config: LogConfig) -> None:
        """Take another configuration, from the next append on. Raises InvalidConfig."""
        instance("config", config, LogConfig, "a klog.LogConfig")
        with self._lock:
            self._lock.begins(self, "a change of configuration")
            self._append_policy = AppendPolicy.of(config)
            self._config = self._options.config = config
            self._options.config_known = True
            if self._home is not None:
                self._home.config = config

    def _guard(self, action: Any) -> None:
        """Run something whose failure is final."""
        failures.guard(self, action)

    def _guard_sync(self, action: Any) -> None:
        """The same for syncs, save that a file which could not be opened for want of descriptors has not failed."""
        failures.guard(self, action, lacks_descriptors)

    def _finally(self, action: Any) -> None:
        """Run something that must not stop half-way: Ctrl-C in the middle, too, takes the log offline."""
        try:
            action()
        except BaseException as error:
            disk = isinstance(error, OSError) or failed_sync_in(error) is not None
            self._go_offline(repr(error), disk=disk)
            raise
