"""Converts columns of klog.record to the rows of Spark's Kafka source, as Arrow batches of one exact schema.

    key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int
    [, headers array<struct<key:string,value:binary>>] [, columns of METADATA]               all of them nullable

  R1  Each batch of a read has the same Arrow schema, the one that Spark derives from the query's schema: names, order,
      types, nullability. Spark checks only the first batch. klog.record makes columns of these types.
  R2  Only the columns of the query's schema are decoded.
  R3  A record without a timestamp (−1) has a null timestamp, and so has one whose timestamp Spark cannot hold: Spark's
      are microseconds, which end at 2⁶³ ÷ 1000 milliseconds (the year 294247). A record without headers has null
      headers, as in Spark's Kafka source (KafkaRecordToRowConverter), not an empty list.
  R4  A batch has at most about PIECE_BYTES, or one row: Spark's workers and JVM hold whole batches, and a column of one
      has less than 2 GiB.

klog.record does the work on rows, in C; metadata are the same for a whole record batch (metadata.py).
"""

from __future__ import annotations

import inspect
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from klog.spark import metadata

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from klog.record import RecordBatch

BAD_VALUE = "badValue"  # why a key or value is bad: decoded.py
METADATA = (*metadata.TYPES, BAD_VALUE)
_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
    **metadata.TYPES,
    BAD_VALUE: "string",
}
NAMES = tuple(_TYPES)
PLAIN = NAMES[:7]
PIECE_BYTES = 16 << 20
_TIME_MS_MAX = ((1 << 63) - 1) // 1000

# Spark's column → the column of klog.record; the others come from record batches.
_FIELDS = {
    "key": "key",
    "value": "value",
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
    "leaderEpoch": "leader_epoch",
}


Decoded = Mapping[str, "pa.DataType"]
"""The types of the columns key and value that are decoded (decoded.py); the others are binary."""


def full_schema(decoded: Decoded | None = None) -> StructType:
    """Return all columns that a query's schema may have, in order."""
    from pyspark.sql.types import StructField, StructType

    types = {name: _spark_type(kind) for name, kind in (decoded or {}).items()}
    return StructType([StructField(each.name, types.get(each.name, each.dataType)) for each in struct_of(_TYPES)])


def struct_of(columns: Mapping[str, str]) -> StructType:
    """Return the schema of columns {name: type}, all nullable.

    Spark's own parser of such text needs a session, and reads "timestamp" as spark.sql.timestampType says.
    """
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(name, _type_of(text)) for name, text in columns.items()])


def _type_of(text: str) -> DataType:
    from pyspark.sql import types as t

    if text.startswith("array<struct<"):
        fields = text.removeprefix("array<struct<").removesuffix(">>").split(",")
        return t.ArrayType(struct_of(dict(field.split(":") for field in fields)))
    simple: dict[str, type[DataType]] = {
        "binary": t.BinaryType,
        "string": t.StringType,
        "int": t.IntegerType,
        "bigint": t.LongType,
        "smallint": t.ShortType,
        "boolean": t.BooleanType,
        "timestamp": t.TimestampType,
    }
    return simple[text]()


def _spark_type(kind: pa.DataType) -> DataType:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def check_schema(schema: StructType, decoded: Decoded | None = None) -> None:
    """Raise ValueError for a column that klog does not have, or has with another type, or that may be null."""
    check_columns(schema, full_schema(decoded), "klog")


