"""The checks of an append by the transaction coordinator. Kafka: AddPartitionsToTxnManager."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from klog.coordinator.transactions import TransactionCoordinator
    from klog.protocol import ErrorCode


class TransactionCheck:
    """The part of a TransactionCoordinator that Produce and TxnOffsetCommit need. Any thread. transactions: gives the
    coordinator, when it is first needed."""

    def __init__(self, transactions: Callable[[], TransactionCoordinator]) -> None:
        self._transactions = transactions

    def hold(self, transactional_id: str | None) -> AbstractContextManager[object]:
        """A `with` in which the transaction does not end: check and append in it."""
        return nullcontext() if transactional_id is None else self._transactions().hold(transactional_id)

    def check(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int, *, adds: bool
    ) -> ErrorCode:
        """Is the partition in the producer's transaction? adds: add it if not (KIP-890, transactions v2)."""
        transactions = self._transactions()
        ask = transactions.add_partition_implicitly if adds else transactions.verify
        return ask(transactional_id, producer_id, producer_epoch, topic, partition)
