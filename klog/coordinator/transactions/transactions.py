"""Transactions: the transactional ids of a broker, and what requests and the clock do to them.

An end of a transaction, all under the lock of its entry:

    1  the record Prepare… goes into __transaction_state: the transaction is decided
    2  a marker goes into each of its partitions
    3  the record Complete… goes into __transaction_state

  T1  nothing is decided before its record is in the log (1 before 2); after a crash load() does 2 and 3 again
  T2  Complete… means that every partition that still exists has its marker
  T3  what could not be marked, because a disk failed, is tried again until it can

All partitions are local, so the three steps are done before EndTxn is answered, and a client rarely sees
CONCURRENT_TRANSACTIONS. Lock order: an entry, then the group coordinator (in on_marker), then logs. So the group
coordinator must hold no lock of its own when it calls. Kafka: TransactionCoordinator, TransactionStateManager.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from klog.coordinator.transactions import decisions
from klog.coordinator.transactions.decisions import Producer
from klog.coordinator.transactions.metadata import (
    DEAD,
    NO_EPOCH,
    NO_ID,
    ONGOING,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    VERSION_2,
    Partition,
    TransactionMetadata,
)
from klog.coordinator.transactions.registry import Entry, Registry
from klog.errors import (
    CorruptCheckpoint,
    KlogError,
    NewerFormat,
    RecordBatchTooLarge,
    RecordTooLarge,
    StorageOffline,
    UnknownTopicOrPartition,
)
from klog.logger import logger_of
from klog.protocol import ErrorCode

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from klog.clock import Clock
    from klog.coordinator.transactions.config import TransactionConfig
    from klog.coordinator.transactions.markers import Markers
    from klog.coordinator.transactions.producer_ids import ProducerIds
    from klog.coordinator.transactions.state_log import StateLog
    from klog.scheduler import Scheduler

_log = logger_of("coordinator")
_RETRY_MS_MAX: Final = 10_000
NO_PRODUCER: Final = Producer(NO_ID, NO_EPOCH)

# What an append to __transaction_state or a new block of producer ids raises if the storage does not allow it.
FAILURES: Final = (
    CorruptCheckpoint,
    NewerFormat,
    OSError,
    OverflowError,
    RecordBatchTooLarge,
    RecordTooLarge,
    StorageOffline,
    UnknownTopicOrPartition,
)


def error_of(failure: BaseException) -> ErrorCode:
    """The error code for one of FAILURES. Kafka: TransactionStateManager.appendTransactionToLog."""
    if isinstance(failure, (RecordTooLarge, RecordBatchTooLarge)):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NOT_COORDINATOR if isinstance(failure, StorageOffline) else ErrorCode.COORDINATOR_NOT_AVAILABLE


class Transactions:
    """Any thread. `unavailable` is NONE between load() and close()."""

    def __init__(
        self,
        state_log: StateLog,
        markers: Markers,
        producer_ids: ProducerIds,
        registry: Registry,
        scheduler: Scheduler,
        clock: Clock,
        config: TransactionConfig,
    ) -> None:
        self.unavailable = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._state_log = state_log
        self._markers = markers
        self._ids = producer_ids
        self._registry = registry
        self._scheduler = scheduler
        self._clock = clock
        self._config = config
        self._retry_lock = threading.Lock()
        self._retry_scheduled = False
        self._retry_ms = config.klog_transaction_marker_retry_ms

    # ---- life ------------------------------------------------------------------------------------------------------

    def load(self) -> int:
        """Read all transactional ids, and complete the prepared ones. Returns their number. Raises CorruptBatch,
        OSError."""
        found = {name: each for name, each in self._state_log.load().items() if each.state != DEAD}
        self._registry.fill(found)
        self.finish_prepared()
        self.unavailable = ErrorCode.NONE
        return len(found)

    def close(self) -> None:
        """Accept no more requests. Running ones are finished."""
        self.unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        for name in self._registry.names():
            with self._registry.locked(name):
                pass

    # ---- requests --------------------------------------------------------------------------------------------------

    def new_producer(self) -> tuple[ErrorCode, Producer]:
        """A producer without a transactional id."""
        try:
            return ErrorCode.NONE, Producer(self._ids.next(), 0)
        except FAILURES as failure:
            _log.error("event=no_producer_id reason=%s", failure)
            return error_of(failure), NO_PRODUCER

    def init(self, transactional_id: str, timeout_ms: int, expected: Producer | None) -> tuple[ErrorCode, Producer]:
        """The producer of a transactional id, with an epoch that fences the ones before. An open transaction is
        aborted: Kafka returns CONCURRENT_TRANSACTIONS meanwhile."""
        if self.unavailable:
            return self.unavailable, NO_PRODUCER
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, NO_PRODUCER
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT, NO_PRODUCER
        with self._registry.locked(transactional_id, create=True) as entry:
            assert entry is not None
            try:
                now = entry.metadata
                if now is None:
                    now = TransactionMetadata(transactional_id, self._ids.next(), timeout_ms, self._clock.wall_ms())
                elif now.state == ONGOING and (expected is None or decisions.may_continue(now, expected)):
                    now = self._abort(entry, now)
                elif now.is_prepared:
                    now = self._finish(entry, now)
                after = decisions.init(now, timeout_ms, expected, self._clock.wall_ms(), self._ids.next)
                if isinstance(after, ErrorCode):
                    return after, NO_PRODUCER
                self._change(entry, after)
            except FAILURES as failure:
                return _failed(transactional_id, failure), NO_PRODUCER
        return ErrorCode.NONE, Producer(after.producer_id, after.producer_epoch)

    def add(
        self, transactional_id: str, producer: Producer, partitions: frozenset[Partition], client_version: int
    ) -> ErrorCode:
        """Add partitions to the transaction of a producer, and begin one unless it is open."""
        entry, error = self._entry(transactional_id)
        if entry is None:
            return error
        now = entry.metadata
        if now is not None and decisions.has(now, producer, partitions):  # the usual case, without a lock
            return ErrorCode.NONE
        with self._registry.locked(transactional_id) as entry:
            if entry is None or entry.metadata is None:
                return ErrorCode.INVALID_PRODUCER_ID_MAPPING
            after = decisions.add(entry.metadata, producer, partitions, self._clock.wall_ms(), client_version)
            if isinstance(after, ErrorCode):
                return after
            try:
                self._change(entry, after)
            except FAILURES as failure:
                return _failed(transactional_id, failure)
        return ErrorCode.NONE

    def verify(self, transactional_id: str, producer: Producer, partition: Partition) -> ErrorCode:
        """Is the partition part of the open transaction of this producer? Without a lock."""
        entry, error = self._entry(transactional_id)
        now = None if entry is None else entry.metadata
        if now is None:
            return error or ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return decisions.contains(now, producer, partition)

    def hold(self, transactional_id: str) -> AbstractContextManager[object]:
        """Keep a transaction from being ended inside a `with`."""
        entry = self._registry.get(transactional_id)
        return nullcontext() if entry is None else entry.lock

    def end(
        self, transactional_id: str, producer: Producer, committed: bool, client_version: int
    ) -> tuple[ErrorCode, Producer]:
        """Commit or abort. Returns the producer's next id and epoch, too. NONE means that it is decided: markers that
        cannot be written now follow (T3)."""
        entry, error = self._entry(transactional_id)
        if entry is None:
            return error, NO_PRODUCER
        with self._registry.locked(transactional_id) as entry:
            now = None if entry is None else entry.metadata
            if entry is None or now is None:
                return ErrorCode.INVALID_PRODUCER_ID_MAPPING, NO_PRODUCER
            try:
                now_ms = self._clock.wall_ms()
                if client_version == VERSION_2:
                    after = decisions.end_2(now, producer, committed, now_ms, self._ids.next)
                else:
                    after = decisions.end(now, producer, committed, now_ms)
                if isinstance(after, ErrorCode):
                    return after, NO_PRODUCER if after else Producer(now.producer_id, now.producer_epoch)
                self._change(entry, after)
            except FAILURES as failure:
                return _failed(transactional_id, failure), NO_PRODUCER
            self._finish(entry, after)
        if after.next_producer_id != NO_ID:
            return ErrorCode.NONE, Producer(after.next_producer_id, 0)
        return ErrorCode.NONE, Producer(after.producer_id, after.producer_epoch)

    def _entry(self, transactional_id: str) -> tuple[Entry | None, ErrorCode]:
        """The entry of an id, or why there is none."""
        if self.unavailable:
            return None, self.unavailable
        entry = self._registry.get(transactional_id)
        if entry is not None:
            return entry, ErrorCode.NONE
        return None, ErrorCode.INVALID_PRODUCER_ID_MAPPING if transactional_id else ErrorCode.INVALID_REQUEST

    # ---- queries ---------------------------------------------------------------------------------------------------

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """The metadata of an id."""
        entry = self._registry.get(transactional_id)
        return None if entry is None else entry.metadata

    def all(self) -> list[TransactionMetadata]:
        """The metadata of all ids."""
        return self._registry.all()

    # ---- the clock -------------------------------------------------------------------------------------------------

    def abort_timed_out(self) -> None:
        """Abort the transactions that are open for too long, and fence their producers."""
        for metadata in self._registry.all():
            if not metadata.is_timed_out(self._clock.wall_ms()):
                continue
            with self._registry.locked(metadata.transactional_id) as entry:
                now = None if entry is None else entry.metadata
                if entry is None or now is None or not now.is_timed_out(self._clock.wall_ms()):
                    continue
                _log.info(
                    "event=transaction_timed_out id=%r producer_id=%d timeout_ms=%d",
                    now.transactional_id,
                    now.producer_id,
                    now.timeout_ms,
                )
                try:
                    self._abort(entry, now)
                except FAILURES as failure:
                    _failed(now.transactional_id, failure)

    def expire(self) -> None:
        """Forget the transactional ids that were unused for too long."""
        limit_ms = self._config.transactional_id_expiration_ms
        for metadata in self._registry.all():
            if not metadata.is_expired(self._clock.wall_ms(), limit_ms):
                continue
            with self._registry.locked(metadata.transactional_id) as entry:
                now = None if entry is None else entry.metadata
                if entry is None or now is None or not now.is_expired(self._clock.wall_ms(), limit_ms):
                    continue
                try:
                    self._state_log.remove(now.transactional_id)
                except FAILURES as failure:
                    _failed(now.transactional_id, failure)
                else:
                    entry.forget()

    def finish_prepared(self) -> None:
        """Write the markers that are missing, and complete the transactions that then have all of them."""
        for metadata in self._registry.all():
            if not metadata.is_prepared and metadata.state != PREPARE_EPOCH_FENCE:
                continue
            with self._registry.locked(metadata.transactional_id) as entry:
                now = None if entry is None else entry.metadata
                if entry is None or now is None:
                    continue
                try:
                    if now.state == PREPARE_EPOCH_FENCE:
                        self._abort(entry, now)
                    elif now.is_prepared:
                        self._finish(entry, now)
                except FAILURES as failure:
                    _failed(now.transactional_id, failure)
                    self._retry()

    # ---- changes, under the lock of the entry ----------------------------------------------------------------------

    def _change(self, entry: Entry, metadata: TransactionMetadata) -> None:
        """T1: first the log, then the memory."""
        self._state_log.put(metadata)
        entry.become(metadata)

    def _abort(self, entry: Entry, now: TransactionMetadata) -> TransactionMetadata:
        """Abort an open transaction, and fence its producer. Returns the metadata after that."""
        after = now.fenced(self._clock.wall_ms())
        self._change(entry, after)
        return self._finish(entry, after)

    def _finish(self, entry: Entry, now: TransactionMetadata) -> TransactionMetadata:
        """Steps 2 and 3, or try them again later. Returns the metadata after that."""
        for partition in entry.unmarked():
            try:
                reason = self._markers.append_own(
                    partition,
                    now.producer_id,
                    now.producer_epoch,
                    self._state_log.coordinator_epoch(now.transactional_id),
                    now.state == PREPARE_COMMIT,
                )
            except (KlogError, OSError) as error:
                _log.warning(
                    "event=marker_failed id=%r partition=%s-%d reason=%s", now.transactional_id, *partition, error
                )
                continue
            if reason is not None:
                _log.warning(
                    "event=marker_skipped id=%r partition=%s-%d reason=%s", now.transactional_id, *partition, reason
                )
            entry.marked(partition)
        if not entry.unmarked():
            after = now.completed(self._clock.wall_ms())
            try:
                self._change(entry, after)
                return after
            except FAILURES as failure:
                _failed(now.transactional_id, failure)
        self._retry()
        return now

    def _retry(self) -> None:
        with self._retry_lock:
            if self._retry_scheduled:
                return
            self._retry_scheduled = True
            delay_ms, self._retry_ms = self._retry_ms, min(2 * self._retry_ms, _RETRY_MS_MAX)
        self._scheduler.schedule("transaction-markers", self._try_again, delay_ms)

    def _try_again(self) -> None:
        with self._retry_lock:
            self._retry_scheduled = False
        if self.unavailable is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            return
        self.finish_prepared()
        with self._retry_lock:
            if not self._retry_scheduled:
                self._retry_ms = self._config.klog_transaction_marker_retry_ms


def _failed(transactional_id: str, failure: BaseException) -> ErrorCode:
    _log.error("event=transaction_state_failed id=%r reason=%s", transactional_id, failure)
    return error_of(failure)
