"""Reads a view: plans on the driver which directories the tasks open, and calls view_rows.py in the tasks.

What only planning needs is imported there: each new worker of Spark imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import klog
from klog.errors import UnknownTopicOrPartition
from klog.spark import view_rows, views
from klog.spark.api import DataSourceReader, InputPartition
from klog.spark.bounds import TopicPartition
from klog.spark.options import Options, Subscription
from klog.spark.rows import arrow_schema
from klog.values import NamedTuple, replace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from klog import Log

# Headers are read much faster than records: a task of 70 ms reads those of a few GiB meanwhile.
BATCHES_TARGET_BYTES = 4 << 30
LOGS_PER_TASK = 200

_OF_LOGS: dict[str, Callable[[Sequence[Log], pa.Schema], Iterator[pa.RecordBatch]]] = {
    "partitions": view_rows.partitions,
    "segments": view_rows.segments,
    "producers": view_rows.producers,
    "transactions": view_rows.transactions,
}


class Groups(NamedTuple):
    """The work of a task of view=consumerOffsets: partitions of __consumer_offsets, and the high watermarks of the
    topic-partitions in the paths."""

    paths: tuple[str, ...]
    high_watermarks: dict[tuple[str, int], int]


class ViewReader(DataSourceReader):  # type: ignore[misc]
    """A reader of one view: like KlogReader, it shares with its tasks only what is pickled."""

    def __init__(self, view: str, options: Options, schema: StructType) -> None:
        views.check_schema(view, schema)
        self._view = view
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        from klog.spark.survey import chosen_logs, plan_partitions

        if self._view == "batches":
            target = self._options.target_split_bytes or BATCHES_TARGET_BYTES
            options = replace(self._options, target_split_bytes=target)
            return [InputPartition(ranges) for ranges in plan_partitions(options)]
        with ExitStack() as stack:
            if self._view == "consumerOffsets":
                return [InputPartition(work) for work in _groups(self._options, stack)]
            paths = [log.path for log in chosen_logs(self._options, stack)]
        return [InputPartition(part) for part in _parts(paths)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        work: Any = partition.value or ()
        schema = arrow_schema(self._schema)
        if self._view == "batches":
            yield from view_rows.batches(work, schema)
            return
        with ExitStack() as stack:
            paths = work.paths if isinstance(work, Groups) else work
            logs = [stack.enter_context(klog.Log.open(path, read_only=True)) for path in paths]
            if isinstance(work, Groups):
                yield from view_rows.consumer_offsets(logs, self._wants, work.high_watermarks, schema)
            else:
                yield from _OF_LOGS[self._view](logs, schema)

    def _wants(self, topic: str, partition: int) -> bool:
        """Does the subscription contain a partition to which an offset is committed? It need not be in the paths."""
        from klog.spark.survey import matches

        return matches(self._options.subscription, TopicPartition(topic, partition))


def _parts(paths: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(paths[first : first + LOGS_PER_TASK]) for first in range(0, len(paths), LOGS_PER_TASK)]


def _groups(options: Options, stack: ExitStack) -> list[Groups]:
    from klog.spark.committed import TOPIC
    from klog.spark.survey import chosen_logs

    every = chosen_logs(replace(options, subscription=Subscription()), stack)
    paths = [log.path for log in every if log.topic == TOPIC]
    if not paths:
        raise UnknownTopicOrPartition(
            f"view=consumerOffsets reads the topic {TOPIC}, which is not in {', '.join(options.paths)}; "
            f"give the log directory of a broker"
        )
    high_watermarks = {(log.topic, log.partition): log.high_watermark for log in every}
    return [Groups(part, high_watermarks) for part in _parts(paths)]
