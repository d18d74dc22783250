"""Converts Spark's filters to what a plan and its tasks can leave out. Pure; knows the filters by their classes' names.

F1  A filter is taken from Spark only if it is applied exactly: bounds of `offset`, equality and IN of `partition` and
    `topic`. All others are returned, as the same objects: Spark compares by identity.
F2  Filters on `timestamp` are returned, too, and only skip batches that cannot match. Producers' times are in no
    order: a lower bound skips batches and segments whose largest timestamp is below it. An upper bound skips only
    batches with the time of the append, which all their records have; of others the smallest time is not known.
F3  Filters on `key` are returned, too. If the query says that the topics were partitioned by key as Kafka's default
    partitioner does (pushdown=keys), they leave out partitions; not if the query decodes keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from klog.record import TimestampType
from klog.values import dataclass, replace

if TYPE_CHECKING:
    from klog.record import RecordBatch

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL = ("offset", "partition", "topic")
_OFFSET_MAX = 1 << 63


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a query needs: offsets [low, high); these topics and partitions, None for all; times from since_us to
    until_us, microseconds since 1970, None if not bounded; these keys, None for all; this many rows, None for all.
    Plain values."""

    low: int = 0
    high: int = _OFFSET_MAX
    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    since_us: int | None = None
    until_us: int | None = None
    keys: frozenset[bytes] | None = None
    limit: int | None = None

    @property
    def by_time(self) -> bool:
        """Can batches be skipped by their time?"""
        return self.since_us is not None or self.until_us is not None

    def wants(self, topic: str, partition: int) -> bool:
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )

    def may_have(self, max_timestamp_ms: int) -> bool:
        """May records up to this time match?"""
        return self.since_us is None or max_timestamp_ms * 1000 >= self.since_us

    def may_match(self, batch: RecordBatch) -> bool:
        """May a record of the batch match, by its time (F2)?"""
        if batch.magic < 2:
            return True
        if batch.timestamp_type is TimestampType.LOG_APPEND_TIME and self.until_us is not None:
            return self.may_have(batch.max_timestamp) and batch.max_timestamp * 1000 <= self.until_us
        return self.may_have(batch.max_timestamp)


def push(
    filters: Iterable[Any], pushed: Pushed, *, offsets: bool = True, keys: bool = False
) -> tuple[Pushed, list[Any]]:
    """Return `pushed` narrowed by the filters, and those that Spark still has to apply (F1).

    offsets: may offsets be bounded? keys: do keys determine the partition (F3)?
    """
    residual = []
    for item in filters:
        narrowed, exact = _push(item, pushed, offsets, keys)
        pushed = narrowed
        if not exact:
            residual.append(item)
    return pushed, residual


def _push(item: Any, pushed: Pushed, offsets: bool, keys: bool) -> tuple[Pushed, bool]:
    name, kind = ".".join(getattr(item, "attribute", ())), type(item).__name__
    if kind == "IsNotNull":
        return pushed, name in _NEVER_NULL
    values = _literals(item, kind)
    if values is None:
        return pushed, False
    if name == "offset" and offsets and all(type(value) is int for value in values):
        return _push_offset(pushed, kind, values)
    if name == "timestamp" and all(isinstance(value, datetime) and value.tzinfo for value in values):
        return _push_time(pushed, kind, [(value - _EPOCH) // timedelta(microseconds=1) for value in values]), False
    if kind in ("EqualTo", "EqualNullSafe", "In"):
        if name == "key" and keys and all(isinstance(value, bytes) for value in values):
            return replace(pushed, keys=_both(pushed.keys, values)), False
        if name == "topic" and all(type(value) is str for value in values):
            return replace(pushed, topics=_both(pushed.topics, values)), True
        if name == "partition" and all(type(value) is int for value in values):
            return replace(pushed, partitions=_both(pushed.partitions, values)), True
    return pushed, False


def _literals(item: Any, kind: str) -> Sequence[Any] | None:
    """Return the values that a column is compared with, None if they are of no use.

    A null in a list matches nothing. Any other null does not get here with `=`, and with `<=>` it matches null.
    """
    if kind == "In":
        return [value for value in item.value if value is not None]
    if kind in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"):
        return None if item.value is None else [item.value]
    return None


def _both(known: frozenset[Any] | None, values: Iterable[Any]) -> frozenset[Any]:
    return frozenset(values) if known is None else known.intersection(values)


def _push_offset(pushed: Pushed, kind: str, values: Sequence[int]) -> tuple[Pushed, bool]:
    low, high = pushed.low, pushed.high
    if kind in ("EqualTo", "EqualNullSafe", "In"):
        low, high = max(low, min(values, default=high)), min(high, max(values, default=low - 1) + 1)
    elif kind == "GreaterThan":
        low = max(low, values[0] + 1)
    elif kind == "GreaterThanOrEqual":
        low = max(low, values[0])
    elif kind == "LessThan":
        high = min(high, values[0])
    else:
        high = min(high, values[0] + 1)
    return replace(pushed, low=low, high=high), kind != "In"


def _push_time(pushed: Pushed, kind: str, times_us: Sequence[int]) -> Pushed:
    since, until = pushed.since_us, pushed.until_us
    if times_us and not kind.startswith("Less"):
        since = min(times_us) if since is None else max(since, min(times_us))
    if times_us and not kind.startswith("Greater"):
        until = max(times_us) if until is None else min(until, max(times_us))
    return replace(pushed, since_us=since, until_us=until)