def check_columns(schema: StructType, full: StructType, source: str) -> None:
    """The same for a source with these columns, whose name is for messages."""
    known = {column.name: column.dataType for column in full.fields}
    listing = ", ".join(f"{name} {kind.simpleString()}" for name, kind in known.items())
    if not schema.fields:
        raise ValueError(f"the schema has no columns; {source} has: {listing}")
    for number, column in enumerate(schema.fields):
        if column.name not in known:
            raise ValueError(f"{source} has no column '{column.name}'; it has: {listing}")
        if column.name in schema.names[:number]:
            raise ValueError(f"the schema names column '{column.name}' twice")
        if column.dataType != known[column.name]:
            wanted, has = column.dataType.simpleString(), known[column.name].simpleString()
            raise ValueError(f"column '{column.name}' is {has}, not {wanted}: read it as {has}, then cast in the query")
        if not column.nullable:
            raise ValueError(f"column '{column.name}' is nullable: leave NOT NULL out of the schema")


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark checks the batches of a query against (R1), by Spark's own function."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # Older versions of Spark do not take the zone: there it is UTC.
    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, timezone="UTC") if takes_zone else to_arrow_schema(schema)


class RowShaper:
    """Converts the Columns of one range to batches of `schema` (R1). For one task; not shared."""

    def __init__(self, schema: pa.Schema, topic: str, partition: int) -> None:
        self._schema = schema
        self._origin = topic, partition
        self._metadata = [name for name in schema.names if name in METADATA and name not in _FIELDS]
        wanted = [_FIELDS[name] for name in schema.names if name in _FIELDS]
        # Offsets determine the record batch of a row.
        missing = ["offset"] if "offset" not in wanted and self._metadata else []
        self.request: dict[str, Any] = {"fields": (*wanted, *missing), "origin": self._origin, "spark": True}
        """What to ask klog.record.columns() for (R2)."""

    @property
    def needs_batches(self) -> bool:
        """Are the record batches of the columns needed, too?"""
        return bool(self._metadata)

    def batch(self, columns: Any, batches: Sequence[RecordBatch] = (), origin: metadata.Origin | None = None) -> Any:
        """Convert columns: an object with __arrow_c_array__ and the columns of `self.request`.

        batches, origin: the record batches that the columns were decoded from, and where those are stored; for columns
        of METADATA.
        """
        import pyarrow as pa

        decoded = pa.record_batch(columns)
        if decoded.schema == self._schema:
            return decoded
        found: dict[str, pa.Array] = {}
        if self._metadata:
            assert origin is not None
            found = metadata.columns(self._metadata, batches, decoded.column("offset"), origin, self._schema)
        arrays = [found[name] if name in found else decoded.column(name) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def corrupt_row(self, offset: int, position: int | None, segment: str) -> pa.RecordBatch:
        """Return the row of a record batch that cannot be read: crcValid is false, and nothing else is known."""
        import pyarrow as pa

        topic, partition = self._origin
        known = {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "batchPosition": position,
            "segment": segment,
            "crcValid": False,
        }
        arrays = [pa.array([known.get(field.name)], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def pieces(batch: pa.RecordBatch, size: int, most: int = PIECE_BYTES) -> Iterator[pa.RecordBatch]:
    """Cut a batch of `size` bytes into slices of about `most` bytes if it has more (R4)."""
    if size > most and batch.num_rows:
        rows = max(1, batch.num_rows * most // size)
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)
    else:
        yield batch


def repeated(value: str | int, count: int) -> pa.Array:
    """Return a text, or a number as int32, so many times; a pa.scalar() would load pandas, which takes 0.1 s."""
    import pyarrow as pa

    if isinstance(value, int):
        return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(array("i", [value]) * count)])
    text = value.encode()
    offsets = array("i", (number * len(text) for number in range(count + 1)))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text * count)])


def joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the same rows in one batch, or in more where a column exceeds 2 GiB, the limit of Arrow's strings."""
    if len(batches) == 1:
        return batches
    import pyarrow as pa

    made: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return made


def cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the array with a type of Spark; a time that Spark cannot hold (R3) is null."""
    import pyarrow as pa

    if array.type.equals(kind):
        return array
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        if not pa.types.is_timestamp(kind):
            raise
        import pyarrow.compute as pc

        times = array.cast(pa.int64())
        fits = pc.and_(pc.less_equal(times, _TIME_MS_MAX), pc.greater_equal(times, -_TIME_MS_MAX))
        return pc.if_else(fits, array, pa.scalar(None, array.type)).cast(kind)
