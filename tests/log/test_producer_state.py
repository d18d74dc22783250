"""The class Producers, without a log: sequences, epochs and transactions of the producers of one log."""

from __future__ import annotations

import pytest

from klog.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequence, TransactionCoordinatorFenced
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.producer_append import ProducerAppend
from klog.log.state.producers import Producers
from klog.log.state.transactions import CompletedTransaction

PID, OTHER, NOW = 1, 2, 1_700_000_000_000
SEQUENCE_MAX = 2**31 - 1
DAY = 86_400_000


def prepared(producers: Producers, pid: int, origin: str) -> ProducerAppend:
    """Begin an append, as A7 requires."""
    return ProducerAppend(pid, producers.entries.get(pid), origin)


def data(
    append: ProducerAppend, epoch: int, first: int, last: int, start: int, end: int, *, txn: bool = False, at: int = NOW
) -> None:
    append.append_data(epoch, first, last, at, start, end, OffsetMetadata(start) if txn else None)


def write(
    producers: Producers, pid: int, epoch: int, sequence: int, offset: int, *,
    txn: bool = False, at: int = NOW, origin: str = "client",
) -> None:  # fmt: skip
    """One record."""
    append = prepared(producers, pid, origin)
    data(append, epoch, sequence, sequence, offset, offset, txn=txn, at=at)
    producers.update(append)
    producers.end_offset = offset + 1


def mark(
    producers: Producers, pid: int, epoch: int, offset: int, *,
    abort: bool = False, coordinator: int = 0, at: int = NOW, origin: str = "coordinator",
) -> CompletedTransaction | None:  # fmt: skip
    """A marker; returns the completed transaction if it ended one."""
    append = prepared(producers, pid, origin)
    completed = append.append_marker(epoch, coordinator, offset, at, abort)
    producers.update(append)
    if completed is not None:
        producers.complete(completed)
    producers.end_offset = offset + 1
    return completed


def undecided(producers: Producers) -> list[int]:
    """The first offsets of the transactions without a marker."""
    begun = (state.current_txn_first_offset for state in producers.states.values())
    return sorted(offset for offset in begun if offset is not None)


def unstable(producers: Producers) -> int | None:
    found = producers.first_unstable_offset
    return None if found is None else found.offset


# ---- sequences and epochs ------------------------------------------------------------------------------------------


def test_a_client_continues_with_the_next_sequence_or_a_new_epoch() -> None:
    """PS1: sequences 0, 1; not 1 again, not 5; epoch 1 begins at 0, and then epoch 0 is refused."""
    producers = Producers()
    write(producers, PID, 0, 0, 0)
    write(producers, PID, 0, 1, 1)
    for wrong in (1, 5):
        with pytest.raises(OutOfOrderSequence):
            write(producers, PID, 0, wrong, 2)
    write(producers, PID, 1, 0, 2)
    with pytest.raises(InvalidProducerEpoch):
        write(producers, PID, 0, 2, 3)
    assert (producers.entries[PID].epoch, producers.entries[PID].last_sequence) == (1, 0)


def test_a_marker_makes_an_unknown_producer_known() -> None:
    """PS2: with last sequence -1; an older epoch is refused, and the same one begins at 0."""
    producers = Producers()
    assert mark(producers, PID, 2, 0) is None
    assert (producers.entries[PID].last_sequence, producers.entries[PID].epoch) == (-1, 2)
    with pytest.raises(InvalidProducerEpoch):
        write(producers, PID, 1, 0, 1)
    with pytest.raises(OutOfOrderSequence):
        write(producers, PID, 2, 17, 1)
    write(producers, PID, 2, 0, 1)


def test_sequences_wrap_around() -> None:
    """PS3: 0 follows 2^31-1, and 1 does not."""
    producers = Producers()
    write(producers, PID, 0, SEQUENCE_MAX, 735, origin="replication")
    with pytest.raises(OutOfOrderSequence):
        write(producers, PID, 0, 1, 736)
    write(producers, PID, 0, 0, 736)
    assert (producers.entries[PID].batches[0].first_sequence, producers.entries[PID].last_sequence) == (SEQUENCE_MAX, 0)


