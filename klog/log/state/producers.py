"""Producer state of one log: what each producer id last wrote, which transactions are open, and the snapshots of both.

  R1  end_offset: every batch below it is in the state, no batch from it on is
  R2  a check that fails changes nothing: prepare() copies an entry, update() puts the copy in its place
  R3  take_snapshot() at end_offset and loading it give the same state, but for all batches of a producer but the last

Under the log's lock. Kafka: ProducerStateManager.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from klog.errors import CorruptSnapshot
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.producer_append import ProducerAppend
from klog.log.state.producer_entry import DataBatch, ProducerEntry, ProducerState, last_sequence_of
from klog.log.state.snapshots import Snapshots
from klog.log.state.transactions import CompletedTransaction, Transaction, Transactions
from klog.segment import AbortedTransaction

__all__ = ["ProducerState", "Producers"]

_log = logging.getLogger("klog.log")
_LATE_MS = 5 * 60 * 1000  # beyond the longest timeout that a coordinator allows


class Producers:
    """The producers of one log. snapshots None: they are kept in memory alone, as a reader's are."""

    def __init__(
        self,
        snapshots: Snapshots | None = None,
        *,
        expiration_ms: int = 86_400_000,
        transaction_max_timeout_ms: int = 900_000,
    ) -> None:
        self.end_offset = 0
        self.entries: dict[int, ProducerEntry] = {}
        self._transactions = Transactions()
        self._snapshots = snapshots
        self._snapshot_offset = 0  # of the state that the newest snapshot holds
        self._expiration_ms = expiration_ms
        self._transaction_max_timeout_ms = transaction_max_timeout_ms

    # ---- what is known ---------------------------------------------------------------------------------------------

    @property
    def states(self) -> dict[int, ProducerState]:
        """What is known of each producer id."""
        return {producer_id: entry.state for producer_id, entry in self.entries.items()}

    @property
    def first_unstable_offset(self) -> OffsetMetadata | None:
        """Where the oldest transaction begins that is open, or decided by a marker that is not below the high watermark
        as on_high_watermark_updated() last heard of it."""
        return self._transactions.first_unstable

    @property
    def first_undecided_offset(self) -> int | None:
        """First offset of the oldest transaction without a marker."""
        found = self._transactions.first_undecided
        return None if found is None else found.first.offset

    @property
    def last_offsets(self) -> dict[int, tuple[int | None, int]]:
        """{producer id: (offset of its last data record or None, epoch)}: what compaction must leave."""
        return {
            producer_id: (entry.last_offset if entry.batches else None, entry.epoch)
            for producer_id, entry in self.entries.items()
        }

    def has_late_transaction(self, now_ms: int) -> bool:
        """Is a transaction open for longer than any coordinator would leave it?"""
        found = self._transactions.first_undecided
        entry = None if found is None else self.entries.get(found.producer_id)
        if entry is None or entry.timestamp <= 0:
            return False
        return now_ms - entry.timestamp > self._transaction_max_timeout_ms + _LATE_MS

    # ---- append ----------------------------------------------------------------------------------------------------

    def prepare(self, producer_id: int, origin: str) -> ProducerAppend:
        """A copy of a producer's state for the batches of one append (R2)."""
        return ProducerAppend(producer_id, self.entries.get(producer_id), origin)

    def update(self, append: ProducerAppend) -> None:
        """What the append did to its producer is the state from now on."""
        entry = append.entry
        if entry.producer_id < 0:
            raise ValueError(f"producer id {entry.producer_id} names no producer")
        self.entries[entry.producer_id] = entry
        for transaction in append.started:
            self._transactions.begin(transaction)

    def take_back(self, appends: Collection[ProducerAppend], completed: Collection[CompletedTransaction]) -> None:
        """update() and complete() for these, however far they got, have not happened. Only as long as nothing else has
        happened since, a new high watermark above all."""
        for append in appends:
            if append.current is None:
                self.entries.pop(append.entry.producer_id, None)
            else:
                self.entries[append.entry.producer_id] = append.current
        self._transactions.take_back([begun for append in appends for begun in append.started], completed)

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """What the transaction index says about a transaction: where the next open one begins, else the offset behind
        its marker. To be asked before complete()."""
        return self._transactions.stable_offset_after(completed)

    def complete(self, completed: CompletedTransaction) -> None:
        """A transaction is decided, and unstable until its marker lies below the high watermark."""
        self._transactions.complete(completed)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Markers below it are replicated."""
        self._transactions.forget_below(high_watermark)

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Decided transactions below it are gone, open ones stay; so do producers."""
        self._transactions.forget_below(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)
        latest = None if self._snapshots is None else self._snapshots.latest
        self._snapshot_offset = log_start_offset if latest is None else latest

    def expire(self, now_ms: int, expiration_ms: int | None = None) -> None:
        """Forget producers without an open transaction whose last batch is expiration_ms old, or older."""
        limit = now_ms - (self._expiration_ms if expiration_ms is None else expiration_ms)
        old = [pid for pid, e in self.entries.items() if e.timestamp <= limit and e.txn_first_offset is None]
        for producer_id in old:
            del self.entries[producer_id]

    # ---- replay ----------------------------------------------------------------------------------------------------

    def update_data(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        base_offset: int,
        last_offset_delta: int,
        timestamp: int,
        is_transactional: bool,
    ) -> None:
        """A data batch that is in the log: nothing is refused."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        last_sequence, last_offset = last_sequence_of(base_sequence, last_offset_delta), base_offset + last_offset_delta
        entry.add(epoch, DataBatch(last_sequence, last_offset, last_offset_delta, timestamp))
        if is_transactional and entry.txn_first_offset is None:
            entry.txn_first_offset = base_offset
            self._transactions.begin(Transaction(producer_id, OffsetMetadata(base_offset)))

    def end_transaction(
        self, producer_id: int, epoch: int, offset: int, timestamp: int, coordinator_epoch: int, aborted: bool
    ) -> AbortedTransaction | None:
        """A marker that is in the log at offset. The aborted transaction, if it ended one."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        first = entry.txn_first_offset
        entry.end_transaction(epoch, coordinator_epoch, timestamp)
        if first is None:
            return None
        completed = CompletedTransaction(producer_id, first, offset, aborted)
        stable = self.last_stable_offset(completed)
        self.complete(completed)
        return AbortedTransaction(producer_id, first, offset, stable) if aborted else None

    def note_emptied(self, producer_id: int) -> None:
        """A control batch without records, which the cleaner leaves: it decides nothing, its producer is known."""
        if producer_id not in self.entries:
            self.entries[producer_id] = ProducerEntry(producer_id)

    # ---- snapshots -------------------------------------------------------------------------------------------------

    @property
    def oldest_snapshot_offset(self) -> int | None:
        """Offset of the first snapshot file."""
        return None if self._snapshots is None else self._snapshots.oldest

    @property
    def latest_snapshot_offset(self) -> int | None:
        """Offset of the last snapshot file."""
        return None if self._snapshots is None else self._snapshots.latest

    def snapshot_path(self, offset: int) -> str | None:
        """The snapshot file of this offset, None if there is none."""
        return None if self._snapshots is None else self._snapshots.path(offset)

    def move_to(self, directory: str) -> None:
        """The log's directory has been renamed."""
        if self._snapshots is not None:
            self._snapshots.move_to(directory)

    def take_snapshot(self) -> bool:
        """Write the state as `<end_offset>.snapshot`, durably and the directory with it; False, and nothing of that,
        where the newest one holds it already."""
        if self._snapshots is None or self.end_offset <= self._snapshot_offset:
            return False
        self._snapshots.write(self.end_offset, self.states)
        self._snapshot_offset = self.end_offset
        return True

    def load(self, states: Mapping[int, ProducerState], offset: int) -> None:
        """Start from what a snapshot of offset says."""
        self.entries = {producer_id: ProducerEntry.of(producer_id, state) for producer_id, state in states.items()}
        self._transactions = Transactions()
        for producer_id, entry in self.entries.items():
            if entry.txn_first_offset is not None:
                self._transactions.begin(Transaction(producer_id, OffsetMetadata(entry.txn_first_offset)))
        self.end_offset = self._snapshot_offset = offset

    def clear(self, offset: int) -> None:
        """Nothing is known, and nothing was written below offset."""
        self.load({}, offset)

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Back to the newest usable snapshot at or below log_end_offset, if the state is not that of log_end_offset
        already. Whoever calls replays the batches of [end_offset, log_end_offset) then.

        Snapshots outside (log_start_offset, log_end_offset] and those that cannot be read are deleted. Producers that
        have expired by now are left out, unless a transaction of theirs is open.
        """
        snapshots = self._snapshots
        for offset in [] if snapshots is None else snapshots.offsets:
            if snapshots is not None and not log_start_offset < offset <= log_end_offset:
                snapshots.delete(offset)
        if self.end_offset == log_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
            return
        self.clear(log_start_offset)
        for offset in [] if snapshots is None else reversed(snapshots.offsets):
            assert snapshots is not None
            try:
                self.load(snapshots.read(offset), offset)
            except CorruptSnapshot as error:
                _log.warning("event=snapshot_unusable reason=%s", error)
                snapshots.delete(offset)
                continue
            self.expire(now_ms)
            return

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Nothing is known, no snapshot is left; the log goes on at offset."""
        self.clear(offset)
        self._snapshot_offset = 0
        if self._snapshots is not None:
            for number in self._snapshots.offsets:
                self._snapshots.delete(number)

    def truncate_fully_and_reload_snapshots(self) -> None:
        """Nothing is known, but the snapshots that somebody has put into the directory: those of a tier."""
        self.truncate_fully_and_start_at(0)
        if self._snapshots is not None:
            self._snapshots.relist()

    def remove_stray_snapshots(self, segment_bases: Collection[int]) -> None:
        """Delete snapshots that no segment begins at, but for the last, if it lies above every segment's base."""
        if self._snapshots is not None:
            self._snapshots.remove_strays(segment_bases)

    def delete_snapshots_before(self, offset: int) -> None:
        """Delete those of smaller offsets."""
        if self._snapshots is not None:
            for number in self._snapshots.offsets:
                if number < offset:
                    self._snapshots.delete(number)

    def remove_and_mark_for_deletion(self, offset: int) -> str | None:
        """Rename a snapshot to .deleted; where it is then, None if there was none."""
        return None if self._snapshots is None else self._snapshots.mark_for_deletion(offset)

    def take_back_snapshot(self, offset: int) -> None:
        """Unlink a snapshot that a roll has written which did not come about."""
        if self._snapshots is not None:
            self._snapshots.delete(offset)
            latest = self._snapshots.latest
            self._snapshot_offset = min(self._snapshot_offset, 0 if latest is None else latest)
