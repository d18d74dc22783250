"""Appending encoded batches, in the same steps as Kafka, so that a refused append has the same effects as in Kafka.

  A1  check each whole batch in the buffer                           outside the log's lock; for a leader see A3
  A2  check that the log is open, writable, online
  A3  leader: assign offsets, epoch and timestamps, check every record          follower: compare offsets
  A4  leader epochs      A5  segment.bytes      A6  roll             a leader's A4 and A6 stay if a later step fails
  A7  producers: a duplicate ends here, with success
  A8  write the bytes     A9  producers, transaction index           A10  log end and high watermark: _tail.write_at_end
  A11 flush.messages

An exception before A8 has written nothing; an exception in A8 is undone. Kafka advances the log end before A9, and
readers of a leader wait for its high watermark. Here the high watermark may follow the log end at once, so A9 comes
first: no reader may treat a transaction as decided that has just begun. If the transaction index cannot be written,
the batch stays, the log is offline and the last stable offset does not move. The next load recomputes it.

In a commit of durability="sync" A10 and A11 are done once for all its appends, after the fdatasync. Until then each
append begins at `append_end`, where the last one ended, and no other thread sees that.

A1 to A3 and A11 are in _append, with a fast path for batches that need only A7 to A10. This module is the full path.
Under the log's lock from A2 on. Kafka: UnifiedLog.append, analyzeAndValidateProducerState.
"""

from __future__ import annotations

from typing import Literal

from klog.errors import (
    InvalidRecord,
    RecordBatchTooLarge,
    SegmentOffsetOverflow,
    StorageOffline,
    UnexpectedAppendOffset,
)
from klog.log.load.overflow import RELATIVE_OFFSET_MAX
from klog.log.state import high_watermark
from klog.log.state._log_core import LogCore
from klog.log.state._producer_entry import DataBatch, last_sequence_of
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.producer_append import ProducerAppend
from klog.log.state.segments import check_reached
from klog.log.state.transactions import CompletedTransaction
from klog.log.write._append_info import AppendInfo
from klog.log.write._tail import write_at_end
from klog.log.write.failures import guard, uninterrupted
from klog.log.write.roll import roll_locked, roll_or_undo_locked
from klog.log.write.undo import savepoint_locked, undo_locked
from klog.record import BatchGroup, BatchTable, EncodedBatches, ValidatedBatch, decode
from klog.record.control import marker_coordinator_epoch
from klog.segment import AbortedTransaction, Header, Segment, producing
from klog.segment import base_offset as group_base_offset

Origin = Literal["client", "replication", "coordinator", "raft"]


def lead_locked(log: LogCore, batch: ValidatedBatch, epoch: int, origin: str, now: int) -> AppendInfo | None:
    """Append the validated batch of a leader, which begins at the log end: A4 to A10. Returns the result of the first
    append if this is a duplicate."""
    end, last = log.append_end, batch.last_offset
    if log.epochs.assign(epoch, end):
        guard(log, log.epochs.flush)
    duplicate = _append_locked(log, batch, end, last, batch.max_timestamp, batch.producer_id >= 0, origin, now)
    return None if duplicate is None else _duplicate(log, batch, duplicate, epoch)


def group_locked(log: LogCore, group: BatchGroup, now: int) -> None:
    """Append a group of encoded records, A4 to A10: assign offsets, and write all or nothing. Rolls if a segment is
    full."""
    first = log.append_end
    check_reached(log.name, log.segments[-1], first)
    epoch = log.epochs.current
    if epoch != log.epochs.latest:
        log.epochs.assign(epoch, first)
        guard(log, log.epochs.flush)
    group.assign(first, epoch)
    write_at_end(log, group, first + group.count, now, None, None, savepoint_locked(log), _write_parts)


def _write_parts(log: LogCore, group: BatchGroup, now: int) -> None:
    """A6 and A8 of batches that may be in several segments."""
    done = 0
    while done < group.n:
        active = log.segments[-1]
        fits = active.fit(group, done, now)
        if fits == 0:
            base_offset = group_base_offset(group, done)
            if active.size == 0 and base_offset == active.base_offset and not active.index_full:
                raise RecordBatchTooLarge(
                    f"a batch does not fit into a segment of segment.bytes={log.config.segment_size}; raise it"
                )
            roll_locked(log, base_offset)
            if done == 0:
                high_watermark.rolled_locked(log)
            continue
        active.append(group, done, done + fits, now)
        done += fits


