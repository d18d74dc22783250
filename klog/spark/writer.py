"""The sinks of format("klog"): batch and streaming writes, all rows or none. Each object lives in this process:

    planner worker     KlogSink.writer(schema)                  a token; looks at the topics; pickled to every task
    every task         write(batches)                           stages files beside the logs
    driver worker      commit(messages) or abort(messages)      on the writer of the planner

A streaming writer is built again for every commit, so what a commit must know travels in the messages: the query, the
batch, the topics as the tasks have seen them. The token of a stream's batch is made of query and batch: a replay stages
beside what is there and is committed once. klog/manager/commits.py has the commit.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource

from klog.clock import process_start_time
from klog.errors import AlreadyLocked, StagingLost
from klog.log.staged.manifest import StagedFile
from klog.log.staged.writers import Driver, driver
from klog.log.staged.writing import StagedWriter
from klog.logger import logger_of
from klog.manager.commits import StagedJob, TopicPlan
from klog.manager.staging import abort_staged, commit_staged
from klog.spark.sink_options import SinkOptions, check_columns, parse
from klog.spark.sink_plan import SinkPlan, plan_sink
from klog.spark.sink_rows import RowRouter
from klog.values import dataclass, field

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

logger = logger_of("spark")
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
_ROWS = 10_000
_ArrowStreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", None)  # since Spark 4.1


@dataclass(frozen=True)
class Staged(datasource.WriterCommitMessage):  # type: ignore[misc]
    """What one task has staged. topics: those of its files. stream: (query id, batch id)."""

    files: tuple[StagedFile, ...] = ()
    topics: Mapping[str, TopicPlan] = field(default_factory=dict)
    stream: tuple[str, int] | None = None


class KlogSink:
    """One save() or start(), with checked options."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = parse(options)
        if self._options.ignored:
            logger.warning('format("klog") ignores options of a Kafka client: %s', ", ".join(self._options.ignored))

    def writer(self, schema: StructType, overwrite: bool) -> KlogWriter:
        check_columns(schema, self._options.topic)
        return KlogWriter(self._options, overwrite)

    def stream_writer(self, schema: StructType, overwrite: bool) -> Any:
        check_columns(schema, self._options.topic)
        kind = KlogStreamWriter if _ArrowStreamWriter is not None else KlogStreamRowWriter
        return kind(self._options, overwrite, schema)


class _Job:
    """What batch and streaming writers share: the plan, and the process that commits."""

    def __init__(self, options: SinkOptions, overwrite: bool) -> None:
        self._options = options
        self._overwrite = overwrite
        self._plan = plan_sink(options, overwrite=overwrite)
        self._driver = spark_driver()

    def stage(self, token: str, batches: Iterable[pa.RecordBatch], stream: tuple[str, int] | None) -> Staged:
        """Stage the rows of this task."""
        task = _task()
        attempt = int.from_bytes(os.urandom(7))  # Spark's numbers begin again with each application
        plan: SinkPlan = self._plan
        router = RowRouter(
            plan, task, lambda: StagedWriter(self._options.path, token, f"{task}-{attempt}", self._driver)
        )
        files = router.stage(batches)
        return Staged(tuple(files), {topic: target.plan for topic, target in router.used.items()}, stream)

    def commit(self, token: str, staged: Sequence[Staged], stream: tuple[str, int] | None) -> None:
        """Commit what the tasks have staged."""
        files = [file for message in staged for file in message.files]
        topics = {topic: plan for message in staged for topic, plan in message.topics.items()}
        overwritten: frozenset[str] = frozenset()
        if self._overwrite:
            if self._options.topic is not None:
                topics.setdefault(self._options.topic, self._plan.target(self._options.topic).plan)
            overwritten = frozenset(topics)
        if not files and not overwritten:
            return
        committed = commit_staged(self._options.path, StagedJob(token, files, topics, overwritten, stream))
        logger.info(
            "committed token=%s files=%d records=%d bytes=%d replay=%s",
            token,
            len(files),
            sum(file.records for file in files),
            sum(file.bytes for file in files),
            committed is None,
        )

    def abort(self, token: str) -> None:
        """Remove what the tasks have staged, or finish a commit that has failed after its manifest."""
        try:
            if abort_staged(self._options.path, token):
                logger.warning("token=%s was committed before its commit failed: it is complete now", token)
        except AlreadyLocked as error:
            logger.warning("token=%s: the next start in %s finishes it (%s)", token, self._options.path, error)


