"""Log: the records of one partition, in order, in a directory of segments.

  L1  an append that returned is in the page cache: it survives the death of this process (P1)
  L2  an append that raised left log_end_offset and the readable bytes as they were
  L3  the previous segment is on disk before a new one is created, so a crash loses only a tail, and leaves no gap (P3)
  L4  after a failed fsync, or a failed undo of a write, the log refuses appends until it is reopened (P6)

One writer at a time: append, roll, flush and close take the log's lock; any thread may call them. Reads take no lock:
they use an immutable tuple of segments, and a log end that is set after the bytes are written.
Kafka: UnifiedLog, LocalLog.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from klog.arguments import INT_MAX, file_name, flag, function, having, instance, optional_whole, text, whole
from klog.clock import Clock, SystemClock
from klog.config import LogConfig
from klog.disk import Claim, Files, RealFiles, WriteBackFailed, failed_sync_in, is_final, lacks_descriptors
from klog.errors import (
    ForkedHandle,
    ReadOnly,
    RecordBatchTooLarge,
    StorageOffline,
    UnknownTopicOrPartition,
)
from klog.log._core import EncodedGroups, append, append_batches, append_group, timed
from klog.log.directory import checkpoint, cleaner_offsets, gaps, lifecycle
from klog.log.load.loader import (
    Policy,
    new_segment,
)
from klog.log.options import (
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
from klog.log.state.segments import check_reached
from klog.log.view import LogView
from klog.log.write import failures, flush, truncate
from klog.log.write._append_info import AppendInfo, grouped
from klog.log.write._append_policy import AppendPolicy
from klog.log.write._commit import CommitQueue, SyncLock
from klog.log.write.append_batches import Origin, Pending
from klog.record import BatchGroup, Records
from klog.scheduler import Task
from klog.segment import Home, Segment, names
from klog.segment import base_offset as group_base_offset
from klog.segment import next_offset as group_next_offset

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from klog.cleaner import CompactionStats, PurgeStats
    from klog.progress import Progress

_log = logging.getLogger("klog.log")


class Log(LogView):
    """One partition, from LogManager.log() or Log.open(). The module docstring states the thread-safety.

    A log that is garbage-collected before close() warns with ResourceWarning, and the next open runs a recovery.
    """

    def __init__(self, directory: str, options: Options) -> None:
        self._append_policy = AppendPolicy(options.config)
        self._offline = None
        self._marked_for_deletion = False
        self._owner: Any = None  # keeps checkpoints and locks: standalone._Owner, or a log.dir of the manager
        self._on_flush: Any = None
        self._offsets_listener = options.offsets_listener
        self._metrics = LogMetrics()
        self._tail = None
        self._deleted: Home | None = None
        self._expiry: Task | None = None
        self._handlers_closed = False
        self._sync_lock = SyncLock()
        self._cleaning = CleaningState(options.cleanings)
        self._claim = None if options.read_only else Claim(directory, options.identity)
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
        """Open one partition directory, `<topic>-<n>`, without a manager; for writing it is created if missing.

        Arguments that are None come from the checkpoints and the clean-shutdown marker of the parent directory: no
        marker means an unclean shutdown, no checkpoint means 0. durability="interval" flushes during an append after
        flush.ms: without a manager there is no thread. Raises AlreadyLocked, CorruptLog, InvalidConfig,
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
            # Records appended at these offsets will be dirty. After a crash before this, the next load does it.
            key, log_dir = (self.topic, self.partition), os.path.dirname(self._directory)
            cleaner_offsets.lower(self._options.files, log_dir, key, self._log_end_offset)
        if active.size == 0 and not os.path.exists(active.path):
            active.activate()
            self._options.files.fsync_dir(self._directory)
        if not self._epochs.stored and not os.path.exists(self._epochs.path):
            self._epochs.flush()
        if self._options.topic_id is not None and not self._options.topic_id_stored:
            self._write_metadata(self._options.topic_id)
        self._epochs.scheduler = self._options.scheduler
        if self._options.high_watermark is not None:
            offset = high_watermark_rules.initial(
                self._options.high_watermark, self._log_start_offset, self._log_end_offset
            )
            self._high_watermark = OffsetMetadata(offset)
        self._producers.on_high_watermark_updated(self.high_watermark)
        check_ms, known = self._options.producer_expiration_check_ms, weakref.WeakMethod(self._expire_producers)
        self._expiry = self._options.scheduler.schedule(
            "producer-expiration", lambda: (still := known()) and still(), check_ms, check_ms
        )

    def _expire_producers(self) -> None:
        """Forget producers that wrote nothing for producer.id.expiration.ms. Kafka: removeExpiredProducers."""
        with self._lock:
            self._lock.begins(self, "an expiry of producers")
            if not self._closed:
                self._producers.expire(self.clock.wall_ms())

    def _belong_to(self, owner: Any, on_flush: Callable[[Log], None] | None = None) -> None:
        """Set the owner, which writes the checkpoints of the log from here on.

        A recovery point beyond the log end of this load is lowered before the first append, since records appended
        below it are not on disk. After a crash before this, the next load does it.
        """
        self._owner, self._on_flush = owner, on_flush
        try:
            if self._options.recovery_point > self.recovery_point:
                owner.lower(self, self.recovery_point, self._log_start_offset)
        except BaseException:
            self._abandon()
            raise

    def _write_metadata(self, topic_id: uuid.UUID) -> None:
        path = os.path.join(self._directory, names.METADATA)
        if not os.path.exists(path) or os.stat(path).st_size == 0:
            self._options.files.replace(path, checkpoint.format_metadata(topic_id))

    # ---- append ----------------------------------------------------------------------------------------------------

    def append(self, records: Records, *, compression: Compression = None) -> AppendInfo:
        """Append records. They get the offsets from log_end_offset on.

        records: an iterable of klog.Record or of (key, value[, timestamp[, headers]]) tuples. key and value are bytes
        or None, timestamp ms since 1970 (None: now, -1: none), headers [(str, bytes or None), ...]. Or a
        klog.record.Lists, or an object with the Arrow C interface (a frame of pyarrow, polars, duckdb, pandas): column
        value and optionally key, timestamp (of any unit, or int64 of ms; null: now) and headers.

        Batches have at most min(256 KiB, max.message.bytes). A list or a single Arrow array is appended atomically; an
        iterator or a stream, also a table, in atomic groups of 8 MiB. compression: "none", "gzip", "snappy", "lz4",
        "zstd", or ("zstd", level); None is the topic's compression.type.

        Raises RecordTooLarge, InvalidTimestamp, InvalidRecord, TypeError (str instead of bytes), StorageOffline,
        ReadOnly, LogClosed, OSError (disk full: nothing was appended).
        """
        return append(self, records, compression)

    async def append_async(self, records: Records, *, compression: Compression = None) -> AppendInfo:
        """append() for asyncio: with durability="sync" other tasks run during the fdatasync, and tasks that append
        meanwhile share it, without a thread each. Records are encoded in the loop's thread.

        The appends of one task that awaits each are in order. If a task is cancelled before its commit begins, nothing
        is appended; later the append completes, and its result is dropped.

        Without durability="sync" only a due flush blocks: if flush.ms, flush.messages or klog.flush.bytes are set, a
        thread of the loop's executor appends.
        """
        from klog.log.write.append_async import append_async  # asyncio takes a fifth of the time of `import klog`

        return await append_async(self, records, compression)

    def _nothing(self) -> AppendInfo:
        """The result of an append without records."""
        end = self._log_end_offset
        return AppendInfo(end, end - 1, 0, -1, -1)

    @staticmethod
    def _prepared(records: Records) -> tuple[Records, bool]:
        """The records for an encoder, and whether all are in memory, so that they are appended atomically."""
        whole = is_whole(records)
        if not whole:
            check_records(records)
        if isinstance(records, LogReader):
            records = iter(records)  # in its Arrow form header keys are text
        return records, whole

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
        leader_epoch: for clients the epoch to set, None is the latest one. For replication that of the leader: batches
        from the first with a later epoch on are skipped. For raft the epoch that every batch must have.

        Skips a truncated batch at the end. Never writes to the buffer. Appends all batches, or nothing if it raises:
        CorruptBatch, InvalidRecord, InvalidTimestamp, RecordTooLarge (max.message.bytes, not for replication),
        RecordBatchTooLarge (segment.bytes), OffsetsOutOfOrder, UnexpectedAppendOffset, SegmentOffsetOverflow; for
        producers OutOfOrderSequence, InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced;
        StorageOffline, ReadOnly, LogClosed, OSError.
        """
        return append_batches(self, buffer, origin if type(origin) is str else text("origin", origin), leader_epoch)

    def _encode_whole(self, records: Records, compression: Compression) -> tuple[BatchGroup, int]:
        """Encode a non-empty list as one group. Returns the arguments of _append_group."""
        return next(EncodedGroups(self, records, compression))

    def _append_group(self, group: BatchGroup, now: int) -> AppendInfo:
        """Append an encoded group atomically."""
        return append_group(self, group, now)

    @property
    def _append_end(self) -> int:
        """The offset of the next append: the log end or, in a commit, the end of what it has written."""
        return self._log_end_offset if self._written_end < 0 else self._written_end

    def _append_group_locked(self, group: BatchGroup, now: int) -> AppendInfo:
        """The full path of _append_group: assign offsets, and write all or nothing. Rolls if a segment is full."""
        first = self._append_end
        check_reached(self.name, self._segments[-1], first)
        epoch = self._epochs.latest
        if epoch is None:
            epoch = self._epochs.default
            self._epochs.assign(epoch, first)
            self._guard(self._epochs.flush)
        group.assign(first, epoch)
        now = timed(self, group, now)
        before, savepoint = self._segments, self._savepoint_locked()
        try:
            self._write_locked(group, now)
            self._appended_locked(self._segments[-1].next_offset)
        except BaseException as error:  # also after Ctrl-C the group is appended or undone
            if self._append_end == first:
                self._undo_locked(before, savepoint, error)
            raise
        self._metrics.messages_in += group.count
        self._metrics.bytes_in += group.nbytes
        if self._written_end < 0:
            flush.flush_if_due_locked(self, now)
        return grouped(group, now if self._append_policy.stamps else -1, self._log_start_offset)

    def _appended_locked(self, end: int, pending: Pending | None = None) -> None:
        """Move the end after an append: the log end or, in a commit, the end of what it has written."""
        if self._written_end < 0:
            self._advance_end_locked(end)
            return
        self._written_end = end
        if pending is not None:
            self._applied.append(pending)

    def _advance_end_locked(self, end: int) -> None:
        """Set the log end, and move the high watermark of a single copy with it."""
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
        """The savepoint of the active segment for _undo_locked. Also prepares the segment for a write."""
        try:
            return self._segments[-1].savepoint()
        except OSError as error:
            if is_final(error):
                self._go_offline(str(error))
            raise

    def _undo_locked(
        self, before: tuple[Segment, ...], savepoint: tuple[int, int, bytes], error: BaseException
    ) -> None:
        """Undo the writes of a failed append or roll.

        If the undo fails too, or a sync has failed, the log is offline, and the next load decides from disk. If the
        error means that the disk has failed, the writes are undone and the log goes offline (P6). The undo is durable:
        the removed bytes must not reappear after the next append (P3).
        """
        end = self._producers.end_offset = self._append_end
        with contextlib.suppress(StorageOffline):
            flush.wait_locked(self)
        failed = failed_sync_in(error)
        if failed is not None and (isinstance(error, WriteBackFailed) or not isinstance(error, OSError)):
            self._go_offline(str(failed))  # the kernel does not report it again
        if self._offline is not None or self._closed:
            return  # a closed log no longer holds the lock of its directory
        self._offline = f"{error!r}, not undone yet"
        try:
            self._take_back_locked(before, savepoint, end)
            self._offline = None
        except BaseException as second:
            if not isinstance(second, OSError):  # Ctrl-C: the log is offline; a failed sync concerns the log.dir too
                failures.note_failure(self, second)
                raise
            self._go_offline(f"{error if isinstance(error, OSError) else repr(error)}; undoing it failed: {second}")
        else:
            if isinstance(error, OSError) and is_final(error):
                self._go_offline(str(error))
        finally:
            self._taken_back += 1

    def _take_back_locked(self, before: tuple[Segment, ...], savepoint: tuple[int, int, bytes], end: int) -> None:
        """Restore the segments, and the bytes of the last of them, from before. The log continues at `end`."""
        last = len(before) - 1
        added, self._segments = [segment for segment in self._segments[last:] if segment is not before[-1]], before
        high_watermark.unrolled_locked(self)
        for segment in added:
            if segment.base_offset == before[-1].base_offset:
                segment.close()  # it uses the files of an empty segment, which is reopened below
                continue
            segment.delete_files()
            self._producers.take_back_snapshot(segment.base_offset)
        before[-1].reopen()
        before[-1].rewind(savepoint)
        if added:
            self._options.files.fsync_dir(self._directory)
        if self._flush_state.lower(end) and self._owner is not None:
            self._owner.lower(self, end, self._log_start_offset)

    # ---- high watermark ----------------------------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, limited to the log. Returns the new one. From here on appends no longer move it.

        ValueError for a negative offset.
        """
        with self._lock:
            self._check_idle("a move of the high watermark")
            return high_watermark.update_locked(self, whole_number("offset", offset))

    def maybe_increment_high_watermark(self, offset: int | OffsetMetadata) -> int | None:
        """Raise the high watermark, never lower it, for a leader. Returns the old one, None if nothing changed.

        The same offset on a newer segment is a change, too. ValueError for an offset beyond the log end.
        """
        new = offset if isinstance(offset, OffsetMetadata) else OffsetMetadata(whole_number("offset", offset))
        with self._lock:
            self._check_idle("a move of the high watermark")
            return high_watermark.increment_locked(self, new)

    def maybe_update_high_watermark(self, offset: int) -> int | None:
        """Set the high watermark to that of the leader, limited to the log, for a follower. Returns the new one, None
        if nothing changed."""
        with self._lock:
            self._check_idle("a move of the high watermark")
            return high_watermark.follow_locked(self, whole_number("offset", offset))

    def set_offsets_listener(self, listener: Callable[[int], None] | None) -> None:
        """Call the listener with every new high watermark, under the log's lock. Its exceptions are logged."""
        function("listener", listener)
        with self._lock:
            self._offsets_listener = listener

    # ---- truncation, retention, compaction ---------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Remove all records at and above an offset, durably. The log then ends at offset. False if there were none.

        A batch that contains offset is removed whole, with its records below offset: Kafka's rule, since replicas agree
        at batch boundaries. Epochs, producers, high watermark, recovery point and log start follow.

        If the last remaining batch then ends below offset (the batch at offset was removed, or a cleaning had removed
        records below it), the log ends after that batch when it is opened again, as in Kafka, and assigns the offsets
        in between again. A roll() after the truncation keeps the log end.

        Raises ValueError for a negative offset, CorruptBatch if damage hides the position (nothing has changed),
        OSError (the log is offline; opened again it is a prefix of what it was).
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
        """Remove all records and continue at an offset, durably. Log start, log end and a managed high watermark are
        then at offset. log_start_offset, at or below it, is for a log whose earlier records are in a tier.

        Raises ValueError, OSError (the log is offline).
        """
        offset = whole_number("offset", offset)
        start = offset if log_start_offset is None else whole_number("log_start_offset", log_start_offset)
        if not 0 <= start <= offset:
            raise ValueError(f"offset={offset}, log_start_offset={start}: 0 <= log_start_offset <= offset expected")
        with self._no_cleaning(), self._lock:
            self._check_idle("a truncation")
            flush.wait_locked(self)
            truncate.truncate_fully_locked(self, offset, start)
        self._options.scheduler.run_due()

    def maybe_increment_log_start_offset(self, offset: int, reason: str = "leader_offset_incremented") -> bool:
        """Raise the log start to offset. False if it is there already or above. The next retention deletes the files.

        A checkpoint stores the log start at close and periodically; after a crash before that the old one is back.
        Raises OffsetOutOfRange beyond the high watermark.
        """
        reason = text("reason", reason)
        with self._lock:
            self._check_idle("a move of the log start")
            moved = retention.increment_log_start_locked(self, whole_number("offset", offset), reason)
        self._options.scheduler.run_due()
        return moved

    def delete_records(self, before: int) -> int:
        """Delete the records below an offset (-1: the high watermark) by raising the log start. Returns the log start.

        Raises PolicyViolation if cleanup.policy has no `delete`, OffsetOutOfRange beyond the high watermark.
        """
        with self._lock:
            self._check_idle("a deletion")
            start = retention.delete_records_locked(self, whole_number("before", before))
        self._options.scheduler.run_due()
        return start

    def deletable_segments(self, predicate: retention.Predicate) -> list[Segment]:
        """The segments from the oldest on for which predicate(segment, the next one or None) is true, up to the high
        watermark; never the empty active one."""
        having("predicate", predicate, ("__call__",), "a function of two segments")
        return retention.deletable(self._segments, self.high_watermark, self._log_end_offset, predicate)

    def apply_retention(self) -> int:
        """Run retention now, by log start, retention.bytes and retention.ms. Returns the number of deleted segments.

        The files are renamed to `.deleted`, and unlinked after file.delete.delay.ms. Many segments are deleted in
        batches, with appends in between. Raises ConfigUnknown if the configuration is not known.
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
        """Compact now, whatever the dirty ratio: keep only the latest record of each key, by the configuration and
        rules of Kafka's cleaner.

        The active segment is not compacted; roll closes it first. rounds: maximum number of rounds if the key map
        (log.cleaner.dedupe.buffer.size) is too small for one; None: as many as needed. dry_run writes nothing, does not
        roll, and reports what one round would do, and the `top` keys that waste most bytes; also for a read-only log.
        Readers and appenders continue meanwhile.

        Raises CorruptBatch for damage, which stays as it is, ConfigUnknown, PolicyViolation if cleanup.policy has no
        `compact`, OSError (a full disk: the log is as before).
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
        """Remove every record of a key from the closed segments, under any cleanup.policy: for deletion requests.
        Everything else stays as it is: other records, offsets, timestamps, markers, the producer state.

        The active segment is not purged; roll closes it first, if it has the key. Segments above the last stable offset
        are not purged either: records_left counts the records there. The old files are unlinked at once, and a line in
        klog-audit.jsonl of the log.dir records the purge, without the key. Consumers are not notified: append a
        tombstone before, and let them read it. dry_run writes nothing. Readers and appenders continue meanwhile.

        Raises TypeError, CorruptBatch for damage, CorruptAudit, OSError (a full disk: each segment is either as before
        or purged).
        """
        from klog.cleaner import purge_key

        roll, dry_run = flag("roll", roll), flag("dry_run", dry_run)
        function("progress", progress)
        self._lock.check(self, "a purge")
        if not dry_run:
            self._cleaning.check_reentry()
        return purge_key(self, key, roll=roll, dry_run=dry_run, progress=progress)

    def _cleaning_session(self) -> contextlib.AbstractContextManager[None]:
        """A context for rewriting closed segments by hand, without any other cleaning of this log, also by its manager.
        The caller holds no lock."""
        self._check_writable()
        return self._cleaning.by_hand()

    def _no_cleaning(self) -> contextlib.AbstractContextManager[None]:
        """A context for removing records that a cleaning may be using: aborts the cleaning first, and lets none begin.
        A thread that holds the log's lock, or cleans, does not wait for it (G3)."""
        owned = self._lock._is_owned()
        return contextlib.nullcontext() if owned or self._cleaning.mine else self._cleaning.paused()

    def _end_cleaning(self) -> None:
        """Abort a running cleaning. The next one uses the current state of the log."""
        with self._no_cleaning():
            pass

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """(epoch, offset): the largest known epoch at or below this one, and its end offset; (-1, -1) if unknown.

        A replica whose last epoch is `epoch` can agree with this one up to that offset. Kafka: OffsetsForLeaderEpoch.
        """
        with self._lock:
            return self._epochs.end_offset_for(whole_number("epoch", epoch), self._log_end_offset)

    # ---- roll, flush, close ------------------------------------------------------------------------------------------

    def roll(self, expected_next_offset: int | None = None) -> Segment:
        """Close the active segment and begin a new one at the log end, or at expected_next_offset if that is beyond.
        Returns the new segment. An empty active segment of the same offset is replaced.

        The log end stays. If the new segment begins beyond it, only replicated batches can reach that offset; other
        appends raise SegmentOffsetOverflow. ValueError if the new segment would begin below the active one.
        """
        expected = 0 if expected_next_offset is None else whole("expected_next_offset", expected_next_offset, 0)
        with self._lock:
            self._check_idle("a roll")
            segment = self._roll_or_undo_locked(max(self._log_end_offset, expected))
        self._options.scheduler.run_due()
        return segment

    def _roll_or_undo_locked(self, base_offset: int) -> Segment:
        """Roll, and undo the roll if it fails. Returns the new active segment."""
        before, savepoint = self._segments, self._savepoint_locked()
        try:
            self._roll_locked(base_offset)
        except BaseException as error:
            self._undo_locked(before, savepoint, error)
            raise
        high_watermark.rolled_locked(self)
        return self._segments[-1]

    def _roll_locked(self, base_offset: int) -> None:
        """Roll. The old segments are durable before the new one exists (L3)."""
        active = self._segments[-1]
        if base_offset < active.base_offset or (base_offset == active.base_offset and active.size):
            raise ValueError(
                f"{self.name}: no segment can begin at {base_offset}: the active one holds [{active.base_offset}, "
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
        self._segments = (*self._segments, segment)  # before its files exist, so that an undo finds it
        segment.activate()
        self._producers.end_offset = base_offset
        if not self._producers.take_snapshot():  # a snapshot also syncs the directory with the new segment's names
            self._guard_sync(lambda: self._options.files.fsync_dir(self._directory))
        self._flush_state.synced_up_to(min(base_offset, max(self._log_end_offset, active.next_offset)))
        _log.info("event=roll log=%s base_offset=%d segments=%d", self.name, base_offset, len(self._segments))
        if self._on_flush is not None:
            self._on_flush(self)

    def _replace_segments_locked(self, segments: tuple[Segment, ...], *, rewritten: bool) -> None:
        """Use these segments: others in place of some, or without those at the start. rewritten: readers look again."""
        self._segments = segments
        if rewritten:
            self._generation += 1
            self._aborted_finder.forget()

    def _start_at_locked(self, offset: int) -> None:
        """Raise the log start."""
        self._log_start_offset = offset
        self._epochs.truncate_from_start(offset)
        self._producers.on_log_start_offset_incremented(offset)

    def _remake_locked(self, empty: Segment) -> None:
        """Replace the files of an empty active segment. The old ones are deleted like those of any segment."""
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
        """The Home of segments that are marked for deletion."""
        if self._deleted is None:
            options = self._options
            self._deleted = Home(
                self._directory, options.config, options.files, options.handles, writable=True, beside=self._home
            )
            self._deleted.suffix = names.DELETED
        return self._deleted

    def flush(self, offset: int | None = None) -> None:
        """Sync everything appended so far, or everything below an offset, to disk (P2).

        Appends continue meanwhile, except with durability="sync". An OSError takes the log and its log.dir offline.
        """
        flush.flush(self, offset)

    @property
    def unflushed_bytes(self) -> int:
        """Bytes appended since the last flush."""
        return self._metrics.appended_bytes - self._flush_state.flushed_bytes

    @property
    def last_flush_ms(self) -> int:
        """When the whole log was last flushed, by its clock; before the first flush the time of opening."""
        return self._flush_state.flushed_ms

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is on disk."""
        return self._flush_state.recovery_point

    def close(self) -> None:
        """Flush, trim the indexes, write the producer snapshot. A second call is not an error.

        After an OSError the log is closed, and the next open recovers it. After close_handlers() nothing can be
        flushed: raises StorageOffline, and the next open recovers the log. In a signal handler that interrupts an
        append, a flush or a similar call to this log in the same thread it raises ReentrantCall, and the log stays
        open: let the handler raise or set a flag, and close after it.
        """
        with self._no_cleaning(), self._lock:
            self._lock.begins(self, "a close")
            if self._owner is not None:
                self._owner.check("a close")
            if self._closed:
                if self._handlers_closed:
                    self._handlers_closed = False
                    self._abandon()
                    raise StorageOffline(f"{self.name} could not be flushed after close_handlers(): open it to recover")
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
        """Finish a close that Ctrl-C, or an exception of a signal handler, interrupted: release all, write nothing. The
        next open recovers the log."""
        if not self._closed or (self._claim is not None and self._claim.held):
            self._abandon()

    def _await_close(self) -> None:
        """Wait for a close in another thread, so that the directory can be loaded again. The caller holds no lock of a
        log."""
        with self._lock:
            pass

    def _give_up_claim(self) -> None:
        """Let another Log write the directory: this one no longer does."""
        if self._claim is not None:
            self._claim.release()

    def _finish_locked(self) -> None:
        flush.flush_locked(self)
        self._segments[-1].deactivate(sync=True)
        producers = self._producers
        producers.end_offset = min(producers.end_offset, self._segments[-1].next_offset)  # log end of the next load
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
        """Close the files of a log whose directory has failed, without a flush. A second call is not an error. Locks
        are held until close()."""
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
        """Rename the directory durably. False if it has that name. Readers and appenders continue.

        reinitialise False: for a log marked for deletion, which from here on keeps its epochs only in memory, and no
        topic id. Raises FileExistsError; another OSError takes the log offline.
        """
        name, reinitialise = file_name("name", name), flag("reinitialise", reinitialise)
        with self._no_cleaning(), self._lock:
            self._check_idle("a renaming")
            return lifecycle.rename_locked(self, name, reinitialise)

    def delete(self) -> None:
        """Delete the log with its directory, and close it. Raises StorageOffline if that fails."""
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
                self._home.mappable = False  # the mapped files are deleted
            if self._owner is not None:
                self._owner.forget(self)

    def _cancel_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()

    def _abandon(self) -> None:
        """Release handles and locks as a crash would: without a flush, and not as a clean shutdown."""
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
        """Why the log is offline and refuses appends, None if it is online."""
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
            raise UnknownTopicOrPartition(f"{self.name} has been deleted; its files will be removed from {self.path}")

    def _check_idle(self, what: str) -> None:
        """Begin a call that changes the log. Raises if another one is running or the log is not writable. Under the
        lock."""
        self._lock.begins(self, what)
        self._check_writable()

    def _go_offline(self, reason: str, *, disk: bool = True) -> None:
        """Take the log offline. disk: the disk has failed, so the owner takes the whole log.dir offline."""
        self._offline = reason
        _log.error("event=offline log=%s reason=%s", self.name, reason)
        if disk and self._owner is not None:
            self._owner.failed(self, reason)

    def _disk_failed(self, reason: str) -> None:
        with self._lock:
            if self._offline is None:
                self._go_offline(reason)

    def _fail(self, reason: str, *, readable: bool) -> None:
        """Take the log offline with its log.dir. Takes no lock, since another log may call it under its own."""
        if self._offline is None:
            self._offline = reason
        if not readable:
            self._unreadable = reason

    def _mark_for_deletion(self, name: str) -> None:
        """Mark the log for deletion: rename the directory, which is deleted later, after its readers have finished."""
        with self._lock:
            self._lock.begins(self, "a deletion")
            lifecycle.rename_locked(self, name, False)
            self._disown(deleted=True)

    def _disown(self, *, deleted: bool = False) -> None:
        """Report to no owner from here on. deleted: the log is marked for deletion."""
        self._owner = self._on_flush = None
        self._marked_for_deletion = self._marked_for_deletion or deleted

    def _is_gone(self) -> bool:
        return self._marked_for_deletion or super()._is_gone()

    def update_config(self, config: LogConfig) -> None:
        """Set another configuration, from the next append on. Raises InvalidConfig."""
        instance("config", config, LogConfig, "a klog.LogConfig")
        with self._lock:
            self._lock.begins(self, "a change of configuration")
            self._append_policy = AppendPolicy(config)
            self._config = self._options.config = config
            self._options.config_known = True
            if self._home is not None:
                self._home.config = config

    def _guard(self, action: Any) -> None:
        """Run an action whose failure is final."""
        failures.guard(self, action)

    def _guard_sync(self, action: Any) -> None:
        """Run a sync, whose failure is final, except a lack of file descriptors."""
        failures.guard(self, action, lacks_descriptors)

    def _finally(self, action: Any) -> None:
        """Run an action that must not be interrupted: any exception, also Ctrl-C, takes the log offline."""
        try:
            action()
        except BaseException as error:
            disk = isinstance(error, OSError) or failed_sync_in(error) is not None
            self._go_offline(repr(error), disk=disk)
            raise
