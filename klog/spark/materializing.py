"""klog.spark.materialize: adds what is new in a topic to a directory of Parquet files, each record exactly once.

    driver   lock the target, finish an interrupted call (table_store.py)
             look what is new, fix the ends, divide them into tasks (table_plan.py)
    tasks    read by the reader of format("klog"), write Parquet by pyarrow (table_files.py); return the files' names
    driver   one manifest with all files: the commit

Only the files that the commit names are ever seen, so tasks may fail, run twice or be killed. Two routes:

  history  a task writes the pieces of partitions that the driver gave it
  latest   tasks read ranges, Spark shuffles the rows to their bucket, tasks merge each bucket with its file
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from klog.arguments import chosen, optional_flag
from klog.spark import values
from klog.spark.scan import check_pyspark, option_text, parallelism_of
from klog.spark.survey import examined
from klog.spark.table_files import Place
from klog.spark.table_jobs import Jobs, SparkJobs
from klog.spark.table_manifest import DataFile, Extract, Manifest, in_slots
from klog.spark.table_options import Paths, Request, check_same, read_schema, request, shaping
from klog.spark.table_plan import TopicState, Work, read_state, work_of
from klog.spark.table_store import TableStore
from klog.values import dataclass, field, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from klog.spark.opening import Logs

TARGET_BYTES = 128 << 20
_TARGET_MIN = 64 << 10


@dataclass(frozen=True)
class Materialized:
    """What a call has added. rows: records; in a table of the latest, keys that were set or deleted. files: Parquet
    files that it wrote. ranges: partition → offsets [start, end). version: number of the table's commit.
    """

    rows: int
    files: int
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)
    version: int = 0


def materialize(
    spark: SparkSession,
    path: Paths,
    topic: str,
    target: str | os.PathLike[str],
    *,
    latest: bool | None = None,
    compression: str = "zstd",
    targetFileBytes: int | str = TARGET_BYTES,  # noqa: N803  the style of Spark's options
    **options: object,
) -> Materialized:
    """Add the records of a topic that are new since the last call to a directory of Parquet files, exactly once.

    path: one log directory, or several. target: a local directory that the call creates; on a cluster all machines must
    see it. latest: keep the latest record of each key of a partition, without those whose value is null; None: as the
    topic's cleanup.policy says when the table is created. compression: "zstd" or "snappy". targetFileBytes: least size
    of a file, except for the last one of a partition, as bytes or "128m". options: those of format("klog") that choose
    columns and how to read, such as columns, includeHeaders, isolationLevel, failOnDataLoss.

        report = klog.spark.materialize(spark, "data", "flights", "tables/flights")
        spark.read.parquet("tables/flights").groupBy("partition").count().show()

    The next call goes on where this one has ended; without new records it does nothing. A call that fails or is killed
    adds nothing, or the next call finds all of it.

    Raises AlreadyLocked while another call writes to the target; DataLoss (a KlogError) if records that were not added
    yet are gone, unless failOnDataLoss=False; ValueError for a wrong option, or for others than the table was made
    with; UnknownTopicOrPartition; what Spark raises for a job that failed.
    """
    check_pyspark()
    from klog.spark.source import KlogSource

    optional_flag("latest", latest)
    chosen("compression", compression, ("zstd", "snappy"))
    size = values.size(str(targetFileBytes), "targetFileBytes", _TARGET_MIN)
    given = {name: option_text(value) for name, value in options.items()}
    call = request(path, topic, target, given, parallelism_of(spark))
    source = KlogSource(call.raw)
    schema = source.schema()

    def jobs(columns: StructType) -> Jobs:
        return SparkJobs(spark, source.reader(columns), columns)

    return add(TableStore(call.target), call, schema, jobs, latest=latest, compression=compression, target_bytes=size)


def add(
    store: TableStore,
    call: Request,
    schema: StructType,
    jobs: Callable[[StructType], Jobs],
    *,
    latest: bool | None,
    compression: str,
    target_bytes: int,
) -> Materialized:
    """materialize with checked arguments. schema: of the table. jobs: for tasks that read these columns."""
    with store.locked() as before:
        if before is not None:
            check_same(before, call, schema.jsonValue(), latest)
            latest = before.latest

        def planned(logs: Logs) -> tuple[TopicState, bool, StructType, Work]:
            found = read_state(logs, call.options, before)
            by_key = found.compacts if latest is None else latest
            columns = read_schema(schema, by_key, call.options)
            return found, by_key, columns, work_of(logs, found, call.options, before, target_bytes, latest=by_key)

        found, by_key, columns, work = examined(call.options, planned)
        partitions = found.extracts(before, work.bits)
        if before is not None and partitions == before.partitions and found.topic_id == before.topic_id:
            return Materialized(0, 0, {}, before.number)
        place = Place(store.directory, tuple(schema.names), compression, target_bytes)
        made, rows = _done(work, partitions, jobs(columns), place)
        made = in_slots(made, () if before is None else before.files)
        files, kept = _replaced(before, made)
        manifest = Manifest(
            1 if before is None else before.number + 1,
            call.topic,
            found.topic_id,
            by_key,
            shaping(call.given),
            schema.jsonValue(),
            partitions,
            files,
            kept,
        )
        store.commit(manifest)
        ranges = {pair.partition: span for pair, span in found.wanted.items() if span[0] < span[1]}
        return Materialized(rows, len(made), ranges, manifest.number)


def _done(work: Work, partitions: Mapping[int, Extract], jobs: Jobs, place: Place) -> tuple[list[DataFile], int]:
    """Run the tasks. Returns the new files, and the number of rows that they have added."""
    if work.ranges:
        merged = jobs.merge(work.ranges, work.buckets, place, work.merging)
        made = [file for files, _ in merged for file in files]
        ends = [partitions[file.partition] for file in made]
        made = [replace(file, start=each.start, end=each.end) for file, each in zip(made, ends, strict=True)]
        return made, sum(rows for _, rows in merged)
    made = jobs.write(work.pieces, place) if work.pieces else []
    tails = {(each.tail.partition, each.tail.slot): each.tail for some in work.pieces for each in some if each.tail}
    return made, sum(file.rows for file in made) - sum(
        tails[file.partition, file.slot].rows for file in made if file.slot >= 0
    )


def _replaced(before: Manifest | None, made: list[DataFile]) -> tuple[tuple[DataFile, ...], tuple[str, ...]]:
    """Return the files of the table, and the names of those that the newest files have replaced."""
    if before is not None and not made:
        return before.files, before.kept
    there = () if before is None else before.files
    taken = {(file.partition, file.slot) for file in made}
    kept = [file.name for file in there if (file.partition, file.slot) in taken]
    left = [file for file in there if (file.partition, file.slot) not in taken]
    files = sorted([*left, *made], key=lambda file: (file.partition, file.slot))
    return tuple(files), tuple(kept)
