"""The plan of a read: ranges and sizes become tasks. Tested with tables and with properties."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.spark.plan import TARGET_MAX, TARGET_MIN, BatchAt, Bin, Extent, Range, Sizes, Sizing, plan

MIB = 1 << 20


def whole(start: int, end: int, partition: int = 0) -> Range:
    return Range(f"/data/t-{partition}", "t", partition, start, end)


def batches_of(count: int) -> BatchAt:
    """Return the lookup of batches in a log whose batches begin at multiples of count."""
    return lambda _range, offset: (offset // count * count, offset // count * count + count)


def edges(bins: list[Bin]) -> list[list[tuple[int, int, int]]]:
    return [[(item.partition, item.start_offset, item.end_offset) for item in members] for members in bins]


def planned(sizes: list[int], batch: int = 10, **sizing: int) -> list[list[tuple[int, int, int]]]:
    """Plan partitions of 100 offsets each, with one segment of these bytes each."""
    ranges = [(whole(0, 100, number), Sizes([Extent(0, 100, size)])) for number, size in enumerate(sizes)]
    return edges(plan(ranges, batches_of(batch), Sizing(**sizing)))


@pytest.mark.parametrize(
    ("total", "parallelism", "target"),
    [
        (0, 2, 32 * MIB),
        (64 * MIB, 2, 32 * MIB),
        (240 * MIB, 2, 60 * MIB),
        (512 * MIB, 2, 128 * MIB),
        (1 << 40, 2, 128 * MIB),
        (1 << 40, 64, 128 * MIB),
        (1 << 30, 16, 32 * MIB),
        (4 << 30, 16, 128 * MIB),
    ],
)
def test_target(total: int, parallelism: int, target: int) -> None:
    assert (TARGET_MIN, TARGET_MAX) == (32 * MIB, 128 * MIB)
    assert Sizing(parallelism).target(total) == target
    assert Sizing(parallelism, target_bytes=1000).target(total) == 1000


@pytest.mark.parametrize("partitions", range(1, 12))
def test_from_64_mib_on_both_cores_are_used(partitions: int) -> None:
    """There are two even bins, however the bytes are spread over partitions."""
    ranges = [
        (whole(0, 6400, number), Sizes([Extent(0, 6400, 64 * MIB // partitions + 1)])) for number in range(partitions)
    ]
    bins = plan(ranges, batches_of(10), Sizing(2))
    assert len(bins) == 2
    assert all(sum(item.size for item in members) > 30 * MIB for members in bins)


@pytest.mark.parametrize(
    ("extents", "start", "end", "size"),
    [
        ([], 0, 10, 0),
        ([Extent(0, 10, 100)], 0, 10, 100),
        ([Extent(0, 10, 100)], 5, 7, 20),
        ([Extent(0, 10, 100), Extent(10, 20, 1000)], 8, 11, 120),
        ([Extent(0, 10, 100)], 10, 20, 0),
        ([Extent(7, 7, 0)], 0, 10, 0),  # an active segment without a record
        ([Extent(0, 10, 2**60 + 1)], 0, 10, 2**60 + 1),  # exact, although a float cannot hold it
    ],
)
def test_bytes_of_a_range(extents: list[Extent], start: int, end: int, size: int) -> None:
    assert Sizes(extents).between(start, end) == size


@pytest.mark.parametrize(
    ("extents", "start", "size", "offset"),
    [
        ([], 5, 0, 5),
        ([Extent(0, 10, 100)], 0, 0, 0),
        ([Extent(0, 10, 100)], 0, 50, 5),
        ([Extent(0, 10, 100)], 5, 20, 7),
        ([Extent(0, 10, 100), Extent(10, 20, 1000)], 5, 150, 11),
        ([Extent(0, 10, 100), Extent(50, 60, 100)], 0, 150, 55),  # a gap
        ([Extent(0, 10, 100)], 0, 999, 10),
        ([Extent(0, 10, 0)], 0, 0, 10),
    ],
)
def test_offset_after_so_many_bytes(extents: list[Extent], start: int, size: int, offset: int) -> None:
    assert Sizes(extents).offset_after(start, size) == offset


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([0], [[(0, 0, 100)]]),
        ([1, 1, 1], [[(0, 0, 100), (1, 0, 100), (2, 0, 100)]]),  # all together below the target: one task
        ([199], [[(0, 0, 100)]]),  # less than twice the target: whole
        ([200], [[(0, 0, 50)], [(0, 50, 100)]]),
        ([399], [[(0, 0, 30)], [(0, 30, 60)], [(0, 60, 100)]]),  # cuts at 33 and 66 go back to their batch
        ([60, 60, 60, 60], [[(0, 0, 100), (1, 0, 100)], [(2, 0, 100), (3, 0, 100)]]),
        ([70, 70, 60], [[(0, 0, 100), (1, 0, 40)], [(1, 40, 100), (2, 0, 100)]]),
        ([100, 6, 100], [[(0, 0, 100), (1, 0, 100)], [(2, 0, 100)]]),  # small ones are not cut
    ],
)
def test_bins_of_a_hundred_bytes(sizes: list[int], expected: list[list[tuple[int, int, int]]]) -> None:
    assert planned(sizes, target_bytes=100) == expected


def test_a_tiny_target_of_a_large_partition_makes_no_more_bins_than_a_driver_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("klog.spark.plan.BINS_MAX", 10)
    ranges = [(whole(0, 10**9), Sizes([Extent(0, 10**9, 100 << 30)]))]
    bins = plan(ranges, batches_of(1000), Sizing(target_bytes=1))
    assert len(bins) == 10
    assert [member.count for members in bins for member in members] == [10**8] * 10


def test_the_bytes_of_the_range_count_not_those_of_its_segments() -> None:
    ranges = [(whole(40, 60), Sizes([Extent(0, 100, 1000)]))]
    assert edges(plan(ranges, batches_of(10), Sizing(target_bytes=100))) == [[(0, 40, 50)], [(0, 50, 60)]]


def test_a_compacted_log_has_gaps() -> None:
    ranges = [(whole(0, 600), Sizes([Extent(0, 10, 50), Extent(500, 600, 150)]))]
    assert edges(plan(ranges, batches_of(10), Sizing(target_bytes=100))) == [[(0, 0, 530)], [(0, 530, 600)]]


def test_one_huge_batch_is_never_split() -> None:
    for sizing in ({"target_bytes": 10}, {"min_bins": 5}, {"max_records": 7}):
        assert planned([100_000], batch=100, **sizing) == [[(0, 0, 100)]]


def test_a_batch_that_begins_below_the_range_or_ends_above_it() -> None:
    """The lookup returns the range's end twice, (60, 60), if a batch is damaged."""
    for found in ((0, 1000), (60, 60)):
        for sizing in (Sizing(target_bytes=10), Sizing(min_bins=5), Sizing(max_records=7)):
            bins = plan([(whole(5, 60), Sizes([Extent(0, 100, 1000)]))], lambda *_, found=found: found, sizing)
            assert edges(bins) == [[(0, 5, 60)]]


