"""klog.spark.materialize and klog.spark.table in a Spark session: what its readers see, tasks that fail, killed drivers."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import klog
import klog.spark
from klog.spark.materializing import add
from klog.spark.plan import Range
from klog.spark.rows import arrow_schema
from klog.spark.source import KlogSource
from klog.spark.table_files import Bucket, Place
from klog.spark.table_jobs import SparkJobs
from klog.spark.table_options import request
from klog.spark.table_store import TableStore
from tests.spark.conftest import START_MS, Directory, flights
from tests.support.spark_session import await_progress, spark_program
from tests.support.tables import Row, in_log, latest_of, manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs: a JDK"),
]


def rows(frame: DataFrame) -> list[Row]:
    found = frame.select("partition", "offset", "key", "value").collect()
    return sorted((row[0], row[1], row[2] and bytes(row[2]), row[3] and bytes(row[3])) for row in found)


def read(spark: SparkSession, target: Path) -> DataFrame:
    return spark.read.parquet(str(target))


def append(path: Path, first: int, count: int) -> None:
    records = [(b"k%d" % (n * n % 101), None if n % 7 == 3 else b"value %d" % n) for n in range(first, first + count)]
    with klog.open(path, create=True) as logs:
        if "t" not in logs.topics():
            logs.create_topic("t", partitions=2)
        logs.append("t", records)


@pytest.mark.parametrize("latest", [False, True])
def test_a_table_always_has_the_records_of_the_log(spark: SparkSession, tmp_path: Path, latest: bool) -> None:
    """The directory's name has characters that Spark treats as patterns in other calls."""
    data, target = tmp_path / "data", tmp_path / "a[b] {c}*?"
    append(data, 0, 100)
    klog.spark.materialize(spark, data, "t", target, latest=latest)
    append(data, 100, 100)
    log = in_log(data)
    wanted = latest_of(log) if latest else sorted(log)
    table = klog.spark.table(spark, data, "t", target)
    report = klog.spark.materialize(spark, data, "t", target)
    assert (report.rows, report.version) == (
        len({row[2] for row in log if row[1] >= report.ranges[row[0]][0]}) if latest else 100,
        2,
    )
    assert rows(table) == wanted  # it was made before the call, and its files still exist
    shown = [path for path in target.iterdir() if path.suffix == ".parquet"]
    assert sum(pa.parquet.read_metadata(path).num_rows for path in shown) == len(wanted)
    whole = klog.spark.table(spark, data, "t", target)
    assert "MapInArrow" not in str(whole._jdf.queryExecution()) and rows(whole) == wanted


def test_all_columns_equal_those_of_the_log(spark: SparkSession, data: Directory, tmp_path: Path) -> None:
    """This includes timestamps: in both kinds of tables, and in the rows that are read from the log."""
    options = {"includeHeaders": True, "metadataColumns": "leaderEpoch,codec"}
    source = spark.read.format("klog").options(includeHeaders="true", metadataColumns="leaderEpoch,codec")
    for latest in (False, True):
        target = tmp_path / f"{latest}"
        klog.spark.materialize(spark, data.path, "flights", target, latest=latest, compression="zstd", **options)
        found = read(spark, target)
        log = source.option("subscribe", "flights").load(str(data.path))
        whole = {str(row) for row in log.collect()}
        assert found.schema == log.schema
        shown = found.collect()
        assert len(shown) == (len({(row["partition"], row["key"]) for row in shown}) if latest else len(whole))
        assert {str(row) for row in shown} <= whole
    with klog.open(data.path) as logs:
        logs.log("flights", 1).append(flights(1, 5000, 3))
    for latest in (False, True):
        table = klog.spark.table(spark, data.path, "flights", tmp_path / f"{latest}")
        assert table.schema == log.schema
    whole = {str(row) for row in source.option("subscribe", "flights").load(str(data.path)).collect()}
    assert {str(row) for row in table.collect()} <= whole
    assert table.where("partition = 1").agg({"offset": "max"}).first()[0] == 302
    assert found.selectExpr("min(unix_millis(timestamp))").first()[0] >= START_MS


