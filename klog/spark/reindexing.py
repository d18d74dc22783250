"""klog.spark.reindex: the indexes of closed segments, rebuilt from the .log files by tasks.

  driver   holds the lock of the log.dir, and opens nothing for writing
  task     opens partitions read-only; builds indexes in <partition>/.klog-staging-TOKEN/<attempt>
  driver   as each task ends: renames the files that differ to their places

R1  only the holder of the lock changes a live file; each is replaced atomically, and valid without the others
R2  a crash leaves old and new indexes. The next open for writing removes what tasks have staged
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import klog
from klog import Log, LogConfig
from klog.clock import SystemClock
from klog.disk import DirectoryLock, Files, RealFiles
from klog.errors import KlogError
from klog.log.load.reindex import Rebuilt, put_in_place, rebuild_indexes
from klog.log.staged import layout, writers
from klog.progress import Progress
from klog.spark import jobs
from klog.spark.jobs import Item, Job
from klog.values import NamedTuple, dataclass, field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "topic string, partition int, path string, segments int, bytes long, files_replaced int, seconds double, "
    "error string"
)


def reindex(
    spark: SparkSession,
    path: str | os.PathLike[str],
    topics: str | Iterable[str] | None = None,
    *,
    progress: Progress | None = None,
) -> DataFrame:
    """Rebuild the offset, time and transaction indexes of all closed segments, on the executors. Returns a row for
    each partition.

    Columns: topic, partition, path, segments (closed ones), bytes (read), files_replaced (index files that were
    missing or different), seconds (of work), error (null: none; a segment with a damaged .log keeps its indexes). The
    files are those that a recovery after a crash would write. topics: None for all. The active segment is not touched:
    an open for writing checks it.

        klog.spark.reindex(spark, "/shared/kafka-logs").where("error IS NOT NULL OR files_replaced > 0").show()

    This program holds the lock of the directory until the end; no other program may write there, and a broker must be
    stopped. progress: called in this thread with klog.progress.Event, in bytes. It can be called again at any time.

    Raises AlreadyLocked, UnknownTopicOrPartition, FileNotFoundError.
    """
    jobs.check_session(spark)
    where, wanted = jobs.log_directory(path), jobs.named_topics(topics)
    job = Job(spark, "reindex", where, progress)
    with locked(where) as token:
        reindexing = Reindexing(where, wanted, token)
        sizes = reindexing.sizes
        job.total = sum(size for _, size in sizes)
        items = reindexing.items(jobs.target_bytes(spark, job.total))
        job.run(items, rebuild, lambda _, outcomes: reindexing.take(outcomes))
    return spark.createDataFrame(reindexing.rows(), SCHEMA)


class SegmentOf(NamedTuple):
    """A closed segment."""

    topic: str
    partition: int
    base_offset: int


class Work(NamedTuple):
    """Segments for one task. configs: of their topics."""

    log_dir: str
    segments: Sequence[SegmentOf]
    configs: dict[str, LogConfig]
    token: str
    driver: writers.Driver | None


class Outcome(NamedTuple):
    """What a task has built for one partition, in a directory."""

    topic: str
    partition: int
    rebuilt: Rebuilt
    directory: str
    seconds: float


@contextlib.contextmanager
def locked(where: str, files: Files | None = None) -> Iterator[str]:
    """Hold the lock of a log.dir. Yields the token of a job, whose staging is removed at the end."""
    lock = DirectoryLock(where)
    token = uuid.uuid4().hex
    try:
        yield token
    finally:
        try:
            jobs.clear_staging(where, token, files)
        finally:
            lock.release()


@dataclass
class PartitionDone:
    """What tasks have built for a partition, and how many files of it are in place."""

    rebuilt: Rebuilt = field(default_factory=Rebuilt)
    replaced: int = 0
    seconds: float = 0.0


@dataclass
class Reindexing:
    """The driver's side. The caller holds the lock. One thread."""

    where: str
    wanted: Sequence[str] | None
    token: str
    files: Files = field(default_factory=RealFiles)
    sizes: list[tuple[SegmentOf, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._done: dict[tuple[str, int], PartitionDone] = {}
        with klog.open(self.where, read_only=True, files=self.files) as logs:
            there = logs.topics()
            jobs.check_known(self.wanted or (), there, self.where)
            self._configs = {name: logs.topic_config(name) for name in there}
        for topic in self.wanted if self.wanted is not None else there:
            for number in there[topic]:
                self._done[topic, number] = PartitionDone()
                self.sizes += self._closed(topic, number)

    def _closed(self, topic: str, number: int) -> list[tuple[SegmentOf, int]]:
        path = layout.partition_path(self.where, topic, number)
        return [(SegmentOf(topic, number, base), size) for base, size in jobs.segments_of(path)[:-1]]

    def items(self, target: int) -> list[Item]:
        """The work of the tasks."""
        driver = writers.driver()
        items = []
        for segments, size in jobs.bins(self.sizes, target):
            configs = {segment.topic: self._configs[segment.topic] for segment in segments}
            work = Work(self.where, segments, configs, self.token, driver)
            items.append(Item(work, size, f"{segments[-1].topic}-{segments[-1].partition}"))
        return items

    def take(self, outcomes: Iterable[Outcome]) -> None:
        """Put what a task has built in place."""
        for outcome in outcomes:
            key = outcome.topic, outcome.partition
            done, new = self._done[key], outcome.rebuilt
            total = done.rebuilt
            done.seconds += outcome.seconds
            total.segments += new.segments
            total.bytes += new.bytes
            total.error = total.error or new.error
            try:
                put_in_place(layout.partition_path(self.where, *key), new, outcome.directory, self.files)
                done.replaced += len(new.files)
            except OSError as error:
                total.error = total.error or jobs.error_text(error)

    def rows(self) -> list[tuple[object, ...]]:
        """The report."""
        return [
            (topic, number, layout.partition_path(self.where, topic, number), done.rebuilt.segments, done.rebuilt.bytes,
             done.replaced, done.seconds, done.rebuilt.error)
            for (topic, number), done in sorted(self._done.items())
        ]  # fmt: skip


def rebuild(work: Work, files: Files | None = None) -> list[Outcome]:
    """The work of a task: build the indexes of its segments."""
    bases: dict[tuple[str, int], list[int]] = {}
    for segment in work.segments:
        bases.setdefault((segment.topic, segment.partition), []).append(segment.base_offset)
    return [_rebuild(work, topic, number, set(wanted), files) for (topic, number), wanted in bases.items()]


def _rebuild(work: Work, topic: str, number: int, bases: set[int], files: Files | None) -> Outcome:
    started = SystemClock().monotonic()
    directory, path = "", layout.partition_path(work.log_dir, topic, number)
    try:
        with contextlib.closing(Log.open(path, config=work.configs[topic], read_only=True, files=files)) as log:
            directory = jobs.attempt_directory(work.log_dir, topic, number, work.token, work.driver, files)
            rebuilt = rebuild_indexes(log._core, bases, directory)
    except (KlogError, OSError) as error:
        rebuilt = Rebuilt(error=jobs.error_text(error))
    return Outcome(topic, number, rebuilt, directory, SystemClock().monotonic() - started)
