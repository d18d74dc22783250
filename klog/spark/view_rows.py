"""The rows of each view, from the logs that a task opens read-only. Only the columns of the query are worked out (V1).

batches come from a scan of headers in C (`LogReader.batch_headers`); the other views have a row per segment,
partition, producer or group, few enough for Python.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import klog
from klog.disk import exists, is_directory
from klog.errors import UnknownTopicOrPartition
from klog.log.directory import cleaner_offsets
from klog.log.directory.checkpoint import encode_uuid
from klog.spark.opening import moved_to
from klog.spark.plan import Range
from klog.spark.read import check_present
from klog.spark.rows import cast, joined, repeated
from klog.values import NamedTuple, replace

if TYPE_CHECKING:
    import pyarrow as pa

    from klog import Log, ProducerState
    from klog.segment import Segment
    from klog.spark.committed import OffsetCommit, OffsetKey

# Spark's column → that of batch_headers(); topic, partition and segment are the same for a whole set of columns.
_HEADERS = {
    "position": "position",
    "sizeInBytes": "size",
    "baseOffset": "base_offset",
    "lastOffset": "last_offset",
    "recordCount": "count",
    "baseTimestamp": "base_timestamp",
    "maxTimestamp": "max_timestamp",
    "timestampType": "timestamp_type",
    "codec": "compression",
    "leaderEpoch": "leader_epoch",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "baseSequence": "base_sequence",
    "isTransactional": "is_transactional",
    "isControl": "is_control",
}
ROWS_MIN = 8192  # of a batch for Spark, which takes many small ones slowly; a segment may have few


def batches(ranges: Iterable[Range], schema: pa.Schema, log_dirs: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
    """Yield the batches of planned ranges, which meet between two batches. Raises DataLoss if some are gone.

    log_dirs: where a partition may have moved to since the query was planned.
    """
    fields = tuple({"last_offset", *(_HEADERS[name] for name in schema.names if name in _HEADERS)})
    held: list[pa.RecordBatch] = []
    for wanted in ranges:
        for headers, segment in _headers_of(wanted, wanted.start_offset, fields, log_dirs):
            where = {"topic": wanted.topic, "partition": wanted.partition, "segment": _name(segment)}
            held.append(_shaped(headers, where, schema))
            if sum(batch.num_rows for batch in held) >= ROWS_MIN:
                yield from joined(held)
                held = []
    if held:
        yield from joined(held)


def _headers_of(
    wanted: Range, start: int, fields: Sequence[str], log_dirs: Sequence[str]
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the headers of a range from `start` on, with the base offset of their segment."""
    import pyarrow as pa

    try:
        with klog.Log.open(wanted.path, read_only=True) as log:
            check_present(wanted, log)
            # log_end: the upper bound was decided on the driver, and a checkpoint may have moved since.
            for found in log.read(start, wanted.end_offset, isolation="log_end").batch_headers(fields):
                headers = pa.record_batch(found)
                yield headers, found.segment_base_offset
                if headers.num_rows:
                    start = headers.column("last_offset")[-1].as_py() + 1
            if log.log_end_offset < wanted.end_offset:  # truncated where this reader was
                check_present(wanted, log)
    except (UnknownTopicOrPartition, FileNotFoundError):
        moved = None if is_directory(wanted.path) else moved_to(wanted.path, log_dirs)
        if moved is None:
            raise
        yield from _headers_of(replace(wanted, path=moved), start, fields, log_dirs)


