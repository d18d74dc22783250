"""Use all parts of klog with an older PySpark, in a separate process: python old_pyspark.py DIR. See test_old_pyspark.

Prints a line for each part that worked. Raises AssertionError for a wrong result.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import klog
import klog.spark
from klog import Record

ROWS = 1000


def record(number: int) -> Record:
    headers = [("number", b"%d" % number)] if number % 2 else []
    return Record(b"k%d" % number, b"%d" % number, 1_700_000_000_000 + number, headers=headers)


def main(home: Path) -> None:
    data = home / "data"
    with klog.open(data, create=True) as logs:
        logs.create_topic("t", partitions=2)
        logs.append("t", [record(number) for number in range(ROWS)])
    spark = klog.spark.session({"spark.master": "local[2]", "spark.ui.enabled": False, "spark.local.dir": str(home)})
    spark.sparkContext.setLogLevel("OFF")
    frame = klog.spark.scan(spark, data, columns=["value", "partition"], subscribe="t")
    assert frame.where("partition >= 0").selectExpr("sum(int(string(value)))").collect()[0][0] == sum(range(ROWS))
    batches = klog.spark.scan(spark, data, view="batches")
    assert batches.selectExpr("sum(recordCount)").collect()[0][0] == ROWS
    print("scan")
    if find_spec("pyspark.sql.datasource"):
        sources(spark, data, home)
    spark.stop()


def sources(spark, data: Path, home: Path) -> None:  # type: ignore[no-untyped-def]
    """Use the parts that need the Python data source API."""
    from pyspark.sql.datasource import DataSourceReader

    assert spark.read.format("klog").load(str(data)).count() == ROWS
    partitions = spark.read.format("klog").option("view", "partitions").load(str(data))
    assert partitions.selectExpr("sum(logEndOffset)").collect()[0][0] == ROWS
    print("read")

    rows = spark.read.format("klog").option("subscribe", "t").load(str(data)).select("key", "value")
    for write in (
        lambda: rows.write.format("klog").option("topic", "u").mode("append").save(str(data)),
        lambda: klog.spark.write(rows, str(data), topic="u"),
    ):
        write()
    assert spark.read.format("klog").option("subscribe", "u").load(str(data)).count() == 2 * ROWS
    print("write")

    stream = spark.readStream.format("klog").options(subscribe="t", startingOffsets="earliest", includeHeaders="true")
    headers = "transform(headers, header -> struct(header.value AS value, header.key AS key)) AS headers"
    rows = stream.load(str(data)).selectExpr("key", "value", "timestamp", headers)
    target = rows.writeStream.format("klog").option("topic", "v")
    for _ in range(2):
        query = target.option("checkpointLocation", str(home / "checkpoint")).start(str(data))
        try:
            query.processAllAvailable()
        finally:
            query.stop()
    with klog.open(data, read_only=True) as logs:
        copies = {(each.key, each.value, each.timestamp, *each.headers) for each in logs.read("v")}
        assert logs.count("v") == ROWS
        assert copies == {(each.key, each.value, each.timestamp, *each.headers) for each in logs.read("t")}
    print("stream")

    with klog.open(data) as logs:
        logs.create_topic("json")
        logs.append("json", [(None, b'{"n": %d}' % number) for number in range(ROWS)])
    formatted = spark.read.format("klog").options(subscribe="json", valueFormat="json", valueSchema="n bigint")
    assert formatted.load(str(data)).selectExpr("sum(value.n)").collect()[0][0] == sum(range(ROWS))
    print("valueFormat")

    table = home / "table"
    klog.spark.materialize(spark, data, "t", table)
    with klog.open(data) as logs:
        logs.append("t", [(b"new", b"7")])
    assert spark.read.parquet(str(table)).count() == ROWS
    assert klog.spark.table(spark, data, "t", table).where("key = X'6E6577'").count() == 1
    print("table")

    assert klog.spark.verify(spark, data).collect() == []
    with klog.open(data) as logs:
        logs.create_topic("latest", config={"cleanup.policy": "compact", "segment.bytes": 1000})
        for number in range(20):
            logs.append("latest", [(b"k%d" % number, bytes(50)) for number in range(10)])
    klog.spark.compact(spark, data, ["latest"])
    assert spark.read.format("klog").option("subscribe", "latest").load(str(data)).count() < 200
    print("jobs")

    if hasattr(DataSourceReader, "pushFilters"):
        pushed = spark.read.format("klog").options(subscribe="t", pushdown="true").load(str(data))
        assert pushed.where("partition = 0 and offset >= 10 and offset < 15").count() == 5
        print("push-down")

    try:
        limited = (
            spark.readStream.format("klog")
            .options(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="300")
            .load(str(data))
        )
        query = limited.writeStream.format("noop").option("checkpointLocation", str(home / "limited")).start()
        query.processAllAvailable()
        print(f"limits are kept: {max(progress['numInputRows'] for progress in query.recentProgress)}")
        query.stop()
    except Exception as error:
        print("limits are refused" if "maxOffsetsPerTrigger" in str(error) else error)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
