"""Writes by format("klog") in a Spark session: jobs, streams, and the files that remain when they fail or are killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import klog
import klog.spark
from tests.support.spark_session import await_progress, spark_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs: a JDK"),
]


def values(path: Path, topic: str) -> list[int]:
    with klog.open(path, read_only=True) as logs:
        return sorted(int(record.value or b"-1") for record in logs.read(topic))


def leftovers(path: Path) -> list[str]:
    return [found.name for found in path.rglob("*klog-*") if not found.name.startswith(("klog-topics", "klog-stream"))]


def test_a_write_is_read_back_by_spark_and_by_klog(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(2000).selectExpr(
        "concat('N', id % 7) AS key",
        "cast(id AS string) AS value",
        "timestamp_millis(1600000000000 + id) AS timestamp",
        "IF(id % 2 = 0, array(struct('h' AS key, cast('x' AS binary) AS value)), null) AS headers",
    )
    options = {"topic": "t", "partitions": "3", "compression.type": "lz4"}
    rows.write.format("klog").options(**options).mode("append").save(str(tmp_path / "data"))
    with klog.open(tmp_path / "data", read_only=True) as logs:
        records = list(logs.read("t"))
        assert len(records) == 2000 and sorted(logs.topics()["t"]) == [0, 1, 2]
    for record in records:
        number = int(record.value or b"-1")
        assert (record.key, record.timestamp) == (b"N%d" % (number % 7), 1_600_000_000_000 + number)
        assert list(record.headers) == ([("h", b"x")] if number % 2 == 0 else [])
    read = spark.read.format("klog").option("includeHeaders", "true").load(str(tmp_path / "data"))
    assert read.selectExpr("count(DISTINCT value)", "sum(size(headers))").first()[:] == (2000, 1000)
    assert leftovers(tmp_path / "data") == []


def test_a_job_whose_task_fails_for_good_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """There is only one task, since another might still be running when Spark aborts the job."""
    rows = spark.range(0, 1000, 1, 1).selectExpr("cast(IF(id = 900, raise_error('no'), id) AS string) AS value")
    with pytest.raises(Exception, match="no"):
        rows.write.format("klog").option("topic", "t").mode("append").save(str(tmp_path / "data"))
    assert leftovers(tmp_path / "data") == []
    with klog.open(tmp_path / "data") as logs:
        assert logs.topics() == {}


def test_a_task_that_is_tried_again_writes_once(spark: SparkSession, tmp_path: Path) -> None:
    marker = str(tmp_path / "failed once")

    def fail_once(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        if not os.path.exists(marker):
            open(marker, "w").close()
            raise RuntimeError("this attempt fails after its rows were staged")

    rows = spark.range(0, 1000, 1, 2).selectExpr("cast(id AS string) AS value").mapInArrow(fail_once, "value string")
    rows.write.format("klog").option("topic", "t").mode("append").save(str(tmp_path / "data"))
    assert os.path.exists(marker) and values(tmp_path / "data", "t") == list(range(1000))
    assert leftovers(tmp_path / "data") == []


def test_klog_spark_write_partitions_and_sorts_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "data"
    rows = spark.range(0, 3000, 1, 6).selectExpr(
        "concat('N', id % 50) AS key",
        "cast(id AS string) AS value",
        "timestamp_millis(1600000100000 - id) AS timestamp",
    )
    klog.spark.write(rows, str(path), topic="t", partitions=5)
    with klog.open(path, create=False) as logs:
        logs.create_topic("same", partitions=5)
        logs.append("same", [(b"N%d" % (n % 50), b"%d" % n) for n in range(3000)])
        for partition in range(5):
            found = list(logs.log("t", partition).read())
            assert [record.timestamp for record in found] == sorted(record.timestamp for record in found)
            same = {record.key for record in logs.log("same", partition).read()}
            assert {record.key for record in found} == same
    klog.spark.write(rows.limit(10), str(path), topic="t", mode="overwrite", sort="value")
    with klog.open(path, read_only=True) as logs:
        assert sum(1 for _ in logs.read("t")) == 10


def test_klog_spark_write_sorts_rows_without_a_key_in_the_topic_of_the_option(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.range(0, 1000, 1, 6).selectExpr(
        "cast(id AS string) AS value",
        "timestamp_millis(1600000100000 - id) AS timestamp",
        "concat('t', id % 3) AS topic",
    )
    klog.spark.write(rows, tmp_path, topic="t", partitions=2)
    with klog.open(tmp_path, read_only=True) as logs:
        assert list(logs.topics()) == ["t"]
        found = [[record.timestamp for record in logs.log("t", partition).read()] for partition in range(2)]
    assert sum(map(len, found)) == 1000 and all(found)
    assert found == [sorted(times) for times in found]


def test_klog_spark_write_resolves_a_path_where_the_program_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program has changed its directory since Spark was started."""
    monkeypatch.chdir(tmp_path)
    klog.spark.write(spark.range(3).selectExpr("cast(id AS string) AS value"), "data", topic="t")
    assert values(tmp_path / "data", "t") == [0, 1, 2]


