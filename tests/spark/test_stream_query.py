"""Streaming queries over format("klog") in a Spark session."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import klog
import klog.spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs: a JDK"),
]

ROOT = Path(__file__).resolve().parents[2]
Batch = tuple[int, int]  # batch number, rows


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write 1,000 and 500 records. Each value is the record's offset, as text."""
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", partitions=2)
        logs.create_topic("empty")
    append(tmp_path / "data", "t", 0, 1000)
    append(tmp_path / "data", "t", 1, 500)
    return tmp_path / "data"


def append(path: Path, topic: str, partition: int, count: int) -> None:
    with klog.open(path) as logs:
        log = logs.log(topic, partition)
        log.append([(b"k", b"%d" % offset) for offset in range(log.log_end_offset, log.log_end_offset + count)])


def total(path: Path) -> Counter[str]:
    """Return the number of rows and the sum of the values of all records, by topic."""
    found: Counter[str] = Counter()
    with klog.open(path, read_only=True) as logs:
        for topic, partitions in logs.topics().items():
            for record in (record for number in partitions for record in logs.log(topic, number).read()):
                found[f"{topic} rows"] += 1
                found[f"{topic} sum"] += int(record.value or 0)
    return found


class Run:
    """One run of a query; its batches, and their rows and sums."""

    def __init__(self, spark: SparkSession, path: Path, checkpoint: Path, **options: str) -> None:
        self.batches: list[Batch] = []
        self.found: Counter[str] = Counter()
        self._stream = spark.readStream.format("klog").options(**options).load(str(path)).writeStream
        self._stream = self._stream.foreachBatch(self._collect).option("checkpointLocation", str(checkpoint))
        self.fail_in: int | None = None
        self.query: Any = None

    def _collect(self, frame: DataFrame, number: int) -> None:
        from pyspark.sql import functions as f

        by_topic = frame.groupBy("topic").agg(
            f.count("*").alias("rows"), f.sum(f.expr("bigint(string(value))")).alias("n")
        )
        rows = by_topic.collect()
        if number == self.fail_in:
            raise RuntimeError("this batch fails")
        self.batches.append((number, sum(row.rows for row in rows)))
        for row in rows:
            self.found[f"{row.topic} rows"] += row.rows
            self.found[f"{row.topic} sum"] += row.n

    def available_now(self) -> Run:
        self.query = self._stream.trigger(availableNow=True).start()
        self.query.awaitTermination()
        return self

    def start(self) -> Run:
        self.query = self._stream.trigger(processingTime="100 milliseconds").start()
        return self


@pytest.fixture
def run(spark: SparkSession, data: Path, tmp_path: Path) -> Callable[..., Run]:
    def make(path: Path = data, checkpoint: Path = tmp_path / "checkpoint", **options: str) -> Run:
        return Run(spark, path, checkpoint, **options)

    return make


def offsets(checkpoint: Path) -> list[str]:
    """Return the offsets of each batch, as Spark has written them."""
    files = sorted((int(file.name), file) for file in (checkpoint / "offsets").iterdir() if file.name.isdigit())
    return [file.read_text().splitlines()[2] for _, file in files]


def test_limits_restarts_and_new_partitions(run: Callable[..., Run], data: Path, tmp_path: Path) -> None:
    """1,500 rows in batches of 400; then 1,200 more in an old and a new topic, and a new partition."""
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "400"}
    first = run(**options).available_now()
    assert first.batches == [(0, 0), (1, 400), (2, 400), (3, 400), (4, 300)]
    assert first.found == total(data)
    progress = first.query.recentProgress[-1]["sources"][0]
    assert progress["endOffset"] == progress["latestOffset"] == '{"empty": {"0": 0}, "t": {"0": 1000, "1": 500}}'

    append(data, "t", 0, 1000)
    with klog.open(data) as logs:
        logs.create_topic("u")
    append(data, "u", 0, 200)
    shutil.copytree(data / "t-1", data / "t-2")
    second = run(**{**options, "maxOffsetsPerTrigger": "1000"}).available_now()
    assert [rows for _, rows in second.batches] == [1000, 700]
    assert first.found + second.found == total(data)

    assert run(**options).available_now().batches == []  # nothing new: no batch
    assert offsets(tmp_path / "checkpoint")[:2] == [
        '{"empty": {"0": 0}, "t": {"0": 0, "1": 0}}',
        '{"empty": {"0": 0}, "t": {"0": 266, "1": 134}}',
    ]


@pytest.mark.deep
def test_a_first_batch_that_fails_is_repeated(run: Callable[..., Run], data: Path, tmp_path: Path) -> None:
    """The first batch is empty and stores the start offsets. The run that repeats it then reads to the end."""
    options = {"startingOffsets": "-300", "subscribe": "t"}
    first = run(**options)
    first.fail_in = 0
    with pytest.raises(Exception, match="this batch fails"):
        first.available_now()
    append(data, "t", 1, 100)
    assert run(**options).available_now().batches == [(0, 0), (1, 700)]
    assert offsets(tmp_path / "checkpoint") == ['{"t": {"0": 700, "1": 200}}', '{"t": {"0": 1000, "1": 600}}']


