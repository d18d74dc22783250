"""klog.spark.import_: rows of a DataFrame, or of files that Spark reads, as records of a topic; all of them or none.

    tasks    rows → records → staged files beside the logs
    driver   one commit of all staged files; klog/manager/commits.py has its steps

A job with a name is committed once: the commit notes the name in the log.dir, as it does for a batch of a stream.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from klog import arguments
from klog.disk import exists, is_directory
from klog.errors import AlreadyLocked
from klog.importing.errors import UnknownColumn, UnknownFormat
from klog.log.staged import layout, streams
from klog.log.staged.manifest import StagedFile
from klog.log.staged.writers import Driver, driver
from klog.log.staged.writing import StagedWriter
from klog.logger import logger_of
from klog.manager.commits import StagedJob, TopicPlan
from klog.manager.staging import abort_staged, commit_staged
from klog.progress import Progress
from klog.spark import jobs
from klog.spark.import_rows import Converter, Kind
from klog.spark.jobs import Job
from klog.spark.sink_options import absolute_path, parse
from klog.spark.sink_plan import SinkPlan, plan_sink
from klog.spark.sink_rows import RowRouter
from klog.spark.writing import arranged
from klog.values import dataclass, field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

logger = logger_of("spark")
FORMATS = ("parquet", "jsonl", "csv", "tsv")
_SUFFIXES = {
    ".parquet": "parquet", ".pq": "parquet", ".json": "jsonl", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv",
    ".tsv": "tsv", ".tab": "tsv",
}  # fmt: skip
_PACKED = (".gz", ".bz2", ".zst", ".snappy", ".lz4")
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of import_. partitions: {partition: (first offset, next offset)} of the new records. was_done: a job
    of this name was committed before, so nothing was read or written."""

    topic: str
    records: int = 0
    partitions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    was_done: bool = False


