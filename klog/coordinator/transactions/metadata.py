"""TransactionMetadata: what the coordinator knows of one transactional id, and the changes that are allowed.

    Empty ──► Ongoing ──► PrepareCommit ──► CompleteCommit ──┐
      ▲          │  └───► PrepareAbort  ──► CompleteAbort  ──┤
      │          └ fence: the same, with the next epoch      │
      └────────────────── InitProducerId ◄───────────────────┘        Complete… ──► Ongoing

An object is one state, and never changes: each change returns a new object, which the coordinator makes current after
its record is in the log.

  M1  (producer id, epoch) never goes back: the epoch of a producer id rises, or the id is a new one
  M2  a client never gets the epoch 32767: the coordinator can always fence the producer by it
  M3  under transaction version 2 the epoch rises with every end of a transaction. The markers have the new epoch, so
      that what the producer sent before cannot be appended after them (KIP-890)

Times are ms of the wall clock, which may go back; they only decide when something expires.
Kafka: TransactionMetadata, TransactionState.
"""

from __future__ import annotations

from typing import Final

from klog.values import NamedTuple

EMPTY: Final = "Empty"
ONGOING: Final = "Ongoing"
PREPARE_COMMIT: Final = "PrepareCommit"
PREPARE_ABORT: Final = "PrepareAbort"
COMPLETE_COMMIT: Final = "CompleteCommit"
COMPLETE_ABORT: Final = "CompleteAbort"
DEAD: Final = "Dead"
PREPARE_EPOCH_FENCE: Final = "PrepareEpochFence"
STATES: Final = (
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
    PREPARE_ABORT,
    COMPLETE_COMMIT,
    COMPLETE_ABORT,
    DEAD,
    PREPARE_EPOCH_FENCE,
)  # in the order of their numbers in a record
PREPARED: Final = (PREPARE_COMMIT, PREPARE_ABORT)
IDLE: Final = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)

NO_ID: Final = -1
NO_EPOCH: Final = -1
EPOCH_MAX: Final = 32767
VERSION_1: Final = 0  # Kafka writes 0 for clients of TV0 and TV1
VERSION_2: Final = 2

Partition = tuple[str, int]
NO_PARTITIONS: Final[frozenset[Partition]] = frozenset()


def is_exhausted(epoch: int) -> bool:
    """Is it the last epoch that a client may have?"""
    return epoch >= EPOCH_MAX - 1


