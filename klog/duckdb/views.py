"""Topics as tables of DuckDB: as views of a connection, or as datasets, which DuckDB finds by the name of a Python
variable."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import klog
from klog import arguments, extras
from klog.log.read.isolation import Isolation
from klog.log.read.positions import Position
from klog.manager.directory_set import Paths

if TYPE_CHECKING:
    import duckdb
    import pyarrow.dataset

    from klog.decode import Decode


def dataset(
    path: Paths,
    topic: str,
    *,
    partitions: Iterable[int] | None = None,
    start: Position | None = None,
    stop: Position | None = None,
    isolation: Isolation = "high_watermark",
    decode: Decode | None = None,
) -> pyarrow.dataset.Dataset:
    """Return the records of a topic as a pyarrow dataset, for DuckDB and other readers of datasets.

        flights = klog.duckdb.dataset("data", "flights", decode=klog.decode.Json("delay DOUBLE"))
        duckdb.sql("SELECT avg(value.delay) FROM flights WHERE \\"offset\\" < 5000")

    path: a log.dir, or several. partitions: their numbers, all of the topic by default. start, stop, isolation, decode:
    as in Log.read. Columns: offset, timestamp, timestamp_type, key, value, headers, topic, partition. A timestamp that
    DuckDB cannot hold, after the year 294246, is null.

    DuckDB passes on the columns and the filter of a query. Only those columns are decoded; partitions, segments and
    batches that the filter excludes by offset, partition or timestamp are not read. Each query reads the log.dir
    as it is when the query begins, in bounded memory.

    Raises UnknownTopicOrPartition, OffsetOutOfRange, ValueError, and ImportError without pyarrow. A query raises
    DuckDB's own errors, with the text of klog's.
    """
    try:
        from klog.duckdb.topic_dataset import TopicDataset
    except ImportError as error:
        raise extras.missing("dataset()", "pyarrow", "duckdb", error) from error
    numbers = None if partitions is None else sorted(set(arguments.wholes("partitions", partitions, 0)))
    with klog.open(path, read_only=True) as logs:
        return TopicDataset(
            logs.paths, arguments.text("topic", topic), numbers, start, stop, isolation, decode, logs=logs
        )


def register(
    connection: duckdb.DuckDBPyConnection, path: Paths, *, topics: Iterable[str] | None = None, **options: Any
) -> list[str]:
    """Make topics views of a connection, each under its name, and return the names. A view of such a name is replaced.

    topics: their names; None for all. options: those of dataset(). In SQL, put names with dots or dashes in
    double quotes. Raises what dataset() raises; TypeError; ValueError for topics whose names differ only by case, which
    SQL does not distinguish.
    """
    arguments.having("connection", connection, ("register", "sql"), "a connection of duckdb")
    wanted = None if topics is None else arguments.texts("topics", topics)
    if wanted is None:
        with klog.open(path, read_only=True) as logs:
            wanted = list(logs.topics())
    names: dict[str, str] = {}
    for topic in wanted:
        if (other := names.setdefault(topic.lower(), topic)) != topic:
            raise ValueError(
                f"topics {other!r} and {topic!r} have the same name in SQL: pass topics= with one of them, and read "
                f"the other by klog.duckdb.dataset()"
            )
    found = {topic: dataset(path, topic, **options) for topic in wanted}
    for topic, each in found.items():
        connection.register(topic, each)
    return wanted


def connect(
    path: Paths,
    *,
    topics: Iterable[str] | None = None,
    database: str | os.PathLike[str] = ":memory:",
    **options: Any,
) -> duckdb.DuckDBPyConnection:
    """Return a new connection of DuckDB in which topics are views. Close it after use. path, topics, options: as in
    register().

    database: the file that DuckDB opens, by default none. Raises ImportError without duckdb, and what register()
    raises.
    """
    try:
        import duckdb
    except ImportError as error:
        raise extras.missing("connect()", "duckdb", "duckdb", error) from error
    connection = duckdb.connect(arguments.path("database", database))
    try:
        register(connection, path, topics=topics, **options)
    except BaseException:
        connection.close()
        raise
    return connection
