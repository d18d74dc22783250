"""klog.spark.write: a batch write with rows brought together by partition and sorted, which Spark does for no Python
source by itself (partitionBy is refused, a required distribution cannot be stated).

A task then writes one large file for its partitions instead of a small one for each, and the rows of each partition
have the order of `sort`. Without it a write keeps the order of the DataFrame inside each task, and that of the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from klog.arguments import chosen, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Mode = Literal["append", "overwrite"]


def write(
    df: DataFrame,
    path: str,
    *,
    topic: str | None = None,
    mode: Mode = "append",
    sort: str | Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
    **more: object,
) -> None:
    """Write a DataFrame to a log directory, all rows or none, each partition's rows by one task and in order.

    df: columns value and optionally key, headers, topic, partition, timestamp. topic: that of every row. mode:
    "overwrite" deletes the topic's records. sort: columns to sort the rows of each partition by; None: timestamp, if
    there is one. options: those of format("klog"), such as {"partitions": 6, "compression.type": "lz4"}; keywords are
    added to them.

    Raises ValueError for a column or option that is not known; what Spark raises for a job that failed.
    """
    chosen("mode", mode, ("append", "overwrite"))
    given = {name: _text(value) for name, value in {**(options or {}), **more}.items()}
    if topic is not None:
        given["topic"] = text("topic", topic)
    by = [sort] if isinstance(sort, str) else list(sort) if sort is not None else ["timestamp"]
    if sort is None and "timestamp" not in df.columns:
        by = []
    shaped = arranged(df, {**given, "path": str(path)}, by)
    shaped.write.format("klog").options(**given).mode(mode).save(str(path))


def arranged(df: DataFrame, given: Mapping[str, str], by: Sequence[str]) -> DataFrame:
    """The rows with their partition, brought together by it and sorted. given: the options of the write."""
    from klog.spark.sink_options import check_columns, parse
    from klog.spark.sink_plan import plan_sink

    options = parse(given)
    check_columns(df.schema, options.topic)
    plan = plan_sink(options, overwrite=False)
    by_key = "key" in df.columns
    if not by_key and "partition" not in df.columns:
        return df.sortWithinPartitions(*by) if by else df
    numbered = _numbered(df, plan) if by_key else df
    together = [name for name in ("topic", "partition") if name in numbered.columns]
    return numbered.repartition(*together).sortWithinPartitions(*together, *by)


def _numbered(df: DataFrame, plan: Any) -> DataFrame:
    """The rows with a column partition: as given, else by the key. Rows without both keep null."""
    from pyspark.sql.types import IntegerType, StructField, StructType

    fields = [field for field in df.schema.fields if field.name != "partition"]
    schema = StructType([*fields, StructField("partition", IntegerType())])

    def number(batches: Iterator[Any]) -> Iterator[Any]:
        from klog.spark.sink_rows import numbered

        for batch in batches:
            yield numbered(batch, plan, schema.names)

    return df.mapInArrow(number, schema)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