def test_without_rows_there_is_no_task() -> None:
    ranges = [(whole(5, 5), Sizes([Extent(5, 5, 0)])), (whole(9, 3), Sizes([Extent(0, 20, 100)]))]
    assert plan(ranges, batches_of(1), Sizing(min_bins=9, max_records=1)) == []


def test_a_segment_is_not_a_task() -> None:
    """A thousand segments of 1 MiB in eight partitions: eight tasks of 128 MiB, not a thousand."""
    extents = Sizes([Extent(index * 100, index * 100 + 100, MIB) for index in range(128)])
    bins = plan([(whole(0, 12_800, partition), extents) for partition in range(8)], batches_of(10), Sizing(2))
    assert edges(bins) == [[(number, 0, 12_800)] for number in range(8)]


def test_many_small_partitions_share_tasks() -> None:
    ranges = [(whole(0, 100, partition), Sizes([Extent(0, 100, MIB)])) for partition in range(300)]
    assert [len(members) for members in plan(ranges, batches_of(10), Sizing(1))] == [150, 150]


class TestMinPartitions:
    @pytest.mark.parametrize("least", range(1, 31))
    def test_as_many_as_asked_if_there_are_batches(self, least: int) -> None:
        assert len(planned([100, 40, 7], batch=10, min_bins=least)) == least

    def test_not_more_than_there_are_batches(self) -> None:
        assert len(planned([100, 40], batch=50, min_bins=9)) == 4

    def test_not_fewer_than_without_it(self) -> None:
        assert planned([400], target_bytes=100, min_bins=2) == planned([400], target_bytes=100)

    def test_the_largest_is_halved_and_the_order_stays(self) -> None:
        assert planned([100, 300], min_bins=3) == [[(0, 0, 100), (1, 0, 30)], [(1, 30, 60)], [(1, 60, 100)]]


