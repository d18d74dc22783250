"""Work over the files of a log.dir as Spark jobs: one task for each item, results to the driver, progress meanwhile.

J1  an item carries all that its task needs; a task may run twice, also at the same time
J2  items begin in the order of their size, the largest first; results have the order of the items
J3  the jobs of a call have a group and a title, so the Spark UI names them; Ctrl-C, or an error of the progress
    callback, cancels them
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from klog import arguments
from klog.disk import Files, RealFiles, is_directory
from klog.errors import UnknownTopicOrPartition
from klog.log.directory.partition_names import parse_directory_name
from klog.log.staged import writers
from klog.logger import logger_of
from klog.progress import Event, Progress
from klog.segment import names
from klog.spark.plan import Sizing
from klog.spark.sink_options import absolute_path
from klog.values import NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logger_of("spark")
T = TypeVar("T")
_POLL_S = 0.2
_LEAST_BYTES = 64 << 10


class Item(NamedTuple):
    """What one task does. bytes: its share of the whole; name: for progress, such as flights-3."""

    value: Any
    bytes: int
    name: str


class _Results:
    """The accumulator of results: Spark adds those of each task once, when it ends."""

    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(self, one: list[Any], other: list[Any]) -> list[Any]:  # noqa: N802  Spark's name
        return one + other


class Job:
    """One call: its title in Spark's UI, its stage in progress events. total: bytes to do in all."""

    def __init__(self, spark: SparkSession, stage: str, path: str, progress: Progress | None) -> None:
        arguments.function("progress", progress)
        self._spark, self._stage, self._progress = spark, stage, progress
        self._title = f"klog.spark.{stage} {path}"
        self.total = 0
        self._done = 0

    def run(
        self,
        items: Sequence[Item],
        task: Callable[[Any], T],
        each: Callable[[int, T], None] | None = None,
        what: str = "",
    ) -> list[T]:
        """Call task(item.value) for each item in a Spark task of its own. Returns the results. Spark tries a task that
        fails again; when it gives up, its error is raised. each: called in this thread with (number of the item,
        result), as tasks end. what: added to the title."""
        if not items:
            return []
        context = self._spark.sparkContext
        arrived: Any = context.accumulator([], _Results())  # type: ignore[arg-type]
        order = sorted(range(len(items)), key=lambda number: -items[number].bytes)
        results: dict[int, T] = {}
        seen = 0

        def work(part: tuple[int, Any]) -> int:
            number, value = part
            arrived.add([(number, task(value))])
            return number

        def poll(_group: str) -> None:
            nonlocal seen
            new = arrived.value[seen:]
            seen += len(new)
            for number, result in new:
                results[number] = result
                if each is not None:
                    each(number, result)
                self._done += items[number].bytes
                self._report(items[number].name)

        parts = context.parallelize([(number, items[number].value) for number in order], len(order))
        try:
            self.watch(parts.map(work).count, poll, what)
        finally:
            arrived.value = []  # PySpark keeps every accumulator until the program ends
        if len(results) != len(items):
            raise RuntimeError(f"{self._title}: Spark gave the results of {len(results)} of {len(items)} tasks")
        return [results[number] for number in range(len(items))]

    def tasks(self, name: str) -> Callable[[str], None]:
        """Return a function that reports how many tasks of a group's jobs have ended, when that has changed."""
        tracker = self._spark.sparkContext.statusTracker()
        reported = 0, 0

        def poll(group: str) -> None:
            nonlocal reported
            done = total = 0
            for job in tracker.getJobIdsForGroup(group):
                for stage in getattr(tracker.getJobInfo(job), "stageIds", ()):
                    info = tracker.getStageInfo(stage)
                    if info is not None:
                        done, total = done + info.numCompletedTasks, total + info.numTasks
            if self._progress is not None and (done, total) != reported:
                reported = done, total
                self._progress(Event(self._stage, done, total, "tasks", name))

        return poll

    def _report(self, name: str) -> None:
        if self._progress is not None:
            self._progress(Event(self._stage, self._done, self.total, "bytes", name))

    def watch(self, call: Callable[[], T], poll: Callable[[str], None], what: str = "") -> T:
        """Run call() in a thread whose jobs have the title (J3). Meanwhile, and after it, poll(group of these jobs) is
        called in this thread. what: added to the title."""
        from pyspark import InheritableThread

        context = self._spark.sparkContext
        group = f"klog-{uuid.uuid4().hex}"
        results: list[T] = []
        errors: list[BaseException] = []

        def work() -> None:
            context.setJobGroup(group, f"{self._title} {what}".rstrip(), interruptOnCancel=True)
            try:
                results.append(call())
            except BaseException as error:  # raised below
                errors.append(error)

        thread = InheritableThread(target=work, name="klog-spark-job", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_POLL_S)
                poll(group)
            poll(group)
        except BaseException:
            context.cancelJobGroup(group)
            thread.join()
            raise
        if errors:
            raise errors[0]
        return results[0]


