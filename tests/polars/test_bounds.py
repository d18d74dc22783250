"""Which filters of Polars limit the records that are read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import polars as pl
import pytest
from polars.io.plugins import register_io_source

from klog.polars.bounds import Bounds, bounds_of

T = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
T_MS = 1_700_000_000_000
LAST = (1 << 63) - 1
SCHEMA = {
    "offset": pl.Int64,
    "partition": pl.Int32,
    "timestamp": pl.Datetime("ms", "UTC"),
    "key": pl.Binary,
    "other": pl.Int64,
}
offset, partition, timestamp = pl.col("offset"), pl.col("partition"), pl.col("timestamp")


def passed(predicate: pl.Expr | None) -> pl.Expr | None:
    """Return the filter as Polars passes it to a source, or None if Polars passes none."""
    found: list[Any] = []

    def source(_columns: object, predicate: pl.Expr | None, _rows: object, _size: object) -> Iterator[pl.DataFrame]:
        found.append(predicate)
        yield pl.DataFrame(schema=SCHEMA)

    frame = register_io_source(source, schema=SCHEMA)
    (frame if predicate is None else frame.filter(predicate)).collect()
    return found[0] if found else None


@pytest.mark.parametrize(
    ("predicate", "bounds"),
    [
        (None, Bounds()),
        (offset > 5, Bounds(low=6)),
        (offset >= 5, Bounds(low=5)),
        (offset < 5, Bounds(high=5)),
        (offset <= 5, Bounds(high=6)),
        (offset == 5, Bounds(low=5, high=6)),
        (offset.eq_missing(5), Bounds(low=5, high=6)),
        (offset.is_between(5, 9), Bounds(low=5, high=10)),
        (offset.is_between(5, 9, closed="none"), Bounds(low=6, high=9)),
        (offset.is_between(5, 9, closed="left"), Bounds(low=5, high=9)),
        (offset.is_between(5, 9, closed="right"), Bounds(low=6, high=10)),
        (offset.is_in([7, 5, None]), Bounds(low=5, high=8)),
        ((offset > 5) & (offset >= 3) & (offset < 9), Bounds(low=6, high=9)),
        (offset >= -3, Bounds()),
        (offset <= -3, Bounds(high=0)),
        (offset >= LAST, Bounds(low=LAST)),
        (offset <= LAST, Bounds()),
        (partition == 1, Bounds(partitions=frozenset({1}))),
        (partition.is_in([1, 2]) & partition.is_in([2, 3]), Bounds(partitions=frozenset({2}))),
        (partition > 1, Bounds()),
        (timestamp >= T, Bounds(since_ms=T_MS)),
        (timestamp > T + timedelta(microseconds=999), Bounds(since_ms=T_MS + 1)),
        (timestamp < T + timedelta(microseconds=999), Bounds(until_ms=T_MS)),
        (timestamp <= T - timedelta(microseconds=1), Bounds(until_ms=T_MS - 1)),
        (timestamp.is_between(T, T + timedelta(hours=1)), Bounds(since_ms=T_MS, until_ms=T_MS + 3_600_000)),
        (timestamp == T.astimezone(timezone(timedelta(hours=-5))), Bounds(since_ms=T_MS, until_ms=T_MS)),
        (timestamp >= pl.lit(T, pl.Datetime("ns", "UTC")), Bounds(since_ms=T_MS)),
        (timestamp >= datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), Bounds(since_ms=-1)),
        (~(offset > 5), Bounds(high=6)),
        ((offset > 5) & pl.col("key").is_null(), Bounds(low=6)),
    ],
    ids=str,
)
def test_bounds(predicate: pl.Expr | None, bounds: Bounds) -> None:
    assert bounds_of(passed(predicate)) == bounds


@pytest.mark.parametrize(
    "predicate",
    [
        (offset > 5) | (offset < 3),
        offset != 5,
        offset > 5.5,
        offset.cast(pl.Float64) > 5,
        offset + 1 > 5,
        offset > partition,
        offset.is_in([]),
        offset.is_in([None], nulls_equal=True),
        offset.is_not_null(),
        offset == pl.lit(None),
        offset.hash() > 5,
        -offset < 5,
        pl.lit(5) > 3,
        pl.lit(True),
        pl.all_horizontal(offset > 5, offset < 9),
        pl.when(offset > 5).then(True).otherwise(False),
        timestamp > date(2023, 11, 14),
        timestamp.eq_missing(None),
        timestamp.dt.date() > date(2023, 11, 14),
        (offset > 5).map_batches(lambda column: column),
        pl.col("key") > b"5",
        pl.col("other") > 5,
    ],
    ids=str,
)
def test_other_filters_give_no_bounds(predicate: pl.Expr) -> None:
    assert bounds_of(predicate) == Bounds()


def test_a_long_filter() -> None:
    predicate = offset >= 0
    for low in range(300):
        predicate = predicate & (offset >= low)
    assert bounds_of(passed(predicate)) == Bounds(low=299)
