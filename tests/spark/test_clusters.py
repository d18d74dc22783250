"""Jobs, tables and speculation on clusters of two workers. In a module of its own: its tests need other sessions than the
one that the tests of a module share."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
import klog.spark
from tests.spark import test_jobs, test_writes
from tests.spark.test_compacting import fill, newest
from tests.spark.test_writes import feed
from tests.support.spark_session import spark_session, standalone_cluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.deep,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs: a JDK"),
]


def test_every_job_runs_on_a_cluster_of_two_workers(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    before = newest(tmp_path / "data")
    conf = {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "512m"}
    with spark_session(tmp_path, **conf) as spark:
        assert klog.spark.verify(spark, tmp_path / "data").collect() == []
        report = klog.spark.compact(spark, tmp_path / "data").collect()
        assert [(row.records_after, row.error) for row in report] == [(7, None)] * 2
        for index in (tmp_path / "data").rglob("*index"):
            index.unlink()
        assert sum(row.files_replaced for row in klog.spark.reindex(spark, tmp_path / "data").collect()) == 4
        rows = spark.range(1000).selectExpr("concat('k', id % 7) AS key", "id")
        imported = klog.spark.import_(spark, rows, tmp_path / "data", "t2", key="key", partitions=2, job="cluster")
        assert imported.records == 1000
        (written,) = klog.spark.export(spark, tmp_path / "data", "t2", tmp_path / "out", format="json").values()
        assert spark.read.json(written).count() == 1000
    assert newest(tmp_path / "data") == before and klog.verify(tmp_path / "data").ok
    assert test_jobs.leftovers(tmp_path / "data") == []


def test_rows_streams_and_tables_on_a_cluster_of_two_workers(tmp_path: Path) -> None:
    data, table = tmp_path / "data", tmp_path / "table"
    with klog.open(data, create=True) as logs:
        logs.create_topic("t", partitions=4)
        logs.append("t", [(b"k%d" % number, b"%d" % number) for number in range(1000)])
    conf = {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "512m"}
    with spark_session(tmp_path, **conf) as spark:

        def values(topic: str) -> list[int]:
            frame = spark.read.format("klog").options(subscribe=topic, minPartitions="4").load(str(data))
            return sorted(int(row.value) for row in frame.select("value").collect())

        assert values("t") == list(range(1000))
        scanned = klog.spark.scan(spark, data, columns=["offset"], subscribe="t")
        assert scanned.count() == 1000
        rows = spark.range(500).selectExpr("concat('k', id) AS key", "cast(id AS string) AS value")
        rows.write.format("klog").options(topic="u", partitions="2").mode("append").save(str(data))
        assert values("u") == list(range(500))
        stream = spark.readStream.format("klog").options(subscribe="t", startingOffsets="earliest").load(str(data))
        target = stream.select("key", "value").writeStream.format("klog").option("topic", "v")
        query = target.option("checkpointLocation", str(tmp_path / "check")).trigger(availableNow=True).start(str(data))
        query.awaitTermination()
        assert values("v") == list(range(1000))
        klog.spark.materialize(spark, data, "u", table)
        with klog.open(data) as logs:
            logs.append("u", [(b"new", b"500")])
        assert klog.spark.table(spark, data, "u", table).count() == 501
        assert spark.read.parquet(str(table)).count() == 500
    assert test_jobs.leftovers(data) == [] and klog.verify(data).ok


# ---- speculation -----------------------------------------------------------------------------------------------------

SPECULATION = {
    "spark.speculation": True,
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": 0.5,
    "spark.speculation.multiplier": 1.01,
    "spark.speculation.efficiency.enabled": False,
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
}


def slow_once(home: Path) -> Any:
    """What makes the first attempt of the task with row 0 wait, after its rows, for the end of another attempt."""
    directory = str(home)

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        slow = False
        for batch in batches:
            slow = slow or "0" in batch.column("value").to_pylist()
            yield batch
        if not slow:
            return
        number = len(os.listdir(directory))
        open(os.path.join(directory, f"attempt {number}"), "w").close()
        while number == 0 and len(os.listdir(directory)) == 1:
            time.sleep(0.05)

    return task


def test_speculative_attempts_write_once(tmp_path: Path) -> None:
    """Both attempts of a slow task have staged all their rows when one of them ends first."""
    data, jobs = tmp_path / "data", tmp_path / "of a job"
    for number in (0, 1):
        feed(tmp_path / "source", 4 * number, 4)
    with (
        standalone_cluster(tmp_path) as master,
        spark_session(tmp_path, **{**SPECULATION, "spark.master": master}) as spark,
    ):
        jobs.mkdir()
        rows = spark.range(0, 1000, 1, 4).selectExpr("cast(id AS string) AS value")
        slow = rows.mapInArrow(slow_once(jobs), "value string")
        slow.write.format("klog").options(topic="job", partitions="2").mode("append").save(str(data))
        assert len(os.listdir(jobs)) == 2
        assert test_writes.values(data, "job") == list(range(1000))
        streams = tmp_path / "of a stream"
        streams.mkdir()
        lines = spark.readStream.schema("value string").json(str(tmp_path / "source")).repartition(4)
        query = (
            lines.mapInArrow(slow_once(streams), "value string")
            .writeStream.format("klog")
            .options(topic="stream", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(data))
        )
        query.awaitTermination()
        assert len(os.listdir(streams)) == 2
        assert test_writes.values(data, "stream") == list(range(8))
    klog.open(data).close()  # removes what an attempt has staged after the commit
    assert test_writes.leftovers(data) == []
    assert (test_writes.values(data, "job"), test_writes.values(data, "stream")) == (list(range(1000)), list(range(8)))