def _shaped(headers: pa.RecordBatch, where: Mapping[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    """Return the headers with Spark's names and types, and columns that are the same for all rows."""
    import pyarrow as pa

    arrays = [
        repeated(where[field.name], headers.num_rows)
        if field.name in where
        else cast(headers.column(_HEADERS[field.name]), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


# ---- the other views -------------------------------------------------------------------------------------------------

Getters = Mapping[str, Callable[[Any], Any]]
"""Column → how a row's value is found."""


class SegmentOf(NamedTuple):
    log: Log
    segment: Segment
    active: bool
    first_dirty: int | None


class ProducerOf(NamedTuple):
    log: Log
    id: int
    state: ProducerState


class TransactionOf(NamedTuple):
    """An aborted one, whose marker is at last_offset, or an open one, with its producer's state."""

    log: Log
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int | None = None
    producer: ProducerState | None = None


class CommittedOf(NamedTuple):
    """An offset that a group has committed; high_watermark(): of its partition, None if it is not in the paths."""

    key: OffsetKey
    value: OffsetCommit
    high_watermark: Callable[[], int | None]


_PARTITION: Getters = {
    "topic": lambda log: log.topic,
    "partition": lambda log: log.partition,
    "path": lambda log: os.path.abspath(log.path),
    "topicId": lambda log: None if log.topic_id is None else encode_uuid(log.topic_id),
    "logStartOffset": lambda log: log.log_start_offset,
    "highWatermark": lambda log: log.high_watermark,
    "lastStableOffset": lambda log: log.last_stable_offset,
    "logEndOffset": lambda log: log.log_end_offset,
    "firstDirtyOffset": lambda log: _first_dirty(log),
    "segmentCount": lambda log: len(log.segments),
    "sizeInBytes": lambda log: log.size,
    "leaderEpochs": lambda log: [{"epoch": epoch, "startOffset": offset} for epoch, offset in log.leader_epochs],
}
_SEGMENT: Getters = {
    "topic": lambda row: row.log.topic,
    "partition": lambda row: row.log.partition,
    "segment": lambda row: _name(row.segment.base_offset),
    "baseOffset": lambda row: row.segment.base_offset,
    "nextOffset": lambda row: row.segment.next_offset,
    "sizeInBytes": lambda row: row.segment.size,
    "indexSizeInBytes": lambda row: _index_bytes(row.segment),
    "firstTimestamp": lambda row: _ms(row.segment.first_batch_timestamp) if row.segment.size else None,
    "maxTimestamp": lambda row: _ms(row.segment.max_timestamp),
    "modified": lambda row: row.segment.modified_ms,
    "isActive": lambda row: row.active,
    "isClean": lambda row: row.first_dirty is not None and row.segment.next_offset <= row.first_dirty,
}
_PRODUCER: Getters = {
    "topic": lambda row: row.log.topic,
    "partition": lambda row: row.log.partition,
    "producerId": lambda row: row.id,
    "producerEpoch": lambda row: row.state.epoch,
    "lastSequence": lambda row: row.state.last_sequence,
    "lastOffset": lambda row: row.state.last_offset,
    "lastTimestamp": lambda row: _ms(row.state.timestamp),
    "coordinatorEpoch": lambda row: row.state.coordinator_epoch,
    "currentTxnFirstOffset": lambda row: row.state.current_txn_first_offset,
}
_TRANSACTION: Getters = {
    "topic": lambda row: row.log.topic,
    "partition": lambda row: row.log.partition,
    "state": lambda row: "aborted" if row.producer is None else "open",
    "producerId": lambda row: row.producer_id,
    "producerEpoch": lambda row: None if row.producer is None else row.producer.epoch,
    "firstOffset": lambda row: row.first_offset,
    "lastOffset": lambda row: row.last_offset,
    "lastStableOffset": lambda row: row.last_stable_offset,
    "lastTimestamp": lambda row: None if row.producer is None else _ms(row.producer.timestamp),
    "blocksLastStableOffset": lambda row: row.producer is not None and row.first_offset == row.log.last_stable_offset,
}
_COMMITTED: Getters = {
    "groupId": lambda row: row.key.group,
    "topic": lambda row: row.key.topic,
    "partition": lambda row: row.key.partition,
    "offset": lambda row: row.value.offset,
    "leaderEpoch": lambda row: row.value.leader_epoch,
    "metadata": lambda row: row.value.metadata,
    "commitTimestamp": lambda row: _ms(row.value.commit_timestamp),
    "expireTimestamp": lambda row: _ms(row.value.expire_timestamp),
    "highWatermark": lambda row: row.high_watermark(),
    "lag": lambda row: None if (end := row.high_watermark()) is None else max(end - row.value.offset, 0),
}


def partitions(log: Log, schema: pa.Schema) -> pa.RecordBatch:
    """Return the row of a log."""
    return _rows([log], _PARTITION, schema)


def segments(log: Log, schema: pa.Schema) -> pa.RecordBatch:
    """Return one row per segment, without those that were deleted since the log was opened."""
    getters = {name: _SEGMENT[name] for name in schema.names}
    first_dirty = _first_dirty(log) if "isClean" in schema.names else None
    found, rows = list(log.segments), []
    for each in found:
        row = SegmentOf(log, each, each is found[-1], first_dirty)
        try:
            rows.append({name: getter(row) for name, getter in getters.items()})
        except FileNotFoundError:
            if exists(each.path) or not is_directory(log.path):
                raise
    return _rows(rows, {name: itemgetter(name) for name in schema.names}, schema)


def producers(log: Log, schema: pa.Schema) -> pa.RecordBatch:
    """Return one row per live producer of a log."""
    return _rows((ProducerOf(log, *entry) for entry in log.producers.items()), _PRODUCER, schema)


def transactions(log: Log, schema: pa.Schema) -> pa.RecordBatch:
    """Return one row per aborted transaction that the log still has, and per open one."""
    aborted = [TransactionOf(log, *entry) for entry in log.aborted_transactions()]
    still_open = [
        TransactionOf(log, number, state.current_txn_first_offset, state.last_offset, None, state)
        for number, state in log.producers.items()
        if state.current_txn_first_offset is not None
    ]
    return _rows(aborted + still_open, _TRANSACTION, schema)


def consumer_offsets(
    log: Log,
    wanted: Callable[[str, int], bool],
    high_watermark: Callable[[str, int], int | None],
    schema: pa.Schema,
) -> pa.RecordBatch:
    """Return one row per offset committed in a partition of __consumer_offsets, for the topic-partitions wanted.

    high_watermark: of a topic-partition. It is called only for columns that need it.
    """
    from klog.spark.committed import committed  # no other view decodes records

    rows = [
        CommittedOf(key, value, partial(high_watermark, key.topic, key.partition))
        for key, value in committed(log).items()
        if wanted(key.topic, key.partition)
    ]
    return _rows(rows, _COMMITTED, schema)


def _first_dirty(log: Log) -> int | None:
    """The offset where the next cleaning begins; None if the log was never cleaned."""
    return cleaner_offsets.read(os.path.dirname(os.path.abspath(log.path))).get((log.topic, log.partition))


def _index_bytes(segment: Segment) -> int:
    size = 0
    for path in segment.paths[1:]:
        with suppress(FileNotFoundError):  # not every segment has each of them
            size += os.path.getsize(path)
    return size


def _ms(timestamp: int) -> int | None:
    return None if timestamp == -1 else timestamp


def _rows(rows: Iterable[Any], getters: Getters, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with a row of each, whose times are in ms."""
    import pyarrow as pa

    listed = list(rows)
    return pa.RecordBatch.from_arrays(
        [_array([getters[field.name](row) for row in listed], field.type) for field in schema], schema=schema
    )


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return cast(pa.array(values, pa.timestamp("ms", "UTC")), kind)
    return pa.array(values, kind)
