"""What one append does to one producer, checked batch by batch and shown to nobody until Producers.update().

Who checks what, by origin of the append:

                                         client                  coordinator   replication, replay
  epoch below the producer's             InvalidProducerEpoch    the same      a warning
  sequence number                        OutOfOrderSequence      -             -
  data outside an open transaction       InvalidTxnState         the same      the same
  coordinator epoch below the last one   TransactionCoordinatorFenced, for both       a warning

Kafka: ProducerAppendInfo.
"""

from __future__ import annotations

import logging

from klog.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.producer_entry import DataBatch, ProducerEntry
from klog.log.state.transactions import CompletedTransaction, Transaction

_log = logging.getLogger("klog.log")
_SEQUENCE_MAX = 2**31 - 1


class ProducerAppend:
    """A producer's entry, copied, and the batches of one append applied to the copy. Under the log's lock."""

    __slots__ = ("_origin", "current", "entry", "started")

    def __init__(self, producer_id: int, current: ProducerEntry | None, origin: str) -> None:
        self.current = current  # what update() replaces, None where the producer is new
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
        """A data batch from first_offset to last_offset. first: where it begins, of a transactional one alone."""
        self._check_epoch(epoch, first_offset)
        if self._origin == "client":
            self._check_sequence(epoch, first_sequence, first_offset)
        entry = self.entry
        if first is None and entry.txn_first_offset is not None:
            raise InvalidTxnState(
                f"producer {entry.producer_id} has a transaction open from offset {entry.txn_first_offset} on, and the "
                f"batch for offset {first_offset} is in none"
            )
        entry.add(epoch, DataBatch(last_sequence, last_offset, last_offset - first_offset, timestamp))
        if first is not None and entry.txn_first_offset is None:
            entry.txn_first_offset = first_offset
            self.started.append(Transaction(entry.producer_id, first))

    def append_marker(
        self, epoch: int, coordinator_epoch: int, offset: int, timestamp: int, is_aborted: bool
    ) -> CompletedTransaction | None:
        """A marker; what it ended, which is nothing where no data came before it."""
        entry = self.entry
        self._check_epoch(epoch, offset)
        if coordinator_epoch < entry.coordinator_epoch:
            text = (
                f"producer {entry.producer_id}: a marker of coordinator epoch {coordinator_epoch} at offset {offset}, "
                f"behind one of epoch {entry.coordinator_epoch}"
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
            f"producer {self.entry.producer_id}: epoch {epoch} at offset {offset}, where epoch {self.entry.epoch} is "
            f"the last one seen"
        )
        if self._origin != "replication":
            raise InvalidProducerEpoch(text)
        _log.warning("event=producer_epoch_back %s", text)

    def _check_sequence(self, epoch: int, first: int, offset: int) -> None:
        """Sequence numbers go on where they ended, or begin at 0 with a new epoch. Of an unknown producer anything is
        taken: what it wrote may have been deleted."""
        entry = self.entry
        if epoch != entry.epoch:
            if first != 0 and entry.epoch != -1:
                raise OutOfOrderSequence(
                    f"producer {entry.producer_id}: epoch {epoch} begins with sequence {first} at offset {offset}, "
                    f"0 expected (epoch {entry.epoch} was before it)"
                )
            return
        if self.current is None or self.current.epoch == -1:
            return
        last = entry.last_sequence
        if first != last + 1 and not (first == 0 and last == _SEQUENCE_MAX):
            raise OutOfOrderSequence(
                f"producer {entry.producer_id}: sequence {first} at offset {offset}, where {last} was the last one"
            )
