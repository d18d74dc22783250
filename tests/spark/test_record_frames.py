"""Which records a query in a Spark session has, in batches and in streams: damage, bounds, isolation, old formats."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import klog
from tests.support.batches import batch, marker, old, transactional
from tests.support.golden import unpack_loader_cases
from tests.support.logs import one_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs: a JDK"),
]

Query = Callable[..., list[Any]]


@pytest.fixture
def load(spark: SparkSession) -> Callable[..., DataFrame]:
    def load(path: Path, **options: str) -> DataFrame:
        return spark.read.format("klog").options(**options).load(str(path))

    return load


@pytest.fixture(params=["batch", "stream"])
def query(request: pytest.FixtureRequest, spark: SparkSession, load: Callable[..., DataFrame], tmp_path: Path) -> Query:
    """The rows of columns, in the order of the offsets. A stream goes on with the checkpoint of the one before."""

    def batch_query(path: Path, *columns: str, **options: str) -> list[Any]:
        return [tuple(row) for row in load(path, **options).select("offset", *columns).orderBy("offset").collect()]

    def stream(path: Path, *columns: str, **options: str) -> list[Any]:
        found: list[Any] = []

        def take(frame: DataFrame, _: int) -> None:
            found.extend(map(tuple, frame.select("offset", *columns).orderBy("offset").collect()))

        source = spark.readStream.format("klog").option("startingOffsets", "earliest").options(**options)
        sink = source.load(str(path)).writeStream.foreachBatch(take).trigger(availableNow=True)
        sink.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
        return found

    return batch_query if request.param == "batch" else stream


# ---- damage ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, str, int]:
    """Three batches of five records; the second has a wrong checksum. Also the name of its segment, and its position."""
    with one_log(tmp_path / "data") as log:
        for _ in range(3):
            log.append_batches(batch(5))
        (_, second, _) = log.read().batches()
        segment, position = Path(log.segments[0].path), second.position
    content = bytearray(segment.read_bytes())
    content[position + 70] ^= 1
    segment.write_bytes(content)
    return tmp_path / "data", segment.name, position


def test_a_corrupt_batch_fails_the_query(query: Query, damaged: tuple[Path, str, int]) -> None:
    path, segment, position = damaged
    with pytest.raises(
        Exception, match=rf"checksum.*{segment}.*position {position}, offset 5(?s:.*)onCorrupt=skipBatch"
    ):
        query(path, onCorrupt="fail")


def test_a_corrupt_batch_is_left_out(query: Query, damaged: tuple[Path, str, int]) -> None:
    assert query(damaged[0], onCorrupt="skipBatch") == [(n,) for n in range(15) if n // 5 != 1]


def test_a_corrupt_batch_is_a_row(query: Query, damaged: tuple[Path, str, int]) -> None:
    path, segment, position = damaged
    more = {"metadataColumns": "crcValid,batchPosition,segment"}
    found = query(path, "crcValid", "topic", "partition", "key", "segment", "batchPosition", onCorrupt="emit", **more)
    bad = [row for row in found if not row[1]]
    assert bad == [(5, False, "events", 0, None, segment, position)]
    assert [row[0] for row in found if row[1]] == [n for n in range(15) if n // 5 != 1]


def test_rows_of_corrupt_batches_need_their_column(query: Query, damaged: tuple[Path, str, int]) -> None:
    with pytest.raises(Exception, match="'onCorrupt' = 'emit' needs the column crcValid"):
        query(damaged[0], onCorrupt="emit")


# ---- bounds and isolation ------------------------------------------------------------------------------------------------


@pytest.fixture
def transactions(tmp_path: Path) -> Path:
    """Offsets 2 and 3 are of an aborted transaction, 5 of a committed one, 8 of an open one. The high watermark is 7."""
    with one_log(tmp_path / "data") as log:
        log.append_batches(batch(2))
        log.append_batches(transactional(1, 0, 0, 2))
        log.append_batches(marker(1, 0, "abort"), origin="coordinator")  # 4
        log.append_batches(transactional(1, 0, 2, 1))
        log.append_batches(marker(1, 0, "commit"), origin="coordinator")  # 6
        log.append_batches(batch(1))
        log.append_batches(transactional(2, 0, 0, 1))
        log.append_batches(batch(1))
    write_high_watermark(tmp_path / "data", 7)
    return tmp_path / "data"


def write_high_watermark(path: Path, offset: int) -> None:
    (path / "replication-offset-checkpoint").write_text(f"0\n1\nevents 0 {offset}\n")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0, 1, 2, 3, 5]),
        ({"upTo": "highWatermark"}, [0, 1, 2, 3, 5]),
        ({"upTo": "logEndOffset"}, [0, 1, 2, 3, 5, 7, 8, 9]),
        ({"isolationLevel": "read_committed"}, [0, 1, 5]),
        ({"isolationLevel": "read_committed", "upTo": "logEndOffset"}, [0, 1, 5, 7]),
    ],
)
def test_bounds_and_isolation(query: Query, transactions: Path, options: dict[str, str], expected: list[int]) -> None:
    assert query(transactions, **options) == [(offset,) for offset in expected]


@pytest.mark.parametrize(("kind", "rows"), [("commit", [8, 9]), ("abort", [9])])
def test_rows_of_a_transaction_follow_its_end(query: Query, transactions: Path, kind: str, rows: list[int]) -> None:
    """Until then it blocks the records after it. A stream has them in a later batch."""
    write_high_watermark(transactions, 10)
    assert query(transactions, upTo="lastStableOffset") == [(offset,) for offset in (0, 1, 2, 3, 5, 7)]
    with one_log(transactions) as log:
        log.append_batches(marker(2, 0, kind), origin="coordinator")
    committed = query(transactions, isolationLevel="read_committed")
    assert committed[-len(rows) :] == [(offset,) for offset in rows]
    assert (8,) in committed or kind == "abort"


# ---- counts --------------------------------------------------------------------------------------------------------------


def test_counts_of_batches_equal_those_of_rows(load: Callable[..., DataFrame], tmp_path: Path) -> None:
    """Of a log with transactions, that was compacted, truncated, and begins and ends inside a batch."""
    path = tmp_path / "data"
    with one_log(path, cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0) as log:
        for sequence in range(3):
            log.append_batches(transactional(1, 0, 4 * sequence, 4))
            log.append_batches(marker(1, 0, "abort" if sequence else "commit"), origin="coordinator")
            log.append([klog.Record(key=b"k%d" % (n % 5), value=b"v") for n in range(9)], compression="lz4")
        log.compact(roll=True)
        for number in range(4):
            log.append(
                [klog.Record(key=b"n%d" % n, value=b"v") for n in range(9)], compression="lz4" if number else None
            )
        end = log.log_end_offset
        log.truncate_to(end - 4)  # removes its batch, and leaves no records for five offsets
        first = next(each for each in log.read().batches() if each.count > 2 and each.base_offset > 0)
        log.delete_records(first.base_offset + 2)
        left = log.count()
    for high_watermark, less in ((end - 4, 0), (end - 9, 0), (end - 12, 3)):
        write_high_watermark(path, high_watermark)
        rows = load(path).count()
        batches = load(path, view="batches").where("NOT isControl")
        assert batches.agg({"recordCount": "sum"}).collect()[0][0] == rows
        assert rows == left - less


# ---- magic 0 and 1 -------------------------------------------------------------------------------------------------------


def records_of(path: Path) -> list[tuple[Any, ...]]:
    """The records that klog's own reader has."""
    with klog.open(path, read_only=True) as logs:
        return [
            (record.offset, record.key, record.value, None if record.timestamp < 0 else record.timestamp)
            for topic, numbers in logs.topics().items()
            for number in numbers
            for record in logs.log(topic, number).read()
        ]


