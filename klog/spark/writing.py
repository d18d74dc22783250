"""klog.spark.write: a batch write with rows brought together by partition and sorted, which Spark does for no Python
source by itself (partitionBy is refused, a required distribution cannot be stated).

A task then writes one large file for its partitions instead of a small one for each, and the rows of each partition
have the order of `sort`; a row without a key then goes to the partition of its value. Without `sort` a write keeps the
order of the DataFrame inside each task, and that of the tasks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from klog.arguments import chosen, text
from klog.arguments import path as path_argument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Mode = Literal["append", "overwrite"]


def write(
    df: DataFrame,
    path: str | os.PathLike[str],
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
    from klog.spark.sink_options import absolute_path

    chosen("mode", mode, ("append", "overwrite"))
    given = {name: _text(value) for name, value in {**(options or {}), **more}.items()}
    if topic is not None:
        given["topic"] = text("topic", topic)
    by = [sort] if isinstance(sort, str) else list(sort) if sort is not None else ["timestamp"]
    if sort is None and "timestamp" not in df.columns:
        by = []
    where = absolute_path(path_argument("path", path))  # as this process resolves it: Spark may have begun elsewhere
    shaped = arranged(df, {**given, "path": where}, by)
    shaped.write.format("klog").options(**given).mode(mode).save(where)


def arranged(df: DataFrame, given: Mapping[str, str], by: Sequence[str]) -> DataFrame:
    """The rows with their partition, brought together by it and sorted. given: the options of the write."""
    from klog.spark.sink_options import check_columns, parse
    from klog.spark.sink_plan import plan_sink

    options = parse(given)
    check_columns(df.schema, options.topic)
    plan = plan_sink(options, overwrite=False)
    if not by and "key" not in df.columns and "partition" not in df.columns:
        return df
    numbered = _numbered(df, plan, every=bool(by)) if by or "key" in df.columns else df
    together = ["partition"] if options.topic is not None else ["topic", "partition"]
    return numbered.repartition(*together).sortWithinPartitions(*together, *by)


def _numbered(df: DataFrame, plan: Any, *, every: bool) -> DataFrame:
    """The rows with a column partition: as given, else by the key. Rows without both keep null, unless `every` row must
    have one."""
    from pyspark.sql.types import IntegerType, StructField, StructType

    fields = [field for field in df.schema.fields if field.name != "partition"]
    schema = StructType([*fields, StructField("partition", IntegerType())])

    def number(batches: Iterator[Any]) -> Iterator[Any]:
        from klog.spark.sink_rows import numbered

        for batch in batches:
            yield numbered(batch, plan, schema.names, every=every)

    return df.mapInArrow(number, schema)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