class KlogWriter(datasource.DataSourceArrowWriter):  # type: ignore[misc]
    """A batch write."""

    def __init__(self, options: SinkOptions, overwrite: bool) -> None:
        self._job = _Job(options, overwrite)
        self._token = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._job.stage(self._token, iterator, None)

    def commit(self, messages: Sequence[Staged | None]) -> None:
        self._job.commit(self._token, _complete(messages), None)

    def abort(self, messages: Sequence[Staged | None]) -> None:
        self._job.abort(self._token)


class _StreamWriter:
    """A streaming write. Spark gives commit and abort to another instance than write."""

    def __init__(self, options: SinkOptions, overwrite: bool, schema: StructType) -> None:
        self._job = _Job(options, overwrite)
        self._schema = schema

    def _stage(self, batches: Iterable[pa.RecordBatch]) -> Staged:
        from pyspark import TaskContext

        context = TaskContext.get()
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query is None or batch is None:
            raise RuntimeError(
                f"this Spark gives the tasks of a stream no {_QUERY_ID}, {_BATCH_ID}: their rows cannot be committed "
                "exactly once; use foreachBatch with a batch write"
            )
        stream = query, int(batch)
        return self._job.stage(_token(stream), batches, stream)

    def commit(self, messages: Sequence[Staged | None], batchId: int) -> None:  # noqa: N803  Spark's name
        staged = _complete(messages)
        stream = _stream_of(staged, batchId)
        if stream is not None:
            self._job.commit(_token(stream), staged, stream)

    def abort(self, messages: Sequence[Staged | None], batchId: int) -> None:  # noqa: N803
        """Without a message the query is unknown: then a later start removes what was staged."""
        stream = _stream_of(messages, batchId)
        if stream is not None:
            self._job.abort(_token(stream))


if _ArrowStreamWriter is not None:

    class KlogStreamWriter(_StreamWriter, _ArrowStreamWriter):  # type: ignore[misc]
        """A streaming write of Arrow batches."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
            return self._stage(iterator)


class KlogStreamRowWriter(_StreamWriter, datasource.DataSourceStreamWriter):  # type: ignore[misc]
    """A streaming write for Spark 4.0, which gives rows."""

    def write(self, iterator: Iterator[Any]) -> Staged:
        return self._stage(_batches(iterator, self._schema))


def _batches(rows: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    import datetime
    import itertools

    import pyarrow as pa

    from klog.spark.rows import arrow_schema

    arrow = arrow_schema(schema)
    while some := list(itertools.islice(rows, _ROWS)):
        columns = []
        for number, column in enumerate(arrow):
            values = [row[number] for row in some]
            if pa.types.is_timestamp(column.type):  # Spark makes local times of them
                values = [None if value is None else value.astimezone(datetime.UTC) for value in values]
            columns.append(pa.array(values, column.type))
        yield pa.RecordBatch.from_arrays(columns, schema=arrow)


def _complete(messages: Sequence[Staged | None]) -> list[Staged]:
    """The messages of a commit. Raises StagingLost if one is missing: Spark has None for a task that has failed."""
    staged = [message for message in messages if message is not None]
    if len(staged) < len(messages):
        raise StagingLost(
            f"Spark has no message of {len(messages) - len(staged)} of {len(messages)} tasks, so nothing was "
            "committed; write the records again"
        )
    return staged


def _stream_of(messages: Sequence[Staged | None], batch: int) -> tuple[str, int] | None:
    """The query and batch of the messages; None if there is none: no data, or no task has ended."""
    for message in messages:
        if message is not None and message.stream is not None:
            if message.stream[1] != batch:
                raise RuntimeError(f"messages of batch {message.stream[1]} in a commit of batch {batch}")
            return message.stream
    return None


def _token(stream: tuple[str, int]) -> str:
    return f"{stream[0]}-{stream[1]}"


def _task() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def spark_driver() -> Driver | None:
    """The JVM of this Spark application on this machine, which outlives the Python processes of the driver; None if
    there is none above this process."""
    pid = os.getpid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                name, fields = file.read().rsplit(b")", 1)
        except OSError:
            return None
        if name.endswith(b"(java"):
            return driver(pid) if process_start_time(pid) is not None else None
        pid = int(fields.split()[1])
    return None
