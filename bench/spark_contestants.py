"""The contestants of bench.spark: the same query over the same records by format("klog"), Spark's Kafka connector,
Parquet, and a source whose rows are ready.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import klog
import klog.spark
from bench import spark_data
from bench.spark_data import EMPTY, FULL, SMALL, TABLE, Data
from klog.spark.api import DataSource, DataSourceReader, InputPartition
from klog.spark.source import KlogSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


@dataclass(frozen=True)
class Query:
    """`ask` runs the query on a DataFrame. `wanted` returns the expected result for a topic with so many rows."""

    name: str
    columns: tuple[str, ...]
    ask: Callable[[DataFrame], object]
    wanted: Callable[[int], object]


def _noop(frame: DataFrame) -> object:
    frame.write.format("noop").mode("overwrite").save()
    return None


def _sum(frame: DataFrame) -> object:
    return frame.selectExpr("sum(length(value))").collect()[0][0] or 0


def _newest(frame: DataFrame) -> object:
    return sorted((row[0], row[1]) for row in frame.groupBy("partition").agg({"offset": "max"}).collect())


def _count(frame: DataFrame) -> object:
    return frame.count()


def _headers(frame: DataFrame) -> object:
    return frame.where("not isControl").selectExpr("sum(recordCount)").collect()[0][0] or 0


def _last_offsets(rows: int) -> list[tuple[int, int]]:
    each = rows // spark_data.PARTITIONS
    return [(partition, each - 1) for partition in range(spark_data.PARTITIONS) if rows]


QUERIES = (
    Query("all columns to noop", _COLUMNS, _noop, lambda _: None),
    Query("sum(length(value))", ("value",), _sum, lambda rows: rows * spark_data.VALUE_BYTES),
    Query(
        "max(offset) by partition",
        ("partition", "offset"),
        _newest,
        _last_offsets,
    ),
    Query("count()", ("offset",), _count, lambda rows: rows),
)


@dataclass(frozen=True)
class Contestant:
    """A query by one source of rows. frame: returns the rows of a topic as a DataFrame."""

    name: str
    frame: Callable[[Query, str], DataFrame]
    ask: Callable[[DataFrame], object] | None = None  # another form of the same query
    repeats: bool = False  # it yields the same offsets again and again

    def run(self, query: Query, topic: str, rows: int) -> None:
        """Run the query, and check its result."""
        answer = (self.ask or query.ask)(self.frame(query, topic))
        wanted = query.wanted(rows)
        assert answer == wanted or (self.repeats and query.ask is _newest), f"{self.name}: {answer}, not {wanted}"


class _Prepared(DataSource):  # type: ignore[misc]
    """A source with as many batches and rows as klog's. It makes a batch once per task and yields it again and again:
    the speed that a source in Python cannot exceed."""

    @classmethod
    def name(cls) -> str:
        return "prepared"

    def schema(self) -> Any:
        return KlogSource(dict(self.options)).schema()

    def reader(self, schema: Any) -> DataSourceReader:
        return _PreparedReader(KlogSource(dict(self.options)).reader(schema))


class _PreparedReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def partitions(self) -> list[InputPartition]:
        return list(self._reader.partitions())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _again(self._reader.read, partition)


def _again(read: Callable[[Any], Iterator[pa.RecordBatch]], partition: Any) -> Iterator[pa.RecordBatch]:
    """Yield as many rows as each range has, all from its first batch."""
    for wanted in partition.value or ():
        left = wanted.end_offset - wanted.start_offset
        first = next(read(InputPartition((wanted,))))
        while left > 0:
            yield first.slice(0, left)
            left -= first.num_rows


def materialize(spark: SparkSession, data: Data) -> None:
    """Make the tables that klog.spark.table reads, with Parquet's compression."""
    for topic in (FULL, EMPTY):
        klog.spark.materialize(spark, data.logs, topic, data.table(topic), compression="snappy")