class TestMaxRecords:
    @pytest.mark.parametrize(
        ("most", "expected"),
        [
            (200, [[(0, 0, 100), (1, 0, 100)]]),
            (150, [[(0, 0, 100), (1, 0, 50)], [(1, 50, 100)]]),
            (55, [[(0, 0, 50)], [(0, 50, 100)], [(1, 0, 50)], [(1, 50, 100)]]),
        ],
    )
    def test_bins(self, most: int, expected: list[list[tuple[int, int, int]]]) -> None:
        assert planned([100, 100], max_records=most) == expected

    def test_a_batch_with_more_records_is_a_bin(self) -> None:
        assert planned([100], batch=40, max_records=7) == [[(0, 0, 40)], [(0, 40, 80)], [(0, 80, 100)]]


@st.composite
def partitions(draw: st.DrawFn) -> list[tuple[Range, list[Extent]]]:
    drawn = []
    for partition in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, 50))
        extents = []
        for _ in range(draw(st.integers(0, 6))):
            count = draw(st.integers(1, 60))
            extents.append(Extent(at, at + count, draw(st.integers(0, 500))))
            at += count + draw(st.integers(0, 20))
        start = draw(st.integers(0, at))
        drawn.append((whole(start, draw(st.integers(start, at)), partition), extents))
    return drawn


@given(
    partitions(),
    st.integers(1, 13),
    st.integers(1, 300),
    st.integers(1, 12),
    st.one_of(st.none(), st.integers(1, 80)),
)
def test_every_offset_is_read_once(
    given_: list[tuple[Range, list[Extent]]], batch: int, target: int, least: int, most: int | None
) -> None:
    ranges = [(item, Sizes(extents)) for item, extents in given_]
    bins = plan(ranges, batches_of(batch), Sizing(1, target, least, most))
    sizes = {item.partition: total for item, total in ranges}
    flat = [member for members in bins for member in members]
    keys = [(member.pair, member.start_offset) for member in flat]
    assert keys == sorted(keys)  # P3
    assert all(bins)
    covered: dict[int, list[tuple[int, int]]] = {}
    for member in flat:
        assert member.size == sizes[member.partition].between(member.start_offset, member.end_offset)
        covered.setdefault(member.partition, []).append((member.start_offset, member.end_offset))
    expected = {item.partition: item for item, _ in given_ if item.start_offset < item.end_offset}
    assert covered.keys() == expected.keys()
    for partition, pieces in covered.items():
        assert (pieces[0][0], pieces[-1][1]) == (expected[partition].start_offset, expected[partition].end_offset)
        assert all(before[1] == after[0] for before, after in itertools.pairwise(pieces))  # P1: no gap, no overlap
        assert all(start < end for start, end in pieces)
        assert all(start % batch == 0 for start, _ in pieces[1:])  # P4
    total = sum(member.size for member in flat)
    if most is None:
        assert len(bins) <= max(1, total // target, least)  # P2
        batches = sum(-(-item.end_offset // batch) - item.start_offset // batch for item in expected.values())
        assert len(bins) >= min(least, batches)
    else:
        assert all(
            sum(member.count for member in members) <= most or len(_batches(members, batch)) == 1 for members in bins
        )


def _batches(members: Bin, batch: int) -> set[tuple[int, int]]:
    return {
        (member.partition, offset // batch)
        for member in members
        for offset in range(member.start_offset, member.end_offset)
    }
