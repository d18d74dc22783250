"""Records of a share partition: acquisition, acknowledgement, release, timeouts and limits."""

from __future__ import annotations

import pytest

from klog.coordinator.groups.refusal import Refused
from klog.coordinator.share.share_partition import (
    ACCEPT,
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    Acquired,
    Limits,
    SharePartition,
    StateBatch,
)
from klog.protocol import ErrorCode

LIMITS = Limits(deliveries=3, records=100)
BATCHES = [(0, 9), (10, 19)]


def acquire(
    partition: SharePartition,
    member: str,
    max_records: int = 100,
    *,
    exact: bool = True,
    read: list[tuple[int, int]] | None = None,
    stop: int = 20,
    limits: Limits = LIMITS,
) -> list[Acquired]:
    return partition.acquire(
        member,
        BATCHES if read is None else read,
        stop,
        max_records=max_records,
        exact=exact,
        deadline_ms=1000,
        limits=limits,
    )


def acknowledge(partition: SharePartition, member: str, first: int, last: int, *types: int) -> tuple[StateBatch, ...]:
    plan = partition.acknowledge(member, [Acknowledgement(first, last, types)], deadline_ms=5000, limits=LIMITS)
    partition.commit(plan)
    return plan.batches


def test_an_acquired_record_is_not_acquired_by_another_member() -> None:
    partition = SharePartition(0)
    assert acquire(partition, "a", 5) == [Acquired(0, 4, 1)]
    assert acquire(partition, "b", 5) == [Acquired(5, 9, 1)]
    assert partition.fetch_offset(LIMITS) == 10


def test_whole_batches_are_acquired_unless_the_number_is_exact() -> None:
    assert acquire(SharePartition(0), "a", 5, exact=False) == [Acquired(0, 9, 1)]
    assert acquire(SharePartition(0), "a", 15, exact=False) == [Acquired(0, 9, 1), Acquired(10, 19, 1)]
    assert acquire(SharePartition(3), "a", 5, exact=False) == [Acquired(3, 9, 1)]


def test_the_start_offset_moves_only_past_acknowledged_and_rejected_records() -> None:
    partition = SharePartition(0)
    acquire(partition, "a", 10)
    assert acknowledge(partition, "a", 1, 2, ACCEPT) == (StateBatch(1, 2, ACKNOWLEDGED, 1),)
    assert partition.start_offset == 0
    assert acknowledge(partition, "a", 0, 0, REJECT) == (StateBatch(0, 0, ARCHIVED, 1),)
    assert (partition.start_offset, partition.done_count) == (3, 0)
    assert acknowledge(partition, "a", 4, 9, ACCEPT) == (StateBatch(4, 9, ACKNOWLEDGED, 1),)
    assert (partition.start_offset, partition.done_count) == (3, 6)
    assert acknowledge(partition, "a", 3, 3, RELEASE) == (StateBatch(3, 3, AVAILABLE, 1),)
    assert acquire(partition, "b", 1) == [Acquired(3, 3, 2)]


def test_the_last_delivery_of_a_record_is_a_batch_of_its_own_and_then_it_is_archived() -> None:
    partition = SharePartition(0)
    for count in (1, 2):
        assert acquire(partition, "a", read=[(0, 4)], stop=5) == [Acquired(0, 4, count)]
        acknowledge(partition, "a", 0, 4, RELEASE)
    for offset in range(5):
        assert acquire(partition, "a", read=[(0, 4)], stop=5) == [Acquired(offset, offset, 3)]
        expected = (StateBatch(offset, offset, ARCHIVED, 3),)
        assert acknowledge(partition, "a", offset, offset, RELEASE) == expected
    assert partition.start_offset == partition.next_offset == 5


def test_records_that_do_not_exist_are_archived() -> None:
    """Such offsets are of compacted records and of markers, at the beginning, in the middle, at the end, or everywhere."""
    partition = SharePartition(0)
    assert acquire(partition, "a", read=[(2, 3), (6, 7)], stop=10) == [Acquired(2, 3, 1), Acquired(6, 7, 1)]
    assert (partition.start_offset, partition.next_offset) == (2, 10)
    acknowledge(partition, "a", 2, 3, ACCEPT)
    assert partition.start_offset == 6
    acknowledge(partition, "a", 6, 7, RELEASE)
    assert acquire(partition, "b", read=[], stop=12) == []
    assert partition.start_offset == partition.next_offset == 12