def test_a_batch_that_fails_is_repeated_with_the_same_offsets(
    run: Callable[..., Run], data: Path, tmp_path: Path
) -> None:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "600"}
    first = run(**options)
    first.fail_in = 1
    with pytest.raises(Exception, match="this batch fails"):
        first.available_now()
    written = offsets(tmp_path / "checkpoint")
    append(data, "t", 1, 300)
    second = run(**options).available_now()
    assert second.batches == [(1, 600), (2, 600), (3, 600)]
    assert offsets(tmp_path / "checkpoint")[: len(written)] == written
    assert first.found + second.found == total(data)


def test_a_stream_from_the_latest_record(run: Callable[..., Run], data: Path) -> None:
    before = total(data)
    live = run().start()
    try:
        live.query.processAllAvailable()
        assert not live.found
        for count in (5, 70):
            append(data, "t", 1, count)
            append(data, "t", 0, 1)
            live.query.processAllAvailable()
        assert live.found == total(data) - before
    finally:
        live.query.stop()
    append(data, "t", 0, 3)
    rest = run().available_now()
    assert live.found + rest.found == total(data) - before


def test_the_checkpoint_of_the_kafka_source(run: Callable[..., Run], data: Path, tmp_path: Path) -> None:
    """Batches 0 and 1 were read from a broker, batch 1 was not committed: klog repeats it and continues."""
    checkpoint = tmp_path / "kafka"
    session = {"batchWatermarkMs": 0, "batchTimestampMs": 1795411370995, "conf": {"spark.sql.shuffle.partitions": "2"}}
    files = {
        "metadata": '{"id":"aa916274-d957-469c-bf88-789c66cda05f"}',
        "sources/0/0": '\0v1\n{"t":{"1":0,"0":0}}',
        "offsets/0": f'v1\n{json.dumps(session)}\n{{"t":{{"1":200,"0":300}}}}',
        "offsets/1": f'v1\n{json.dumps(session)}\n{{"t":{{"1":250,"0":400}}}}',
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    }
    for name, text in files.items():
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text(text)
    moved = run(checkpoint=checkpoint, subscribe="t", **{"kafka.bootstrap.servers": "broker:9092"}).available_now()
    assert [rows for _, rows in moved.batches if rows] == [150, 850]
    every = total(data)
    assert moved.found["t rows"] == every["t rows"] - 500
    assert moved.found["t sum"] == every["t sum"] - sum(range(300)) - sum(range(200))
    assert offsets(checkpoint)[-1] == '{"t": {"0": 1000, "1": 500}}'


def test_a_recreated_topic_fails_the_query(run: Callable[..., Run], data: Path, tmp_path: Path) -> None:
    options = {"startingOffsets": "earliest", "checkpointLocation": str(tmp_path / "checkpoint")}
    run(**options).available_now()
    with klog.open(data) as logs:
        logs.delete_topic("t")
        logs.create_topic("t")
    append(data, "t", 0, 1200)
    with pytest.raises(Exception, match=r"t-0: the stream is at offset 1000, but .*created again \(its id was"):
        run(**options).available_now()
    assert run(**options, failOnDataLoss="false").available_now().found == total(data)


def test_a_log_start_beyond_the_checkpoint(run: Callable[..., Run], data: Path) -> None:
    options = {"startingOffsets": "earliest", "subscribe": "t"}
    run(**options).available_now()
    append(data, "t", 0, 100)
    with klog.open(data) as logs:
        logs.log("t", 0).delete_records(1050)
    lost = r"t-0: the stream is at offset 1000, but .* holds \[1050, 1100\): retention or a delete has removed"
    with pytest.raises(Exception, match=lost):
        run(**options).available_now()
    rest = run(**options, failOnDataLoss="false").available_now()
    assert rest.found == Counter({"t rows": 50, "t sum": sum(range(1050, 1100))})
    assert run(**options).available_now().batches == []  # the loss is passed


def test_topics_and_partitions_that_are_added_to_a_running_query(run: Callable[..., Run], data: Path) -> None:
    before = total(data)
    live = run(subscribePattern="[tu]").start()
    try:
        live.query.processAllAvailable()
        with klog.open(data) as logs:
            logs.create_topic("u")
            logs.add_partitions("t", 3)
        append(data, "u", 0, 40)
        append(data, "t", 2, 70)
        append(data, "t", 0, 5)
        live.query.processAllAvailable()
        assert live.found == total(data) - before
    finally:
        live.query.stop()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"maxOffsetsPerTriger": "3"}, "unknown option 'maxoffsetspertriger'. Did you mean 'maxOffsetsPerTrigger'"),
        ({"maxOffsetsPerTrigger": "many"}, "option 'maxOffsetsPerTrigger' must be a whole number"),
        ({"endingOffsets": "latest"}, "option 'endingOffsets' is for batch queries: a stream has no end"),
        ({"subscribe": "nothing"}, "no topic nothing here; topics: empty, t"),
    ],
)
def test_a_bad_option_fails_the_query(run: Callable[..., Run], options: dict[str, str], why: str) -> None:
    with pytest.raises(Exception, match=why):
        run(**options).available_now()


def test_options_of_streams_change_no_batch_query(spark: SparkSession, data: Path) -> None:
    frame = spark.read.format("klog").option("maxOffsetsPerTrigger", "3").option("checkpointLocation", "/nowhere")
    assert frame.load(str(data)).count() == 1500
    with pytest.raises(Exception, match="'startingOffsets' can't be 'latest' in a batch query"):
        spark.read.format("klog").option("startingOffsets", "latest").load(str(data)).count()
