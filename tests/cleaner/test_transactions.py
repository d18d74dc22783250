"""CleanedTransactions: the state of the transactions while a pass reads their batches and markers."""

from __future__ import annotations

from klog.cleaner.transactions import ABORT, COMMIT, EMPTY, CleanedTransactions
from klog.segment import AbortedTransaction


def aborted(producer: int, first: int, last: int) -> AbortedTransaction:
    return AbortedTransaction(producer, first, last, last + 1)


def test_an_aborted_batch_is_removed_and_its_marker_and_entry_stay() -> None:
    """X1"""
    seen, entry = CleanedTransactions(), aborted(7, 0, 4)
    seen.add([entry])
    assert seen.on_batch(7, 1)
    assert not seen.on_batch(8, 3)
    assert not seen.on_control(7, 4, ABORT)
    assert seen.take_retained() == [entry]
    assert seen.take_retained() == []
    assert not seen.on_batch(7, 6)  # the producer's next transaction


def test_a_transaction_of_one_record_is_removed() -> None:
    """X1: its first offset is the last one of its batch."""
    seen, entry = CleanedTransactions(), aborted(7, 3, 4)
    seen.add([entry])
    assert seen.on_batch(7, 3)
    assert not seen.on_control(7, 4, ABORT)
    assert seen.take_retained() == [entry]


def test_a_marker_without_batches_can_be_removed() -> None:
    """X1, X2"""
    seen = CleanedTransactions()
    seen.add([aborted(7, 0, 4)])
    assert seen.on_control(7, 4, ABORT)
    assert seen.take_retained() == []
    assert seen.on_control(8, 5, COMMIT)
    assert seen.on_control(8, 6, EMPTY)
    assert not seen.on_control(8, 7, 99)  # of an unknown type


def test_a_commit_marker_stays_if_a_batch_was_seen() -> None:
    """X2"""
    seen = CleanedTransactions()
    assert not seen.on_batch(7, 1)
    assert not seen.on_control(7, 2, COMMIT)
    assert seen.on_control(7, 3, COMMIT)


def test_a_transaction_listed_by_two_segments_counts_once() -> None:
    seen, entry = CleanedTransactions(), aborted(7, 3, 14)
    seen.add([entry])
    assert not seen.on_batch(7, 2)  # before it began
    assert seen.on_batch(7, 5)
    seen.add([entry, aborted(9, 12, 20)])
    assert seen.on_batch(7, 11)
    assert not seen.on_control(7, 14, ABORT)
    assert seen.on_control(9, 20, ABORT)
    assert seen.take_retained() == [entry]


def test_an_entry_without_its_marker_covers_no_later_transaction() -> None:
    """X4: else records that are committed would be removed."""
    seen, second = CleanedTransactions(), aborted(7, 14, 16)
    seen.add([aborted(7, 0, 4), second])
    assert not seen.on_batch(7, 10)
    assert not seen.on_control(7, 11, COMMIT)
    assert seen.on_batch(7, 15)
    assert not seen.on_control(7, 16, ABORT)
    assert seen.take_retained() == [second]


def test_transactions_of_one_producer_are_taken_in_order() -> None:
    seen = CleanedTransactions()
    first, second = aborted(7, 0, 2), aborted(7, 4, 6)
    seen.add([second, first])
    assert seen.on_batch(7, 1)
    assert not seen.on_control(7, 2, ABORT)
    assert seen.on_batch(7, 5)
    assert not seen.on_control(7, 6, ABORT)
    assert seen.take_retained() == [first, second]
