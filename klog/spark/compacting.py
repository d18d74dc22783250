"""klog.spark.compact: Log.compact for many partitions, with the work in Spark's tasks and every change in the driver.

    driver   opens the log.dir and so holds its lock; closes the active segments; plans each partition
    task     opens its partition read-only, builds the cleaned segments in <partition>/.klog-staging-TOKEN/<attempt>
    driver   as each task ends: puts its segments in place, one after the other
    ...      again, where the key map was too small for all keys

  C1  only the holder of the lock changes a log. A task that runs twice, hangs or outlives the driver writes into its
      own directory and nowhere else
  C2  a crash leaves each group of segments old or new. The next open for writing removes what tasks have staged
  C3  an error ends only its own partition

Run again after a failure, it does what is left: the cleaner's checkpoint states how far each partition is clean.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import klog
from klog import Log, LogConfig, LogManager, arguments
from klog.cleaner import Built, CleaningPlan, SplitNeeded, adopt, build, plan_cleaning
from klog.clock import Clock, SystemClock
from klog.disk import Files, remove_tree
from klog.errors import ConfigUnknown, KlogError, PolicyViolation
from klog.log.staged import layout, writers
from klog.log.write.removal import unlink_now
from klog.log.write.roll import roll
from klog.progress import Progress
from klog.spark import jobs
from klog.spark.jobs import Item, Job
from klog.values import NamedTuple, dataclass, field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "topic string, partition int, path string, bytes_before long, bytes_after long, records_before long, "
    "records_after long, rounds int, seconds double, error string"
)


def compact(
    spark: SparkSession,
    path: str | os.PathLike[str],
    topics: str | Iterable[str] | None = None,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> DataFrame:
    """Compact the partitions of a log.dir, as Log.compact(roll=True) does, on the executors. Returns a row for each.

    Columns: topic, partition, path, bytes_before, bytes_after, records_before, records_after, rounds, seconds (of
    work), error (null: none; an error ends only its partition). topics: None for all with cleanup.policy=compact.
    dry_run: only read, without the lock, and return what one round would do.

        report = klog.spark.compact(spark, "/shared/kafka-logs", topics="customers")
        report.agg({"bytes_before": "sum", "bytes_after": "sum"}).show()

    This program holds the lock of the directory until the end; no other program may write there, and a broker must be
    stopped. Until a partition is done, its cleaned segments take space beside the old ones. progress: called in this
    thread with klog.progress.Event, in bytes. Call it again after a failure: it goes on where it ended.

    Raises AlreadyLocked, UnknownTopicOrPartition, PolicyViolation for a named topic that is not compacted,
    ConfigUnknown for one whose policy is unknown (as in a broker's directory), FileNotFoundError.
    """
    jobs.check_session(spark)
    arguments.flag("dry_run", dry_run)
    where, wanted = jobs.log_directory(path), jobs.named_topics(topics)
    job = Job(spark, "compact", where, progress)
    rows = _forecast(job, where, wanted) if dry_run else _compact(job, where, wanted)
    return spark.createDataFrame(rows, SCHEMA)


def compacted_topics(logs: LogManager, where: str, wanted: Sequence[str] | None) -> list[str]:
    """The topics to compact: those wanted, or all whose policy says so."""
    there = logs.topics()
    jobs.check_known(wanted or (), there, where)
    policies = {name: logs.topic_config(name).compacts if logs._catalog.entry(name) else None for name in there}
    for name in wanted or ():
        if policies[name] is None:
            raise ConfigUnknown(
                f"the cleanup policy of {name} is unknown, because a broker's directory does not store it: give it a "
                f"configuration first, logs.alter_topic({name!r}, {{'cleanup.policy': 'compact'}})"
            )
        if not policies[name]:
            raise PolicyViolation(
                f"the cleanup.policy of {name} has no compact: compaction would delete every record but the last one "
                "of each key, and all without a key. If you want that, alter the topic first"
            )
    chosen = list(wanted) if wanted is not None else [name for name, compacts in policies.items() if compacts]
    if not chosen and None in policies.values():
        raise ConfigUnknown(
            f"unknown which topics of {where} are compacted: a broker's directory does not store the cleanup policy. "
            "Give a topic its configuration first, logs.alter_topic(name, {'cleanup.policy': 'compact'})"
        )
    return chosen


# ---- the driver ------------------------------------------------------------------------------------------------------


def _compact(job: Job, where: str, wanted: Sequence[str] | None) -> list[tuple[object, ...]]:
    with klog.open(where) as logs:
        compaction = Compaction(logs, where, compacted_topics(logs, where, wanted))
        try:
            while items := compaction.items():
                job.total += sum(item.bytes for item in items)
                job.run(items, build_one, lambda _, built: compaction.take(built))
            return compaction.rows()
        finally:
            jobs.clear_staging(where, compaction.token)


@dataclass
class _Partition:
    """One partition and what has been done to it. plan: of the task that builds its segments now."""

    topic: str
    partition: int
    path: str
    log: Log | None = None
    plan: CleaningPlan | None = None
    done: bool = False
    bytes_before: int | None = None
    bytes_after: int | None = None
    records_before: int | None = None
    records_after: int | None = None
    dropped: int = 0
    rounds: int = 0
    seconds: float = 0.0
    error: str | None = None

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def row(self) -> tuple[object, ...]:
        return (
            self.topic,
            self.partition,
            self.path,
            self.bytes_before,
            self.bytes_after,
            self.records_before,
            self.records_after,
            self.rounds,
            self.seconds,
            self.error,
        )


class Work(NamedTuple):
    """What a task needs to know. plan: None for one that only counts the records."""

    log_dir: str
    topic: str
    partition: int
    config: LogConfig
    plan: CleaningPlan | None
    token: str
    driver: writers.Driver | None


class Outcome(NamedTuple):
    """What a task has built in a directory, or why it has not. split: the driver must compact it alone."""

    topic: str
    partition: int
    directory: str = ""
    built: Built | None = None
    records: int = 0
    seconds: float = 0.0
    error: str | None = None
    split: bool = False


@dataclass
class Compaction:
    """The driver's side. logs: open for writing. One thread."""

    logs: LogManager
    where: str
    topics: Sequence[str]
    clock: Clock = field(default_factory=SystemClock)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self._partitions: dict[tuple[str, int], _Partition] = {}
        there = self.logs.topics()
        for topic in self.topics:
            for number in there[topic]:
                path = layout.partition_path(self.where, topic, number)
                self._partitions[topic, number] = _Partition(topic, number, path)

    def items(self) -> list[Item]:
        """The work of the next Spark job; none: all is done."""
        items = []
        driver = writers.driver()
        for partition in self._partitions.values():
            if partition.done:
                continue
            first = partition.log is None
            with self._guarded(partition):
                log = self._begin(partition)
                partition.plan = plan = plan_cleaning(log._core)
                if plan is None and not first:
                    partition.done = True
                    continue
                work = Work(self.where, partition.topic, partition.partition, log.config, plan, self.token, driver)
                items.append(Item(work, 0 if plan is None else plan.bytes, partition.name))
        return items

    def _begin(self, partition: _Partition) -> Log:
        """Load a partition, and close its active segment, so that it is cleaned, too."""
        log = partition.log
        if log is None:
            log = self.logs.log(partition.topic, partition.partition)
            if log.segments[-1].size:
                roll(log._core, 0)
            partition.log, partition.bytes_before, partition.bytes_after = log, log.size, log.size
        return log

    def take(self, outcome: Outcome) -> None:
        """Put what a task has built in place."""
        partition = self._partitions[outcome.topic, outcome.partition]
        partition.seconds += outcome.seconds
        if outcome.error is not None:
            partition.error, partition.done = outcome.error, True
            return
        if partition.records_before is None:
            partition.records_before = partition.records_after = outcome.records
        if partition.plan is None:
            partition.done = True
            return
        started = self.clock.monotonic()
        with self._guarded(partition):
            self._adopt(partition, partition.plan, outcome)
        partition.seconds += self.clock.monotonic() - started

    def _adopt(self, partition: _Partition, plan: CleaningPlan, outcome: Outcome) -> None:
        log = partition.log
        assert log is not None
        if outcome.split:
            partition.rounds += log.compact().rounds
            partition.done = True
        else:
            assert outcome.built is not None
            adopt(log._core, plan, outcome.built, outcome.directory)
            with contextlib.suppress(OSError):  # clear_staging() removes it, or the next open for writing
                remove_tree(outcome.directory, log._core.options.files)
            partition.dropped += outcome.built.stats.records_dropped
            partition.rounds += 1
            partition.done = outcome.built.stats.end <= plan.range.first_dirty  # the map has no space for a single key
        unlink_now(log._core)  # the purpose is free space; a reader that has the files open keeps them
        partition.bytes_after = log.size
        if outcome.split or log.log_start_offset > log.segments[0].base_offset:
            partition.records_after = log.count()  # some of those dropped were below the log start
        else:
            partition.records_after = (partition.records_before or 0) - partition.dropped

    @contextlib.contextmanager
    def _guarded(self, partition: _Partition) -> Any:
        """C3"""
        try:
            yield
        except (KlogError, OSError) as error:
            partition.error, partition.done = jobs.error_text(error), True

    def rows(self) -> list[tuple[object, ...]]:
        """The report."""
        return [partition.row() for _, partition in sorted(self._partitions.items())]


# ---- the tasks -------------------------------------------------------------------------------------------------------


def build_one(work: Work, clock: Clock | None = None, files: Files | None = None) -> Outcome:
    """Build the cleaned segments of one partition; C1."""
    started = SystemClock().monotonic()
    topic, partition = work.topic, work.partition
    try:
        path = layout.partition_path(work.log_dir, topic, partition)
        opened = Log.open(path, config=work.config, read_only=True, clock=clock, files=files)
        with contextlib.closing(opened) as log:
            records = log.count()
            built, directory = None, ""
            if work.plan is not None:
                directory = jobs.attempt_directory(work.log_dir, topic, partition, work.token, work.driver, files)
                built = build(log._core, work.plan, directory)
        return Outcome(topic, partition, directory, built, records, SystemClock().monotonic() - started)
    except SplitNeeded:
        return Outcome(topic, partition, split=True, records=records)
    except (KlogError, OSError) as error:
        return Outcome(topic, partition, error=jobs.error_text(error))


# ---- dry run ---------------------------------------------------------------------------------------------------------


def _forecast(job: Job, where: str, wanted: Sequence[str] | None) -> list[tuple[object, ...]]:
    items = []
    with klog.open(where, read_only=True) as logs:
        for topic in compacted_topics(logs, where, wanted):
            config = logs.topic_config(topic)
            for number in logs.topics()[topic]:
                path = layout.partition_path(where, topic, number)
                size = sum(size for _, size in jobs.segments_of(path))
                items.append(Item((topic, number, path, config), size, f"{topic}-{number}"))
    job.total = sum(item.bytes for item in items)
    return [partition.row() for partition in job.run(items, _forecast_one)]


def _forecast_one(work: tuple[str, int, str, LogConfig]) -> _Partition:
    topic, number, path, config = work
    result = _Partition(topic, number, path)
    try:
        with contextlib.closing(Log.open(path, config=config, read_only=True)) as log:
            stats = log.compact(roll=True, dry_run=True, top=0)
    except (KlogError, OSError) as error:
        result.error = jobs.error_text(error)
        return result
    result.bytes_before, result.bytes_after = stats.bytes_before, stats.bytes_after
    result.records_before, result.records_after = stats.records_before, stats.records_after
    result.rounds, result.seconds = stats.rounds, stats.seconds
    return result
