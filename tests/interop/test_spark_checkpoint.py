"""A streaming query moves between Spark's own Kafka connector, over a broker, and klog, over the broker's directory, with
one checkpoint: each continues where the other has stopped. Group offsets that klog writes are those that the broker has.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import klog
import klog.spark
from tests.interop.broker import Broker
from tests.interop.clients import create_topics, produce, run
from tests.support.spark_session import spark_session
from tools import kafka_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.deep, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
Rows = Counter[tuple[int, int, bytes]]  # partition, offset, value


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    try:
        jars = kafka_jars.spark_connector()
    except kafka_jars.Unavailable as missing:
        pytest.skip(f"needs: {missing}")
    home = tmp_path_factory.mktemp("spark")
    with spark_session(home, **{"spark.jars": ",".join(map(str, jars))}) as session:
        yield session


async def commit_once(broker: Broker, group: str) -> None:
    """A consumer of the group commits, for which the broker creates __consumer_offsets."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=broker.address, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign([TopicPartition("t", 0)])
        await consumer.commit({TopicPartition("t", 0): 1})
    finally:
        await consumer.stop()


async def group_offsets(broker: Broker, group: str) -> dict[tuple[str, int], int]:
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.errors import CoordinatorLoadInProgressError, GroupCoordinatorNotAvailableError

    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    try:
        while True:
            # A broker that has just started loads the group first. aiokafka raises for some of the errors that it gives
            # meanwhile, and shows others as no offsets. run() bounds the wait.
            with contextlib.suppress(CoordinatorLoadInProgressError, GroupCoordinatorNotAvailableError):
                if found := await admin.list_consumer_group_offsets(group):
                    return {(pair.topic, pair.partition): entry.offset for pair, entry in found.items()}
            await asyncio.sleep(0.5)
    finally:
        await admin.close()


def values(first: int, count: int) -> list[bytes]:
    """The values of `count` records from offset `first` on."""
    return [b"value %d" % offset for offset in range(first, first + count)]


def rows_of(partition: int, first: int, count: int) -> Rows:
    return Rows((partition, first + number, value) for number, value in enumerate(values(first, count)))


def test_a_checkpoint_moves_to_klog_and_back(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    def read(source: str, **options: str) -> tuple[Rows, list[int]]:
        """All rows of an availableNow run, and how many each batch had."""
        rows, sizes = Rows(), list[int]()

        def note(frame: DataFrame, _number: int) -> None:
            found = frame.select("partition", "offset", "value").collect()
            rows.update((row.partition, row.offset, bytes(row.value)) for row in found)
            sizes.append(len(found))

        common = {"subscribe": "t", "startingOffsets": "earliest", "kafka.bootstrap.servers": broker.address}
        stream = spark.readStream.format(source).options(**common, **options).load()
        query = stream.writeStream.foreachBatch(note).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        return rows, sizes

    data = {"path": str(broker.log_dir), "checkpointLocation": str(tmp_path / "checkpoint")}
    broker.start()
    run(create_topics(broker, {"t": {"retention.ms": "-1"}}, 2))
    run(produce(broker, "t", [(None, value) for value in values(0, 300)], 0))
    run(produce(broker, "t", [(None, value) for value in values(0, 200)], 1))
    found, sizes = read("kafka", maxOffsetsPerTrigger="200")
    assert found == rows_of(0, 0, 300) + rows_of(1, 0, 200)
    assert len(sizes) > 2

    run(produce(broker, "t", [(None, value) for value in values(300, 100)], 0))
    run(commit_once(broker, "other"))
    broker.stop()
    found, sizes = read("klog", maxOffsetsPerTrigger="60", commitGroup="job", **data)
    assert found == rows_of(0, 300, 100)
    assert [size for size in sizes if size] == [60, 40]

    with klog.open(broker.log_dir) as logs:
        logs.log("t", 1).append([(None, value) for value in values(200, 50)])
    found, _ = read("klog", commitGroup="job", **data)
    assert found == rows_of(1, 200, 50)

    broker.start()
    assert run(group_offsets(broker, "job")) == {("t", 0): 400, ("t", 1): 250}
    assert run(group_offsets(broker, "other")) == {("t", 0): 1}
    run(produce(broker, "t", [(None, value) for value in values(250, 30)], 1))
    found, _ = read("kafka")
    assert found == rows_of(1, 250, 30)
