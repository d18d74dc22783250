"""The producer state of one log: the last batches of each producer id, the open transactions, and snapshots of both.

  R1  end_offset: the state includes every batch below it and none from it on
  R2  a failed check changes nothing: ProducerAppend copies an entry, update() replaces the entry by the copy
  R3  take_snapshot() at end_offset and loading it give the same state, with only the last batch of each producer

Under the log's lock. Kafka: ProducerStateManager.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from klog.log.state._fields import ProducerFields
from klog.log.state._producer_entry import DataBatch, ProducerEntry, last_sequence_of
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.producer_append import ProducerAppend
from klog.log.state.producer_state import ProducerState
from klog.log.state.snapshots import Snapshots
from klog.log.state.transactions import CompletedTransaction, Transaction, Transactions
from klog.segment import AbortedTransaction

__all__ = ["ProducerState", "Producers"]


class Producers(ProducerFields):
    """The producers of one log.

    high_watermark: the largest that on_high_watermark_updated() was given; unstable_at: the last one, -1 for none.
    unreadable: a marker could not be read in a replay, so that its transaction stays open.
    """

    def __init__(self, snapshots: Snapshots | None = None, *, like: Producers | None = None) -> None:
        """snapshots None: the state is in memory only, as for a reader. like: begin with a copy of that state."""
        self.end_offset = 0
        self.high_watermark: int = -1
        if like is None:
            self.entries = {}
            self._transactions = Transactions()
        else:
            self._copy(like)
            self.end_offset = like.end_offset
        self.unstable_at = -1
        self.unreadable = False
        self._snapshots = snapshots
        self._snapshot_offset = 0  # end_offset of the newest snapshot

    # ---- queries ---------------------------------------------------------------------------------------------------

    @property
    def states(self) -> dict[int, ProducerState]:
        """{producer id: its state}"""
        return {producer_id: entry.state for producer_id, entry in self.entries.items()}

    @property
    def first_unstable_offset(self) -> OffsetMetadata | None:
        """First offset of the oldest transaction that is open, or whose marker is not below the high watermark last
        given to on_high_watermark_updated()."""
        return self._transactions.first_unstable

    @property
    def last_offsets(self) -> dict[int, tuple[int | None, int]]:
        """{producer id: (offset of its last data record or None, epoch)}: the records that compaction must keep."""
        return {
            producer_id: (entry.last_offset if entry.batches else None, entry.epoch)
            for producer_id, entry in self.entries.items()
        }

    # ---- append ----------------------------------------------------------------------------------------------------

    def end_at(self, offset: int) -> None:
        """Every batch below offset is included now, and none from it on (R1)."""
        self.end_offset = offset

    def skip_to(self, offset: int) -> None:
        """No batch is between the end and offset."""
        self.end_offset = max(self.end_offset, offset)

    def note_unreadable(self) -> None:
        """A marker could not be read."""
        self.unreadable = True

    def update(self, append: ProducerAppend) -> None:
        """Make the result of an append the state of its producer."""
        entry = append.entry
        if entry.producer_id < 0:
            raise ValueError(f"producer id {entry.producer_id} is negative")
        self.entries[entry.producer_id] = entry
        for transaction in append.started:
            self._transactions.begin(transaction)

    def take_back(self, appends: Collection[ProducerAppend], completed: Collection[CompletedTransaction]) -> None:
        """Undo update() and complete() of these, even if they were only partly done.

        Nothing else may have changed since, in particular not the high watermark.
        """
        for append in appends:
            if append.current is None:
                self.entries.pop(append.entry.producer_id, None)
            else:
                self.entries[append.entry.producer_id] = append.current
        self._transactions.take_back([begun for append in appends for begun in append.started], completed)

    def take_unreplicated(self, other: Producers) -> None:
        """Add the decided transactions of another state of the log at the same offset."""
        self._transactions.take_unreplicated(other._transactions)
        self.unreadable |= other.unreadable

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """The last stable offset for the transaction index: the first offset of the next open transaction, else the
        offset after the marker. Call it before complete()."""
        return self._transactions.stable_offset_after(completed)

    def complete(self, completed: CompletedTransaction) -> None:
        """Note a transaction as decided. It stays unstable until its marker is below the high watermark."""
        self._transactions.complete(completed)

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Note that markers below the high watermark are replicated."""
        self.high_watermark = max(self.high_watermark, high_watermark)
        self._transactions.forget_below(high_watermark)
        self.unstable_at = high_watermark  # last: Ctrl-C may come between

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Forget decided transactions below the log start. Open transactions and producers stay."""
        self._transactions.forget_below(log_start_offset)
        self.skip_to(log_start_offset)
        latest = None if self._snapshots is None else self._snapshots.latest
        self._snapshot_offset = log_start_offset if latest is None else latest

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers whose last batch is at least expiration_ms old and that have no open transaction."""
        limit = now_ms - expiration_ms
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
        """Apply a data batch that is in the log already, without checks."""
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
        """Apply a marker that is in the log already, at offset. Returns the transaction if the marker aborted one."""
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
        """Apply a control batch that the cleaner has emptied: it ends no transaction, but its producer is known."""
        if producer_id not in self.entries:
            self.entries[producer_id] = ProducerEntry(producer_id)

    # ---- snapshots -------------------------------------------------------------------------------------------------

    def move_to(self, directory: str) -> None:
        """Use the new path of the log's directory, which has been renamed."""
        if self._snapshots is not None:
            self._snapshots.move_to(directory)

    def take_over(self, other: Producers) -> None:
        """Take the state of another log of the same batches, whose newest snapshot this one has loaded. A snapshot
        lacks all but the last batch of a producer, and transactions with a marker above the high watermark."""
        self._copy(other)
        self.unstable_at = other.unstable_at

    def _copy(self, other: Producers) -> None:
        self.entries = {producer_id: entry.copy() for producer_id, entry in other.entries.items()}
        self._transactions = Transactions(other._transactions)
        self.high_watermark = other.high_watermark

    def take_snapshot(self) -> bool:
        """Write the state as `<end_offset>.snapshot` and sync file and directory.

        Returns False and writes nothing if the newest snapshot has this state already.
        """
        if self._snapshots is None or self.end_offset <= self._snapshot_offset:
            return False
        self._snapshots.write(self.end_offset, self.states)
        self._snapshot_offset = self.end_offset
        return True

    def load(self, states: Mapping[int, ProducerState], offset: int) -> None:
        """Replace the state by that of a snapshot at offset."""
        self.entries = {producer_id: ProducerEntry.of(producer_id, state) for producer_id, state in states.items()}
        if self._transactions.first_unstable is not None:
            self._transactions.clear()
        for producer_id, entry in self.entries.items():
            if entry.txn_first_offset is not None:
                self._transactions.begin(Transaction(producer_id, OffsetMetadata(entry.txn_first_offset)))
        self.end_offset = self._snapshot_offset = offset

    def clear(self, offset: int) -> None:
        """Empty the state and continue at offset."""
        self.load({}, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Empty the state, delete all snapshots, continue at offset."""
        self.clear(offset)
        self._snapshot_offset = 0
        if self._snapshots is not None:
            for number in self._snapshots.offsets:
                self._snapshots.delete(number)

    def remove_and_mark_for_deletion(self, offset: int) -> str | None:
        """Rename a snapshot to .deleted. Returns its new path, None if there was none."""
        return None if self._snapshots is None else self._snapshots.mark_for_deletion(offset)

    def take_back_snapshot(self, offset: int) -> None:
        """Unlink the snapshot of a roll that was undone."""
        if self._snapshots is not None:
            self._snapshots.delete(offset)
            latest = self._snapshots.latest
            self._snapshot_offset = min(self._snapshot_offset, 0 if latest is None else latest)
