"""The tasks of a materialized table: what each of them does, and the Spark jobs that run them.

The functions take batches and return the files they have written; only SparkJobs knows Spark. A result travels as one
row of JSON, from the attempt that Spark takes; no manifest names what other attempts have written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

from klog.spark.api import InputPartition
from klog.spark.plan import Bin, Range
from klog.spark.rows import arrow_schema
from klog.spark.scan import in_tasks
from klog.spark.table_files import BUCKET, GATHER_BYTES, Bucket, Keyed, Newest, Piece, Place, merge_bucket, write_piece
from klog.spark.table_manifest import DataFile
from klog.values import asdict

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

Read = Callable[[Range], Iterator["pa.RecordBatch"]]
Merged = tuple[list[DataFile], int]
"""The files of a bucket, and the number of keys that were set or deleted."""


class Jobs(Protocol):
    """Runs tasks. Raises what a failed task raised, or Spark's error about it."""

    def write(self, tasks: Sequence[Sequence[Piece]], place: Place) -> list[DataFile]:
        """Write the pieces of each task."""

    def merge(self, bins: Sequence[Bin], buckets: Sequence[Bucket], place: Place, tasks: int) -> list[Merged]:
        """Merge the rows of the ranges into their buckets, in about this many tasks."""


def write_pieces(read: Read, pieces: Iterable[Piece], place: Place) -> Iterator[DataFile]:
    """Write the rows of pieces, each into files of its own."""
    for piece in pieces:
        yield from write_piece(piece, read(piece.range), place)


def keyed_rows(read: Read, ranges: Iterable[Range], buckets: Sequence[Bucket]) -> Iterator[pa.RecordBatch]:
    """Yield the latest row of each key in a range, with the column BUCKET; of many rows some that are not the latest,
    too: the fewer, the less there is to shuffle."""
    for each in ranges:
        keyed, newest = Keyed(each.partition, buckets), Newest()
        for batch in read(each):
            newest.add(keyed.rows(batch))
            if newest.size > 4 * GATHER_BYTES:
                yield from newest.take()
        yield from newest.take()


def merge_rows(batches: Iterable[pa.RecordBatch], buckets: Sequence[Bucket], place: Place) -> Iterator[Merged]:
    """Merge rows that are sorted by BUCKET and offset, one bucket after the other."""
    for number, runs in groupby(_runs(batches), key=itemgetter(0)):
        yield merge_bucket(buckets[number], (batch for _, batch in runs), place)


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut batches where the bucket changes."""
    import pyarrow.compute as pc

    for batch in batches:
        runs = pc.run_end_encode(batch.column(BUCKET))
        start = 0
        for end, number in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            yield number, batch.slice(start, end - start)
            start = end


class SparkJobs:
    """The jobs on Spark. reader: of format("klog"), with the columns of schema."""

    def __init__(self, spark: SparkSession, reader: Any, schema: StructType) -> None:
        self._spark = spark
        self._reader = reader
        self._schema = schema

    def write(self, tasks: Sequence[Sequence[Piece]], place: Place) -> list[DataFile]:
        read = _read_by(self._reader)

        def task(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in _first_column(numbers):
                for file in write_pieces(read, tasks[number], place):
                    yield _row(asdict(file))

        made = in_tasks(self._spark, task, len(tasks), "result string").collect()
        return [DataFile(**json.loads(row[0])) for row in made]

    def merge(self, bins: Sequence[Bin], buckets: Sequence[Bucket], place: Place, tasks: int) -> list[Merged]:
        from pyspark.sql.types import IntegerType, StructField, StructType

        read, columns = _read_by(self._reader), arrow_schema(self._schema)
        schema = StructType([*self._schema.fields, StructField(BUCKET, IntegerType())])

        def key(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in _first_column(numbers):
                yield from keyed_rows(read, bins[number], buckets)

        def merge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for files, rows in merge_rows((_as_read(batch, columns) for batch in batches), buckets, place):
                yield _row([[asdict(file) for file in files], rows])

        shuffled = in_tasks(self._spark, key, len(bins), schema).repartition(tasks, BUCKET)
        made = shuffled.sortWithinPartitions(BUCKET, "offset").mapInArrow(merge, "result string").collect()
        results = [json.loads(row[0]) for row in made]
        return [([DataFile(**file) for file in files], rows) for files, rows in results]


def _read_by(reader: Any) -> Read:
    def read(wanted: Range) -> Iterator[pa.RecordBatch]:
        yield from reader.read(InputPartition((wanted,)))

    return read


def _first_column(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _as_read(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """The rows with the types that a reader gives them: Spark's have the session's time zone, perhaps wider types."""
    import pyarrow as pa

    schema = columns.append(pa.field(BUCKET, pa.int32()))
    return batch if batch.schema.equals(schema) else batch.cast(schema)


def _row(result: object) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.record_batch({"result": pa.array([json.dumps(result)], pa.string())})