def check_session(spark: SparkSession) -> None:
    """Raise TypeError for a session without a SparkContext: its tasks cannot be started from here."""
    if type(spark).__module__.startswith("pyspark.sql.connect") or not hasattr(spark, "sparkContext"):
        raise TypeError(
            "this session has no SparkContext (Spark Connect): run the job in a program that starts its own session, "
            "such as klog.spark.session()"
        )


def directory(path: str | os.PathLike[str]) -> str:
    """The absolute path of an existing directory. Raises FileNotFoundError, OSError, ValueError for other file
    systems."""
    where = absolute_path(arguments.path("path", path))
    if not is_directory(where):
        raise FileNotFoundError(f"{where} does not exist; give a Kafka log directory that every executor sees")
    return where


def log_directory(path: str | os.PathLike[str]) -> str:
    """The absolute path of a log.dir. Raises UnknownTopicOrPartition for a directory without partitions."""
    where = directory(path)
    if not any(map(parse_directory_name, os.listdir(where))):
        raise UnknownTopicOrPartition(
            f"{where} has no directories named <topic>-<partition>: give a log.dir, not a partition of it"
        )
    return where


def named_topics(topics: str | Iterable[str] | None) -> list[str] | None:
    """The names of topics that a caller gives; None for all."""
    if topics is None:
        return None
    return list(dict.fromkeys([topics] if isinstance(topics, str) else arguments.texts("topics", topics)))


def check_known(topics: Iterable[str], there: Iterable[str], path: str) -> None:
    """Raise UnknownTopicOrPartition unless all topics are there."""
    known = set(there)
    for topic in topics:
        if topic not in known:
            raise UnknownTopicOrPartition(f"no topic {topic!r} in {path}; it has {', '.join(sorted(known)) or 'none'}")


def segments_of(path: str) -> list[tuple[int, int]]:
    """(base offset, bytes of .log) of the live segments of a partition, in order; the last one is active."""
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            base, suffix = names.parse_name(entry.name) or (0, "")
            if suffix == names.LOG:
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile, by retention
                    found.append((base, entry.stat(follow_symlinks=False).st_size))
    return sorted(found)


def attempt_directory(
    log_dir: str, topic: str, partition: int, token: str, driver: writers.Driver | None, files: Files | None = None
) -> str:
    """Make a directory among the staged files of a partition, for one attempt of a task (J1); returns its path."""
    files = files or RealFiles()
    staging = writers.make_staging(log_dir, topic, partition, token, driver, files)
    path = os.path.join(staging, uuid.uuid4().hex)
    files.mkdir(path)
    return path


def error_text(error: BaseException) -> str:
    """An error as reports show it."""
    return f"{type(error).__name__}: {error}"


def clear_staging(path: str, token: str, files: Files | None = None) -> None:
    """Remove what the tasks of a job have staged, under the lock. A task that still runs may stage again, and an error
    may leave some: the next open for writing removes that."""
    try:
        writers.remove_staging(path, token, files or RealFiles())
    except OSError as error:
        logger.warning("event=staging_not_removed path=%s token=%s error=%s", path, token, error)


def target_bytes(spark: SparkSession, total: int) -> int:
    """How many bytes a task should read."""
    return Sizing(max(spark.sparkContext.defaultParallelism, 1)).target(total)


def bins(sizes: Sequence[tuple[T, int]], target: int) -> list[tuple[list[T], int]]:
    """Put neighbours together up to the target: [(members, bytes), ...]. The work on a small file counts, too."""
    found: list[tuple[list[T], int]] = []
    left = 0
    for member, size in sizes:
        if not found or max(size, _LEAST_BYTES) > left:
            found.append(([], 0))
            left = target
        members, before = found[-1]
        members.append(member)
        found[-1] = members, before + size
        left -= max(size, _LEAST_BYTES)
    return found
