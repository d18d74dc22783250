"""Columns become Arrow batches with exactly the schema that Spark expects. The tests need pyarrow, but no session."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as t

import klog
from klog import record
from klog.spark.rows import METADATA, PLAIN, RowShaper, arrow_schema, cast, check_schema, full_schema, pieces, repeated

KAFKAS = (*PLAIN, "headers")

RECORDS = (
    klog.Record(key=b"k", value=None, timestamp=1357034400000, headers=[("h", b"1"), ("h", None)]),
    klog.Record(key=None, value=b"v", timestamp=-1),
    klog.Record(key=b"", value=b"", timestamp=0, headers=[("", b"")]),
)
STORED = b"".join(record.encode([each], base_offset=offset) for each, offset in zip(RECORDS, (5, 6, 9), strict=True))


def shape(*names: str) -> pa.RecordBatch:
    wanted = t.StructType([column for name in names for column in full_schema().fields if column.name == name])
    shaper = RowShaper(arrow_schema(wanted), "flights", 3)
    return shaper.batch(record.columns(STORED, **shaper.request))


def test_all_columns() -> None:
    batch = shape(*KAFKAS)
    assert batch.schema.equals(arrow_schema(t.StructType(full_schema().fields[: len(KAFKAS)])))
    assert batch.column("key").to_pylist() == [b"k", None, b""]
    assert batch.column("value").to_pylist() == [None, b"v", b""]
    assert batch.column("topic").to_pylist() == ["flights"] * 3
    assert batch.column("partition").to_pylist() == [3] * 3
    assert batch.column("offset").to_pylist() == [5, 6, 9]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [1357034400000000, None, 0]
    assert batch.column("timestampType").to_pylist() == [0, 0, 0]
    assert batch.column("headers").to_pylist() == [
        [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        None,  # as in Spark's Kafka source
        [{"key": "", "value": b""}],
    ]
    batch.validate(full=True)


@pytest.mark.parametrize("names", [("offset",), ("value", "offset", "key"), ("timestampType", "topic"), ("headers",)])
def test_a_subset_in_any_order(names: tuple[str, ...]) -> None:
    assert shape(*names).schema.names == list(names)


def test_constant_columns_alone_still_count_the_rows() -> None:
    batch = shape("partition", "topic")
    assert batch.to_pylist() == [{"partition": 3, "topic": "flights"}] * 3


def test_only_required_columns_are_requested() -> None:
    wanted = t.StructType([t.StructField("timestamp", t.TimestampType()), t.StructField("topic", t.StringType())])
    assert RowShaper(arrow_schema(wanted), "t", 0).request["fields"] == ("timestamp", "topic")


def test_the_columns_of_klog_are_not_copied() -> None:
    """No column is converted: each uses the memory that klog.record filled."""
    shaper = RowShaper(arrow_schema(t.StructType(full_schema().fields[: len(KAFKAS)])), "flights", 3)
    columns = record.columns(STORED, **shaper.request)

    def addresses(batch: pa.RecordBatch) -> list[list[int | None]]:
        return [[buffer and buffer.address for buffer in column.buffers()] for column in batch.columns]

    assert addresses(shaper.batch(columns)) == addresses(pa.record_batch(columns))


def test_batches_of_other_lengths_keep_the_schema() -> None:
    """R1"""
    shaper = RowShaper(arrow_schema(t.StructType(full_schema().fields[: len(KAFKAS)])), "flights", 3)
    shapes = [shaper.batch(record.columns(STORED, start=start, **shaper.request)) for start in (9, 0, 6)]
    assert [batch.num_rows for batch in shapes] == [1, 3, 2]
    assert len({str(batch.schema) for batch in shapes}) == 1
    assert [batch.column("topic").to_pylist() for batch in shapes] == [["flights"] * n for n in (1, 3, 2)]
    assert shapes[2].column("headers").to_pylist() == [None, [{"key": "", "value": b""}]]


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (t.StructField("ofset", t.LongType()), "no column 'ofset'; it has: key binary, value binary"),
        (t.StructField("Offset", t.LongType()), "no column 'Offset'"),
        (t.StructField("value", t.StringType()), "column 'value' is binary, not string"),
        (t.StructField("offset", t.IntegerType()), "column 'offset' is bigint, not int"),
        (t.StructField("key", t.BinaryType(), nullable=False), "leave NOT NULL out"),
    ],
)
def test_unsupported_schemas_raise(column: t.StructField, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_schema(t.StructType([t.StructField("partition", t.IntegerType()), column]))


def test_empty_and_doubled_schemas() -> None:
    with pytest.raises(ValueError, match="has no columns"):
        check_schema(t.StructType([]))
    with pytest.raises(ValueError, match="'offset' twice"):
        check_schema(t.StructType([t.StructField("offset", t.LongType())] * 2))


def test_arrow_schema_is_the_one_that_spark_checks() -> None:
    """Types that Spark's plain readers accept: no large_binary, no dictionary, microseconds in UTC."""
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    assert full_schema().names == [*KAFKAS, *METADATA]
    assert arrow_schema(full_schema()).types == [
        pa.binary(),
        pa.binary(),
        pa.string(),
        pa.int32(),
        pa.int64(),
        pa.timestamp("us", "UTC"),
        pa.int32(),
        pa.list_(pa.field("element", header)),
        pa.int32(),
        pa.int64(),
        pa.int16(),
        pa.int32(),
        pa.bool_(),
        pa.bool_(),
        pa.string(),
        pa.int64(),
        pa.int64(),
        pa.string(),
        pa.bool_(),
        pa.string(),
    ]


def test_arrow_schema_for_a_spark_without_the_time_zone_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.pandas import types

    expected, newer = arrow_schema(full_schema()), types.to_arrow_schema

    def older(schema: t.StructType, timestamp_utc: bool = True) -> pa.Schema:
        return newer(schema, timezone="UTC")

    monkeypatch.setattr(types, "to_arrow_schema", older)
    assert arrow_schema(full_schema()) == expected


@pytest.mark.parametrize(("most", "rows"), [(10**6, [10]), (520, [5, 5]), (300, [2, 2, 2, 2, 2]), (1, [1] * 10)])
def test_large_batches_are_cut(most: int, rows: list[int]) -> None:
    """R4"""
    batch = pa.record_batch({"value": pa.array([b"x" * 100] * 10, pa.binary())})
    cut = list(pieces(batch, batch.nbytes, most))
    assert [piece.num_rows for piece in cut] == rows
    assert pa.Table.from_batches(cut).equals(pa.Table.from_batches([batch]))


@pytest.mark.parametrize("value", ["flights", "", "Zürich", 7, -1, 2**31 - 1])
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_one_value_is_repeated(value: str | int, count: int) -> None:
    found = repeated(value, count)
    found.validate(full=True)
    assert found.to_pylist() == [value] * count
    assert found.type == (pa.int32() if isinstance(value, int) else pa.string())


def test_an_empty_batch_is_not_cut() -> None:
    empty = pa.record_batch({"value": pa.array([], pa.binary())})
    assert [piece.num_rows for piece in pieces(empty, 1, 0)] == [0]


def test_a_cast_gives_null_for_timestamps_that_spark_cannot_hold() -> None:
    most = (2**63 - 1) // 1000
    times = pa.array([-(2**63), -most - 1, -most, None, 0, most, most + 1, 2**63 - 1], pa.timestamp("ms", "UTC"))
    found = cast(times, pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    assert found == [None, None, -most * 1000, None, 0, most * 1000, None, None]
    with pytest.raises(pa.ArrowInvalid):
        cast(pa.array([2**40]), pa.int32())