def import_(
    spark: SparkSession,
    source: DataFrame | Paths,
    path: str | os.PathLike[str],
    topic: str,
    *,
    key: str | None = None,
    value: str | None = None,
    timestamp: str | None = None,
    format: str | None = None,
    partitions: int | None = None,
    config: Mapping[str, Any] | None = None,
    job: str | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Append all rows of a DataFrame, or of files, to a topic of a log.dir: one record for each, or none at all.

    source: a DataFrame, or files and directories (with all below them) of Parquet, JSON lines, CSV or TSV, which every
    executor sees. format: "parquet", "jsonl", "csv" or "tsv", if the names do not show it. key, value, timestamp: names
    of columns. A value is its row as a JSON object, as `klog import` makes it, unless value names a column, whose text
    or bytes it is then. Without timestamp, records get the time of the write, and those of a partition the order of the
    rows; with it, they are sorted by it. partitions, config: of a new topic, by Kafka's names; it has retention.ms=-1
    unless given. The log directory is created if it does not exist.

        klog.spark.import_(spark, "/shared/flights/*.parquet", "/shared/kafka-logs", "flights", key="tailnum",
                           timestamp="time_hour", partitions=12, config={"compression.type": "zstd"}, job="2013")

    job: a name, of a-z A-Z 0-9 -, that this directory has once. If a job of this name was committed, nothing is done:
    so a program that failed can run again. progress: called in this thread with klog.progress.Event, in tasks.

    Raises UnknownColumn, UnknownFormat, InvalidTopic, ValueError, AlreadyLocked at the commit, and what Spark raises
    for a job that failed, such as one with a row that is not a record: the topic is then as it was.
    """
    jobs.check_session(spark)
    where, query = absolute_path(arguments.path("path", path)), _query(job)
    if query is not None and streams.last_batch(where, query) >= 0:
        logger.warning("event=import_was_done path=%s topic=%s job=%s", where, topic, job)
        return Imported(topic, was_done=True)
    options = {name: str(given).lower() if isinstance(given, bool) else str(given)
               for name, given in (config or {}).items()}  # fmt: skip
    options.update(path=where, topic=arguments.text("topic", topic))
    if partitions is not None:
        options["partitions"] = str(arguments.whole("partitions", partitions, 1))
    parsed = parse(options)
    frame, kind, name = _read(spark, source, format)
    columns = [("key", key), ("value", value), ("timestamp", timestamp)]
    for which, column in columns:
        if column is not None and arguments.text(which, column) not in frame.columns and kind != "lines":
            raise UnknownColumn(name, column, frame.columns)
    watched = Job(spark, "import", f"{name} to {where}", progress)
    plan = plan_sink(parsed, overwrite=False)
    has_key: Any = spark.sparkContext.accumulator(0)
    found_key = partial(has_key.add, 1) if kind == "lines" and key is not None else None
    converter = Converter(kind, frame.columns, key, value, timestamp, name, found_key)
    records = _numbered(frame).mapInArrow(converter.convert, converter.schema)
    if timestamp is not None:
        records = arranged(records, options, ["timestamp"])
    token = uuid.uuid4().hex
    staged = records.mapInArrow(stager(plan, token, driver()), "staged binary")
    try:
        files, topics = _staged(watched.watch(staged.collect, watched.tasks(topic), topic))
        if found_key is not None and files and not has_key.value:
            raise UnknownColumn(name, str(key), [])
        return _commit(where, topic, StagedJob(token, files, topics, stream=None if query is None else (query, 0)))
    except BaseException:
        with contextlib.suppress(AlreadyLocked, OSError):  # the next start finishes it
            abort_staged(where, token)
        raise


def _query(job: str | None) -> str | None:
    """The stream id under which a log.dir notes that a named job was committed."""
    if job is None:
        return None
    return layout.check_token(f"job-{arguments.text('job', job)}")


def _commit(where: str, topic: str, job: StagedJob) -> Imported:
    if not job.files:
        return Imported(topic)
    committed = commit_staged(where, job)
    if committed is None:
        return Imported(topic, was_done=True)
    spans = {number: (first, last + 1) for number, (first, last) in committed[topic].items()}
    return Imported(topic, sum(file.records for file in job.files), spans)


# ---- tasks -----------------------------------------------------------------------------------------------------------


def stager(
    plan: SinkPlan, token: str, process: Driver | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The work of a task: it stages its records, and returns the files."""

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        task = 0 if context is None else int(context.partitionId())
        attempt = int.from_bytes(os.urandom(7))  # each one writes files of its own
        router = RowRouter(plan, task, lambda: StagedWriter(plan.options.path, token, f"{task}-{attempt}", process))
        files = router.stage(batches)
        message = pickle.dumps((files, {topic: target.plan for topic, target in router.used.items()}))
        yield pa.RecordBatch.from_arrays([pa.array([message], pa.binary())], names=["staged"])

    return stage


def _staged(rows: Iterable[Any]) -> tuple[list[StagedFile], dict[str, TopicPlan]]:
    files: list[StagedFile] = []
    topics: dict[str, TopicPlan] = {}
    for row in rows:
        of_task, plans = pickle.loads(bytes(row.staged))
        files += of_task
        topics.update(plans)
    return files, topics


# ---- sources ---------------------------------------------------------------------------------------------------------


def _read(spark: SparkSession, source: DataFrame | Paths, given: str | None) -> tuple[DataFrame, Kind, str]:
    """The rows, how to convert them, and the name of the source."""
    if given is not None:
        arguments.chosen("format", given, FORMATS)
    if hasattr(source, "mapInArrow"):
        if given is not None:
            raise ValueError("format is for files: a DataFrame has been read already")
        frame: Any = source
        twice = sorted({name for name in frame.columns if frame.columns.count(name) > 1})
        if twice:
            raise ValueError(f"the DataFrame has the column {twice[0]!r} twice: rename one")
        return frame, "rows", "the DataFrame"
    one = isinstance(source, str | os.PathLike)
    paths = [arguments.path("source", each) for each in ([source] if one else source)]  # type: ignore[union-attr,list-item]
    if not paths:
        raise ValueError("source=[]: name at least one file")
    for each in paths:
        if os.path.basename(each).startswith(("_", ".")) and exists(each) and not is_directory(each):
            raise ValueError(f"{each}: Spark passes over files whose names begin with _ or .; rename it")
    kind = given or _format(paths)
    name = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    if kind == "parquet":
        return spark.read.option("mergeSchema", True).parquet(*paths), "rows", name
    if kind == "jsonl":
        lines = spark.read.option("recursiveFileLookup", True).option("lineSep", "\n").text(paths)
        return lines.selectExpr("cast(value AS binary) AS line"), "lines", name
    cells = (
        spark.read.option("recursiveFileLookup", True)
        .option("header", True)
        .option("multiLine", True)
        .option("sep", "\t" if kind == "tsv" else ",")
        .option("escape", '"')
        .option("mode", "FAILFAST")
        .option("unescapedQuoteHandling", "RAISE_ERROR")
        .option("enforceSchema", False)
        .csv(paths)
    )
    return cells, "cells", name


def _numbered(frame: DataFrame) -> DataFrame:
    """The columns under names of their own: mapInArrow cannot take a name with a dot."""
    return frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))


def _format(paths: Sequence[str]) -> str:
    """The format by the names of the files, or of those in a directory."""
    found = {_format_of(path) for path in paths}
    if len(found) != 1 or None in found:
        raise UnknownFormat(f"the format of {', '.join(paths[:3])} is unknown by name; give format={FORMATS}")
    return str(found.pop())


def _format_of(path: str) -> str | None:
    if is_directory(path):
        inside = sorted(name for name in os.listdir(path) if not name.startswith(("_", ".")))
        return _format_of(os.path.join(path, inside[0])) if inside else None
    stem, suffix = os.path.splitext(path.rstrip("/"))
    if suffix.lower() in _PACKED:
        suffix = os.path.splitext(stem)[1]
    return _SUFFIXES.get(suffix.lower())
