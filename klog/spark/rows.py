"""Converts columns of klog.record to the rows of Spark's Kafka source, as Arrow batches of one exact schema.

    key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int
    [, headers array<struct<key:string,value:binary>>]                                     all of them nullable

  R1  Each batch of a read has the same Arrow schema, the one that Spark derives from the query's schema: names, order,
      types, nullability. Spark checks only the first batch.
  R2  Only the columns of the query's schema are decoded.
  R3  A record without a timestamp (−1) has a null timestamp; a record without headers has null headers, as in Spark's
      Kafka source (KafkaRecordToRowConverter), not an empty list.

pyarrow does the work on rows, in C. topic and partition are the same for a whole range, so they are built once and
sliced.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_PLAIN = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
_HEADERS = "headers array<struct<key:string,value:binary>>"

# Spark's column → the column of klog.record; topic and partition come from the range.
_FIELDS = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
}
_CONSTANT = ("topic", "partition")


def schema_ddl(include_headers: bool) -> str:
    """Return the result of schema(): text, since the parser of a StructType needs a session and a planner has none."""
    return f"{_PLAIN}, {_HEADERS}" if include_headers else _PLAIN


def full_schema() -> StructType:
    """Return all columns that a query's schema may have, in order."""
    from pyspark.sql import types as t

    header = t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())])
    return t.StructType(
        [
            t.StructField("key", t.BinaryType()),
            t.StructField("value", t.BinaryType()),
            t.StructField("topic", t.StringType()),
            t.StructField("partition", t.IntegerType()),
            t.StructField("offset", t.LongType()),
            t.StructField("timestamp", t.TimestampType()),
            t.StructField("timestampType", t.IntegerType()),
            t.StructField("headers", t.ArrayType(header)),
        ]
    )


def check_schema(schema: StructType) -> None:
    """Raise ValueError for a column that klog does not have, or has with another type, or that may be null."""
    known = {column.name: column for column in full_schema().fields}
    listing = f"{_PLAIN}, {_HEADERS}"
    if not schema.fields:
        raise ValueError(f"the schema has no columns; klog has: {listing}")
    seen = set()
    for column in schema.fields:
        mine = known.get(column.name)
        if mine is None:
            raise ValueError(f"klog has no column '{column.name}'; it has: {listing}")
        if column.name in seen:
            raise ValueError(f"the schema names column '{column.name}' twice")
        seen.add(column.name)
        if column.dataType != mine.dataType:
            wanted, has = column.dataType.simpleString(), mine.dataType.simpleString()
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
        self._constants: dict[str, Any] = {"topic": topic, "partition": partition}
        self._made: dict[str, pa.Array] = {}
        wanted = [_FIELDS[name] for name in schema.names if name in _FIELDS]
        self.fields: tuple[str, ...] = tuple(wanted or ["offset"])  # one column is needed to count the rows
        """The columns to decode (R2)."""

    def batch(self, columns: Any) -> pa.RecordBatch:
        """Convert columns: an object with __arrow_c_array__ and the columns `self.fields`."""
        import pyarrow as pa

        decoded = pa.record_batch(columns)
        arrays = [
            self._constant(field, decoded.num_rows)
            if field.name in _CONSTANT
            else _shape(decoded.column(_FIELDS[field.name]), field)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, field: pa.Field, count: int) -> pa.Array:
        made = self._made.get(field.name)
        if made is None or len(made) < count:
            import pyarrow as pa

            made = pa.repeat(pa.scalar(self._constants[field.name], field.type), count)
            self._made[field.name] = made
        return made.slice(0, count)


def _shape(array: pa.Array, field: pa.Field) -> pa.Array:
    if field.name == "headers":
        array = _null_where_empty(array)
    return array if array.type.equals(field.type) else array.cast(field.type)


def _null_where_empty(lists: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    empty = pc.equal(pc.list_value_length(lists), 0)
    if not pc.any(empty).as_py():
        return lists
    # if_else leaves the child values in place and only writes the lists again.
    return pc.if_else(empty, pa.scalar(None, lists.type), lists)
