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
    _check_pyspark()
    from klog.spark.source import KlogSource

    given = {name: _text(value) for name, value in options.items()}
    for name in given:
        if name.lower() in ("path", "paths", "columns"):
            raise ValueError(f"option '{name}' is an argument of scan(): give it by that name alone")
    source = KlogSource({"parallelism": _parallelism(spark), **given, **_paths(path)})
    if columns is None:
        schema = spark.createDataFrame([], source.schema()).schema
    else:
        names = [columns] if isinstance(columns, str) else list(columns)
        schema = _chosen(source.full_schema(names), names)
    reader = source.reader(schema)
    planned = reader.partitions()
    numbers = spark.range(0, len(planned), 1, max(len(planned), 1))
    return numbers.mapInArrow(_task(reader.read, planned), schema)


def _parallelism(spark: SparkSession) -> str:
    try:
        return str(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context
        return str(os.cpu_count() or 1)


def _task(read: Callable[[Any], Iterator[pa.RecordBatch]], planned: Sequence[Any]) -> Callable[[Any], Any]:
    """Return the function of the tasks: a row of its input is the number of a partition."""

    def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read(planned[number])

    return task


def _chosen(full: StructType, names: Sequence[str]) -> StructType:
    from pyspark.sql.types import StructType

    for name in names:
        if name not in full.names:
            raise ValueError(f"columns has {name!r}, which is unknown; use some of {', '.join(full.names)}")
    return StructType([full[name] for name in names])


def _paths(path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> dict[str, str]:
    if isinstance(path, str | os.PathLike):
        return {"path": os.fspath(path)}
    return {"paths": json.dumps([os.fspath(each) for each in path])}


def _text(value: object) -> str:
    """Return the text that an option has in Spark."""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, dict | list | tuple) else str(value)


def _check_pyspark() -> None:
    for module in ("pyspark.sql", "pyarrow"):
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ImportError(
                f"{module} cannot be imported ({error}): pip install 'klog[spark]'", name=error.name
            ) from error