def contestants(spark: SparkSession, data: Data, query: Query) -> list[Contestant]:
    """Return the contestants of a query, klog's first. Each reads only the columns that the query needs."""
    spark.dataSource.register(_Prepared)
    where = str(data.logs)
    columns = ",".join(query.columns)

    def source(name: str, topic: str, **options: str) -> DataFrame:
        return spark.read.format(name).options(subscribe=topic, columns=columns, **options).load(where)

    def scan(topic: str) -> DataFrame:
        return klog.spark.scan(spark, where, list(query.columns), subscribe=topic)

    def table(topic: str) -> DataFrame:
        return klog.spark.table(spark, where, topic, data.table(topic))

    def ready(topic: str) -> DataFrame:
        reader = KlogSource({"path": where, "subscribe": topic, "columns": columns}).reader(scan(topic).schema)
        planned = reader.partitions()

        def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    yield from _again(reader.read, planned[number])

        return spark.range(0, len(planned), 1, max(len(planned), 1)).mapInArrow(task, scan(topic).schema)

    found = [
        Contestant('format("klog")', lambda _, topic: source("klog", topic)),
        Contestant("klog.spark.scan", lambda _, topic: scan(topic)),
    ]
    if query.name == "count()":
        batches = {"view": "batches", "columns": "recordCount,isControl"}
        found.append(
            Contestant(
                "view=batches",
                lambda _, topic: spark.read.format("klog").options(subscribe=topic, **batches).load(where),
                _headers,
            )
        )
    found += [
        Contestant("rows ready, data source", lambda _, topic: source("prepared", topic), repeats=True),
        Contestant("rows ready, mapInArrow", lambda _, topic: ready(topic), repeats=True),
    ]
    if data.broker is not None:
        kafka = {"kafka.bootstrap.servers": data.address, "startingOffsets": "earliest"}
        found.append(
            Contestant(
                "Kafka connector", lambda _, topic: spark.read.format("kafka").options(subscribe=topic, **kafka).load()
            )
        )
    found.append(Contestant("klog.spark.table", lambda each, topic: table(topic).select(*each.columns)))
    found.append(
        Contestant("Parquet", lambda each, topic: spark.read.parquet(data.parquet(topic)).select(*each.columns))
    )
    return found


# ---- writes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sink:
    """Writes the keys and values of a DataFrame. prepare() is not timed. rows() returns the number of rows written."""

    name: str
    prepare: Callable[[], object]
    write: Callable[[DataFrame], object]
    rows: Callable[[], int]


def sinks(spark: SparkSession, data: Data) -> list[Sink]:
    """Return the sinks to compare, klog's first."""
    home, parquet = data.home / "sink", data.home / "sink-parquet"
    number = iter(range(1 << 30))
    topic = [TABLE]

    def fresh() -> None:
        shutil.rmtree(home, ignore_errors=True)
        with klog.open(home, create=True) as logs:
            logs.create_topic(TABLE, partitions=spark_data.PARTITIONS)

    def count() -> int:
        with klog.open(home, read_only=True) as logs:
            return sum(logs.log(TABLE, part).log_end_offset for part in range(spark_data.PARTITIONS))

    found = [
        Sink(
            'format("klog")',
            fresh,
            lambda frame: frame.write.format("klog").option("topic", TABLE).mode("append").save(str(home)),
            count,
        )
    ]
    broker = data.broker
    if broker is not None:
        kafka = {"kafka.bootstrap.servers": data.address}

        def other_topic() -> None:
            topic[0] = f"{TABLE}-{next(number)}"
            spark_data.create(broker, topic[0])

        def there() -> int:
            ends = spark.read.format("klog").options(view="partitions", subscribe=topic[0], columns="logEndOffset")
            return int(ends.load(str(data.logs)).selectExpr("sum(logEndOffset)").collect()[0][0])

        found.append(
            Sink(
                "Kafka connector",
                other_topic,
                lambda frame: frame.write.format("kafka").options(topic=topic[0], **kafka).save(),
                there,
            )
        )
    found.append(
        Sink(
            "Parquet",
            lambda: shutil.rmtree(parquet, ignore_errors=True),
            lambda frame: frame.write.parquet(str(parquet)),
            lambda: spark.read.parquet(str(parquet)).count(),
        )
    )
    return found


# ---- streams ---------------------------------------------------------------------------------------------------------


_CHECKPOINT = ("walCommit", "commitOffsets")  # two files a batch, which Spark writes for every source


def trigger_seconds(spark: SparkSession, data: Data, name: str, each: int, folder: Path) -> list[tuple[float, float]]:
    """Run a query that reads a topic to its end into noop, `each` rows at a time. Return the seconds of each trigger:
    the whole trigger, and without Spark's writes to the checkpoint. The first two triggers are left out: they start the
    readers."""
    topic = SMALL if each * 10 <= data.sizes.small else FULL
    options: dict[str, str] = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(each)}
    reader = spark.readStream.format(name)
    if name == "kafka":
        frame = reader.options(**options, **{"kafka.bootstrap.servers": data.address}).load()
    elif name == spark_data.READY:
        frame = reader.options(**options, rows=str(data.rows(topic))).load()
    else:
        frame = reader.options(**options).load(str(data.logs))
    shutil.rmtree(folder, ignore_errors=True)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [entry for entry in query.recentProgress if entry["numInputRows"]]
    rows = sum(entry["numInputRows"] for entry in progress)
    assert rows == data.rows(topic), f"{name}: {rows} rows of {data.rows(topic)}"
    found = [entry["durationMs"] for entry in progress if entry["numInputRows"] == each][2:]
    totals = [(took["triggerExecution"], sum(took[part] for part in _CHECKPOINT)) for took in found]
    return [(whole / 1000, (whole - checkpoint) / 1000) for whole, checkpoint in totals]