def follow_locked(log: LogCore, batches: EncodedBatches, origin: str, now: int) -> None:
    """Append batches with the offsets that their leader has assigned: A3 to A10."""
    end, first, last = log.append_end, batches.first_offset, batches.last_offset
    begins = first if first >= 0 else batches.last_offset_of_first_batch
    if begins < end or (origin == "raft" and begins != end):
        raise UnexpectedAppendOffset(batches.base_offset, last, end, log.name)
    known = log.epochs.entries  # replaced at each change, never changed
    base_offset = max(first if first >= 0 else last - RELATIVE_OFFSET_MAX, end)
    try:
        _assign_epochs(log, batches)
        _append_locked(
            log, batches, base_offset, last, batches.max_timestamp, batches.has_producers, "replication", now
        )
    except BaseException:
        if log.append_end == end:  # else the next append would fall into an epoch of these batches
            take_back_epochs(log, known)
        raise


def _duplicate(log: LogCore, batch: ValidatedBatch, found: DataBatch, epoch: int) -> AppendInfo:
    """The result of the first append of a duplicate."""
    return AppendInfo(
        found.first_offset,
        found.last_offset,
        found.offset_delta + 1,
        batch.max_timestamp,
        found.timestamp,
        shallow_offset_of_max_timestamp=batch.shallow_offset_of_max_timestamp,
        log_start_offset=log.log_start_offset,
        valid_bytes=batch.source_size,
        last_offset_of_first_batch=found.last_offset,
        last_leader_epoch=epoch,
        is_duplicate=True,
        source_compression=batch.source_compression,
    )


def _assign_epochs(log: LogCore, batches: EncodedBatches) -> None:
    """A4 for a follower. Batches without an epoch leave the cache as it is. Messages of magic 0 and 1 clear it."""
    epochs = log.epochs
    if batches.one_leader_epoch and not batches.has_legacy:
        news = batches.last_leader_epoch >= 0 and epochs.assign(batches.last_leader_epoch, batches.first_offset)
    else:
        news = False
        for epoch, start in batches.epoch_starts():
            if epoch is None:
                news = news or epochs.latest is not None
                epochs.clear()
            elif epoch >= 0:
                news = epochs.assign(epoch, start) or news
    if news:
        guard(log, epochs.flush)


def take_back_epochs(log: LogCore, known: list[tuple[int, int]]) -> None:
    """Undo A4 of batches that were not appended."""
    if log.epochs.entries is not known:
        log.epochs.put_back(known)
        log.epochs.begin_at(log.epochs.default, log.append_end)
        if log.health.offline is None:
            guard(log, log.epochs.flush)


def _append_locked(
    log: LogCore,
    batches: BatchTable,
    base_offset: int,
    last_offset: int,
    max_timestamp: int,
    has_producers: bool,
    origin: str,
    now: int,
) -> DataBatch | None:
    """A5 to A10. Returns the remembered batch if this one is a duplicate.

    base_offset: that of a new segment that begins with these batches.
    """
    size, end = batches.nbytes, log.append_end
    if size > log.config.segment_size:
        raise RecordBatchTooLarge(
            f"{size} bytes exceed segment.bytes={log.config.segment_size}: send smaller batches, or raise it"
        )
    before = log.segments
    active = before[-1]
    savepoint = savepoint_locked(log)
    pending = None
    try:
        if active.must_roll(batches, last_offset, max_timestamp, now):
            active = _roll(log, base_offset, last_offset)
        if has_producers:
            pending = Pending(log, active, origin)
            duplicate = pending.check(batches)
            if duplicate is not None:
                return duplicate
    except BaseException as error:
        if log.segments is not before and log.segments[-1].base_offset > end:
            undo_locked(log, before, savepoint, error)  # the new segment begins where only these batches could
        raise
    check_reached(log.name, active, base_offset)
    savepoint = savepoint if active is before[-1] else savepoint_locked(log)
    write_at_end(log, batches, last_offset + 1, now, None, pending, savepoint, None)
    return None


