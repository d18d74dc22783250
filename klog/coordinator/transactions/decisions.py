"""What a request does to the transaction of a transactional id: the next metadata, or an error code. No I/O.

    init      InitProducerId        for idle transactions; the coordinator aborts an open one first
    add       AddPartitionsToTxn, AddOffsetsToTxn, and Produce and TxnOffsetCommit of transaction version 2
    contains  the verification of a partition before an append
    end       EndTxn up to version 4: the epoch stays
    end_2     EndTxn from version 5 on: the epoch rises, so a repeated request is known by its older epoch

PRODUCER_FENCED is INVALID_PRODUCER_EPOCH for clients of older request versions, see handlers.
Kafka: TransactionCoordinator, KIP-360, KIP-890.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.coordinator.transactions.metadata import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EPOCH_MAX,
    IDLE,
    NO_EPOCH,
    NO_ID,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    VERSION_2,
    Partition,
    TransactionMetadata,
    is_exhausted,
)
from klog.protocol import ErrorCode
from klog.values import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Producer(NamedTuple):
    """A producer id and an epoch, as a request names them."""

    id: int
    epoch: int


def init(
    now: TransactionMetadata,
    timeout_ms: int,
    expected: Producer | None,
    now_ms: int,
    new_id: Callable[[], int],
) -> TransactionMetadata | ErrorCode:
    """The metadata after InitProducerId. expected: the producer as the client knows it, None for a new one."""
    if now.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if expected is None:
        if now.is_exhausted:
            return now.with_new_id(new_id(), timeout_ms, now_ms, recorded=False)
        return now.with_next_epoch(timeout_ms, now_ms, recorded=False)
    if not may_continue(now, expected):
        return ErrorCode.PRODUCER_FENCED
    if now.producer_epoch == NO_EPOCH:
        return now.with_next_epoch(timeout_ms, now_ms, recorded=False)
    if expected.epoch == now.producer_epoch:
        if now.is_exhausted:
            return now.with_new_id(new_id(), timeout_ms, now_ms, recorded=True)
        return now.with_next_epoch(timeout_ms, now_ms, recorded=True)
    if expected.epoch == now.last_producer_epoch:
        return now.with_same_epoch(timeout_ms, now_ms)
    return ErrorCode.PRODUCER_FENCED


def may_continue(now: TransactionMetadata, expected: Producer) -> bool:
    """Is the producer the current one, or the one before it, whose epochs ran out? A new transactional id has none."""
    return (
        now.producer_epoch == NO_EPOCH
        or expected.id == now.producer_id
        or (expected.id == now.previous_producer_id and is_exhausted(expected.epoch))
    )


def _identity_error(now: TransactionMetadata, producer: Producer) -> ErrorCode:
    if producer.id != now.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer.epoch != now.producer_epoch or producer.epoch == EPOCH_MAX:  # M2: no client has that one
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def add(
    now: TransactionMetadata,
    producer: Producer,
    partitions: frozenset[Partition],
    now_ms: int,
    client_version: int,
) -> TransactionMetadata | ErrorCode:
    """The metadata with further partitions; NONE if it has them all."""
    error = ErrorCode.CONCURRENT_TRANSACTIONS if _is_rotating(now, producer) else _identity_error(now, producer)
    if error is not ErrorCode.NONE:
        return error
    if now.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if has(now, producer, partitions):
        return ErrorCode.NONE
    return now.with_partitions(partitions, now_ms, client_version)


def has(now: TransactionMetadata, producer: Producer, partitions: frozenset[Partition]) -> bool:
    """Are these partitions part of the open transaction of this producer?"""
    return (
        now.state == ONGOING
        and now.producer_epoch == producer.epoch
        and now.producer_id == producer.id
        and partitions <= now.partitions
    )


def _is_rotating(now: TransactionMetadata, producer: Producer) -> bool:
    """Does the producer use the next id already, which it got before all markers were written?"""
    return now.is_prepared and producer.id == now.next_producer_id != NO_ID


def contains(now: TransactionMetadata, producer: Producer, partition: Partition) -> ErrorCode:
    """NONE if the partition is part of the open transaction of this producer."""
    error = _identity_error(now, producer)
    if error is not ErrorCode.NONE:
        return error
    if now.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE if partition in now.partitions else ErrorCode.TRANSACTION_ABORTABLE


def end(now: TransactionMetadata, producer: Producer, committed: bool, now_ms: int) -> TransactionMetadata | ErrorCode:
    """The metadata after EndTxn of transaction version 1; NONE if the request is a repeated one."""
    error = _identity_error(now, producer)
    if error is not ErrorCode.NONE:
        return error
    if now.state == ONGOING:
        return now.ended(committed, now_ms)
    if now.state == (COMPLETE_COMMIT if committed else COMPLETE_ABORT):
        return ErrorCode.NONE
    if now.state == (PREPARE_COMMIT if committed else PREPARE_ABORT):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.INVALID_TXN_STATE


def end_2(
    now: TransactionMetadata, producer: Producer, committed: bool, now_ms: int, new_id: Callable[[], int]
) -> TransactionMetadata | ErrorCode:
    """The metadata after EndTxn of transaction version 2; NONE if the request is a repeated one."""
    rotated = producer.id == now.previous_producer_id and producer.epoch == EPOCH_MAX - 1 and now.producer_epoch == 0
    repeated = rotated or now.producer_epoch == producer.epoch + 1
    if _is_rotating(now, producer):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if producer.id != now.producer_id and not rotated:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if now.is_prepared:
        if not repeated:  # the producer may have the new epoch already
            current = producer.epoch == now.producer_epoch
            return ErrorCode.CONCURRENT_TRANSACTIONS if current else ErrorCode.PRODUCER_FENCED
        same = now.state == (PREPARE_COMMIT if committed else PREPARE_ABORT)
        return ErrorCode.CONCURRENT_TRANSACTIONS if same else ErrorCode.INVALID_TXN_STATE
    if now.state in (COMPLETE_COMMIT, COMPLETE_ABORT) and repeated and now.producer_epoch != EPOCH_MAX:  # M2
        same = now.state == (COMPLETE_COMMIT if committed else COMPLETE_ABORT)
        return ErrorCode.NONE if same else ErrorCode.INVALID_TXN_STATE
    if producer.epoch != now.producer_epoch or producer.epoch == EPOCH_MAX:
        return ErrorCode.PRODUCER_FENCED
    if now.state != ONGOING and (committed or now.state not in IDLE):
        return ErrorCode.INVALID_TXN_STATE
    next_id = new_id() if now.is_exhausted else NO_ID
    return now.ended(committed, now_ms, client_version=VERSION_2, next_producer_id=next_id)


def as_produce_error(error: ErrorCode, version: int) -> ErrorCode:
    """The error of a partition in a Produce response of this version, for one that the coordinator returned. Clients
    before version 12 know no pending transaction there, and those before 11 no abortable one.
    Kafka: AddPartitionsToTxnManager, ReplicaManager."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < 11:
        return ErrorCode.INVALID_TXN_STATE
    if error in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ) or (error is ErrorCode.CONCURRENT_TRANSACTIONS and version < 12):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return error