def test_one_batch_may_span_the_wrap() -> None:
    """PS4: sequences 2^31-11 to 9 at offsets 2000 to 2020."""
    producers = Producers()
    append = prepared(producers, PID, "replication")
    data(append, 0, SEQUENCE_MAX - 10, 9, 2000, 2020)
    producers.update(append)
    entry = producers.entries[PID]
    assert (entry.batches[0].first_sequence, entry.last_sequence) == (SEQUENCE_MAX - 10, 9)
    assert (entry.batches[0].first_offset, entry.last_offset) == (2000, 2020)
    assert entry.duplicate(0, SEQUENCE_MAX - 10, 9) is not None


def test_replication_may_begin_anywhere() -> None:
    """PS5, PS12: a replica accepts any first sequence, and gaps."""
    producers = Producers()
    write(producers, PID, 5, 16, 240, origin="replication")
    entry = producers.entries[PID]
    assert (entry.epoch, entry.batches[0].first_sequence, entry.last_sequence) == (5, 16, 16)
    write(producers, PID, 5, 30, 241, origin="replication")
    assert producers.entries[PID].last_sequence == 30


def test_a_marker_of_a_higher_epoch_resets_the_producer() -> None:
    """PS6: cached batches and the open transaction are dropped; data begins at 0 with that epoch."""
    producers = Producers()
    write(producers, PID, 1, 0, 99, txn=True)
    assert mark(producers, PID, 2, 100) == CompletedTransaction(PID, 99, 100, False)
    entry = producers.entries[PID]
    assert (entry.epoch, entry.last_sequence, entry.txn_first_offset, entry.batches) == (2, -1, None, ())
    write(producers, PID, 2, 0, 101)
    entry = producers.entries[PID]
    assert (entry.batches[0].first_sequence, entry.last_sequence) == (0, 0)


@pytest.mark.parametrize("epoch", [2, 3])
def test_after_a_marker_of_a_higher_epoch_only_sequence_zero_is_accepted(epoch: int) -> None:
    """PS7: sequence 2 of the new epoch and of the next one is out of order."""
    producers = Producers()
    write(producers, PID, 1, 0, 99, txn=True)
    mark(producers, PID, 2, 100)
    with pytest.raises(OutOfOrderSequence):
        write(producers, PID, epoch, 2, 101)
    write(producers, PID, epoch, 0, 101)


def test_a_marker_of_an_older_epoch_is_refused() -> None:
    """PS8: it is refused, but not by a replica."""
    producers = Producers()
    write(producers, PID, 5, 0, 0)
    with pytest.raises(InvalidProducerEpoch):
        mark(producers, PID, 4, 1)
    assert producers.entries[PID].epoch == 5
    mark(producers, PID, 4, 1, origin="replication")


def test_an_older_coordinator_epoch_is_fenced() -> None:
    """PS9: coordinator epochs 1, 1, 2, and then 1 is refused."""
    producers = Producers()
    for offset, coordinator in enumerate((1, 1, 2)):
        mark(producers, PID, 0, offset, coordinator=coordinator)
    with pytest.raises(TransactionCoordinatorFenced):
        mark(producers, PID, 0, 3, coordinator=1)
    reloaded = Producers()
    reloaded.load(producers.states, 3)
    with pytest.raises(TransactionCoordinatorFenced):
        mark(reloaded, PID, 0, 3, coordinator=1)
    mark(reloaded, PID, 0, 3, coordinator=1, origin="replication")


def test_a_coordinator_writes_without_sequences() -> None:
    """PS10: it may also use the same sequences again."""
    producers = Producers()
    for offset, sequence in enumerate((-1, -1, 7, 7, 3)):
        write(producers, PID, 0, sequence, offset, origin="coordinator")
    assert producers.entries[PID].last_offset == 4


@pytest.mark.parametrize("origin", ["client", "coordinator", "replication"])
def test_non_transactional_data_in_an_open_transaction_is_refused(origin: str) -> None:
    """PS11: it is refused, with any origin."""
    producers = Producers()
    write(producers, PID, 0, 0, 0, txn=True)
    with pytest.raises(InvalidTxnState):
        write(producers, PID, 0, 1, 1, origin=origin)
    assert producers.entries[PID].last_sequence == 0


