"""The effect of one append on one producer, checked batch by batch and invisible until Producers.update().

What a failed check raises, by origin of the append:

                                         client                  coordinator   replication, replay
  epoch below the producer's             InvalidProducerEpoch    the same      a warning
  sequence number                        OutOfOrderSequence      -             -
  data outside an open transaction       InvalidTxnState         the same      the same
  coordinator epoch below the last one   TransactionCoordinatorFenced, for both       a warning

Kafka: ProducerAppendInfo.
"""

from __future__ import annotations

from klog.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from klog.log.state._producer_entry import DataBatch, ProducerEntry
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.transactions import CompletedTransaction, Transaction
from klog.logger import logger_of

_log = logger_of("log")
_SEQUENCE_MAX = 2**31 - 1


class ProducerAppend:
    """A copy of a producer's entry, to which the batches of one append are applied. Under the log's lock."""

    __slots__ = ("_origin", "current", "entry", "started")

    def __init__(self, producer_id: int, current: ProducerEntry | None, origin: str) -> None:
        self.current = current  # the entry that update() replaces, None if the producer is new
        self._origin = origin
        self.entry = ProducerEntry(producer_id) if current is None else current.copy()
        self.started: list[Transaction] = []

    def append_data(
        self,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        timestamp: int,
        first_offset: int,
        last_offset: int,
        first: OffsetMetadata | None,
    ) -> None:
        """Apply a data batch from first_offset to last_offset. first: its position, only if it is transactional."""
        self._check_epoch(epoch, first_offset)
        if self._origin == "client":
            self._check_sequence(epoch, first_sequence, first_offset)
        entry = self.entry
        if first is None and entry.txn_first_offset is not None:
            raise InvalidTxnState(
                f"producer {entry.producer_id} has an open transaction since offset {entry.txn_first_offset}, but the "
                f"batch at offset {first_offset} is not transactional"
            )
        entry.add(epoch, DataBatch(last_sequence, last_offset, last_offset - first_offset, timestamp))
        if first is not None and entry.txn_first_offset is None:
            entry.txn_first_offset = first_offset
            self.started.append(Transaction(entry.producer_id, first))

    def append_marker(
        self, epoch: int, coordinator_epoch: int, offset: int, timestamp: int, is_aborted: bool
    ) -> CompletedTransaction | None:
        """Apply a marker. Returns the transaction that it ended, None if it had no data."""
        entry = self.entry
        self._check_epoch(epoch, offset)
        if coordinator_epoch < entry.coordinator_epoch:
            text = (
                f"producer {entry.producer_id}: the marker at offset {offset} has coordinator epoch "
                f"{coordinator_epoch}, below the last one, {entry.coordinator_epoch}"
            )
            if self._origin != "replication":
                raise TransactionCoordinatorFenced(text)
            _log.info("event=coordinator_epoch_back %s", text)
        completed = None
        if entry.txn_first_offset is not None:
            completed = CompletedTransaction(entry.producer_id, entry.txn_first_offset, offset, is_aborted)
        entry.end_transaction(epoch, coordinator_epoch, timestamp)
        return completed

    def _check_epoch(self, epoch: int, offset: int) -> None:
        if epoch >= self.entry.epoch:
            return
        text = (
            f"producer {self.entry.producer_id}: epoch {epoch} at offset {offset} is below the last epoch seen, "
            f"{self.entry.epoch}"
        )
        if self._origin != "replication":
            raise InvalidProducerEpoch(text)
        _log.warning("event=producer_epoch_back %s", text)

    def _check_sequence(self, epoch: int, first: int, offset: int) -> None:
        """Sequence numbers continue after the last one, or begin at 0 with a new epoch. Any sequence number of an
        unknown producer is accepted: its earlier batches may have been deleted."""
        entry = self.entry
        if epoch != entry.epoch:
            if first != 0 and entry.epoch != -1:
                raise OutOfOrderSequence(
                    f"producer {entry.producer_id}: epoch {epoch} begins with sequence {first} at offset {offset}, "
                    f"0 expected (the epoch before it is {entry.epoch})"
                )
            return
        if self.current is None or self.current.epoch == -1:
            return
        last = entry.last_sequence
        if first != last + 1 and not (first == 0 and last == _SEQUENCE_MAX):
            raise OutOfOrderSequence(
                f"producer {entry.producer_id}: sequence {first} at offset {offset}, after the last one, {last}"
            )
