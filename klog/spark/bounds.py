"""Where a read begins and ends in one partition: a word, an offset or a time → an offset. Pure.

B1  Every bound becomes a number once, on the driver; tasks see numbers only, so a retried task reads the same range.
B2  A resolved range lies inside [log_start_offset, end_offset) of its partition; start ≥ end means no rows.
B3  A time finds the first record at or after it. No such record below the end: the end (for a start, by the
    strategy `error`, an error instead).
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
    """One edge: `value` is an offset or milliseconds by `kind`, 0 where the word says it all."""

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
    """One edge for all partitions: those named in `by_partition`, `default` for the others.

    option: the option that said so, for messages; None where it is the default.
    """

    default: Bound
    by_partition: Mapping[TopicPartition, Bound] = field(default_factory=dict)
    option: str | None = None

    def of(self, pair: TopicPartition) -> Bound:
        return self.by_partition.get(pair, self.default)


@dataclass(frozen=True, slots=True)
class Span:
    """What a partition holds for readers: [log_start_offset, end_offset)."""

    pair: TopicPartition
    log_start_offset: int
    end_offset: int


FirstAtOrAfter = Callable[[int], int | None]
"""Time in ms → offset of the first record at or above the log start with this time or a later one, or None."""


def resolve(
    span: Span, start: Bounds, end: Bounds, no_match: Literal["error", "latest"], first_at_or_after: FirstAtOrAfter
) -> tuple[int, int]:
    """B1–B3: the range to read, as numbers. The order start ≤ end is not enforced: crossed bounds are an empty read."""
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
    # The lookup may answer from above the high watermark: for readers that record is not there yet.
    if found is not None and found < span.end_offset:
        return found
    if no_match == "error":
        raise ValueError(
            f"option '{bounds.option}': {span.pair} holds no record at or after {bound.value} ms; "
            f"give an earlier time, or startingOffsetsByTimestampStrategy=latest to begin at the end"
        )
    return span.end_offset
