"""The session and the log directories of the Spark tests. The directories are small: the JVM takes most of the time."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import klog
from tests.support.spark_session import spark_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import InputPartition


class Copies:
    """A reader as Spark uses it: it plans on the driver, and a pickled copy reads in each task."""

    def __init__(self, planner: Any) -> None:
        self.pickled = pickle.dumps(planner)
        self._planner = planner

    def partitions(self) -> list[InputPartition]:
        planned: list[InputPartition] = pickle.loads(pickle.dumps(self._planner.partitions()))
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batches: Iterator[pa.RecordBatch] = pickle.loads(self.pickled).read(partition)
        return batches


START_MS = 1360299600000  # 2013-02-08T05:00:00Z
STEP_MS = 60_000
FLIGHTS = 900
PARTITIONS = 3
GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@dataclass(frozen=True)
class Row:
    """The row that Spark should return for one record."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Directory:
    path: Path
    rows: tuple[Row, ...]

    def of(self, partition: int) -> list[Row]:
        return [row for row in self.rows if row.partition == partition]


def flights(partition: int, first: int, count: int) -> list[klog.Record]:
    """Return the records first, first + 1, … of a partition. Some keys and values are null; every fourth has headers."""
    records = []
    for number in range(first, first + count):
        value = {"flight": number, "carrier": "AABBUADL"[number % 4 * 2 :][:2], "dep_delay": number % 37 - 5}
        records.append(
            klog.Record(
                key=None if number % 10 == 0 else b"N%03d" % (number % 50),
                value=None if number % 25 == 7 else json.dumps(value).encode(),
                timestamp=START_MS + STEP_MS * number + partition,
                headers=[("source", b"nyc"), ("source", None)] if number % 4 == 1 else [],
            )
        )
    return records


def rows(topic: str, partition: int, records: list[klog.Record], first_offset: int = 0) -> list[Row]:
    return [
        Row(record.key, record.value, topic, partition, offset, record.timestamp, tuple(record.headers))
        for offset, record in enumerate(records, first_offset)
    ]


def fill(path: Path) -> Directory:
    """Write three partitions of flights in many small segments, and an empty topic."""
    expected = []
    with klog.open(path, create=True) as logs:
        logs.create_topic("flights", partitions=PARTITIONS, config={"segment.bytes": 8192})
        logs.create_topic("empty")
        for partition in range(PARTITIONS):
            log = logs.log("flights", partition)
            for first in range(0, FLIGHTS // PARTITIONS, 20):
                log.append(flights(partition, first, 20), compression="lz4" if partition else None)
            expected += rows("flights", partition, flights(partition, 0, FLIGHTS // PARTITIONS))
    return Directory(path, tuple(expected))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def data(tmp_path: Path) -> Directory:
    """A directory of this test only, which it may change."""
    return fill(tmp_path / "data")


@pytest.fixture(scope="module")
def shared_data(tmp_path_factory: pytest.TempPathFactory) -> Directory:
    """A directory for all tests of a module: read-only."""
    return fill(tmp_path_factory.mktemp("shared") / "data")


@pytest.fixture
def golden(tmp_path: Path) -> Callable[[str], Path]:
    """Copies a directory that Kafka wrote, with its manifest and records."""

    def copy(case: str) -> Path:
        return Path(shutil.copytree(GOLDEN / case, tmp_path / case))

    return copy
