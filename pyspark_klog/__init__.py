"""Lets Spark find format("klog"): Spark imports all modules named pyspark_* and uses their DefaultSource.

  H1  Importing this module never fails. If one pyspark_* module raises, Spark hides all Python sources of the session:
      users would get DATA_SOURCE_NOT_FOUND for formats that have nothing to do with klog.
  H2  It loads neither klog nor pyarrow: the look-up runs in every session, also in those that do not use klog.

So errors are raised only when a DataFrame uses the source, with the remedy in the message.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType
else:
    try:
        from pyspark.sql.datasource import DataSource
    except Exception:  # H1: no pyspark, one from before 4.0, or a broken one
        DataSource = object


class DefaultSource(DataSource):  # type: ignore[misc]
    """format("klog"): creates klog.spark.source.KlogSource when Spark uses it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options
        _source_class()

    @cached_property
    def _source(self) -> Any:
        """What reads; a write has other options."""
        return _source_class()(self.options)

    def _sink(self) -> Any:
        from klog.spark.writer import KlogSink

        return KlogSink(self.options)

    @classmethod
    def name(cls) -> str:
        return "klog"

    def schema(self) -> StructType:
        return self._source.schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return self._source.reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        return self._source.streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return self._sink().writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  Spark's name
        return self._sink().stream_writer(schema, overwrite)


def _source_class() -> Any:
    try:
        import pyarrow  # noqa: F401  imported here so that the message below covers it

        from klog.spark.source import KlogSource
    except Exception as error:
        raise ImportError(
            f"format('klog') was found, but klog does not load in Spark's Python ({sys.executable}): "
            f"{type(error).__name__}: {error}. Install it there with: {sys.executable} -m pip install 'klog[spark]'; "
            f"or start Spark with PYSPARK_PYTHON set to a Python that has it"
        ) from error
    return KlogSource