class _FailsOnce:
    """A reader whose first attempt fails after its rows."""

    def __init__(self, reader: Any, marker: str) -> None:
        self._reader, self._marker = reader, marker

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        yield from self._reader.read(partition)
        if not os.path.exists(self._marker):
            open(self._marker, "w").close()
            raise RuntimeError("this attempt fails")


@pytest.mark.parametrize("latest", [False, True])
def test_a_task_that_is_tried_again_adds_its_rows_once(spark: SparkSession, tmp_path: Path, latest: bool) -> None:
    data, marker = tmp_path / "data", str(tmp_path / "failed once")
    append(data, 0, 100)
    call = request(str(data), "t", str(tmp_path / "out"), {}, "2")
    source = KlogSource(call.raw)
    schema = source.schema()
    add(
        TableStore(call.target),
        call,
        schema,
        lambda columns: SparkJobs(spark, _FailsOnce(source.reader(columns), marker), columns),
        latest=latest,
        compression="zstd",
        target_bytes=1 << 20,
    )
    log = in_log(data)
    assert os.path.exists(marker)
    assert rows(read(spark, tmp_path / "out")) == (latest_of(log) if latest else sorted(log))
    assert len(manifest(tmp_path / "out").files) == len(os.listdir(tmp_path / "out" / "_klog" / "files"))


@pytest.mark.deep
def test_a_job_that_fails_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    data, target = tmp_path / "data", tmp_path / "out"
    append(data, 0, 100)
    klog.spark.materialize(spark, data, "t", target)
    old = rows(read(spark, target))
    append(data, 100, 50)
    log = next((data / "t-0").glob("*.log"))
    good = log.read_bytes()
    log.write_bytes(good[:-20] + b"x" * 20)
    with pytest.raises(Exception, match="crc|checksum|onCorrupt"):
        klog.spark.materialize(spark, data, "t", target)
    assert rows(read(spark, target)) == old and manifest(target).number == 1
    log.write_bytes(good)
    assert klog.spark.materialize(spark, data, "t", target).rows == 50
    assert rows(read(spark, target)) == sorted(in_log(data))


