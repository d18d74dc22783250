"""Materialized tables without Spark: the tasks run in this process, one after the other, and a sort replaces the
shuffle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet

import klog
from klog.disk import Files
from klog.spark.api import InputPartition
from klog.spark.materializing import Materialized, add
from klog.spark.plan import Bin, Range
from klog.spark.source import KlogSource
from klog.spark.table_files import BUCKET, Bucket, Piece, Place
from klog.spark.table_jobs import Merged, keyed_rows, merge_rows, write_pieces
from klog.spark.table_manifest import DataFile, Manifest
from klog.spark.table_options import request
from klog.spark.table_store import TableStore
from klog.values import replace

Row = tuple[int, int, bytes | None, bytes | None]
"""(partition, offset, key, value)"""


class LocalJobs:
    """Runs the jobs in this process, each task in its own call. files: the Files that the tasks use."""

    def __init__(self, reader: Any, files: Files | None = None) -> None:
        self._reader, self._files = reader, files

    def read(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        yield from self._reader.read(InputPartition((wanted,)))

    def write(self, tasks: Sequence[Sequence[Piece]], place: Place) -> list[DataFile]:
        place = replace(place, files=self._files)
        return [file for pieces in tasks for file in write_pieces(self.read, pieces, place)]

    def merge(self, bins: Sequence[Bin], buckets: Sequence[Bucket], place: Place, tasks: int) -> list[Merged]:
        keyed = [batch for ranges in bins for batch in keyed_rows(self.read, ranges, buckets)]
        if not keyed:
            return []
        place = replace(place, files=self._files)
        rows = pa.Table.from_batches(keyed).sort_by([(BUCKET, "ascending"), ("offset", "ascending")])
        return list(merge_rows(rows.combine_chunks().to_batches(max_chunksize=7), buckets, place))


def materialize(
    path: Path,
    target: Path,
    topic: str = "t",
    *,
    latest: bool | None = None,
    compression: str = "zstd",
    target_bytes: int = 3000,
    files: Files | None = None,
    jobs: type[LocalJobs] = LocalJobs,
    **options: str,
) -> Materialized:
    """klog.spark.materialize without Spark."""
    call = request(str(path), topic, str(target), options, "1")
    source = KlogSource(call.raw)
    return add(
        TableStore(call.target, files),
        call,
        source.schema(),
        lambda columns: jobs(source.reader(columns), files),
        latest=latest,
        compression=compression,
        target_bytes=target_bytes,
    )


def table(path: Path, target: Path, topic: str = "t", **options: str) -> list[Row]:
    """The rows of klog.spark.table, without Spark."""
    from pyspark.sql.types import StructType

    from klog.spark.table_options import read_schema
    from klog.spark.tables import tail_of

    found = manifest(target)
    call = request(str(path), topic, str(target), options, "1", found)
    bins = tail_of(call, found)
    reader = KlogSource(call.raw).reader(read_schema(StructType.fromJson(found.schema), found.latest, call.options))
    jobs = LocalJobs(reader)
    tail = [row for ranges in bins for each in ranges for batch in jobs.read(each) for row in rows_of(batch)]
    if not found.latest:
        return stored(target) + tail
    newer = {(row[0], row[2]) for row in tail}
    return [row for row in stored(target) if (row[0], row[2]) not in newer] + latest_of(tail)


def manifest(target: Path) -> Manifest:
    found = TableStore(str(target)).load()
    assert found is not None
    return found


def shown(target: Path) -> list[Row]:
    """The rows that a reader of Parquet sees in the target."""
    found = pa.dataset.dataset(target, format="parquet")
    return rows_of(found.to_table(["partition", "offset", "key", "value"])) if found.files else []


def stored(target: Path) -> list[Row]:
    """The rows of the manifest's files."""
    found = manifest(target)
    store = TableStore(str(target))
    tables = [pa.parquet.read_table(store.path(file.name)) for file in found.files]
    return [row for table in tables for row in rows_of(table)]


def check_seen(seen: list[Row], old: list[Row], new: list[Row], latest: bool) -> None:
    """Check the rows that a reader of Parquet sees while a commit changes the target (A2 of table_store.py)."""
    assert len(set(seen)) == len(seen) and set(seen) <= {*old, *new}
    if latest:
        assert len({(row[0], row[2]) for row in seen}) == len(seen)
        return
    assert set(old) <= set(seen)
    for partition in {row[0] for row in new}:
        mine = [row for row in seen if row[0] == partition]
        assert mine == [row for row in new if row[0] == partition][: len(mine)]


def rows_of(table: pa.Table) -> list[Row]:
    names = ("partition", "offset", "key", "value")
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def in_log(path: Path, topic: str = "t") -> list[Row]:
    """All records of a topic up to its high watermark."""
    with klog.open(path, read_only=True) as logs:
        return [
            (number, record.offset, record.key, record.value)
            for number in logs.topics()[topic]
            for record in logs.log(topic, number).read()
        ]


def latest_of(rows: list[Row]) -> list[Row]:
    """The latest row of each key of a partition, without tombstones and rows without a key."""
    found: dict[tuple[int, bytes], Row] = {}
    for row in sorted(rows, key=lambda row: row[:2]):
        if row[2] is not None:
            found[row[0], row[2]] = row
    return sorted(row for row in found.values() if row[3] is not None)
