"""Bounds of offset, partition and timestamp, taken from the filter of a Polars query.

F1  Bounds only exclude records that cannot match; the whole filter is applied to the records that are read.
F2  An expression is recognised by building it again from its parts with Polars' operators, and comparing the two.
    Nothing is evaluated but literals. An expression that is not recognised bounds nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from klog.arguments import LONG_MAX
from klog.values import NamedTuple, dataclass, replace

if TYPE_CHECKING:
    import polars as pl

_IN_A_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}


@dataclass(frozen=True, slots=True)
class Bounds:
    """What can match: offsets [low, high); these partitions, None for all; times from since_ms to until_ms, both
    included, in milliseconds since 1970, None if not bounded."""

    low: int = 0
    high: int = LONG_MAX
    partitions: frozenset[int] | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def by_time(self) -> bool:
        """Is the time bounded?"""
        return self.since_ms is not None or self.until_ms is not None

    def wants(self, partition: int) -> bool:
        """Can a record of this partition match?"""
        return self.partitions is None or partition in self.partitions

    def narrowed(self, compared: _Compared) -> Bounds:
        """The same, and one column compared with literals."""
        column, low, high, values = compared
        if column == "offset":
            least = self.low if low is None else max(self.low, min(low, LONG_MAX))
            return replace(self, low=least, high=self.high if high is None else min(self.high, max(high, -1) + 1))
        if column == "partition" and values is not None:
            return replace(self, partitions=values if self.partitions is None else values & self.partitions)
        if column == "timestamp":
            since = [bound for bound in (self.since_ms, low) if bound is not None]
            until = [bound for bound in (self.until_ms, high) if bound is not None]
            return replace(self, since_ms=max(since, default=None), until_ms=min(until, default=None))
        return self


class _Compared(NamedTuple):
    """A column, its least and its greatest value, None if not bounded; all its values, None if not listed."""

    column: str
    low: int | None
    high: int | None
    values: frozenset[int] | None = None


def bounds_of(predicate: pl.Expr | None) -> Bounds:
    """The bounds of all records that match a filter."""
    found = Bounds()
    for compared in () if predicate is None else _conjuncts(predicate):
        found = found.narrowed(compared)
    return found


def _conjuncts(expression: pl.Expr) -> Iterator[_Compared]:
    """Comparisons of columns with literals that are true wherever the expression is true."""
    waiting = [expression]
    while waiting:
        expression = waiting.pop()
        parts = expression.meta.pop()[::-1]
        if len(parts) == 2 and expression.meta.eq(parts[0] & parts[1]):
            waiting += parts
        elif parts and parts[0].meta.is_column() and all(part.meta.is_literal() for part in parts[1:]):
            yield from _compared(expression, *parts)


def _compared(expression: pl.Expr, column: pl.Expr, *literals: pl.Expr) -> Iterator[_Compared]:
    """A column and literals. Of `5 < column`, Polars makes `column > 5`."""
    name = column.meta.output_name()
    numbers = [_numbers(literal, name) for literal in literals]
    for make, opening, closing in _FORMS.get(len(literals), ()) if all(numbers) else ():
        if expression.meta.eq(make(column, *literals)):
            low, high = min(numbers[0]) + (opening == "("), max(numbers[-1])
            if closing == ")" and name != "timestamp":  # below a time that was rounded down, that may match
                high -= 1
            values = frozenset(numbers[0]) if make in _EQUAL else None
            yield _Compared(name, low if opening else None, high if closing else None, values)


_EQUAL = (operator.eq, lambda column, value: column.eq_missing(value), lambda column, value: column.is_in(value))
# Number of literals → the expressions of a column and so many literals, and the bounds of what matches: [ or ] includes
# the literal, ( or ) does not, none is there without a bound.
_FORMS: dict[int, tuple[tuple[Callable[..., Any], str, str], ...]] = {
    1: (
        *((make, "[", "]") for make in _EQUAL),
        (operator.ge, "[", ""),
        (operator.gt, "(", ""),
        (operator.le, "", "]"),
        (operator.lt, "", ")"),
    ),
    2: (
        (lambda column, low, high: column.is_between(low, high, closed="both"), "[", "]"),
        (lambda column, low, high: column.is_between(low, high, closed="left"), "[", ")"),
        (lambda column, low, high: column.is_between(low, high, closed="right"), "(", "]"),
        (lambda column, low, high: column.is_between(low, high, closed="none"), "(", ")"),
    ),
}


def _numbers(literal: pl.Expr, column: str) -> list[int]:
    """The values of a literal that a column is compared with, a time as milliseconds rounded down; empty if they are of
    no use. Nulls are left out: a comparison with null selects no record."""
    import polars as pl

    values = pl.select(literal).to_series()
    if isinstance(values.dtype, pl.List):
        values = values.explode()
    kind = values.dtype
    if column == "timestamp" and isinstance(kind, pl.Datetime) and kind.time_zone is not None:
        return [value // _IN_A_MS[kind.time_unit] for value in values.drop_nulls().to_physical().to_list()]
    return values.drop_nulls().to_list() if column != "timestamp" and kind.is_integer() else []