@pytest.mark.parametrize("option", ["topik", "segment.bytes"])
def test_a_wrong_option_is_an_error_that_names_it(spark: SparkSession, tmp_path: Path, option: str) -> None:
    rows = spark.range(1).selectExpr("cast(id AS string) AS value")
    with pytest.raises(Exception, match=option):
        rows.write.format("klog").option("topic", "t").option(option, "x").mode("append").save(str(tmp_path))


# ---- streams -----------------------------------------------------------------------------------------------------------


def feed(source: Path, first: int, count: int) -> None:
    """Write a file of rows, and rename it into the source directory of a stream. Spark reads files in the order of their
    times, in ms."""
    source.mkdir(exist_ok=True)
    temporary = source.parent / "new.json"
    temporary.write_text("".join(json.dumps({"value": str(n)}) + "\n" for n in range(first, first + count)))
    os.utime(temporary, (1_700_000_000 + first,) * 2)
    temporary.rename(source / f"{first:06d}.json")


def run(spark: SparkSession, tmp_path: Path, sink: str = "klog") -> None:
    query = (
        spark.readStream.schema("value string")
        .option("maxFilesPerTrigger", 1)
        .json(str(tmp_path / "source"))
        .writeStream.format(sink)
        .option("topic", "t")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "data"))
    )
    query.awaitTermination()


def test_a_batch_whose_commit_entry_is_lost_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    feed(tmp_path / "source", 0, 50)
    feed(tmp_path / "source", 50, 50)
    run(spark, tmp_path)
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    run(spark, tmp_path)
    assert values(tmp_path / "data", "t") == list(range(100))
    feed(tmp_path / "source", 100, 5)
    run(spark, tmp_path)
    assert values(tmp_path / "data", "t") == list(range(105))
    assert leftovers(tmp_path / "data") == []


def test_a_commit_that_fails_is_completed_by_the_next_run(spark: SparkSession, tmp_path: Path) -> None:
    """Another manager holds the lock: the query ends with an error that names the holder, and a restart writes the rows."""
    feed(tmp_path / "source", 0, 20)
    with klog.open(tmp_path / "data", create=True), pytest.raises(Exception, match=f"process {os.getpid()}"):
        run(spark, tmp_path)
    run(spark, tmp_path)
    assert values(tmp_path / "data", "t") == list(range(20))
    assert leftovers(tmp_path / "data") == []


def failing_source(when: str, marker: str) -> Any:
    """A source whose streaming sink is klog's. Its first commit with rows fails, before or after klog has committed."""
    from pyspark.sql.datasource import DataSource

    class Failing(DataSource):
        @classmethod
        def name(cls) -> str:
            return "klog_failing"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802  Spark's name
            from klog.spark.writer import KlogSink

            writer = KlogSink(self.options).stream_writer(schema, overwrite)
            commit = writer.commit

            def fail_once(messages: Any, batchId: int) -> None:  # noqa: N803  Spark's name
                fails = batchId == 1 and not os.path.exists(marker)
                if fails:
                    open(marker, "w").close()
                if not fails or when == "after":
                    commit(messages, batchId)
                if fails:
                    raise RuntimeError(f"Spark learns of no commit, {when} it")

            writer.commit = fail_once
            return writer

    return Failing


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_that_spark_does_not_learn_of_writes_once(spark: SparkSession, tmp_path: Path, when: str) -> None:
    for number in range(3):
        feed(tmp_path / "source", 20 * number, 20)
    spark.dataSource.register(failing_source(when, str(tmp_path / "has failed")))
    with pytest.raises(Exception, match="Spark learns of no commit"):
        run(spark, tmp_path, "klog_failing")
    assert values(tmp_path / "data", "t") == list(range(40 if when == "after" else 20))
    run(spark, tmp_path)
    assert values(tmp_path / "data", "t") == list(range(60))
    feed(tmp_path / "source", 60, 5)
    run(spark, tmp_path, "klog_failing")
    assert values(tmp_path / "data", "t") == list(range(65))
    assert leftovers(tmp_path / "data") == []