class _Values:
    """A reader of rows whose values are structs, as a value format may return them."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        (wanted,) = partition.value
        offsets = range(wanted.start_offset, wanted.end_offset)
        made = {
            "key": [b"k%d" % (n % 5) for n in offsets],
            "value": [
                None if n % 5 == 2 else {"at": START_MS * 1000 + n, "tags": ["a", None][: n % 3]} for n in offsets
            ],
            "partition": [0 for _ in offsets],
            "offset": list(offsets),
        }
        yield pa.RecordBatch.from_pydict(made, schema=arrow_schema(self._schema))


def test_a_value_may_have_any_type(spark: SparkSession, tmp_path: Path) -> None:
    ddl = "key binary, value struct<at:timestamp,tags:array<string>>, partition int, offset long"
    schema = spark.createDataFrame([], ddl).schema
    place = Place(str(tmp_path), tuple(schema.names), "zstd", 1 << 20)
    buckets = [Bucket(0, 1, 0), Bucket(0, 1, 1)]
    bins = [(Range("x", "t", 0, 0, 15),), (Range("x", "t", 0, 15, 30),)]
    for _ in range(2):
        merged = SparkJobs(spark, _Values(schema), schema).merge(bins, buckets, place, 2)
        files = [file for some, _ in merged for file in some]
        frame = spark.read.schema(schema).parquet(*(place.path(file.name) for file in files))
        found = frame.selectExpr("cast(key AS string)", "unix_micros(value.at)", "size(value.tags)", "offset").collect()
        wanted = [(f"k{n % 5}", START_MS * 1000 + n, n % 3, n) for n in range(25, 30) if n % 5 != 2]
        assert sorted(tuple(row) for row in found) == wanted and sum(count for _, count in merged) == 5
        buckets = [Bucket(0, file.bits, file.bucket, file) for file in files]


def test_decoded_values_in_files_and_tail(spark: SparkSession, tmp_path: Path) -> None:
    data, target = tmp_path / "data", tmp_path / "out"
    options = {"valueFormat": "json", "valueSchema": "a BIGINT, t TIMESTAMP", "keyFormat": "string"}
    with klog.open(data, create=True) as logs:
        logs.create_topic("t", config={"cleanup.policy": "compact"})
        logs.append("t", [(b"k%d" % (n % 5), b'{"a": %d, "t": "2013-02-08T05:00:00Z"}' % n) for n in range(20)])
    klog.spark.materialize(spark, data, "t", target, **options)
    with klog.open(data) as logs:
        logs.append("t", [(b"k1", None), (b"k2", b'{"a": 99, "t": null}')])
    for _ in range(2):
        found = (
            klog.spark.table(spark, data, "t", target).selectExpr("key", "value.a", "unix_millis(value.t)").collect()
        )
        assert sorted(tuple(row) for row in found) == sorted(
            [*((f"k{n % 5}", n, START_MS) for n in (15, 18, 19)), ("k2", 99, None)]
        )
        klog.spark.materialize(spark, data, "t", target, **options)
    bad = {**options, "keyFormat": "bytes", "onBadValue": "null"}
    with klog.open(data) as logs:
        logs.append("t", [(b"k3", b"not JSON")])
    klog.spark.materialize(spark, data, "t", tmp_path / "bad", **bad)
    with klog.open(data) as logs:
        logs.append("t", [(b"k4", b"not JSON"), (b"k0", None)])
    found = klog.spark.table(spark, data, "t", tmp_path / "bad").selectExpr("cast(key AS string)", "value.a").collect()
    assert sorted((row[0], row[1]) for row in found) == [("k2", 99), ("k3", None), ("k4", None)]


def test_wrong_arguments_raise(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "data", 0, 10)
    with pytest.raises(FileNotFoundError, match="no table at .*out: call klog.spark.materialize first"):
        klog.spark.table(spark, tmp_path / "data", "t", tmp_path / "out")
    mistakes: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"latest": "yes"}, TypeError, "latest='yes'"),
        ({"compression": "gzip"}, ValueError, "compression='gzip': choose 'zstd' or 'snappy'"),
        ({"targetFileBytes": "1x"}, ValueError, "targetFileBytes"),
        ({"targetFileBytes": 10}, ValueError, "at least 65536 bytes, .*is a unit such as 'm' missing"),
        ({"target": 7}, TypeError, "target=7"),
        ({"topic": 7}, TypeError, "topic=7"),
        ({"startingOffsets": "latest"}, ValueError, "'startingOffsets' has no place here"),
    ]
    for arguments, kind, text in mistakes:
        with pytest.raises(kind, match=text):
            klog.spark.materialize(
                spark,
                tmp_path / "data",
                **{"topic": "t", "target": tmp_path / "out", **arguments},  # type: ignore[arg-type]
            )
    assert not (tmp_path / "out").exists()


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("latest", [False, True])
def test_a_table_equals_the_log_after_many_operations(spark: SparkSession, tmp_path: Path, latest: bool) -> None:
    """Appends, compactions, deletions and calls of materialize in any order. Spark reads the table after each."""
    chance = random.Random(7)
    data, target = tmp_path / "data", tmp_path / "out"
    with klog.open(data, create=True) as logs:
        logs.create_topic("t", partitions=2, config={"cleanup.policy": "compact,delete", "segment.bytes": 4096})
    klog.spark.materialize(spark, data, "t", target, latest=latest, targetFileBytes="64k")
    history: dict[tuple[int, int], Row] = {}
    ends = {0: 0, 1: 0}
    for step in range(60):
        append(data, 100 * step, chance.randrange(100))
        what = chance.choice(["materialize", "compact", "delete", "nothing"])
        with klog.open(data) as logs:
            for partition in (0, 1):
                if what == "compact":
                    logs.log("t", partition).compact(roll=True)
                if what == "delete":
                    logs.log("t", partition).delete_records(chance.randint(0, ends[partition]))
        newer = {row[:2]: row for row in in_log(data) if row[1] >= ends[row[0]]}
        if what == "materialize":
            klog.spark.materialize(spark, data, "t", target, targetFileBytes="64k")
            history.update(newer)
            ends = {number: each.end for number, each in manifest(target).partitions.items()}
        everything = {**history, **newer}
        found = rows(klog.spark.table(spark, data, "t", target))
        assert found == (latest_of(list(everything.values())) if latest else sorted(everything.values()))
        if history:  # Spark cannot infer the schema of a table without files
            found = rows(read(spark, target))
            assert found == (latest_of(list(history.values())) if latest else sorted(history.values()))


DRIVER = """
import sys
import klog.spark
session = klog.spark.session({"spark.master": "local[2]", "spark.ui.enabled": False})
session.sparkContext.setLogLevel("OFF")
print("begun", flush=True)
while True:
    if klog.spark.materialize(session, sys.argv[1], "t", sys.argv[2], targetFileBytes="64k").rows:
        print("added", flush=True)
