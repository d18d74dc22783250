"""Routes the rows of a task to partitions, and stages them: Arrow columns throughout.

A row goes to its column `partition`; if that is null, to the partition of its key, by murmur2 as the Java producer.
Rows without a key stay together, those gathered at a time in one partition. Rows are gathered up to GATHER_BYTES a
partition, so that batches are large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from klog.errors import InvalidRecord
from klog.log.staged.writing import StagedWriter
from klog.manager.partitioner import shares, targets
from klog.spark.rows import joined
from klog.spark.sink_plan import SinkPlan, Target

if TYPE_CHECKING:
    import pyarrow as pa

GATHER_BYTES = 1 << 20
GATHER_MAX_BYTES = 64 << 20
_RECORD = ("key", "value", "timestamp", "headers")


class RowRouter:
    """The rows of one attempt of a task. open_writer: called with the first rows."""

    def __init__(self, plan: SinkPlan, seed: int, open_writer: Callable[[], StagedWriter]) -> None:
        self._plan = plan
        self._sticky = seed
        self._open_writer = open_writer
        self._writer: StagedWriter | None = None
        self.used: dict[str, Target] = {}

    def stage(self, batches: Iterable[pa.RecordBatch]) -> list[Any]:
        """Stage all rows. Returns the files."""
        try:
            for batch in _gathered(batches, self._gather_bytes):
                self._route(batch)
            return [] if self._writer is None else self._writer.finish()
        finally:
            if self._writer is not None:
                self._writer.close()

    def _gather_bytes(self) -> int:
        most = max([target.plan.partitions for target in self.used.values()], default=1)
        return min(GATHER_BYTES * most, GATHER_MAX_BYTES)

    def _route(self, batch: pa.RecordBatch) -> None:
        for topic, rows in self._by_topic(batch):
            target = self.used.get(topic)
            if target is None:
                target = self.used[topic] = self._plan.target(topic)
            self._sticky += 1
            sticky = self._sticky % target.plan.partitions
            records = rows.select([name for name in _RECORD if name in rows.schema.names])
            if "partition" not in rows.schema.names:
                for partition, share in enumerate(shares(records, target.plan.partitions, sticky)):
                    if share is not None:
                        self._append(topic, partition, share, target)
                continue
            for partition, some in _by_partition(topic, rows, records, target, sticky):
                self._append(topic, partition, some, target)

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        topic = self._plan.options.topic
        if topic is not None:
            yield topic, batch
            return
        import pyarrow.compute as pc

        column = batch.column("topic")
        if column.null_count:
            raise InvalidRecord("a row has null in the column topic: fill it, or set the option 'topic'")
        for name in column.unique().to_pylist():
            yield name, batch if len(batch) == 1 else batch.filter(pc.equal(column, name))

    def _append(self, topic: str, partition: int, records: Any, target: Target) -> None:
        if self._writer is None:
            self._writer = self._open_writer()
        self._writer.append(topic, partition, records, target.config, self._plan.options.codec)


def _gathered(batches: Iterable[pa.RecordBatch], bytes_max: Callable[[], int]) -> Iterator[pa.RecordBatch]:
    """The rows in fewer, larger batches."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if size >= bytes_max():
            yield from joined(waiting)
            waiting, size = [], 0
    if waiting:
        yield from joined(waiting)


def _by_partition(
    topic: str, rows: pa.RecordBatch, records: pa.RecordBatch, target: Target, sticky: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The records of each partition, in their order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count = target.plan.partitions
    chosen = rows.column("partition").cast(pa.int32())
    if chosen.null_count:
        chosen = pc.coalesce(chosen, _computed(records, count, sticky))
    lowest, highest = pc.min_max(chosen).values()
    low, high = lowest.as_py(), highest.as_py()
    if low < 0 or high >= count:
        raise InvalidRecord(
            f"the column partition has {low if low < 0 else high}; topic {topic!r} has the partitions 0 to {count - 1}"
        )
    if low == high:
        yield low, records
        return
    order = pc.array_sort_indices(chosen)  # stable
    ordered, numbers = records.take(order), chosen.take(order)
    start, ends = 0, pc.run_end_encode(numbers)
    for end, number in zip(ends.run_ends.to_pylist(), ends.values.to_pylist(), strict=True):
        yield number, ordered.slice(start, end - start)
        start = end


def _computed(records: pa.RecordBatch, count: int, sticky: int) -> pa.Array:
    """The partition of each record by its key."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int32(), len(records), [None, pa.py_buffer(targets(records, count, sticky))])


def numbered(batch: pa.RecordBatch, plan: SinkPlan, names: list[str], *, every: bool = False) -> pa.RecordBatch:
    """The rows with their column `partition`, computed from the key where it is null. Where there is no key it is null,
    or computed from the value, if `every` row must have one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    value = batch.column("value")
    hashed = batch.column("key") if "key" in batch.schema.names else pa.nulls(len(batch), pa.binary())
    if every:
        hashed = pc.coalesce(hashed.cast(pa.binary()), value.cast(pa.binary()))
    records = pa.RecordBatch.from_arrays([hashed, value], names=["key", "value"])
    found = pa.nulls(len(batch), pa.int32())
    topics = batch.column("topic").unique().to_pylist() if plan.options.topic is None else [plan.options.topic]
    for topic in topics if len(batch) else ():
        if topic is None:
            continue  # the write refuses it
        made = _computed(records, plan.target(topic).plan.partitions, 0)
        here = pc.equal(batch.column("topic"), topic) if plan.options.topic is None else None
        found = made if here is None else pc.if_else(pc.fill_null(here, False), made, found)
    found = pc.if_else(pc.is_valid(hashed), found, pa.nulls(len(batch), pa.int32()))
    if "partition" in batch.schema.names:
        found = pc.coalesce(batch.column("partition").cast(pa.int32()), found)
    columns = [found if name == "partition" else batch.column(name) for name in names]
    return pa.RecordBatch.from_arrays(columns, names=names)
