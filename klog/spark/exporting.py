"""klog.spark.export: the records of topics as files, one directory for each topic, by Spark's own writers.

The ranges are planned before a topic is written, so its files have the records of one moment. Each export writes a
whole topic: klog.spark.materialize keeps a table up to date instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import klog
from klog import arguments
from klog.progress import Progress
from klog.spark import jobs
from klog.spark.jobs import Job
from klog.spark.options import WHICH_PARTITIONS
from klog.spark.places import local
from klog.spark.scan import scan
from klog.spark.survey import INTERNAL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("parquet", "json", "csv")
_OURS = {name.lower() for name in (*WHICH_PARTITIONS, "columns", "view", "includeHeaders")}


def export(
    spark: SparkSession,
    path: str | os.PathLike[str],
    topics: str | Iterable[str] | None,
    target: str | os.PathLike[str],
    *,
    format: str = "parquet",
    progress: Progress | None = None,
    **options: object,
) -> dict[str, str]:
    """Write the records of topics to <target>/<topic>, which is replaced. Returns {topic: directory}.

    Columns: key, value, topic, partition, offset, timestamp, timestampType, headers. In Parquet, key and value are
    binary. In JSON lines and CSV they are text; one that is not UTF-8 is in key_b64 or value_b64 instead, in base64. In
    CSV, headers are JSON. topics: None for all but Kafka's own. target: any file system that Spark writes to.
    options: those of a read by format("klog") that bound it, such as startingTimestamp="-1d" or
    isolationLevel="read_committed".

        klog.spark.export(spark, "/shared/kafka-logs", ["flights", "weather"], "s3a://lake/raw")

    A directory is complete when it has Spark's file _SUCCESS. After a failure, run it again: what was written before is
    replaced. progress: called in this thread with klog.progress.Event, in tasks of a topic.

    Raises UnknownTopicOrPartition, ValueError for a wrong option, FileNotFoundError, and what Spark raises for a job
    that failed.
    """
    jobs.check_session(spark)
    arguments.chosen("format", format, FORMATS)
    for name in options:
        if name.lower() in _OURS:
            raise ValueError(
                f"option '{name}' is not one of an export; read by klog.spark.scan and write what you need"
            )
    where, wanted = jobs.log_directory(path), jobs.named_topics(topics)
    to = arguments.path("target", target).rstrip("/")
    if _contains(where, to):
        raise ValueError(f"target={to!r} is inside the log directory, where Kafka allows only partitions: name another")
    with klog.open(where, read_only=True) as logs:
        there = list(logs.topics())
    jobs.check_known(wanted or (), there, where)
    chosen = wanted if wanted is not None else [topic for topic in there if topic not in INTERNAL]
    job = Job(spark, "export", where, progress)
    written = {topic: f"{to}/{topic}" for topic in chosen}
    for directory in written.values():
        if _contains(directory, where):
            raise ValueError(f"target={to!r}: {directory} would be replaced, but holds the log directory; name another")
    for topic, directory in written.items():
        given: dict[str, Any] = {**options, "subscribe": topic, "includeHeaders": True}
        writer = shaped(scan(spark, where, **given), format).write.mode("overwrite").format(format)
        if format == "csv":
            # Spark strips the spaces of texts that it writes, unless it is told not to.
            writer = writer.options(
                header=True, escape='"', ignoreLeadingWhiteSpace=False, ignoreTrailingWhiteSpace=False
            )
        job.watch(partial(writer.save, directory), job.tasks(topic), topic)
    return written


def _contains(directory: str, path: str) -> bool:
    """Is a path in this directory, or the directory itself? Both may be of other file systems, which hold no log."""
    there = local(directory), local(path)
    if None in there:
        return False
    outer, inner = (os.path.realpath(str(each)) for each in there)
    return f"{inner}/".startswith(f"{outer.rstrip('/')}/")


def shaped(rows: DataFrame, format: str) -> DataFrame:
    """The rows as a format can hold them."""
    if format == "parquet":
        return rows
    columns = []
    for name in rows.columns:
        if name in ("key", "value"):
            text = f"cast({name} AS string)"
            columns.append(f"CASE WHEN is_valid_utf8({text}) THEN {text} END AS {name}")
            columns.append(f"CASE WHEN NOT is_valid_utf8({text}) THEN base64({name}) END AS {name}_b64")
        elif name == "headers" and format == "csv":
            columns.append("to_json(headers) AS headers")
        else:
            columns.append(name)
    return rows.selectExpr(*columns)
