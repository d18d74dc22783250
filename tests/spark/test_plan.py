"""Planning as tables and properties: numbers to numbers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.spark.plan import TARGET_BYTES, Extent, Range, pack, plan, size_between, split


def whole(start: int, end: int, partition: int = 0, size: int = 0) -> Range:
    return Range(f"/data/t-{partition}", "t", partition, start, end, size)


def batches_of(count: int):
    """A log whose batches begin at multiples of count."""
    return lambda _range, offset: offset // count * count


def edges(pieces: list[Range]) -> list[tuple[int, int]]:
    return [(piece.start_offset, piece.end_offset) for piece in pieces]


def test_target_is_128_mib() -> None:
    assert TARGET_BYTES == 134_217_728


@pytest.mark.parametrize(
    ("extents", "start", "end", "size"),
    [
        ([], 0, 10, 0),
        ([Extent(0, 10, 100)], 0, 10, 100),
        ([Extent(0, 10, 100)], 5, 7, 20),
        ([Extent(0, 10, 100), Extent(10, 20, 1000)], 8, 11, 120),
        ([Extent(0, 10, 100)], 10, 20, 0),
        ([Extent(7, 7, 0)], 0, 10, 0),  # an active segment without a record
        ([Extent(0, 10, 2**60 + 1)], 0, 10, 2**60 + 1),  # exact beyond what a float holds
    ],
)
def test_bytes_of_a_range(extents: list[Extent], start: int, end: int, size: int) -> None:
    assert size_between(extents, start, end) == size


@pytest.mark.parametrize(
    ("extents", "start", "end", "expected"),
    [
        ([Extent(0, 100, 100)], 0, 100, [(0, 100)]),  # less than twice the target: whole
        ([Extent(0, 100, 199)], 0, 100, [(0, 100)]),
        ([Extent(0, 100, 200)], 0, 100, [(0, 50), (50, 100)]),
        ([Extent(0, 100, 399)], 0, 100, [(0, 30), (30, 60), (60, 100)]),  # cuts 33, 66 go back to their batch
        ([Extent(0, 100, 200)], 40, 60, [(40, 60)]),  # the requested bytes count
        ([Extent(0, 10, 50), Extent(10, 20, 50), Extent(20, 120, 200)], 0, 120, [(0, 20), (20, 70), (70, 120)]),
        ([Extent(0, 10, 50), Extent(500, 600, 150)], 0, 600, [(0, 530), (530, 600)]),  # compacted: a gap
    ],
)
def test_split_at_batches(extents: list[Extent], start: int, end: int, expected: list[tuple[int, int]]) -> None:
    assert edges(split(whole(start, end), extents, batches_of(10), 100)) == expected


def test_one_huge_batch_is_never_split() -> None:
    assert edges(split(whole(0, 1000), [Extent(0, 1000, 100_000)], batches_of(1000), 100)) == [(0, 1000)]


def test_a_cut_after_the_last_batch_is_dropped() -> None:
    pieces = split(whole(0, 100), [Extent(0, 100, 200)], lambda _range, _offset: 100, 100)
    assert edges(pieces) == [(0, 100)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([0], [[0]]),
        ([1, 1, 1], [[0, 1, 2]]),  # all together below the target: one task
        ([60, 60, 60, 60], [[0, 1], [2, 3]]),
        ([60, 60, 60], [[0, 1, 2]]),  # the rest joins a bin instead of becoming a task
        ([100, 60, 100, 60], [[0], [2], [1, 3]]),  # small ones share, large ones stand alone
        ([150, 10, 100, 10], [[0], [1, 2, 3]]),  # … and the left-over goes to the lightest
    ],
)
def test_pack(sizes: list[int], expected: list[list[int]]) -> None:
    pieces = [whole(0, 10, partition, size) for partition, size in enumerate(sizes)]
    assert [[member.partition for member in members] for members in pack(pieces, 100)] == expected


def test_without_rows_there_is_no_task() -> None:
    assert plan([(whole(5, 5), [Extent(5, 5, 0)]), (whole(9, 3), [Extent(0, 20, 100)])], batches_of(1)) == []


def test_a_segment_is_not_a_task() -> None:
    """A thousand segments of 1 MiB in eight partitions: eight tasks of 128 MiB, not a thousand."""
    extents = [Extent(index * 100, index * 100 + 100, 1 << 20) for index in range(128)]
    bins = plan([(whole(0, 12_800, partition), extents) for partition in range(8)], batches_of(10))
    assert [len(members) for members in bins] == [1] * 8


def test_many_small_partitions_share_tasks() -> None:
    bins = plan([(whole(0, 100, partition), [Extent(0, 100, 1 << 20)]) for partition in range(300)], batches_of(10))
    assert [len(members) for members in bins] == [172, 128]


@st.composite
def partitions(draw: st.DrawFn) -> list[tuple[Range, list[Extent]]]:
    planned = []
    for partition in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, 50))
        extents = []
        for _ in range(draw(st.integers(0, 6))):
            count = draw(st.integers(1, 60))
            extents.append(Extent(at, at + count, draw(st.integers(0, 500))))
            at += count + draw(st.integers(0, 20))
        start = draw(st.integers(0, at))
        planned.append((whole(start, draw(st.integers(start, at)), partition), extents))
    return planned


@given(partitions(), st.integers(1, 13), st.integers(1, 300))
def test_every_offset_is_read_once(planned: list[tuple[Range, list[Extent]]], batch: int, target: int) -> None:
    bins = plan(planned, batches_of(batch), target)
    sizes = {range_.partition: extents for range_, extents in planned}
    covered: dict[int, list[tuple[int, int]]] = {}
    for members in bins:
        in_order = [(member.pair, member.start_offset) for member in members]
        for pair in {member.pair for member in members}:
            starts = [start for other, start in in_order if other == pair]
            assert starts == sorted(starts)  # P3
        for member in members:
            assert member.size == size_between(sizes[member.partition], member.start_offset, member.end_offset)
            covered.setdefault(member.partition, []).append((member.start_offset, member.end_offset))
    expected = {item.partition: item for item, _ in planned if item.start_offset < item.end_offset}
    assert covered.keys() == expected.keys()
    for partition, pieces in covered.items():
        pieces.sort()
        assert (pieces[0][0], pieces[-1][1]) == (expected[partition].start_offset, expected[partition].end_offset)
        assert all(before[1] == after[0] for before, after in itertools.pairwise(pieces))  # P1: no gap, no overlap
        assert all(start < end for start, end in pieces)
        assert all(start % batch == 0 for start, _ in pieces[1:])  # P4
    if len(bins) > 1:
        assert all(sum(member.size for member in members) >= target for members in bins)  # P2
