"""The data source of format("klog"): batch reads. Each object lives in this process:

    planner worker     KlogSource(options), schema()            pickled, kept by the JVM
    planner worker     reader(schema), partitions()             examines the directories, once
    every task         reader unpickled, read(partition)

Readers hold plain values (directories, options, schema): no handle, no list of segments. The value of an InputPartition
is a tuple of `plan.Range`, or None if there is nothing to read: Spark's own replacement for an empty list.

pushFilters is not implemented: if a reader defines it, every query fails under Spark's default configuration
(DATA_SOURCE_PUSHDOWN_DISABLED). There is no writer and no stream: these methods are absent, so Spark raises the error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from klog.spark import options as _options
from klog.spark.read import read_ranges
from klog.spark.rows import arrow_schema, check_schema, schema_ddl
from klog.spark.survey import absolute_directory, plan_partitions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

logger = logging.getLogger("klog.spark")


class KlogSource(DataSource):  # type: ignore[misc]
    """One load(), with checked options."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        parsed = _options.parse(options)
        self._options = replace(parsed, paths=tuple(dict.fromkeys(map(absolute_directory, parsed.paths))))
        if parsed.ignored:
            logger.warning('format("klog") ignores options of a Kafka client: %s', ", ".join(parsed.ignored))

    @classmethod
    def name(cls) -> str:
        return "klog"

    def schema(self) -> str:
        return schema_ddl(self._options.include_headers)

    def reader(self, schema: StructType) -> KlogReader:
        check_schema(schema)
        return KlogReader(self._options, schema)


class KlogReader(DataSourceReader):  # type: ignore[misc]
    """Plans in partitions(), reads in read(): in two processes, which share only what is pickled."""

    def __init__(self, options: _options.Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(ranges) for ranges in plan_partitions(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_ranges(partition.value or (), arrow_schema(self._schema))
