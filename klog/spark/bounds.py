"""Converts the bounds of a read in one partition (a word, an offset or a time) to offsets. Pure.

B1  Every bound is converted to a number once, on the driver; tasks get only numbers, so a retry reads the same range.
B2  A resolved range lies inside [log_start_offset, end_offset) of its partition; start ≥ end means no rows.
B3  A time finds the first record at or after it. If there is none below the end, the result is the end (for a start
    with the strategy `error`: an error).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from klog.errors import OffsetOutOfRange


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Bound:
    """One bound: `value` is an offset or milliseconds, by `kind`; 0 if not needed."""

    kind: Literal["earliest", "latest", "offset", "timestamp"]
    value: int = 0

    @classmethod
    def at_offset(cls, offset: int) -> Bound:
        return cls("offset", offset)

    @classmethod
    def at_timestamp(cls, timestamp_ms: int) -> Bound:
        return cls("timestamp", timestamp_ms)


EARLIEST = Bound("earliest")
LATEST = Bound("latest")


@dataclass(frozen=True)
class Bounds:
    """One bound for all partitions: `by_partition` for those named there, `default` for the others.

    option: the option that set it, for messages; None for the default.
    """

    default: Bound
    by_partition: Mapping[TopicPartition, Bound] = field(default_factory=dict)
    option: str | None = None

    def of(self, pair: TopicPartition) -> Bound:
        return self.by_partition.get(pair, self.default)


@dataclass(frozen=True, slots=True)
class Span:
    """What readers see of a partition: [log_start_offset, end_offset)."""

    pair: TopicPartition
    log_start_offset: int
    end_offset: int


FirstAtOrAfter = Callable[[int], int | None]
"""Time in ms → offset of the first record at or above the log start with this time or a later one, or None."""


def resolve(
    span: Span, start: Bounds, end: Bounds, no_match: Literal["error", "latest"], first_at_or_after: FirstAtOrAfter
) -> tuple[int, int]:
    """Return the range to read, as numbers (B1 to B3). start ≤ end is not enforced: crossed bounds read nothing."""
    return (
        _resolve_edge(span, start, no_match, first_at_or_after),
        _resolve_edge(span, end, "latest", first_at_or_after),
    )


def _resolve_edge(
    span: Span, bounds: Bounds, no_match: Literal["error", "latest"], first_at_or_after: FirstAtOrAfter
) -> int:
    bound = bounds.of(span.pair)
    match bound.kind:
        case "earliest":
            return span.log_start_offset
        case "latest":
            return span.end_offset
        case "offset":
            if not span.log_start_offset <= bound.value <= span.end_offset:
                raise OffsetOutOfRange(bound.value, span.log_start_offset, span.end_offset, str(span.pair))
            return bound.value
    found = first_at_or_after(bound.value)
    # The lookup may return a record above the high watermark, which readers cannot see yet.
    if found is not None and found < span.end_offset:
        return found
    if no_match == "error":
        raise ValueError(
            f"option '{bounds.option}': {span.pair} has no record at or after {bound.value} ms; "
            f"give an earlier time, or startingOffsetsByTimestampStrategy=latest to begin at the end"
        )
    return span.end_offset