# ---- transactions --------------------------------------------------------------------------------------------------


def test_the_first_unstable_offset_is_the_callers() -> None:
    """PS13: it has the segment and position that the caller has passed."""
    producers = Producers()
    append = prepared(producers, PID, "client")
    first = OffsetMetadata(16, 12, 730)
    append.append_data(0, 0, 4, NOW, 16, 20, first)
    assert producers.first_unstable_offset is None
    producers.update(append)
    assert producers.first_unstable_offset == first


def test_a_prepared_append_changes_nothing_before_the_update() -> None:
    """PS14: an entry of sequences 0 to 5 stays unchanged while 6 to 10 are prepared."""
    producers = Producers()
    append = prepared(producers, PID, "client")
    data(append, 0, 0, 5, 15, 20)
    producers.update(append)
    second = prepared(producers, PID, "client")
    data(second, 0, 6, 10, 26, 30)
    entry = producers.entries[PID]
    assert (entry.batches[0].first_sequence, entry.last_sequence, entry.last_offset) == (0, 5, 20)
    assert (second.entry.last_sequence, second.entry.last_offset) == (10, 30)
    producers.update(second)
    entry = producers.entries[PID]
    assert (entry.batches[0].first_sequence, entry.last_sequence, entry.last_offset) == (0, 10, 30)


def test_a_transaction_and_its_marker_in_one_append() -> None:
    """PS15: it starts at its first batch and completes once; the marker keeps the cached batches of the data."""
    producers = Producers()
    write(producers, PID, 0, 0, 9)
    append = prepared(producers, PID, "coordinator")
    data(append, 0, 1, 5, 16, 20, txn=True)
    assert append.entry.txn_first_offset == 16
    data(append, 0, 6, 10, 26, 30, txn=True)
    assert append.entry.txn_first_offset == 16 and [t.first_offset for t in append.started] == [16]
    assert append.append_marker(0, 0, 40, NOW, False) == CompletedTransaction(PID, 16, 40, False)
    assert append.entry.txn_first_offset is None
    assert [(b.first_sequence, b.last_sequence, b.last_offset) for b in append.entry.batches[1:]] == [
        (1, 5, 20),
        (6, 10, 30),
    ]


def test_a_transaction_is_unstable_until_its_marker_is_replicated() -> None:
    """PS16: two transactions, from the first offset to the end."""
    producers = Producers()
    write(producers, PID, 0, 0, 99, txn=True)
    write(producers, OTHER, 0, 0, 105, txn=True)
    assert (undecided(producers), unstable(producers)) == ([99, 105], 99)
    mark(producers, PID, 0, 109)
    assert (undecided(producers), unstable(producers)) == ([105], 99)
    for high_watermark in (100, 109):
        producers.on_high_watermark_updated(high_watermark)
        assert unstable(producers) == 99
    producers.on_high_watermark_updated(110)
    assert unstable(producers) == 105
    mark(producers, OTHER, 0, 112, abort=True)
    assert (undecided(producers), unstable(producers)) == ([], 105)
    producers.on_high_watermark_updated(113)
    assert unstable(producers) is None


def test_many_transactions_of_one_producer_in_one_append() -> None:
    """PS18: markers without data complete nothing."""
    producers = Producers()
    first = prepared(producers, PID, "client")
    data(first, 0, 0, 4, 16, 20, txn=True)
    producers.update(first)
    append = prepared(producers, PID, "replication")
    completed = [append.append_marker(0, 0, offset, NOW, False) for offset in (21, 22)]
    completed.append(append.append_marker(0, 0, 23, NOW, True))
    data(append, 0, 5, 8, 24, 27, txn=True)
    completed += [append.append_marker(0, 0, offset, NOW, True) for offset in (28, 29)]
    data(append, 0, 9, 10, 30, 31, txn=True)
    assert [c for c in completed if c] == [
        CompletedTransaction(PID, 16, 21, False),
        CompletedTransaction(PID, 24, 28, True),
    ]
    assert [transaction.first_offset for transaction in append.started] == [24, 30]
    producers.update(append)
    for one in filter(None, completed):
        producers.complete(one)
    producers.on_high_watermark_updated(32)
    assert unstable(producers) == 30


