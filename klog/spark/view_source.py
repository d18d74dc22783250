"""Reads a view: plans on the driver which directories the tasks open, and calls view_rows.py in the tasks.

What only planning needs is imported there: each new worker of Spark imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import klog
from klog.disk import is_directory
from klog.errors import UnknownTopicOrPartition
from klog.internal_topics.names import CONSUMER_OFFSETS
from klog.spark import view_rows, views
from klog.spark.api import DataSourceReader, InputPartition
from klog.spark.bounds import TopicPartition
from klog.spark.opening import Logs, moved_to
from klog.spark.options import Options
from klog.spark.rows import arrow_schema, joined
from klog.values import replace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from klog import Log

# Headers are read much faster than records: a task of 70 ms reads those of a few GiB meanwhile.
BATCHES_TARGET_BYTES = 4 << 30
LOGS_PER_TASK = 200

_OF_LOG: dict[str, Callable[[Log, pa.Schema], pa.RecordBatch]] = {
    "partitions": view_rows.partitions,
    "segments": view_rows.segments,
    "producers": view_rows.producers,
    "transactions": view_rows.transactions,
}


class ViewReader(DataSourceReader):  # type: ignore[misc]
    """A reader of one view: like KlogReader, it shares with its tasks only what is pickled."""

    def __init__(self, view: str, options: Options, schema: StructType) -> None:
        views.check_schema(view, schema)
        self._view = view
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        from klog.spark.survey import opened, plan_partitions, select

        if self._view == "batches":
            target = self._options.target_split_bytes or BATCHES_TARGET_BYTES
            options = replace(self._options, target_split_bytes=target)
            return [InputPartition(ranges) for ranges in plan_partitions(options)]
        with opened(self._options) as logs:
            of_groups = self._view == "consumerOffsets"
            chosen = _of_groups(logs, self._options) if of_groups else select(self._options.subscription, logs)
            paths = [logs.path(pair) for pair in chosen]
        return [
            InputPartition(tuple(paths[first : first + LOGS_PER_TASK])) for first in range(0, len(paths), LOGS_PER_TASK)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        work: Any = partition.value or ()
        schema = arrow_schema(self._schema)
        if self._view == "batches":
            yield from view_rows.batches(work, schema, self._options.paths)
            return
        with ExitStack() as stack:
            rows_of: Callable[..., pa.RecordBatch] | None = _OF_LOG.get(self._view)
            if rows_of is None:
                high_watermark = _high_watermarks(self._options.paths, stack)
                rows_of = partial(view_rows.consumer_offsets, wanted=self._wants, high_watermark=high_watermark)
            found = [self._of_log(path, partial(rows_of, schema=schema)) for path in work]
            there = [batch for batch in found if batch is not None]
            if there:
                yield from joined(there)

    def _of_log(self, path: str, rows_of: Callable[[Log], pa.RecordBatch]) -> pa.RecordBatch | None:
        """The rows of a partition, which may have moved since the query was planned; None if it was deleted."""
        try:
            with klog.Log.open(path, read_only=True) as log:
                return rows_of(log)
        except (UnknownTopicOrPartition, FileNotFoundError):
            if is_directory(path):
                raise
            moved = moved_to(path, self._options.paths)
            return None if moved is None else self._of_log(moved, rows_of)

    def _wants(self, topic: str, partition: int) -> bool:
        """Does the subscription contain a partition to which an offset is committed? It need not be in the paths."""
        from klog.spark.survey import matches

        return matches(self._options.subscription, TopicPartition(topic, partition))


def _of_groups(logs: Logs, options: Options) -> list[TopicPartition]:
    """Return the partitions of __consumer_offsets. The subscription is of the topics that offsets are committed for."""
    chosen = sorted(pair for pair in logs if pair.topic == CONSUMER_OFFSETS)
    if not chosen:
        raise UnknownTopicOrPartition(
            f"view=consumerOffsets reads the topic {CONSUMER_OFFSETS}, which is not in {', '.join(options.paths)}; "
            f"give the log directory of a broker"
        )
    return chosen


def _high_watermarks(paths: Sequence[str], stack: ExitStack) -> Callable[[str, int], int | None]:
    """Return a function: the high watermark of a partition, which is opened when it is first asked for and closed with
    the stack; None if it is not in the paths."""

    @cache
    def logs() -> Logs:
        return Logs(paths, "fail", stack)

    @cache  # one for all rows of a partition
    def high_watermark(topic: str, partition: int) -> int | None:
        pair = TopicPartition(topic, partition)
        with suppress(UnknownTopicOrPartition):  # deleted since it was listed
            return int(logs()[pair].high_watermark) if pair in logs() else None
        return None

    return high_watermark
