"""Bounds of offset, partition and timestamp, taken from the filter of a Polars query.

F1  Bounds only exclude records that cannot match; the whole filter is applied to the records that are read.
F2  An expression is recognised by building it again from its parts with Polars' operators, and comparing the two.
    Only literals are evaluated. An expression that is not recognised bounds nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from klog.arguments import LONG_MAX
from klog.values import NamedTuple, dataclass, replace

if TYPE_CHECKING:
    import polars as pl

_UNITS_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the records that can match have in common: offsets in [low, high); one of these partitions, None: any; a
    timestamp from since_ms to until_ms, both included, in milliseconds since 1970, None: no bound."""

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
        """Return these bounds, narrowed by one comparison."""
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
    """A column compared with literals: its least and its greatest value, None: no bound; all its values, None: no
    list."""

    column: str
    low: int | None
    high: int | None
    values: frozenset[int] | None = None


def bounds_of(predicate: pl.Expr | None) -> Bounds:
    """Return the bounds of all records that match a filter."""
    found = Bounds()
    for compared in () if predicate is None else _conjuncts(predicate):
        found = found.narrowed(compared)
    return found


def _conjuncts(expression: pl.Expr) -> Iterator[_Compared]:
    """Yield the comparisons of columns with literals that are true for every record for which the expression is
    true."""
    waiting = [expression]
    while waiting:
        expression = waiting.pop()
        parts = expression.meta.pop()[::-1]
        if len(parts) == 2 and expression.meta.eq(parts[0] & parts[1]):
            waiting += parts
        elif parts and parts[0].meta.is_column() and all(part.meta.is_literal() for part in parts[1:]):
            yield from _compared(expression, *parts)


def _compared(expression: pl.Expr, column: pl.Expr, *literals: pl.Expr) -> Iterator[_Compared]:
    """Yield the comparison that the expression is, if it is one of _FORMS. Polars turns `5 < column` into `column >
    5`."""
    name = column.meta.output_name()
    numbers = [_numbers(literal, name) for literal in literals]
    for make, opening, closing in _FORMS.get(len(literals), ()) if all(numbers) else ():
        if expression.meta.eq(make(column, *literals)):
            low, high = min(numbers[0]) + (opening == "("), max(numbers[-1])
            if closing == ")" and name != "timestamp":  # a literal was rounded down, so its millisecond may match
                high -= 1
            values = frozenset(numbers[0]) if make in _EQUAL else None
            yield _Compared(name, low if opening else None, high if closing else None, values)


_EQUAL = (operator.eq, lambda column, value: column.eq_missing(value), lambda column, value: column.is_in(value))
# By number of literals: the expressions of a column and that many literals, and the lower and upper bound of the values
# that match. [ and ] include the literal, ( and ) exclude it, "" means no bound.
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
    """Return the values of a literal that a column is compared with, a time as milliseconds rounded down; [] if they
    cannot bound the column. Nulls are left out: a comparison with null selects no record."""
    import polars as pl

    values = pl.select(literal).to_series()
    if isinstance(values.dtype, pl.List):
        values = values.explode()
    kind = values.dtype
    if column == "timestamp" and isinstance(kind, pl.Datetime) and kind.time_zone is not None:
        return [value // _UNITS_PER_MS[kind.time_unit] for value in values.drop_nulls().to_physical().to_list()]
    return values.drop_nulls().to_list() if column != "timestamp" and kind.is_integer() else []