def _roll(log: LogCore, base_offset: int, last_offset: int) -> Segment:
    """A6."""
    active = log.segments[-1]
    if active.size or base_offset > active.base_offset or active.index_full:
        active = roll_or_undo_locked(log, base_offset)
    if last_offset - active.base_offset > RELATIVE_OFFSET_MAX:
        raise SegmentOffsetOverflow(
            f"{log.name}: offset {last_offset} is more than 2^31-1 above the segment's base offset {active.base_offset}"
        )
    return active


class Pending:
    """The effects of one append on producers and transactions: first checked, then applied."""

    def __init__(self, log: LogCore, segment: Segment, origin: str) -> None:
        self._log = log
        self._segment = segment
        self._origin = origin
        self._appends: dict[int, ProducerAppend] = {}
        self._completed: list[CompletedTransaction] = []
        self._indexed = False  # may an entry of these be in the transaction index?

    def check(self, batches: BatchTable) -> DataBatch | None:
        """A7. Returns the remembered batch if one of these is a duplicate."""
        producers, origin = self._log.producers, self._origin
        for header in producing(batches):
            producer_id, epoch = header.producer_id, header.producer_epoch
            last_sequence = last_sequence_of(header.base_sequence, header.last_offset_delta)
            append = self._appends.get(producer_id)
            if append is None:
                entry = producers.entries.get(producer_id)
                if origin == "client" and entry is not None:
                    duplicate = entry.duplicate(epoch, header.base_sequence, last_sequence)
                    if duplicate is not None:
                        return duplicate
                append = self._appends[producer_id] = ProducerAppend(producer_id, entry, origin)
            if header.is_control:
                self._check_marker(append, header, batches)
                continue
            first = None
            if header.is_transactional:
                segment = self._segment
                first = OffsetMetadata(header.base_offset, segment.base_offset, segment.size + header.position)
            append.append_data(
                epoch,
                header.base_sequence,
                last_sequence,
                header.max_timestamp,
                header.base_offset,
                header.last_offset,
                first,
            )
        return None

    def _check_marker(self, append: ProducerAppend, header: Header, batches: BatchTable) -> None:
        at = header.position
        for record in next(decode(memoryview(batches)[at : at + header.size])):
            if record.control_type not in ("abort", "commit"):
                raise InvalidRecord(
                    f"control record of type {record.control_type!r} from producer {header.producer_id}: "
                    f"only 'abort' and 'commit' are accepted"
                )
            completed = append.append_marker(
                header.producer_epoch,
                marker_coordinator_epoch(record.value),
                header.base_offset,
                record.timestamp,
                record.control_type == "abort",
            )
            if completed is not None:
                self._completed.append(completed)
            return  # a batch without a record was emptied by the cleaner: it ends no transaction

    def apply(self) -> StorageOffline | None:
        """A9, after the bytes are written. Returns the error of an append whose batch stays in the log."""
        log, producers = self._log, self._log.producers
        for append in self._appends.values():
            producers.update(append)
        for completed in self._completed:
            stable = producers.last_stable_offset(completed)
            if completed.is_aborted:
                entry = AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
                self._indexed = True
                log.aborted_finder.show()
                try:
                    self._segment.txn_index.append(entry)
                except OSError as error:
                    log.go_offline(f"{self._segment.txn_index.path} cannot be written: {error}")
                    failure = StorageOffline(f"{log.name} is offline, its transaction index cannot be written: {error}")
                    failure.__cause__ = error
                    return failure
            producers.complete(completed)
        return None

    def take_back(self) -> None:
        """Undo apply(), even if it was only partly done, after the bytes were removed."""
        log = self._log
        log.producers.take_back(self._appends.values(), self._completed)
        if self._indexed and log.health.offline is None:
            index, end = self._segment.txn_index, log.append_end
            uninterrupted(log, lambda: index.write([entry for entry in index.entries if entry.last_offset < end]))
