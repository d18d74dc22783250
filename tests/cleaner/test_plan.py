"""Tables: the segments that a cleaning may change, and which of them are grouped into one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from klog.cleaner.plan import (
    SPAN_MAX,
    Cleanable,
    Dirt,
    cleanable,
    cleaned_segments,
    compaction_delay,
    dirt,
    dirty_segments,
    group,
)
from klog.segment import Segment


@dataclass
class Seg:
    base_offset: int
    size: int = 100
    max_timestamp: int = 0
    modified_ms: int = 0
    index_bytes: int = 8
    time_index_bytes: int = 12


def segs(*bases: int, **more: Any) -> tuple[Segment, ...]:
    return cast("tuple[Segment, ...]", tuple(Seg(base, **more) for base in bases))


LOG = segs(0, 10, 20, 30)


@pytest.mark.parametrize(
    ("checkpoint", "start", "stable", "expected"),
    [
        (None, 0, 35, Cleanable(0, 30)),
        (15, 0, 35, Cleanable(15, 30)),
        (15, 0, 27, Cleanable(15, 27)),
        (36, 0, 35, Cleanable(0, 30, reset=True)),  # CM3: above the log end
        (5, 10, 35, Cleanable(10, 30, reset=True)),  # below the log start
        (35, 0, 35, Cleanable(35, 35)),  # at the log end is valid
        (33, 0, 35, Cleanable(33, 33)),  # CM4: inside the active segment
        (25, 0, 20, Cleanable(25, 25)),  # CM9: an undecided transaction begins below
    ],
)
def test_the_range_ends_at_the_lowest_bound(
    checkpoint: int | None, start: int, stable: int, expected: Cleanable
) -> None:
    """CM3, CM8: it ends at the last stable offset, at the active segment, or at a segment that is too young."""
    assert cleanable(LOG, checkpoint, start, 35, stable, 0, 1000) == expected


@pytest.mark.parametrize(
    ("lag", "first", "end"),
    [(0, 0, 30), (1, 0, 30), (100, 0, 30), (101, 0, 20), (201, 0, 10), (9999, 0, 0), (201, 25, 25)],
)
def test_a_segment_younger_than_the_compaction_lag_ends_the_range(lag: int, first: int, end: int) -> None:
    """CM8: the age comes from the largest timestamp, or from the file's mtime if there is none; clean segments do not
    count."""
    aged = cast(
        "tuple[Segment, ...]",
        (Seg(0, max_timestamp=700), Seg(10, max_timestamp=-1, modified_ms=800), Seg(20, max_timestamp=900), Seg(30)),
    )
    assert cleanable(aged, first, 0, 40, 40, lag, 1000) == Cleanable(first, end)


@pytest.mark.parametrize(
    ("first", "end", "expected"),
    [
        (0, 30, Dirt(0, 30, 0, 300)),
        (10, 30, Dirt(10, 30, 100, 200)),
        (
            15,
            30,
            Dirt(15, 30, 200, 200),
        ),  # the segment with the first dirty offset counts as clean and dirty, as in Kafka
        (0, 27, Dirt(0, 20, 0, 200)),  # an undecided transaction at 27: its segment is excluded
        (0, 5, Dirt(0, 0, 0, 0)),
        (30, 30, Dirt(30, 30, 300, 0)),
        (33, 33, Dirt(33, 30, 400, 0)),
    ],
)
def test_clean_and_dirty_bytes(first: int, end: int, expected: Dirt) -> None:
    assert dirt(LOG, Cleanable(first, end)) == expected
    assert expected.ratio == expected.cleanable_bytes / max(expected.clean_bytes + expected.cleanable_bytes, 1)


def test_which_segments_are_mapped_and_which_rewritten() -> None:
    def bases(found: Any) -> list[int]:
        return [segment.base_offset for segment in found]

    assert bases(dirty_segments(LOG, Dirt(15, 30, 0, 0))) == [10, 20]
    assert bases(dirty_segments(LOG, Dirt(30, 30, 0, 0))) == []
    assert bases(cleaned_segments(LOG, 0)) == []
    assert bases(cleaned_segments(LOG, 10)) == [0]
    assert bases(cleaned_segments(LOG, 11)) == [0, 10]
    assert bases(cleaned_segments(LOG, 30)) == [0, 10, 20]


@pytest.mark.parametrize(
    ("stamps", "lag", "expected"),
    [([], 10, 0), ([-1, 2**63 - 1], 10, 0), ([500, 400], 700, 0), ([500, 400], 600, 0), ([-1, 500, 400], 100, 500)],
)
def test_delay_beyond_max_compaction_lag(stamps: list[int], lag: int, expected: int) -> None:
    assert compaction_delay(stamps, lag, 1000) == expected


def lengths(groups: list[range]) -> list[int]:
    assert [number for part in groups for number in part] == list(range(sum(map(len, groups))))
    return [len(part) for part in groups]


def test_neighbours_are_grouped_up_to_each_size_limit() -> None:
    """CL32: a group is limited by the bytes of the log and of each index."""
    ten = [Seg(10 * i, size=50, index_bytes=16, time_index_bytes=24) for i in range(10)]
    most = 2**40
    assert lengths(group(ten, most, most, 100)) == [10]
    assert lengths(group(ten, 1, most, 100)) == [1] * 10
    assert lengths(group(ten, most, 1, 100)) == [1] * 10
    assert lengths(group(ten, 150, most, 100)) == [3, 3, 3, 1]
    assert lengths(group(ten, 199, most, 100)) == [3, 3, 3, 1]
    assert lengths(group(ten, most, 72, 100)) == [3, 3, 3, 1]  # by the time index, the larger one
    assert group([], most, most, 0) == []


def test_a_group_spans_at_most_a_relative_offset() -> None:
    """CL33, CL34: the range is counted to the next segment's base offset, not to the last record's offset."""
    most = 2**40
    assert lengths(group([Seg(0), Seg(10)], most, most, SPAN_MAX + 1)) == [2]
    assert lengths(group([Seg(0), Seg(10)], most, most, SPAN_MAX + 2)) == [1, 1]
    far = [Seg(0), Seg(2**31), Seg(2**32)]
    assert lengths(group(far, most, most, 3 * 2**31)) == [1, 1, 1]
    far[1].size = far[2].size = 0
    assert lengths(group(far, most, most, 3 * 2**31)) == [3]


def test_an_empty_first_segment_is_grouped_by_the_same_rule() -> None:
    assert lengths(group([Seg(0, size=0), Seg(10), Seg(2**31 + 5)], 2**40, 2**40, 2**32)) == [1, 1, 1]
