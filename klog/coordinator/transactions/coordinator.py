"""TransactionCoordinator: transactions of the broker's clients. Its parts and their order of locks: transactions.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.coordinator.transactions.admin_handlers import AdminHandlers
from klog.coordinator.transactions.decisions import Producer
from klog.coordinator.transactions.handlers import ClientHandlers
from klog.coordinator.transactions.markers import Markers
from klog.coordinator.transactions.metadata import VERSION_2
from klog.coordinator.transactions.producer_ids import ProducerIds
from klog.coordinator.transactions.registry import Registry
from klog.coordinator.transactions.state_log import StateLog
from klog.coordinator.transactions.transactions import Transactions
from klog.disk import RealFiles
from klog.errors import KlogError
from klog.internal_topics.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from klog.logger import logger_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from klog.clock import Clock
    from klog.coordinator.transactions.config import TransactionConfig
    from klog.coordinator.transactions.handlers import Handler
    from klog.coordinator.transactions.markers import OnMarker
    from klog.protocol import ApiKey, ErrorCode
    from klog.scheduler import Scheduler, Task
    from klog.security.context import Topics

_log = logger_of("coordinator")


class TransactionCoordinator:
    """Any thread. Handlers append to logs, so they belong into io threads, not into network threads.

    directory: the log.dir for klog-producer-ids.json. on_marker: appends each marker in a partition of
    __consumer_offsets, appended(topic, partition) is called after every marker, both with the transaction locked.
    """

    def __init__(
        self,
        topics: Topics,
        scheduler: Scheduler,
        clock: Clock,
        config: TransactionConfig,
        *,
        node_id: int,
        directory: str,
        on_marker: OnMarker,
        appended: Callable[[str, int], object] | None = None,
    ) -> None:
        self._topics = topics
        self._scheduler = scheduler
        self._config = config
        self._node_id = node_id
        self._registry = Registry()
        ids = ProducerIds(RealFiles(), directory, self._ids_in_use)
        markers = Markers(topics, on_marker, appended)
        self._transactions = Transactions(StateLog(topics), markers, ids, self._registry, scheduler, clock, config)
        self._clients = ClientHandlers(self._transactions, topics)
        self._admin = AdminHandlers(self._transactions, markers, topics, clock)
        self._tasks: list[Task] = []

    def load(self) -> None:
        """Read __transaction_state, complete what a crash interrupted, and begin to serve. Before it requests get
        COORDINATOR_LOAD_IN_PROGRESS. Raises CorruptBatch, OSError."""
        count = self._transactions.load()
        _log.info("event=transactions_loaded node=%d ids=%d", self._node_id, count)
        config = self._config
        for name, action, period_ms in (
            (
                "transaction-abort",
                self._transactions.abort_timed_out,
                config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            ),
            (
                "transactional-id-expiration",
                self._transactions.expire,
                config.transaction_remove_expired_transaction_cleanup_interval_ms,
            ),
        ):
            self._tasks.append(self._scheduler.schedule(name, action, period_ms, period_ms))

    def close(self) -> None:
        """Stop the tasks; requests get COORDINATOR_NOT_AVAILABLE. Call it before the logs are closed. A second call is
        not an error."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self._transactions.close()

    def handlers(self) -> dict[ApiKey, Handler]:
        """The APIs, each with what handles its requests."""
        return {**self._clients.handlers(), **self._admin.handlers()}

    # ---- for Produce and TxnOffsetCommit ---------------------------------------------------------------------------

    def hold(self, transactional_id: str) -> AbstractContextManager[object]:
        """A `with` in which this transaction does not end: verify, or add the partition, and append inside it. Without
        it an append may come after the marker, and begin a transaction that nothing ends. (Kafka: VerificationGuard.)
        Take no lock of a group or of the broker before it."""
        return self._transactions.hold(transactional_id)

    def add_partition_implicitly(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int
    ) -> ErrorCode:
        """Add a partition for a Produce from version 12 on, or a TxnOffsetCommit from version 5 on. For one that the
        transaction has already it takes no lock and appends nothing."""
        return self.add_partitions_implicitly(transactional_id, producer_id, producer_epoch, ((topic, partition),))

    def add_partitions_implicitly(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[tuple[str, int]]
    ) -> ErrorCode:
        """The same for several partitions, with one record."""
        producer = Producer(producer_id, producer_epoch)
        return self._transactions.add(transactional_id, producer, frozenset(partitions), VERSION_2)

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int
    ) -> ErrorCode:
        """Is the partition part of the open transaction of this producer? For a Produce up to version 11 and a
        TxnOffsetCommit up to version 4. Takes no lock. as_produce_error() makes the error of a Produce response."""
        return self._transactions.verify(transactional_id, Producer(producer_id, producer_epoch), (topic, partition))

    # ---- producer ids ----------------------------------------------------------------------------------------------

    def _ids_in_use(self) -> Iterator[int]:
        """The producer ids of all transactions, and of all producers that the logs know. It loads every log."""
        for metadata in self._registry.all():
            yield from (metadata.producer_id, metadata.previous_producer_id, metadata.next_producer_id)
        for topic in sorted({*self._topics.names(), CONSUMER_OFFSETS, TRANSACTION_STATE}):
            for partition in range(self._topics.partitions(topic) or 0):
                try:
                    log = self._topics.log(topic, partition)
                    if log is not None:
                        yield from log.producers
                except (KlogError, OSError) as error:
                    _log.warning("event=producers_unknown partition=%s-%d reason=%s", topic, partition, error)
