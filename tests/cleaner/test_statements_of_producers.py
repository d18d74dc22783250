"""The statements about producers and transactions in the cleaner, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from klog.record import encode
from klog.record.control import control_key
from tests.cleaner.logs import NOW
from tests.cleaner.story import RETENTION_MS, Story
from tests.support.batches import marker


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with Story(tmp_path) as opened_story:
        yield opened_story


def test_the_batch_of_the_last_sequence_stays_without_records(story: Story) -> None:
    """CL15: B=[2, 5, 7], O=[1, 3, 6, 7], then B=[2, 5, 7, 8], O=[3, 6, 7, 8]; a log that reloads from its files still
    detects duplicates and returns their old offsets."""
    sent = {1: (1, 2, 3), 2: (3, 1, 4), 3: (1, 4)}
    for pid, keys in sent.items():
        story.produce(pid, *keys)
    story.clean()
    assert (story.ends, story.offsets) == ([2, 5, 7], [1, 3, 6, 7])
    assert (story.keys, story.last_sequences) == ([2, 3, 1, 4], {1: 2, 2: 2, 3: 1})
    story.reload()
    for pid, offsets in ((1, (0, 2)), (3, (6, 7)), (2, (3, 5))):
        info = story.produce(pid, *sent[pid], sequence=0)
        assert (info.is_duplicate, info.first_offset, info.last_offset) == (True, *offsets)
    story.produce(4, 2)
    story.clean(afresh=True)
    assert (story.ends, story.offsets) == ([2, 5, 7, 8], [3, 6, 7, 8])
    assert (story.keys, story.last_sequences) == ([3, 1, 4, 2], {1: 2, 2: 2, 3: 1, 4: 0})
    story.reload()
    info = story.produce(1, *sent[1], sequence=0)
    assert (info.is_duplicate, info.first_offset, info.last_offset) == (True, 0, 2)


def test_only_the_last_batch_of_each_producer_stays(story: Story) -> None:
    """CL16: of four batches with the same key, B=[1, 3, 4], O=[3, 4]."""
    story.put(0)
    story.produce(1, 0)
    story.produce(2, 0)
    story.produce(3, 0)
    story.produce(2, 1)
    story.clean()
    assert (story.ends, story.offsets, story.keys) == ([1, 3, 4], [3, 4], [0, 1])
    assert story.last_sequences == {1: 0, 2: 1, 3: 0}


def test_an_aborted_batch_stays_until_a_later_batch_has_the_last_sequence(story: Story) -> None:
    """CL17: B=[2, 3], O=[3], last sequence 2; after a new transaction B=[3, 5], O=[3, 4, 5], last sequence 4."""
    story.transact(1, 1)
    story.transact(1, 2, 3)
    story.abort(1)
    story.clean()
    assert (story.ends, story.offsets, story.keys, story.last_sequences) == ([2, 3], [3], [], {1: 2})
    story.transact(1, 1, 5)
    story.clean(afresh=True)
    assert (story.ends, story.offsets, story.keys, story.last_sequences) == ([3, 5], [3, 4, 5], [1, 5], {1: 4})


def test_a_coordinator_that_restarts_at_sequence_0(story: Story) -> None:
    """CL18: all but the last of its empty batches are removed, with their markers: B=[1, 2, 3, 4, 5], then
    B=[2, 3, 4, 5]."""
    for number, base in ((1, 0), (2, 2)):
        batch = encode(
            [(b"%d" % number, b"", NOW)],
            base_offset=base,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        story.log.append_batches(batch, origin="replication")
        story.commit(1)
    story.put(1, 2)
    story.clean()
    assert (story.ends, story.offsets) == ([1, 2, 3, 4, 5], [1, 3, 4, 5])
    story.clean_twice()
    assert (story.ends, story.offsets) == ([2, 3, 4, 5], [3, 4, 5])


def test_interleaved_transactions_of_two_producers(story: Story) -> None:
    """CL19: O=[3, 6, 7, 8, 9], and the aborted transaction is still found."""
    story.transact(1, 1, 2)
    story.transact(2, 2, 3)
    story.transact(1, 3, 4)
    story.abort(1)
    story.commit(2)
    story.transact(1, 2)
    story.commit(1)
    before = story.log.aborted_transactions()
    assert len(before) == 1
    story.clean()
    assert (story.keys, story.offsets) == ([3, 2], [3, 6, 7, 8, 9])
    assert story.log.aborted_transactions() == before


def test_open_transactions_are_not_cleaned(story: Story) -> None:
    """CL20: three transactions over two segments. While they are open, nothing changes; once decided, with the rest of
    their records in the active segment, the aborted records of the first segment go; at last the committed producer's
    keys and later records are all that is left."""
    story.transact(1, 1, 2)
    story.transact(3, 2, 3)
    story.transact(2, 3, 4)
    story.log.roll()
    assert story.clean(roll=False).rounds == 0
    story.transact(2, 5, 6)
    story.transact(3, 6, 7)
    story.transact(1, 7, 8)
    story.abort(2)
    story.transact(3, 8, 9)
    story.commit(3)
    assert story.clean(roll=False).rounds == 0  # one of them is still open
    story.transact(1, 9, 10)
    story.abort(1)
    assert story.clean(roll=False).first_dirty_offset == 6
    assert story.keys == [2, 3, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10]
    story.log.roll()
    story.transact(2, 11)
    story.transact(1, 12)
    story.clean(roll=False)
    assert story.keys == [2, 3, 6, 7, 8, 9, 11, 12]


def test_the_life_of_a_commit_marker(story: Story) -> None:
    """CL21: kept while a record of its transaction was seen, then given a delete horizon, then removed: O=[0, 2, 3,
    4, 5],
    O=[3, ..., 8] twice, O=[4, ..., 8]."""
    story.transact(1, 1)
    story.transact(1, 2, 3)
    story.commit(1)
    story.transact(1, 2)
    story.commit(1)
    story.clean()
    assert (story.keys, story.offsets) == ([1, 3, 2], [0, 2, 3, 4, 5])
    story.transact(1, 1, 3)
    story.commit(1)
    story.clean()  # sees the records that it removes
    assert (story.keys, story.offsets) == ([2, 1, 3], [3, 4, 5, 6, 7, 8])
    assert {batch.delete_horizon_ms for batch in story.batches} == {None}
    story.clean(afresh=True)  # sees none, and sets the horizon
    assert (story.keys, story.offsets) == ([2, 1, 3], [3, 4, 5, 6, 7, 8])
    horizons = {batch.base_offset: batch.delete_horizon_ms for batch in story.batches}
    assert {offset for offset, horizon in horizons.items() if horizon} == {3}
    assert horizons[3] == NOW + RETENTION_MS
    story.clean(afresh=True, after=RETENTION_MS - 1)
    assert story.offsets == [3, 4, 5, 6, 7, 8]
    story.clean(afresh=True, after=1)
    assert (story.keys, story.offsets) == ([2, 1, 3], [4, 5, 6, 7, 8])


def test_the_life_of_an_abort_marker(story: Story) -> None:
    """CL22: the data goes at once and the marker stays, O=[3, 4, 5]; two passes later it is gone, O=[4, 5]."""
    story.transact(1, 1)
    story.transact(1, 2, 3)
    story.abort(1)
    story.transact(1, 3)
    story.commit(1)
    story.clean()
    assert (story.keys, story.offsets) == ([3], [3, 4, 5])
    story.clean_twice()
    assert (story.keys, story.offsets) == ([3], [4, 5])


def test_a_commit_marker_waits_for_the_empty_batch_of_its_transaction(story: Story) -> None:
    """CL23: B=[1, 3, 4, 5, 6, 7] twice; after a later batch of the producer B=[1, 4, ..., 9]; two passes later
    B=[1, 5, ..., 9]."""
    story.transact(1, 2, 3)
    story.log.roll()
    story.transact(2, 2, 3)
    story.commit(2)
    story.log.roll()
    story.put(2, 3)
    story.commit(1)
    for _ in range(2):
        story.clean(afresh=True)
        assert (story.keys, story.offsets, story.ends) == ([2, 3], [4, 5, 6, 7], [1, 3, 4, 5, 6, 7])
    story.transact(2, 1)
    story.commit(2)
    story.clean()
    assert (story.keys, story.ends) == ([2, 3, 1], [1, 4, 5, 6, 7, 8, 9])
    assert story.offsets == [4, 5, 6, 7, 8, 9]
    assert [batch.delete_horizon_ms for batch in story.batches if batch.base_offset == 4] == [None]
    story.clean_twice()
    assert (story.keys, story.ends) == ([2, 3, 1], [1, 5, 6, 7, 8, 9])


def test_an_abort_marker_waits_for_the_empty_batch_of_its_transaction(story: Story) -> None:
    """CL24: B=[1, 2] and its index entry stay for two passes; after a later batch of the producer B=[2, 3] with the
    entry;
    two passes later B=[3] without."""
    story.transact(1, 2, 3)
    story.abort(1)
    assert story.aborted == [(1, 0, 2)]
    story.clean()
    for _ in range(2):
        assert (story.keys, story.offsets, story.ends) == ([], [2], [1, 2])
        assert story.aborted == [(1, 0, 2)]
        story.clean_twice()
    story.produce(1, 1)
    story.clean(afresh=True)
    assert (story.keys, story.offsets, story.ends) == ([1], [2, 3], [2, 3])
    assert story.aborted == [(1, 0, 2)]
    story.clean_twice()
    assert (story.keys, story.offsets, story.ends, story.aborted) == ([1], [3], [3], [])


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_transaction_over_two_segments(story: Story, end: str) -> None:
    """CL25: committed, record and marker stay, O=[0, 1]; aborted, an empty batch and the marker, B=[0, 1], always."""
    story.transact(1, 1)
    story.log.roll()
    story.log.append_batches(marker(1, 0, end), origin="coordinator")
    story.clean()
    story.clean_twice()
    if end == "abort":
        story.clean(after=10 * RETENTION_MS, afresh=True)
    assert (story.offsets, story.ends) == ([0, 1] if end == "commit" else [1], [0, 1])


def test_transactions_over_many_passes_of_a_small_map(tmp_path: Path) -> None:
    """CL26: of four slots at load .75: dirty 4, 14, 20; entries of aborted transactions go one pass after their data,
    their markers at the horizon, and no producer is ever in a transaction."""
    map_of_four = {"log.cleaner.dedupe.buffer.size": 4 * 24, "log.cleaner.io.buffer.load.factor": 0.75}
    with Story(tmp_path, **map_of_four) as story:
        for pid, *keys in ((1, 1, 2), (2, 2, 3), (1, 3, 4)):
            story.transact(pid, *keys)
        story.commit(1)
        story.commit(2)
        story.transact(1, 2, 3)
        story.abort(1)
        story.transact(2, 4, 5)
        story.transact(1, 5, 6)
        story.commit(1)
        story.abort(2)
        story.transact(2, 6, 7)
        story.commit(2)
        assert story.log.log_end_offset == 20
        both = [(1, 8, 10), (2, 11, 16)]
        assert story.aborted == both
        expected = [
            (0, 4, [0, 2, 4, 6, 7, 10, 13, 15, 16, 17, 19], [0, 2, 3, 4, 5, 6, 7, 10, *range(13, 20)], both),
            (0, 14, [0, 2, 4, 6, 7, 10, 13, 15, 16, 17, 19], [0, 2, 4, 5, 6, 7, 10, *range(13, 20)], []),
            (RETENTION_MS, 20, [0, 2, 4, 6, 7, 13, 15, 17, 19], [0, 2, 4, 5, 6, 7, 13, 15, 17, 18, 19], []),
        ]
        for after, end, bases, offsets, entries in expected:
            assert story.clean(after=after, rounds=1).first_dirty_offset == end
            assert ([batch.base_offset for batch in story.batches], story.offsets) == (bases, offsets)
            assert story.aborted == entries
            assert {state.current_txn_first_offset for state in story.log.producers.values()} == {None}
            if entries:
                stable = [entry.last_stable_offset for entry in story.log.aborted_transactions()]
                assert stable == [11, 17]


def test_an_empty_control_batch_can_be_cleaned_again(story: Story) -> None:
    """CL27: B=[0, 1, 2], O=[1, 2], and the same once more."""
    story.commit(1)
    story.put(2, 3)
    story.clean_twice()
    assert (story.keys, story.offsets, story.ends) == ([2, 3], [1, 2], [0, 1, 2])
    story.clean(after=10 * RETENTION_MS, afresh=True)
    assert (story.keys, story.offsets, story.ends) == ([2, 3], [1, 2], [0, 1, 2])


def test_a_key_with_the_same_bytes_as_a_marker_key(story: Story) -> None:
    """CL28: B=O=[0, 1, 2, 3]: neither removes the other."""
    story.transact(1, 1)
    story.commit(1)
    same = [(control_key("commit"), b"foo", NOW)]
    batch = encode(same, producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True)
    story.log.append_batches(batch)
    story.commit(2)
    story.clean()
    assert story.ends == story.offsets == [0, 1, 2, 3]


def test_aborted_data_before_the_first_kept_record(story: Story) -> None:
    """CL29: O=[1, 3, 4]; two passes later O=[3, 4]."""
    story.transact(1, 1)
    story.abort(1)
    story.transact(1, 2)
    story.transact(1, 2)
    story.commit(1)
    story.clean()
    assert (story.keys, story.offsets) == ([2], [1, 3, 4])
    story.clean_twice()
    assert (story.keys, story.offsets) == ([2], [3, 4])