BEGIN = """
import sys
import klog.spark
from itertools import count
from pathlib import Path
from tests.spark.test_writes import run, write
session = klog.spark.session({"spark.master": "local[2]", "spark.ui.enabled": False})
session.sparkContext.setLogLevel("OFF")
print("begun", flush=True)
"""
QUERY = BEGIN + "run(session, Path(sys.argv[1]))"
JOBS = """
for number in count(int(sys.argv[2])):
    write(session, Path(sys.argv[1]) / "data", number)
    print(number, flush=True)
"""
JOBS = BEGIN + JOBS
KILLS = 4
EACH = 500


def write(spark: SparkSession, path: Path, number: int) -> None:
    """Run the job with this number: two tasks write EACH rows to three partitions."""
    rows = spark.range(EACH * number, EACH * (number + 1), 1, 2).selectExpr("cast(id AS string) AS value")
    keyed = rows.selectExpr("value AS key", "value")
    keyed.write.format("klog").options(topic="t", partitions="3").mode("append").save(str(path))


def moments(seed: int, count: int) -> Iterator[tuple[int, float]]:
    """Return after how many commits, and how many seconds, a program is killed. Some are before its first commit."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    return ((rng.randrange(4), rng.uniform(0, 1)) for _ in range(count))


def last_batch(checkpoint: Path) -> int:
    """Return the number of the last batch that a query has committed, −1 without one."""
    commits = checkpoint / "commits"
    return max((int(name) for name in os.listdir(commits) if name.isdigit()), default=-1) if commits.exists() else -1


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_a_query_that_is_killed_repeatedly_writes_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    for number, (steps, pause) in enumerate(moments(17, KILLS)):
        for part in range(5):
            feed(tmp_path / "source", 50 * number + 10 * part, 10)
        reached = last_batch(tmp_path / "checkpoint") + steps
        with spark_program(QUERY, tmp_path) as program:
            while last_batch(tmp_path / "checkpoint") < reached and program.poll() is None:
                time.sleep(0.02)
            time.sleep(pause)
            assert program.poll() in (None, 0)
        if (tmp_path / "data").exists():
            klog.open(tmp_path / "data").close()  # completes the query's commit, or removes its files
            written = values(tmp_path / "data", "t") if "t" in topics(tmp_path / "data") else []
            assert written == list(range(len(written))) and len(written) % 10 == 0
            assert leftovers(tmp_path / "data") == []
    run(spark, tmp_path)
    found = Counter(values(tmp_path / "data", "t"))
    assert found == Counter(range(50 * KILLS))
    klog.open(tmp_path / "data").close()
    assert leftovers(tmp_path / "data") == []


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_jobs_whose_driver_is_killed_have_written_all_their_rows_or_none(spark: SparkSession, tmp_path: Path) -> None:
    """After the next open, each job has written all its rows or none, in all partitions, and no other file remains."""
    done = 0
    for steps, pause in moments(18, KILLS // 2):
        with spark_program(JOBS, tmp_path, done) as program:
            await_progress(program, steps)
            time.sleep(pause)
            assert program.poll() is None
        least = done + steps
        if (tmp_path / "data").exists():
            klog.open(tmp_path / "data").close()
            written = values(tmp_path / "data", "t") if "t" in topics(tmp_path / "data") else []
            done = len(written) // EACH
            assert written == list(range(EACH * done))
            assert leftovers(tmp_path / "data") == []
        assert done >= least
    write(spark, tmp_path / "data", done)
    assert values(tmp_path / "data", "t") == list(range(EACH * (done + 1)))


def topics(path: Path) -> set[str]:
    with klog.open(path, read_only=True) as logs:
        return set(logs.topics())


def test_each_batch_of_a_stream_in_complete_mode_replaces_the_previous_one(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    counts = (
        spark.readStream.schema("id INT")
        .json(str(tmp_path / "in"))
        .selectExpr("cast(id % 2 AS string) AS key")
        .groupBy("key")
        .count()
        .selectExpr("key", "cast(count AS string) AS value")
    )
    sink = counts.writeStream.format("klog").option("topic", "t").outputMode("complete").trigger(availableNow=True)
    for round in (1, 2):
        spark.range(10).coalesce(1).write.mode("append").json(str(tmp_path / "in"))
        query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "data"))
        query.awaitTermination()
        with klog.open(tmp_path / "data", read_only=True) as logs:
            found = {record.key: record.value for record in logs.read("t")}
            assert found == {b"0": b"%d" % (5 * round), b"1": b"%d" % (5 * round)}
            assert logs.log("t").log_start_offset == 2 * (round - 1)
