"""The data source of format("klog"): batch reads and streaming reads. Each object lives in this process:

    planner worker     KlogSource(options), schema()            pickled, kept by the JVM
    planner worker     reader(schema), partitions()             examines the directories, once
    every task         read(partition)                          of a TaskReader, which the reader is pickled as
    one worker a query streamReader(schema): the offsets of a stream; see stream.py

Readers hold plain values (directories, options, schema): no handle, no list of segments. The value of an InputPartition
is a tuple of `plan.Range`, or None if there is nothing to read: Spark's own replacement for an empty list. task.py has
what tasks do.

KlogReader implements neither pushFilters nor pushLimit: if a reader defines one, every query fails under Spark's
default configuration (DATA_SOURCE_PUSHDOWN_DISABLED). The option pushdown chooses a class that does, so a query without
it works with every setting. Spark's own class shows which of the two methods this Spark has. writer.py has the
sinks, which have other options.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from klog.logger import logger_of
from klog.spark import options as _options
from klog.spark import views
from klog.spark.api import DataSource, DataSourceReader, InputPartition
from klog.spark.format_options import COLUMNS
from klog.spark.formats import decoder_of
from klog.spark.pushdown import push
from klog.spark.rows import check_schema, full_schema
from klog.spark.survey import absolute_directory, plan_partitions
from klog.spark.task import TaskReader
from klog.spark.view_source import ViewReader
from klog.values import replace

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from klog.decode import Decoder
    from klog.spark.stream import KlogStreamReader

logger = logger_of("spark")


class KlogSource(DataSource):  # type: ignore[misc]
    """One load(), with checked options."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._view, self._view_columns, self._given = views.take(options)
        parsed = _options.parse(self._given, query=None)
        # Relative paths are completed here, on the driver's host.
        self._places: dict[str, Any] = {
            "paths": tuple(dict.fromkeys(map(absolute_directory, parsed.paths))),
            "checkpoint": parsed.checkpoint and os.path.abspath(parsed.checkpoint),
        }
        if parsed.formats.schemas is not None:
            self._places["formats"] = replace(parsed.formats, schemas=os.path.abspath(parsed.formats.schemas))
        self._decoders: dict[str, Decoder | None] = {}
        self._columns = parsed.columns
        if parsed.ignored:
            logger.warning('format("klog") ignores options of a Kafka client: %s', ", ".join(parsed.ignored))

    @classmethod
    def name(cls) -> str:
        return "klog"

    def schema(self) -> StructType:
        from pyspark.sql.types import StructType

        names = self._columns if self._view == views.RECORDS else self._view_columns
        full = self.full_schema(names)
        return StructType([full[name] for name in names])

    def full_schema(self, names: Collection[str]) -> StructType:
        """Return all columns of the view, or of the records: those of `names` as this query decodes them."""
        return views.full_schema(self._view) if self._view != views.RECORDS else full_schema(self._decoded(names))

    def reader(self, schema: StructType) -> KlogReader | ViewReader:
        if self._view != views.RECORDS:
            return ViewReader(self._view, self._parsed("batch"), schema)
        options = self._checked("batch", schema)
        return reader_class(options.pushdown)(options, schema)

    def streamReader(self, schema: StructType) -> KlogStreamReader:  # noqa: N802  Spark's name
        from klog.spark.stream import KlogStreamReader  # a batch query does not need it

        if self._view != views.RECORDS:
            raise ValueError(
                f"option 'view' = {self._view!r}: a stream reads records; leave out the option, or use spark.read"
            )
        return KlogStreamReader(self._checked("stream", schema), schema)

    def _parsed(self, query: _options.Query | None) -> _options.Options:
        return replace(_options.parse(self._given, query), **self._places)

    def _checked(self, query: _options.Query, schema: StructType) -> _options.Options:
        """The options of a query for records, with what its schema asks for."""
        check_schema(schema, self._decoded(schema.names))
        options = self._parsed(query)
        if options.reading.on_corrupt == "emit" and "crcValid" not in schema.names:
            raise ValueError(
                "option 'onCorrupt' = 'emit' needs the column crcValid, which distinguishes the rows of corrupt "
                "batches from records: add .option('metadataColumns', 'crcValid'), or use onCorrupt=skipBatch"
            )
        reading = replace(
            options.reading,
            include_control="isControl" in schema.names,
            decoders={name: decoder for name, decoder in self._decoders.items() if decoder and name in schema.names},
            null_bad_values=options.formats.null_bad_values,
            log_dirs=options.paths,
            in_stream=query == "stream",
        )
        return replace(options, reading=reading)

    def _decoded(self, names: Collection[str]) -> dict[str, Any]:
        """The types of those columns that are decoded. Schemas are resolved once: this source is pickled with them."""
        for name in COLUMNS:
            if name in names and name not in self._decoders:
                self._decoders[name] = decoder_of(name, self._parsed(None))
        return {name: decoder.type for name, decoder in self._decoders.items() if decoder and name in names}


class KlogReader(TaskReader):
    """Plans in partitions(); read() runs in tasks, which get a TaskReader."""

    def __init__(self, options: _options.Options, schema: StructType) -> None:
        super().__init__(schema, options.reading)
        self._options = options
        self._filtered_later = False

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(ranges) for ranges in plan_partitions(self._options, self._pushed)]


class _PushesFilters(KlogReader):
    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802  Spark's name
        # The row of a corrupt batch has the offset at which a reader met it, which depends on where it began.
        offsets = self._reading.on_corrupt != "emit"
        # Producers have partitioned by the stored bytes, which a decoder may turn into others.
        keys = "keys" in self._options.pushdown and "key" not in self._reading.decoders
        self._pushed, residual = push(filters, self._pushed, offsets=offsets, keys=keys)
        return residual


class _PushesLimit(KlogReader):
    def pushLimit(self, limit: int) -> bool:  # noqa: N802
        self._pushed = replace(self._pushed, limit=limit)
        return True


class _PushesBoth(_PushesFilters, _PushesLimit):
    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802
        residual = list(super().pushFilters(filters))
        self._filtered_later = bool(residual)
        return residual

    def pushLimit(self, limit: int) -> bool:  # noqa: N802
        # Rows that Spark filters out do not count. Spark before filters pushes no limit then; klog does not rely on it.
        return not self._filtered_later and super().pushLimit(limit)


_CLASSES: dict[frozenset[str], type[KlogReader]] = {
    frozenset(): KlogReader,
    frozenset({"filters"}): _PushesFilters,
    frozenset({"limit"}): _PushesLimit,
    frozenset({"filters", "limit"}): _PushesBoth,
}
_METHODS = {"filters": "pushFilters", "limit": "pushLimit"}
_SHARED = {"keys": "filters"}


def reader_class(pushdown: Iterable[str]) -> type[KlogReader]:
    """Return the class of a reader that takes filters or limits from Spark. Raises ValueError if this Spark has none to
    give."""
    wanted = {_SHARED.get(what, what) for what in pushdown}
    for what in sorted(wanted):
        if not hasattr(DataSourceReader, _METHODS[what]):
            raise ValueError(
                f"option 'pushdown' asks for {what}, but this version of Spark has no "
                f"DataSourceReader.{_METHODS[what]}; leave it out, and bound the query by startingOffsets, "
                f"startingTimestamp and the like"
            )
    return _CLASSES[frozenset(wanted)]
