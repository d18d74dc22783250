"""Named bounds, offsets and timestamps are resolved to offsets."""

from __future__ import annotations

import pytest

from klog.errors import OffsetOutOfRange
from klog.spark.bounds import EARLIEST, LATEST, Bound, Bounds, Span, TopicPartition, resolve

PAIR = TopicPartition("t", 0)
SPAN = Span(PAIR, 10, 20)
TIMES = {100: 10, 110: 12, 150: 19}  # first record at or after the time


def first_at_or_after(timestamp_ms: int) -> int | None:
    return next((offset for time, offset in sorted(TIMES.items()) if time >= timestamp_ms), None)


def at(start: Bound = EARLIEST, end: Bound = LATEST, no_match: str = "error", span: Span = SPAN) -> tuple[int, int]:
    return resolve(
        span,
        Bounds(start, option="startingTimestamp"),
        Bounds(end, option="endingTimestamp"),
        no_match,  # type: ignore[arg-type]
        first_at_or_after,
    )


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (EARLIEST, LATEST, (10, 20)),
        (Bound.at_offset(10), Bound.at_offset(20), (10, 20)),
        (Bound.at_offset(13), Bound.at_offset(14), (13, 14)),
        (Bound.at_offset(20), Bound.at_offset(10), (20, 10)),  # crossed: no rows, no error
        (Bound.at_timestamp(0), Bound.at_timestamp(110), (10, 12)),  # O3: the end is exclusive
        (Bound.at_timestamp(101), Bound.at_timestamp(150), (12, 19)),
        (EARLIEST, Bound.at_timestamp(151), (10, 20)),  # no such record: to the end
    ],
)
def test_resolved_bounds(start: Bound, end: Bound, expected: tuple[int, int]) -> None:
    assert at(start, end) == expected


def test_a_partition_may_differ_from_the_default() -> None:
    start = Bounds(EARLIEST, {PAIR: Bound.at_offset(15)})
    assert resolve(SPAN, start, Bounds(LATEST), "error", first_at_or_after) == (15, 20)
    other = Span(TopicPartition("t", 1), 10, 20)
    assert resolve(other, start, Bounds(LATEST), "error", first_at_or_after) == (10, 20)


@pytest.mark.parametrize("offset", [9, 21])
@pytest.mark.parametrize("edge", ["start", "end"])
def test_an_offset_outside_is_an_error_with_the_range(edge: str, offset: int) -> None:
    with pytest.raises(OffsetOutOfRange, match=rf"offset {offset} is outside t-0, which holds \[10, 20\)"):
        at(**{edge: Bound.at_offset(offset)})


def test_a_start_without_a_record_follows_the_strategy() -> None:
    assert at(start=Bound.at_timestamp(151), no_match="latest") == (20, 20)
    with pytest.raises(ValueError, match="'startingTimestamp': t-0 has no record at or after 151 ms"):
        at(start=Bound.at_timestamp(151))


def test_records_above_the_high_watermark_do_not_match() -> None:
    """The lookup covers the whole log; readers do not see a record at or above the end (B2)."""
    span = Span(PAIR, 10, 19)
    assert at(end=Bound.at_timestamp(150), span=span) == (10, 19)
    assert at(start=Bound.at_timestamp(150), no_match="latest", span=span) == (19, 19)
    with pytest.raises(ValueError, match="no record at or after 150 ms"):
        at(start=Bound.at_timestamp(150), span=span)


def test_records_below_the_log_start_do_not_match() -> None:
    """A log that was opened before a commit overwrites it finds the records that readers do not see any more (B2)."""
    span = Span(PAIR, 11, 20)
    assert at(start=Bound.at_timestamp(100), end=Bound.at_timestamp(100), span=span) == (11, 11)


def test_an_empty_partition() -> None:
    span = Span(PAIR, 10, 10)
    assert at(span=span) == (10, 10)
    assert at(start=Bound.at_offset(10), end=Bound.at_offset(10), span=span) == (10, 10)
