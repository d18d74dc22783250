"""klog.spark.scan: the rows of format("klog") by another route, mapInArrow, for Spark 3.5 and for runtimes without the
Python data source API.

The driver plans in this process, with the source and the reader of format("klog"); so options, errors, planning and
rows are the same. Each Spark task gets the reader and the partitions, and reads the one of its number.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from klog import extras

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def scan(
    spark: SparkSession,
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    columns: str | Iterable[str] | None = None,
    **options: object,
) -> DataFrame:
    """Return a DataFrame of the rows that format("klog") reads from a path, or several, without the data source API.

    columns: their names in order, all of the view's (or of the records') if None. options: those of format("klog") by
    keyword; booleans, numbers, and dictionaries or lists for JSON are converted to text. The ranges are planned now.

        klog.spark.scan(spark, "data", columns=["key", "offset"], subscribe="flights", startingOffsets="earliest")
        klog.spark.scan(spark, "data", view="batches").where("not isControl").agg({"recordCount": "sum"})

    Raises ValueError for a wrong option, UnknownTopicOrPartition, and ImportError without pyspark and pyarrow.
    """
    check_pyspark()
    from klog.spark.source import KlogSource

    given = {name: option_text(value) for name, value in options.items()}
    for name in given:
        if name.lower() in ("path", "paths", "columns"):
            raise ValueError(f"option '{name}' is an argument of scan(): give it by that name alone")
    source = KlogSource({"parallelism": parallelism_of(spark), **given, **path_options(path)})
    if columns is None:
        schema = source.schema()
    else:
        names = [columns] if isinstance(columns, str) else list(columns)
        schema = _chosen(source.full_schema(names), names)
    reader = source.reader(schema)
    return read_in_tasks(spark, reader, [each.value for each in reader.partitions()], schema)


def read_in_tasks(spark: SparkSession, reader: Any, planned: Sequence[Any], schema: StructType) -> DataFrame:
    """Return the rows of the partitions of a reader of format("klog") that have these values, each read by a task."""
    from klog.spark.api import InputPartition

    def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from reader.read(InputPartition(planned[number]))

    return in_tasks(spark, task, len(planned), schema)


def in_tasks(spark: SparkSession, task: Callable[[Any], Any], count: int, schema: StructType | str) -> DataFrame:
    """Return a DataFrame of what `count` tasks return: each gets its number, as a row of its Arrow batches."""
    return spark.range(0, count, 1, max(count, 1)).mapInArrow(task, schema)


def parallelism_of(spark: SparkSession) -> str:
    """Return how many tasks of a session run at the same time, as text."""
    try:
        return str(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context
        return str(os.cpu_count() or 1)


def _chosen(full: StructType, names: Sequence[str]) -> StructType:
    from pyspark.sql.types import StructType

    for name in names:
        if name not in full.names:
            raise ValueError(f"columns has {name!r}, which is unknown; use some of {', '.join(full.names)}")
    return StructType([full[name] for name in names])


def path_options(path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> dict[str, str]:
    """Return the option for a path or several."""
    if isinstance(path, str | os.PathLike):
        return {"path": os.fspath(path)}
    return {"paths": json.dumps([os.fspath(each) for each in path])}


def option_text(value: object) -> str:
    """Return the text that an option has in Spark: names with commas between them, JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    return json.dumps(value) if isinstance(value, dict | list | tuple) else str(value)


def check_pyspark() -> None:
    """Raise ImportError, which names what to install, without pyspark and pyarrow."""
    for module in ("pyspark.sql", "pyarrow"):
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise extras.missing("klog.spark", module, "spark", error) from error