def test_last_stable_offset_after_a_marker() -> None:
    """PS19: the start of the oldest other open transaction; after the last marker, the offset after it."""
    producers = Producers()
    ends = {}
    for pid, first in ((1, 0), (2, 5), (3, 10)):
        write(producers, pid, 0, 0, first, txn=True)
    for pid, expected in ((1, 5), (3, 5), (2, 23)):
        append = prepared(producers, pid, "coordinator")
        completed = append.append_marker(0, 0, 20 + len(ends), NOW, True)
        assert completed is not None
        producers.update(append)
        ends[pid] = producers.last_stable_offset(completed)
        producers.complete(completed)
        assert ends[pid] == expected


def test_a_transaction_that_begins_after_a_marker_in_one_append() -> None:
    """A follower's entry equals its leader's: the transaction of offset 4 began after the marker at 2."""
    producers = Producers()
    first, second = prepared(producers, PID, "replication"), prepared(producers, OTHER, "replication")
    data(first, 0, 0, 0, 0, 0, txn=True)
    completed = first.append_marker(0, 0, 2, NOW, True)
    data(second, 0, 0, 0, 4, 4, txn=True)
    assert completed is not None
    producers.update(first)
    producers.update(second)
    assert producers.last_stable_offset(completed) == 3


def test_a_transaction_that_has_not_begun_cannot_be_completed() -> None:
    with pytest.raises(ValueError, match="not ongoing"):
        Producers().complete(CompletedTransaction(PID, 5, 7, True))


def test_a_control_batch_that_the_cleaner_has_emptied() -> None:
    """PS20: it adds its producer, and leaves an open transaction open."""
    producers = Producers()
    producers.note_emptied(PID)
    assert (producers.entries[PID].epoch, producers.entries[PID].last_sequence) == (-1, -1)
    assert unstable(producers) is None
    write(producers, PID, 3, 9, 5, txn=True)
    producers.note_emptied(PID)
    assert (unstable(producers), producers.entries[PID].txn_first_offset) == (5, 5)
    write(producers, PID, 3, 10, 6, txn=True)


def test_a_fencing_marker_alone() -> None:
    """PS22: it makes an entry without data, which is kept as long as any other."""
    producers = Producers()
    mark(producers, PID, 0, 42, abort=True)
    entry = producers.entries[PID]
    assert (entry.batches, entry.last_offset, entry.last_sequence) == ((), -1, -1)
    producers.expire(NOW + DAY - 1, DAY)
    assert PID in producers.entries


# ---- expiry --------------------------------------------------------------------------------------------------------


def test_an_expired_producer_is_treated_as_new() -> None:
    """PS35: its next sequence is accepted as a first one."""
    producers = Producers()
    write(producers, PID, 5, 0, 0)
    write(producers, PID, 5, 1, 1)
    producers.expire(NOW + 999, 1000)
    assert PID in producers.entries
    producers.expire(NOW + 1000, 1000)
    assert not producers.entries
    write(producers, PID, 5, 2, 2, at=NOW + 1000)
    assert (len(producers.entries), producers.end_offset) == (1, 3)
    assert producers.entries[PID].batches[0].first_sequence == 2


def test_producers_with_an_open_transaction_stay() -> None:
    """PS36: they never expire."""
    producers = Producers()
    write(producers, PID, 5, 0, 0, txn=True)
    write(producers, OTHER, 5, 0, 1)
    producers.expire(NOW + DAY, 1000)
    assert list(producers.entries) == [PID]


def test_only_five_batches_are_cached() -> None:
    producers = Producers()
    for sequence in range(8):
        write(producers, PID, 0, sequence, sequence)
    entry = producers.entries[PID]
    assert [batch.last_sequence for batch in entry.batches] == [3, 4, 5, 6, 7]
    assert entry.duplicate(0, 2, 2) is None and entry.duplicate(0, 3, 3) is not None
    assert entry.duplicate(1, 3, 3) is None


def test_the_last_batch_of_a_producer_is_known_to_compaction() -> None:
    producers = Producers()
    write(producers, PID, 3, 0, 7)
    mark(producers, OTHER, 1, 8)
    assert producers.last_offsets == {PID: (7, 3), OTHER: (None, 1)}
