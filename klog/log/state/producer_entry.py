"""The state of one producer id: its epoch, its last five batches, its open transaction.

Sequence numbers count records and wrap from 2^31-1 to 0. Kafka: ProducerStateEntry, BatchMetadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

BATCHES_KEPT = 5
_SEQUENCE_MASK = 0x7FFFFFFF


def last_sequence_of(base_sequence: int, last_offset_delta: int) -> int:
    """The last sequence number of a batch, -1 for one without."""
    return -1 if base_sequence < 0 else (base_sequence + last_offset_delta) & _SEQUENCE_MASK


@dataclass(frozen=True, slots=True)
class ProducerState:
    """One producer. Unknown fields are -1; last_offset is that of its last data batch."""

    epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    current_txn_first_offset: int | None = None


class DataBatch(NamedTuple):
    """A batch that a producer wrote: enough to recognize a duplicate and to return its offsets."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Sequence number of its first record."""
        return (self.last_sequence - self.offset_delta) & _SEQUENCE_MASK

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """The state of one producer. An append changes a copy, which then replaces the entry."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "producer_id", "timestamp", "txn_first_offset")

    def __init__(self, producer_id: int, epoch: int = -1) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.timestamp = -1
        self.txn_first_offset: int | None = None
        self.batches: tuple[DataBatch, ...] = ()

    @classmethod
    def of(cls, producer_id: int, state: ProducerState) -> ProducerEntry:
        """The entry of a snapshot."""
        entry = cls(producer_id, state.epoch)
        entry.coordinator_epoch, entry.timestamp = state.coordinator_epoch, state.timestamp
        entry.txn_first_offset = state.current_txn_first_offset
        if state.last_offset >= 0:
            entry.batches = (DataBatch(state.last_sequence, state.last_offset, state.offset_delta, state.timestamp),)
        return entry

    def copy(self) -> ProducerEntry:
        """A copy for an append to change."""
        entry = ProducerEntry(self.producer_id, self.epoch)
        entry.coordinator_epoch, entry.timestamp = self.coordinator_epoch, self.timestamp
        entry.txn_first_offset, entry.batches = self.txn_first_offset, self.batches
        return entry

    @property
    def state(self) -> ProducerState:
        """The state as users and snapshots see it."""
        last = self.batches[-1] if self.batches else DataBatch(-1, -1, 0, -1)
        return ProducerState(
            self.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            self.timestamp,
            self.coordinator_epoch,
            self.txn_first_offset,
        )

    @property
    def last_sequence(self) -> int:
        """Of its last data batch, -1 for none."""
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        """Of its last data batch, -1 for none."""
        return self.batches[-1].last_offset if self.batches else -1

    @property
    def first_sequence(self) -> int:
        """Of the oldest data batch that is remembered, -1 for none."""
        return self.batches[0].first_sequence if self.batches else -1

    @property
    def first_offset(self) -> int:
        """Of the oldest data batch that is remembered, -1 for none."""
        return self.batches[0].first_offset if self.batches else -1

    def take_epoch(self, epoch: int) -> None:
        """Set the epoch. A new epoch forgets the batches of the last one."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = ()

    def add(self, epoch: int, batch: DataBatch) -> None:
        """Add a data batch. Only the last five are kept."""
        self.take_epoch(epoch)
        self.batches = (*self.batches[1 - BATCHES_KEPT :], batch)
        self.timestamp = batch.timestamp

    def end_transaction(self, epoch: int, coordinator_epoch: int, timestamp: int) -> None:
        """Apply a marker."""
        self.take_epoch(epoch)
        self.coordinator_epoch, self.timestamp, self.txn_first_offset = coordinator_epoch, timestamp, None

    def duplicate(self, epoch: int, base_sequence: int, last_sequence: int) -> DataBatch | None:
        """The remembered batch with exactly these sequence numbers, None if there is none."""
        if epoch == self.epoch:
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == base_sequence:
                    return batch
        return None
