"""The records of bench.spark: topics in a log directory that a broker serves and klog reads, and the same in Parquet.

Keys of 9 bytes, values of 100, two partitions, batches of at most 16 KiB. klog writes them into a directory whose
topics a broker has created; the broker then serves those files, so that both read the same bytes.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import klog
from bench.contest import Unavailable
from klog import record
from tests.interop.broker import Broker
from tests.interop.clients import create_topics, run
from tools import kafka_jars

PARTITIONS = 2
VALUE_BYTES = 100
FULL, EMPTY, SMALL, TABLE = "full", "empty", "small", "written"
READY = "rowsReady"  # the name of spark_ready's source
_KAFKA = "4.3.1"
_BATCH = 130  # records of a batch: 16 KiB, the batch.size of Kafka's producer
_PIECE = 130_000  # rows that are made at a time
_START_MS = 1_760_000_000_000


@dataclass(frozen=True)
class Sizes:
    """Rows of the topics that are read: full scans, and streams of small batches."""

    full: int
    small: int


class Data:
    """A directory with all topics, Parquet files and tables. `broker` is None without the connector."""

    def __init__(self, home: Path, sizes: Sizes, broker: Broker | None) -> None:
        self.home, self.sizes, self.broker = home, sizes, broker
        self.logs = broker.log_dir if broker else home / "data"

    @property
    def address(self) -> str:
        assert self.broker is not None
        return self.broker.address

    def parquet(self, topic: str) -> str:
        return str(self.home / "parquet" / topic)

    def table(self, topic: str) -> str:
        return str(self.home / "tables" / topic)

    def rows(self, topic: str) -> int:
        return {FULL: self.sizes.full, SMALL: self.sizes.small, EMPTY: 0}[topic]


@contextmanager
def made(home: Path, sizes: Sizes, *, connector: bool) -> Iterator[Data]:
    """Write the topics and their Parquet files; a broker serves them until the end of the block. Raises Unavailable."""
    if not connector:
        data = Data(home, sizes, None)
        with klog.open(data.logs, create=True) as logs:
            for topic in (FULL, EMPTY, SMALL):
                logs.create_topic(topic, partitions=PARTITIONS)
        _fill(data)
        yield data
        return
    try:
        jars = kafka_jars.get(_KAFKA)
    except kafka_jars.Unavailable as missing:
        raise Unavailable(str(missing)) from missing
    broker = Broker(jars, home / "broker", **{"log.retention.ms": -1})  # type: ignore[arg-type]  its jars are enough
    try:
        data = Data(home, sizes, broker.start())
        create(broker, FULL, EMPTY, SMALL)
        broker.stop()
        _fill(data)
        broker.start()
        yield data
    finally:
        broker.kill()


def create(broker: Broker, *topics: str) -> None:
    """Create topics on the broker."""
    run(create_topics(broker, {topic: {} for topic in topics}, PARTITIONS))


def _fill(data: Data) -> None:
    with klog.open(data.logs) as logs:
        for topic in (FULL, EMPTY, SMALL):
            _fill_topic(logs, data, topic)


def _fill_topic(logs: klog.LogManager, data: Data, topic: str) -> None:
    target = Path(data.parquet(topic))
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    schema = pa.schema([
        ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()),
        ("offset", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC")), ("timestampType", pa.int32()),
    ])  # fmt: skip
    for partition in range(PARTITIONS):
        log = logs.log(topic, partition)
        count = data.rows(topic) // PARTITIONS
        with pq.ParquetWriter(target / f"part-{partition}.parquet", schema, compression="snappy") as writer:
            for first in range(0, count, _PIECE):
                keys, values, times = _records(partition, first, min(first + _PIECE, count))
                log.append_batches(_batches(keys, values, times, first), origin="replication")
                size = len(keys)
                columns = [
                    pa.array(keys),
                    pa.array(values),
                    pa.repeat(topic, size),
                    pa.repeat(pa.scalar(partition, pa.int32()), size),
                    pa.array(range(first, first + size)),
                    pa.array([time * 1000 for time in times]).cast(schema.field("timestamp").type),
                    pa.repeat(pa.scalar(0, pa.int32()), size),
                ]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _records(partition: int, first: int, stop: int) -> tuple[list[bytes], list[bytes], list[int]]:
    """Return keys, values and times of some offsets. The text compresses to about a half, as events do."""
    keys = [b"k%08d" % (number * 7919 % 100_000) for number in range(first, stop)]
    values = [
        hashlib.blake2b(b"%d-%d" % (partition, number), digest_size=VALUE_BYTES // 2).hexdigest().encode()
        for number in range(first, stop)
    ]
    return keys, values, [_START_MS + number for number in range(first, stop)]


def _batches(keys: list[bytes], values: list[bytes], times: list[int], first: int) -> bytes:
    rows = list(zip(keys, values, times, strict=True))
    return b"".join(
        record.encode(rows[start : start + _BATCH], base_offset=first + start, leader_epoch=0)
        for start in range(0, len(rows), _BATCH)
    )
