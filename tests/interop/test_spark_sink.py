"""Kafka reads what Spark has written through klog: its dump tool finds no problem, a broker serves it to a client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import klog
from tests.interop import dumplog
from tests.interop.broker import Broker
from tests.interop.clients import Pair, create_topics, produce, run
from tests.interop.kafka import complaints
from tests.interop.test_broker import consume
from tests.support.spark_session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.deep, pytest.mark.timeout(3600)]

ROWS, LATER = 20_000, 500
PARTITIONS = 2
SUFFIXES = (".log", ".index", ".timeindex")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


def pair(number: int) -> Pair:
    """Row `number`: every tenth has no key, every thirteenth no value."""
    return (
        None if number % 10 == 0 else b"key-%d" % number,
        None if number % 13 == 0 else b"%d-" % number + b"x" * 150,
    )


def write(spark: SparkSession, path: Path, first: int, count: int) -> None:
    rows = spark.range(first, first + count, 1, 2).selectExpr(
        "if(id % 10 = 0, null, concat('key-', id)) AS key",
        "if(id % 13 = 0, null, concat(id, '-', repeat('x', 150))) AS value",
        "if(id % 7 = 0, array(struct('h' AS key, cast(cast(id AS string) AS binary) AS value)), null) AS headers",
    )
    rows.write.format("klog").option("topic", "t").mode("append").save(str(path))


def test_kafka_reads_what_spark_has_written(spark: SparkSession, broker: Broker) -> None:
    broker.start()
    log_dir = broker.log_dir
    run(create_topics(broker, {"t": {"segment.bytes": str(1 << 20), "retention.ms": "-1"}}, PARTITIONS))
    run(produce(broker, "t", [(b"before", b"before")], partition=0))
    broker.stop()
    with klog.open(log_dir) as logs:  # the broker has its configuration elsewhere
        logs.alter_topic("t", {"segment.bytes": 1 << 20})
    write(spark, log_dir, 0, ROWS)  # files that become segments
    write(spark, log_dir, ROWS, LATER)  # and some that are appended
    with klog.open(log_dir, read_only=True) as logs:
        stored = {
            number: [(record.offset, (record.key, record.value)) for record in logs.log("t", number).read()]
            for number in range(PARTITIONS)
        }
        assert len(logs.log("t").segments) > 2
    found = [found for rows in stored.values() for _, found in rows]
    assert sorted(found, key=repr) == sorted([(b"before", b"before"), *map(pair, range(ROWS + LATER))], key=repr)

    files = [path for path in sorted(log_dir.glob("t-*/*")) if path.suffix in SUFFIXES]
    out, errors = broker.kafka.dump(files, "--deep-iteration")
    assert complaints(broker.kafka.version, errors) == []
    dumped = dumplog.parse(out)
    batches = [batch for section in dumped for batch in section.batches]
    assert all(batch.is_valid for batch in batches)
    assert sum(batch.count for batch in batches) == ROWS + LATER + 1
    assert [section.path for section in dumped if section.invalid_bytes] == []

    broker.start()
    for number, rows in stored.items():
        assert run(consume(broker, "t", partition=number)) == rows
    run(produce(broker, "t", [(b"after", b"after")], partition=0))
    assert run(consume(broker, "t"))[-1] == (len(stored[0]), (b"after", b"after"))
    assert broker.complaints() == []