class TransactionMetadata(NamedTuple):
    """One transactional id. previous_producer_id: before the last change. next_producer_id: the one that
    replaces the id when the transaction is complete, because the epochs ran out. last_producer_epoch: the one before
    the current epoch, if the producer that had it may take the current one; it is not in the log. start_ms: -1
    outside a transaction. client_version: 2 if the client ends its transactions by transaction version 2."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    update_ms: int
    producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    state: str = EMPTY
    partitions: frozenset[Partition] = NO_PARTITIONS
    start_ms: int = -1
    client_version: int = VERSION_1

    @property
    def is_exhausted(self) -> bool:
        """Has the producer id no further epoch for a client?"""
        return is_exhausted(self.producer_epoch)

    @property
    def is_prepared(self) -> bool:
        """Is it decided, with markers to write?"""
        return self.state in PREPARED

    # ---- changes, each from one of the states that it names --------------------------------------------------------

    def with_next_epoch(self, timeout_ms: int, now_ms: int, *, recorded: bool) -> TransactionMetadata:
        """Idle → Empty, with the next epoch. recorded: the producer named the current epoch, and may repeat its
        request."""
        self._check(IDLE)
        if self.is_exhausted:
            raise AssertionError(f"{self.transactional_id}: no epoch after {self.producer_epoch}")
        epoch = self.producer_epoch
        return self._empty(self.producer_id, epoch + 1, epoch if recorded else NO_EPOCH, timeout_ms, now_ms)

    def with_same_epoch(self, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """Idle → Empty, after a repeated request."""
        self._check(IDLE)
        return self._empty(self.producer_id, self.producer_epoch, self.last_producer_epoch, timeout_ms, now_ms)

    def with_new_id(self, producer_id: int, timeout_ms: int, now_ms: int, *, recorded: bool) -> TransactionMetadata:
        """Idle → Empty, with another producer id and epoch 0."""
        self._check(IDLE)
        return self._empty(producer_id, 0, self.producer_epoch if recorded else NO_EPOCH, timeout_ms, now_ms)

    def _empty(
        self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        return TransactionMetadata(
            self.transactional_id, producer_id, timeout_ms, now_ms, epoch, last_epoch, self.producer_id
        )

    def with_partitions(self, added: frozenset[Partition], now_ms: int, client_version: int) -> TransactionMetadata:
        """Idle or Ongoing → Ongoing."""
        self._check((*IDLE, ONGOING))
        return self._replace(
            state=ONGOING,
            partitions=self.partitions | added,
            start_ms=self.start_ms if self.state == ONGOING else now_ms,
            update_ms=now_ms,
            previous_producer_id=self.producer_id,
            client_version=client_version,
        )

    def ended(
        self, committed: bool, now_ms: int, *, client_version: int = VERSION_1, next_producer_id: int = NO_ID
    ) -> TransactionMetadata:
        """Ongoing → Prepare…; under version 2 also from an idle state, to abort a transaction without partitions.
        next_producer_id: if the epochs have run out (M2)."""
        version_2 = client_version == VERSION_2
        self._check((*IDLE, ONGOING) if version_2 else (ONGOING,))
        return self._replace(
            state=PREPARE_COMMIT if committed else PREPARE_ABORT,
            producer_epoch=self.producer_epoch + 1 if version_2 else self.producer_epoch,
            last_producer_epoch=self.producer_epoch if version_2 else self.last_producer_epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            start_ms=self.start_ms if self.state == ONGOING else now_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def fenced(self, now_ms: int) -> TransactionMetadata:
        """Ongoing → PrepareAbort with the next epoch: the producer is fenced. It goes on with that epoch if its next
        InitProducerId names the one that it had, unless another producer has come by then. Kafka goes through
        PrepareEpochFence, which is never in the log."""
        self._check((ONGOING, PREPARE_EPOCH_FENCE))
        return self._replace(
            state=PREPARE_ABORT,
            producer_epoch=min(self.producer_epoch + 1, EPOCH_MAX),
            last_producer_epoch=NO_EPOCH if self.is_exhausted else self.producer_epoch,  # M2
            previous_producer_id=self.producer_id,
            next_producer_id=NO_ID,
            update_ms=now_ms,
        )

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Prepare… → Complete…, without partitions; with the next producer id if there is one. last_producer_epoch is
        then the last one that the client had."""
        self._check(PREPARED)
        rotated = self.client_version == VERSION_2 and self.next_producer_id != NO_ID
        return self._replace(
            state=COMPLETE_COMMIT if self.state == PREPARE_COMMIT else COMPLETE_ABORT,
            producer_id=self.next_producer_id if rotated else self.producer_id,
            producer_epoch=0 if rotated else self.producer_epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_ID,
            partitions=NO_PARTITIONS,
            update_ms=now_ms,
        )

    def _check(self, allowed: tuple[str, ...]) -> None:
        if self.state not in allowed:
            raise AssertionError(f"{self.transactional_id} is {self.state}, one of {', '.join(allowed)} expected")

    # ---- time ------------------------------------------------------------------------------------------------------

    def is_timed_out(self, now_ms: int) -> bool:
        """Is a transaction open for longer than the producer asked for?"""
        return self.state == ONGOING and self.start_ms + self.timeout_ms < now_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Was it unused for so long that it may be forgotten?"""
        return self.state in IDLE and self.update_ms <= now_ms - expiration_ms