def test_no_more_than_the_limit_is_in_flight() -> None:
    partition, limits = SharePartition(0), Limits(deliveries=3, records=4)
    assert acquire(partition, "a", exact=False, limits=limits) == [Acquired(0, 3, 1)]
    assert partition.fetch_offset(limits) is None
    acknowledge(partition, "a", 1, 3, ACCEPT)
    assert partition.fetch_offset(limits) is None
    acknowledge(partition, "a", 0, 0, ACCEPT)
    assert partition.fetch_offset(limits) == 4


@pytest.mark.parametrize(
    ("first", "last", "types", "code"),
    [
        (0, 5, [ACCEPT], ErrorCode.INVALID_RECORD_STATE),
        (5, 5, [ACCEPT], ErrorCode.INVALID_RECORD_STATE),
        (0, 10, [ACCEPT], ErrorCode.INVALID_REQUEST),
        (0, 2**63 - 1, [ACCEPT], ErrorCode.INVALID_REQUEST),
        (3, 2, [ACCEPT], ErrorCode.INVALID_REQUEST),
        (0, 2, [ACCEPT, ACCEPT], ErrorCode.INVALID_REQUEST),
        (0, 2, [], ErrorCode.INVALID_REQUEST),
        (0, 2, [5], ErrorCode.INVALID_REQUEST),
        (-1, 2, [ACCEPT], ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_invalid_acknowledgement_has_no_effect(first: int, last: int, types: list[int], code: ErrorCode) -> None:
    partition = SharePartition(0)
    acquire(partition, "a", 5)
    acquire(partition, "b", 5)
    before = repr(partition)
    acknowledgements = [Acknowledgement(0, 0, [ACCEPT]), Acknowledgement(first, last, types)][first == 0 or first < 0 :]
    with pytest.raises(Refused) as refused:
        partition.acknowledge("a", acknowledgements, deadline_ms=0, limits=LIMITS)
    assert refused.value.code is code and repr(partition) == before


def test_what_is_done_already_may_be_acknowledged_again_but_not_in_an_unknown_way() -> None:
    partition = SharePartition(0)
    acquire(partition, "a", 5)
    acknowledge(partition, "a", 0, 2, ACCEPT)
    assert partition.start_offset == 3
    acknowledge(partition, "a", 0, 2, REJECT)
    for types in ([5], [-1], [ACCEPT, 7, ACCEPT]):
        with pytest.raises(Refused) as refused:
            partition.acknowledge("a", [Acknowledgement(0, 2, types)], deadline_ms=0, limits=LIMITS)
        assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_acquisition_locks_time_out_unless_they_are_renewed() -> None:
    partition = SharePartition(0)
    acquire(partition, "a", 4)
    assert acknowledge(partition, "a", 1, 2, RENEW) == ()
    assert partition.expire(999, LIMITS) is None and partition.deadline_ms == 1000
    plan = partition.expire(1000, LIMITS)
    assert plan is not None and plan.batches == (StateBatch(0, 0, AVAILABLE, 1), StateBatch(3, 3, AVAILABLE, 1))
    partition.commit(plan)
    assert partition.deadline_ms == 5000
    assert acquire(partition, "b", 2) == [Acquired(0, 0, 2), Acquired(3, 3, 2)]


def test_an_acknowledgement_of_very_many_records_costs_one_run() -> None:
    partition = SharePartition(0)
    limits = Limits(5, 2**40)
    found = partition.acquire("a", [(0, 2**39)], 2**39 + 1, max_records=2**40, exact=True, deadline_ms=1, limits=limits)
    assert found == [Acquired(0, 2**39, 1)]
    plan = partition.acknowledge("a", [Acknowledgement(0, 2**39, [ACCEPT])], deadline_ms=0, limits=limits)
    assert plan.start_offset == 2**39 + 1 and plan.runs == []


def test_records_below_the_log_start_and_above_the_log_end_are_dropped() -> None:
    partition = SharePartition(0)
    acquire(partition, "a", 20)
    partition.start_at(5)
    assert acknowledge(partition, "a", 0, 9, ACCEPT) == (StateBatch(5, 9, ACKNOWLEDGED, 1),)
    assert partition.start_offset == 10
    partition = partition.ended_at(15)
    assert (partition.start_offset, partition.next_offset) == (10, 15)
    partition = partition.ended_at(7)
    assert (partition.start_offset, partition.next_offset, partition.runs) == (7, 7, [])
