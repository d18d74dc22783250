"""Converts the bounds of a read in one partition (a word, an offset or a time) to offsets. Pure but for a warning.

B1  Every bound is converted to a number once, on the driver; tasks get only numbers, so a retry reads the same range.
B2  A resolved range lies inside [log_start_offset, end_offset) of its partition; start ≥ end means no rows.
B3  A time finds the first record at or after it. If there is none below the end, the result is the end (for a start
    with the strategy `error`: an error).
B4  All times before now are before the same moment, that of planning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from klog.errors import KlogError, OffsetOutOfRange
from klog.logger import logger_of
from klog.values import NamedTuple, dataclass, field, replace

logger = logger_of("spark")


class DataLoss(KlogError):
    """Offsets that a query planned to read no longer exist."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Bound:
    """One bound: `value` is an offset, a number of offsets before the end, milliseconds since 1970, or milliseconds
    before now, by `kind`; 0 if not needed."""

    kind: Literal["earliest", "latest", "offset", "from_end", "timestamp", "ago"]
    value: int = 0

    @classmethod
    def at_offset(cls, offset: int) -> Bound:
        return cls("offset", offset)

    @classmethod
    def at_timestamp(cls, timestamp_ms: int) -> Bound:
        return cls("timestamp", timestamp_ms)

    def at(self, now_ms: int) -> Bound:
        """The same, with a time before now as a timestamp (B4)."""
        return Bound.at_timestamp(max(now_ms - self.value, 0)) if self.kind == "ago" else self


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

    def at(self, now_ms: int) -> Bounds:
        """The same, with all times before now as timestamps (B4)."""
        by_partition = {pair: bound.at(now_ms) for pair, bound in self.by_partition.items()}
        return replace(self, default=self.default.at(now_ms), by_partition=by_partition)


@dataclass(frozen=True, slots=True)
class Span:
    """What readers see of a partition: [log_start_offset, end_offset)."""

    pair: TopicPartition
    log_start_offset: int
    end_offset: int


FirstAtOrAfter = Callable[[int], int | None]
"""Time in ms → offset of the first record of the log with this time or a later one, or None."""


def resolve(
    span: Span,
    start: Bounds,
    end: Bounds,
    no_match: Literal["error", "latest"],
    first_at_or_after: FirstAtOrAfter,
    fail_on_data_loss: bool = True,
) -> tuple[int, int]:
    """Return the range to read, as numbers (B1 to B3). start ≤ end is not enforced: crossed bounds read nothing.

    The bounds have no time before now any more: Bounds.at. fail_on_data_loss: an offset outside the span raises
    OffsetOutOfRange; otherwise the nearest one inside replaces it, with a warning.
    """
    return (
        _resolve_edge(span, start, no_match, first_at_or_after, fail_on_data_loss),
        _resolve_edge(span, end, "latest", first_at_or_after, fail_on_data_loss),
    )


def _resolve_edge(
    span: Span,
    bounds: Bounds,
    no_match: Literal["error", "latest"],
    first_at_or_after: FirstAtOrAfter,
    fail_on_data_loss: bool,
) -> int:
    bound = bounds.of(span.pair)
    match bound.kind:
        case "earliest":
            return span.log_start_offset
        case "latest":
            return span.end_offset
        case "from_end":
            return max(span.end_offset - bound.value, span.log_start_offset)
        case "offset":
            return _held(span, bound.value, bounds.option, fail_on_data_loss)
    found = first_at_or_after(bound.value)
    # The lookup may return a record that this reader must not see: above the end, or one that a commit in progress
    # overwrites.
    if found is not None and found < span.end_offset:
        return max(found, span.log_start_offset)
    if no_match == "error":
        raise ValueError(
            f"option '{bounds.option}': {span.pair} has no record at or after {bound.value} ms; "
            f"give an earlier time, or startingOffsetsByTimestampStrategy=latest to begin at the end"
        )
    return span.end_offset


def _held(span: Span, offset: int, option: str | None, fail_on_data_loss: bool) -> int:
    inside = min(max(offset, span.log_start_offset), span.end_offset)
    if inside == offset:
        return offset
    why = (
        "retention or a delete has removed the records before the first one"
        if offset < inside
        else "it was never written, or the log was truncated, or the topic was deleted and created again"
    )
    if fail_on_data_loss:
        error = OffsetOutOfRange(offset, span.log_start_offset, span.end_offset, str(span.pair))
        error.add_note(f"option '{option}': {why}; failOnDataLoss=false reads what is there")
        raise error
    logger.warning(
        "event=data_loss partition=%s option=%s offset=%d present=[%d,%d) reason=%r",
        span.pair,
        option,
        offset,
        span.log_start_offset,
        span.end_offset,
        why,
    )
    return inside
