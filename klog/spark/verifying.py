"""klog.spark.verify: klog.verify as Spark jobs, with the same problems in the same order.

    driver   the log.dir's own files
    job 1    small partitions as a whole; segments of large ones: every byte, their damage alone
    job 2    large partitions: their headers and small files, in order, with that damage

Checks that need the batches in order, such as epochs, producers and gaps, stay in one task for each partition.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from klog.errors import CorruptData
from klog.inspect.batches import Examined, examine
from klog.inspect.verify import verify_each, verify_root
from klog.log.directory.partition_names import parse_directory_name
from klog.progress import Progress
from klog.report import Problem
from klog.segment import names
from klog.spark import jobs
from klog.spark.jobs import Item, Job
from klog.values import NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "topic string, partition int, path string, position long, offset long, kind string, message string"


class _Check(NamedTuple):
    """Partitions for one task. examined: .log files whose damage is known."""

    paths: Sequence[str]
    examined: dict[str, Examined]


class _Examine(NamedTuple):
    """.log files for one task."""

    paths: Sequence[str]


def verify(
    spark: SparkSession,
    path: str | os.PathLike[str],
    topics: str | Iterable[str] | None = None,
    *,
    progress: Progress | None = None,
) -> DataFrame:
    """Check every invariant of a log.dir, or of one partition directory, and return its problems; none: it is sound.

    The problems are those of klog.verify(path), with the columns topic, partition (both null if the problem is one of
    the log.dir), path, position (in bytes), offset, kind and message. topics: only their partitions, besides the files
    of the log.dir itself. Nothing is changed and nothing is locked; the files are read now, once for each call.

        problems = klog.spark.verify(spark, "/shared/kafka-logs", topics=["flights"])
        problems.groupBy("topic", "kind").count().show()

    progress: called in this thread with klog.progress.Event, in bytes. Raises UnknownTopicOrPartition,
    FileNotFoundError for a directory that is not there or has nothing to verify, and OSError.
    """
    jobs.check_session(spark)
    where, wanted = jobs.directory(path), jobs.named_topics(topics)
    root = verify_root(where)
    partitions = root.partitions
    if wanted is not None:
        topics_of = {each: _partition(each)[0] for each in partitions}
        jobs.check_known(wanted, filter(None, topics_of.values()), where)
        partitions = [each for each in partitions if topics_of[each] in wanted]
    job = Job(spark, "verify", where, progress)
    sizes = {each: _logs(each) for each in partitions}
    job.total = sum(size for logs in sizes.values() for _, size in logs)
    found = check_partitions(job, sizes, jobs.target_bytes(spark, job.total))
    rows = [_row(None, None, problem) for problem in root.report.problems]
    for each in partitions:
        rows += [_row(*_partition(each), problem) for problem in found[each]]
    return spark.createDataFrame(rows, SCHEMA)


def check_partitions(job: Job, logs: Mapping[str, Sequence[tuple[str, int]]], target: int) -> dict[str, list[Problem]]:
    """The problems of each partition. logs: the .log files of each, with their sizes. target: bytes for a task."""
    sizes = {each: sum(size for _, size in files) for each, files in logs.items()}
    large = [each for each in logs if sizes[each] > 2 * target and len(logs[each]) > 1]
    items = [
        Item(_Check(paths, {}), size, os.path.basename(paths[-1]))
        for paths, size in jobs.bins([(each, sizes[each]) for each in logs if each not in large], target)
    ]
    for each in large:
        for files, size in jobs.bins(logs[each], target):
            items.append(Item(_Examine(files), size, os.path.basename(each)))
    found: dict[str, list[Problem]] = {}
    examined: dict[str, dict[str, Examined]] = {each: {} for each in large}
    for problems, damage in job.run(items, _task):
        found.update(problems)
        for one in damage:
            examined[os.path.dirname(one.path)][one.path] = one
    items = [Item(_Check([each], examined[each]), 0, os.path.basename(each)) for each in large]
    for problems, _ in job.run(items, _task, what="(in order)"):
        found.update(problems)
    return found


def _task(work: _Check | _Examine) -> tuple[dict[str, list[Problem]], list[Examined]]:
    """What a task does: the problems of partitions, or the damage of .log files."""
    if isinstance(work, _Check):
        reports = verify_each(work.paths, work.examined, lambda size: None)
        return {report.path: report.problems for report in reports}, []
    damage = []
    for path in work.paths:
        try:
            damage.append(examine(path))
        except (CorruptData, FileNotFoundError):  # the check in order finds it again, or that it has been removed
            continue
    return {}, [one for one in damage if one is not None]


def _logs(path: str) -> list[tuple[str, int]]:
    """The .log files of a partition, in order, with their sizes."""
    return [(names.file_path(path, base, names.LOG), size) for base, size in jobs.segments_of(path)]


def _partition(path: str) -> tuple[str | None, int | None]:
    return parse_directory_name(os.path.basename(path)) or (None, None)


def _row(topic: str | None, partition: int | None, problem: Problem) -> tuple[object, ...]:
    path, message = (text.encode(errors="backslashreplace").decode() for text in (problem.path, problem.message))
    return topic, partition, path, problem.position, problem.offset, problem.kind, message
