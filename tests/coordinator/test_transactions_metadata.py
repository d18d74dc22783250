"""The changes of a transactional id's metadata. Kafka: TransactionMetadataTest."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from klog.coordinator.transactions import decisions
from klog.coordinator.transactions.metadata import (
    DEAD,
    IDLE,
    ONGOING,
    PREPARE_EPOCH_FENCE,
    PREPARED,
    STATES,
    VERSION_2,
    TransactionMetadata,
)
from klog.protocol import ErrorCode

NOW = 1_700_000_000_000
PARTITIONS = frozenset({("events", 0)})
NEW = TransactionMetadata("t", 7, 1000, NOW)

Change = Callable[[TransactionMetadata], TransactionMetadata]
CHANGES: dict[str, tuple[Change, tuple[str, ...]]] = {
    "with_next_epoch": (lambda now: now.with_next_epoch(5, NOW, recorded=False), IDLE),
    "with_same_epoch": (lambda now: now.with_same_epoch(5, NOW), IDLE),
    "with_new_id": (lambda now: now.with_new_id(8, 5, NOW, recorded=False), IDLE),
    "with_partitions": (lambda now: now.with_partitions(PARTITIONS, NOW, VERSION_2), (*IDLE, ONGOING)),
    "ended": (lambda now: now.ended(True, NOW), (ONGOING,)),
    "ended, version 2": (lambda now: now.ended(False, NOW, client_version=VERSION_2), (*IDLE, ONGOING)),
    "fenced": (lambda now: now.fenced(NOW), (ONGOING, PREPARE_EPOCH_FENCE)),
    "completed": (lambda now: now.completed(NOW), PREPARED),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_only_allowed_in_some_states(change: str, state: str) -> None:
    act, allowed = CHANGES[change]
    now = NEW._replace(state=state, producer_epoch=3)
    if state in allowed:
        after = act(now)
        assert (after.producer_id, after.producer_epoch) >= (now.producer_id, now.producer_epoch) or (
            after.producer_id > now.producer_id
        )
    else:
        with pytest.raises(AssertionError, match=f"t is {state}"):
            act(now)


def test_a_producer_id_without_further_epochs_gets_no_next_one() -> None:
    with pytest.raises(AssertionError, match="no epoch after 32766"):
        NEW._replace(producer_epoch=32_766).with_next_epoch(5, NOW, recorded=False)
    fenced = NEW._replace(state=ONGOING, producer_epoch=32_766).fenced(NOW)
    assert fenced.producer_epoch == 32_767


def test_a_whole_transaction_of_each_version() -> None:
    for version, epoch in ((0, 0), (2, 1)):
        empty = NEW.with_next_epoch(2000, NOW + 1, recorded=False)
        assert (empty.state, empty.producer_epoch, empty.timeout_ms) == ("Empty", 0, 2000)
        ongoing = empty.with_partitions(PARTITIONS, NOW + 2, version)
        more = ongoing.with_partitions(frozenset({("events", 1)}), NOW + 3, version)
        assert (more.start_ms, more.update_ms, more.partitions) == (NOW + 2, NOW + 3, PARTITIONS | {("events", 1)})
        prepared = more.ended(True, NOW + 4, client_version=version)
        assert (prepared.state, prepared.partitions, prepared.producer_epoch) == (
            "PrepareCommit",
            more.partitions,
            epoch,
        )
        done = prepared.completed(NOW + 5)
        assert (done.state, done.partitions, done.producer_epoch, done.start_ms) == (
            "CompleteCommit",
            frozenset(),
            epoch,
            NOW + 2,
        )
        assert done.with_partitions(PARTITIONS, NOW + 9, version).start_ms == NOW + 9


def test_the_next_producer_id_is_used_after_the_completion() -> None:
    ongoing = NEW._replace(state=ONGOING, producer_epoch=32_766, partitions=PARTITIONS)
    prepared = ongoing.ended(True, NOW, client_version=VERSION_2, next_producer_id=9)
    assert (prepared.producer_id, prepared.producer_epoch, prepared.next_producer_id) == (7, 32_767, 9)
    done = prepared.completed(NOW)
    assert (done.producer_id, done.producer_epoch, done.next_producer_id) == (9, 0, -1)
    assert (done.previous_producer_id, done.last_producer_epoch) == (7, 32_766)


def test_a_clock_that_moves_backwards_is_tolerated() -> None:
    ongoing = NEW._replace(state=ONGOING, producer_epoch=0, start_ms=NOW)
    earlier = ongoing.with_partitions(PARTITIONS, NOW - 500, VERSION_2)
    assert (earlier.start_ms, earlier.update_ms) == (NOW, NOW - 500)
    assert earlier.ended(False, NOW - 900, client_version=VERSION_2).update_ms == NOW - 900
    assert not earlier.is_timed_out(NOW - 10_000)


def test_states_in_which_a_transactional_id_times_out_or_expires() -> None:
    ongoing = NEW._replace(state=ONGOING, start_ms=NOW)
    assert not ongoing.is_timed_out(NOW + 1000) and ongoing.is_timed_out(NOW + 1001)
    for state in STATES:
        now = NEW._replace(state=state, start_ms=NOW)
        assert now.is_timed_out(NOW + 5000) == (state == ONGOING)
        assert now.is_expired(NOW + 100, 100) == (state in IDLE)
        assert not now.is_expired(NOW + 99, 100)
    assert DEAD not in IDLE


def test_partitions_that_are_already_added_make_no_change() -> None:
    """The coordinator first checks without a lock, so add() may get partitions that another request has just added."""
    ongoing = NEW._replace(state=ONGOING, producer_epoch=0, partitions=PARTITIONS)
    producer = decisions.Producer(7, 0)
    assert decisions.add(ongoing, producer, PARTITIONS, NOW, VERSION_2) is ErrorCode.NONE
    assert decisions.add(ongoing._replace(state="Empty"), producer, PARTITIONS, NOW, VERSION_2) is not ErrorCode.NONE