COLUMNS = ("key", "value", "unix_millis(timestamp)")


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4"])
def test_records_of_old_formats(load: Callable[..., DataFrame], tmp_path: Path, codec: str | None) -> None:
    home = tmp_path / "data" / "t-0"
    home.mkdir(parents=True)
    sets = [old(magic, 10 * number, 10 * number + 9, codec) for number, magic in enumerate((0, 0, 1, 1))]
    (home / "00000000000000000000.log").write_bytes(b"".join(sets) + batch(10, base_offset=40))
    expected = records_of(home.parent)
    assert len(expected) == 50
    frame = load(home.parent)
    assert [tuple(row) for row in frame.selectExpr("offset", *COLUMNS).orderBy("offset").collect()] == expected
    kinds = {0: -1, 1: -1, 2: 0, 3: 0, 4: 0}
    found = frame.select("offset", "timestampType").collect()
    assert {(row.offset // 10, row.timestampType) for row in found} == set(kinds.items())
    inside = {"startingOffsets": '{"t":{"0":13}}', "endingOffsets": '{"t":{"0":37}}', "minPartitions": "4"}
    narrow = load(home.parent, **inside)
    assert sorted(row.offset for row in narrow.select("offset").collect()) == list(range(13, 37))
    batches = load(home.parent, view="batches", **inside)
    assert batches.agg({"recordCount": "sum"}).collect()[0][0] == 24


def test_old_records_that_kafka_wrote(load: Callable[..., DataFrame], tmp_path: Path) -> None:
    cases = unpack_loader_cases(tmp_path / "cases")
    for name in ("v1-tail-clean", "v1-tail-unclean"):
        home = cases[name].root / "before"
        frame = load(home, upTo="logEndOffset").selectExpr("offset", *COLUMNS).orderBy("offset")
        assert [tuple(row) for row in frame.collect()] == [
            (record.offset, record.key, record.value, record.timestamp)
            for record in cases[name].records
            if record.control_type is None
        ]
