"""Read-ahead of a sequential reader: windows of pages that grow, each page once."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from klog.disk import LogFile
from klog.disk.read_ahead import ReadAhead

KIB = 1024


class Asked:
    """A file that records the advised ranges."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def advise(self, position: int, size: int, advice: int) -> None:
        self.ranges.append((position, size))


def ahead(end: int, bound: int) -> tuple[Asked, ReadAhead]:
    asked = Asked()
    return asked, ReadAhead(cast(LogFile, asked), end, bound)


def test_windows_grow_with_a_sequential_reader() -> None:
    asked, reader = ahead(1 << 30, 256 * KIB)
    for position in range(0, 2048 * KIB, 64 * KIB):
        reader.before(position, 64 * KIB)
    sizes = [size // KIB for _, size in asked.ranges]
    assert sizes[:4] == [64, 128, 256, 256]
    assert set(sizes[3:]) == {256}
    assert asked.ranges[0][0] == 128 * KIB  # the second read shows that reads are sequential


def test_a_jump_restarts_and_advises_nothing_by_itself() -> None:
    """A1."""
    asked, reader = ahead(1 << 30, 256 * KIB)
    for position in (0, 10 << 20, 5 << 20, 90 << 20):
        reader.before(position, 64 * KIB)
    assert asked.ranges == []
    reader.before((90 << 20) + 64 * KIB, 64 * KIB)
    assert asked.ranges == [((90 << 20) + 128 * KIB, 64 * KIB)]


@given(
    st.integers(1, 3 << 20),
    st.sampled_from([64 * KIB, 1 << 20]),
    st.lists(st.tuples(st.integers(1, 200 * KIB), st.floats(0, 0.9)), max_size=60),
)
def test_each_page_is_advised_once_and_none_after_the_end(end: int, bound: int, reads: list[tuple[int, float]]) -> None:
    """A2."""
    asked, reader = ahead(end, bound)
    position = 0
    for size, again in reads:
        size = min(size, end - position)
        if size <= 0:
            break
        reader.before(position, size)
        position += max(1, int(size * (1 - again)))
    reached = 0
    for start, size in asked.ranges:
        assert start % 4096 == 0
        assert 0 < size <= bound + 4096
        assert reached <= start < start + size <= end
        reached = start + size