"""


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("latest", [False, True])
def test_a_driver_that_is_killed_repeatedly_loses_nothing(spark: SparkSession, tmp_path: Path, latest: bool) -> None:
    data, target = tmp_path / "data", tmp_path / "out"
    append(data, 0, 10)
    klog.spark.materialize(spark, data, "t", target, latest=latest)
    written = 10
    for calls, pause in ((0, 0.5), (1, 0.0), (1, 0.4), (2, 0.1), (3, 0.8)):
        before = manifest(target).number
        with spark_program(DRIVER, data, target) as program:
            for call in range(calls + 1):
                append(data, written, 2000)
                written += 2000
                await_progress(program, 1 if call < calls else 0)
            time.sleep(pause)
        assert manifest(target).number >= before + calls
        log = in_log(data)
        wanted = latest_of(log) if latest else sorted(log)
        assert rows(klog.spark.table(spark, data, "t", target)) == wanted
    klog.spark.materialize(spark, data, "t", target)
    assert rows(read(spark, target)) == wanted
    found = manifest(target)
    assert set(os.listdir(target / "_klog" / "files")) == {*(file.name for file in found.files), *found.kept}


def test_a_frame_whose_file_was_replaced_fails_and_loses_no_row(spark: SparkSession, tmp_path: Path) -> None:
    """Spark has listed the old file. If the new file had the same name, Spark would read it with the old length."""
    data, target = tmp_path / "data", tmp_path / "out"

    def add(first: int, count: int) -> None:
        with klog.open(data) as logs:
            logs.log("t").append([(b"%d" % number, os.urandom(50)) for number in range(first, first + count)])

    with klog.open(data, create=True) as logs:
        logs.create_topic("t")
    add(0, 100)
    klog.spark.materialize(spark, data, "t", target, compression="zstd", columns=["key", "offset"])
    before = spark.read.parquet(str(target))
    assert before.count() == 100
    add(100, 1000)
    klog.spark.materialize(spark, data, "t", target, compression="zstd", columns=["key", "offset"])
    with pytest.raises(Exception, match="FILE_NOT_EXIST"):
        before.agg({"offset": "max"}).collect()
    assert spark.read.parquet(str(target)).count() == 1100


def test_a_table_of_latest_records_is_fixed_at_the_call(spark: SparkSession, tmp_path: Path) -> None:
    """Records that are appended, and compactions, before the table is read do not change it."""
    data, target = tmp_path / "data", tmp_path / "out"
    with klog.open(data, create=True) as logs:
        logs.create_topic("t", config={"cleanup.policy": "compact"})
        logs.log("t").append([(b"K", b"1")])
    klog.spark.materialize(spark, data, "t", target)
    with klog.open(data) as logs:
        logs.log("t").append([(b"K", b"2")])
    found = klog.spark.table(spark, data, "t", target)
    for newest in (b"3", b"4"):
        with klog.open(data) as logs:
            logs.log("t").append([(b"K", newest)])
            logs.log("t").compact(roll=True)
        assert [bytes(row.value) for row in found.collect()] == [b"2"]
