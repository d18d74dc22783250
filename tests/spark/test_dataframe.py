"""format("klog") in Spark sessions: one JVM for the module, and one each for sessions without configuration."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import klog.spark
from klog.spark.rows import METADATA

from .conftest import FLIGHTS, PARTITIONS, START_MS, STEP_MS, Directory, flights

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs: a JDK"),
]

ROOT = Path(__file__).resolve().parents[2]
EACH = FLIGHTS // PARTITIONS

# Spark's KafkaRecordToRowConverter.kafkaSchema, in full.
KAFKA_SCHEMA = [
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
]
KAFKA_HEADERS = ("headers", "array<struct<key:string,value:binary>>")


@pytest.fixture
def load(spark: SparkSession, shared_data: Directory) -> Callable[..., DataFrame]:
    def load(**options: str) -> DataFrame:
        return spark.read.format("klog").options(**options).load(str(shared_data.path))

    return load


JSON_SCHEMA = (
    "id BIGINT, small TINYINT, x DOUBLE, s STRING, ok BOOLEAN, d DECIMAL(10,2), day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, "
    "b BINARY, tags ARRAY<STRING>, m MAP<STRING, STRUCT<`a b`: INT, l: ARRAY<ARRAY<BIGINT>>>>"
)
JSON_VALUES = [
    b'{"id":9223372036854775807,"small":-128,"x":1e300,"s":"\xc3\xa9\\n","ok":true,"d":12345678.905,"tags":["a",null,""]}',
    b'{"day":"1900-01-01","at":"2013-02-08T05:00:00.123456+05:30","local":"2013-02-08T05:00:00","b":"aGk=","other":[{}]}',
    b'{"m":{"k":{"a b":1,"l":[[1,2],[],null]},"n":null},"x":5,"id":null,"tags":[]}',
    b"{}",
    None,
]


def test_json_values_are_those_of_from_json(spark: SparkSession, tmp_path: Path) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        logs.log("t", 0).append([klog.Record(key=None, value=value) for value in JSON_VALUES])

    def load(**options: str) -> DataFrame:
        return spark.read.format("klog").options(**options).load(str(tmp_path / "data"))

    plain = load().selectExpr(f"from_json(CAST(value AS STRING), '{JSON_SCHEMA}') AS value").collect()
    schema = load(valueFormat="json", valueSchema=JSON_SCHEMA).select("value").schema
    decoded = spark.read.format("klog").schema(schema).options(valueFormat="json", valueSchema=JSON_SCHEMA)
    assert decoded.load(str(tmp_path / "data")).collect() == plain
    assert plain[0].value.d == Decimal("12345678.91")
    scanned = klog.spark.scan(
        spark, tmp_path / "data", "value", valueFormat="json", valueSchema=schema["value"].dataType.json()
    )
    assert scanned.schema == schema
    assert scanned.collect() == plain


def test_a_stream_reads_avro_and_stops_at_a_bad_value(spark: SparkSession, tmp_path: Path) -> None:
    schema = {"type": "record", "name": "F", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "schemas.json").write_text(json.dumps({"1": schema}))
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        logs.log("t", 0).append([klog.Record(key=b"k", value=b"\0\0\0\0\1" + bytes([2 * n])) for n in range(5)])
    options = {"valueFormat": "confluentAvro", "schemas": str(tmp_path / "schemas.json"), "keyFormat": "string"}
    values = spark.readStream.format("klog").options(startingOffsets="earliest", **options).load(str(tmp_path / "data"))

    found: list[tuple[str, int]] = []

    def take(batch: DataFrame, number: int) -> None:
        found.extend(map(tuple, batch.collect()))

    def run() -> None:
        query = values.select("key", "value.id").writeStream.foreachBatch(take).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    run()
    with klog.open(tmp_path / "data") as logs:
        logs.log("t", 0).append([klog.Record(key=b"k", value=b"\0\0\0\0\2\2")])
    with pytest.raises(Exception, match="t-0, offset 5: the value is bad: schema id 2 is not in .*schemas.json"):
        run()
    assert found == [("k", n) for n in range(5)]


def test_schema_is_that_of_sparks_kafka_source(load: Callable[..., DataFrame]) -> None:
    def fields(frame: DataFrame) -> list[tuple[str, str]]:
        assert all(field.nullable for field in frame.schema.fields)
        return [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]

    assert fields(load()) == KAFKA_SCHEMA
    assert fields(load(includeHeaders="true")) == [*KAFKA_SCHEMA, KAFKA_HEADERS]


def test_every_row_and_column(load: Callable[..., DataFrame], shared_data: Directory) -> None:
    found = load(includeHeaders="true").orderBy("partition", "offset").collect()
    assert len(found) == FLIGHTS
    for row, expected in zip(found, shared_data.rows, strict=True):
        assert (row.key, row.value) == (expected.key, expected.value)
        assert (row.topic, row.partition, row.offset) == ("flights", expected.partition, expected.offset)
        assert row.timestamp.astimezone(UTC) == datetime.fromtimestamp(expected.timestamp_ms / 1000, UTC)
        assert row.timestampType == 0
        headers = [(header.key, header.value) for header in row.headers] if row.headers is not None else None
        assert headers == (list(expected.headers) or None)


def test_settings_of_a_session_change_no_row(
    spark: SparkSession, load: Callable[..., DataFrame], shared_data: Directory, tmp_path: Path
) -> None:
    columns = ["key", "value", "partition", "offset", "timestamp", "headers"]

    def read(frame: DataFrame) -> tuple[Any, list[str]]:
        return frame.schema, sorted(map(repr, frame.select(columns).collect()))

    expected = read(load(includeHeaders="true"))
    settings = {
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.caseSensitive": "true",
        "spark.sql.session.timeZone": "+05:45",
    }
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        assert read(load(includeHeaders="true")) == expected
        rows = klog.spark.scan(spark, shared_data.path, includeHeaders=True)
        assert read(rows) == expected
        rows.drop("topic", "offset", "timestampType").write.format("klog").options(topic="w", partitions=3).mode(
            "append"
        ).save(str(tmp_path / "data"))
        klog.spark.import_(
            spark, rows, tmp_path / "data", "i", key="key", value="value", timestamp="timestamp", partitions=3
        )
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    with klog.open(tmp_path / "data", read_only=True) as logs:
        written = {
            topic: Counter((each.key, each.value, each.timestamp) for each in logs.read(topic)) for topic in "wi"
        }
    assert written["w"] == Counter((row.key, row.value, row.timestamp_ms) for row in shared_data.rows)
    assert written["i"] == written["w"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "flights"}, FLIGHTS),
        ({"subscribePattern": "fl.*s"}, FLIGHTS),
        ({"assign": '{"flights":[0,2]}'}, 2 * EACH),
        ({"startingOffsets": "earliest", "endingOffsets": '{"flights":{"0":10,"1":20,"2":-1}}'}, 30 + EACH),
        ({"STARTINGOFFSETS": '{"flights":{"0":10,"1":-2,"2":300}}'}, 2 * EACH - 10),
        ({"subscribe": "flights", "startingTimestamp": "2013-02-08T09:00:00Z"}, 3 * (EACH - 240)),
        ({"endingTimestamp": "1360299900000"}, 15),
        ({"startingOffsetsByTimestamp": '{"flights":{"1":"2013-02-08T09:59:00Z"}}', "assign": '{"flights":[1]}'}, 1),
        ({"kafka.bootstrap.servers": "broker:9092"}, FLIGHTS),
        ({"subscribe": "flights", "startingOffsets": "-10"}, 3 * 10),
        ({"subscribe": "flights", "startingTimestamp": "-10000d"}, FLIGHTS),
        ({"isolationLevel": "read_committed", "upTo": "logEndOffset"}, FLIGHTS),
    ],
)
def test_options_limit_the_rows(load: Callable[..., DataFrame], options: dict[str, str], expected: int) -> None:
    assert load(**options).count() == expected


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"subscribee": "x"}, "unknown option 'subscribee'. Did you mean 'subscribe'"),
        ({"view": "remoteSegments"}, "has no remote tiers; use one of records, batches"),
        ({"minPartitions": "none"}, "option 'minPartitions' must be a whole number from 1 on, not 'none'"),
        ({"columns": "ofset"}, "option 'columns' names 'ofset', which is unknown; use some of key, value"),
        ({"subscribe": "a", "assign": "{}"}, "exclude each other"),
    ],
)
def test_a_bad_option_fails_the_load(load: Callable[..., DataFrame], options: dict[str, str], why: str) -> None:
    with pytest.raises(Exception, match=why):
        load(**options)


def test_a_missing_topic_fails_the_query(load: Callable[..., DataFrame]) -> None:
    with pytest.raises(Exception, match="no topic flight here; topics: empty, flights"):
        load(subscribe="flight").count()


def test_several_directories(spark: SparkSession, shared_data: Directory) -> None:
    paths = [f"{shared_data.path}/flights-0", f"{shared_data.path}/flights-2"]
    assert spark.read.format("klog").load(paths).count() == 2 * EACH


@pytest.mark.parametrize(
    "ddl", ["offset long", "value binary, key binary", "topic string", "timestampType int, offset long"]
)
def test_a_narrow_schema(spark: SparkSession, shared_data: Directory, load: Callable[..., DataFrame], ddl: str) -> None:
    narrow = spark.read.format("klog").schema(ddl).load(str(shared_data.path))
    names = [part.split()[0] for part in ddl.split(", ")]
    assert narrow.columns == names
    assert Counter(narrow.collect()) == Counter(load().select(*names).collect())


@pytest.mark.parametrize(
    ("ddl", "why"),
    [("ofset long", "klog has no column 'ofset'; it has: key binary"), ("value string", "is binary, not string")],
)
def test_an_unsupported_schema_raises(spark: SparkSession, shared_data: Directory, ddl: str, why: str) -> None:
    with pytest.raises(Exception, match=why):
        spark.read.format("klog").schema(ddl).load(str(shared_data.path)).count()


def test_an_empty_topic(load: Callable[..., DataFrame]) -> None:
    empty = load(subscribe="empty")
    assert [field.name for field in empty.schema] == [name for name, _ in KAFKA_SCHEMA]
    assert (empty.count(), empty.collect()) == (0, [])


def test_sql_equals_plain_python(spark: SparkSession, shared_data: Directory) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMP VIEW flights USING klog OPTIONS (path '{shared_data.path}', subscribe 'flights')"
    )
    found = spark.sql(
        "SELECT carrier, partition, count(*) AS flights, sum(delay) AS delay FROM ("
        "  SELECT partition, get_json_object(string(value), '$.carrier') AS carrier,"
        "         int(get_json_object(string(value), '$.dep_delay')) AS delay FROM flights WHERE value IS NOT NULL"
        ") GROUP BY carrier, partition"
    ).collect()
    count: Counter[tuple[str, int]] = Counter()
    delay: Counter[tuple[str, int]] = Counter()
    for row in shared_data.rows:
        if row.value is not None:
            value = json.loads(row.value)
            count[value["carrier"], row.partition] += 1
            delay[value["carrier"], row.partition] += value["dep_delay"]
    assert {(row.carrier, row.partition): (row.flights, row.delay) for row in found} == {
        group: (count[group], delay[group]) for group in count
    }


def test_aggregates_and_limits(load: Callable[..., DataFrame], shared_data: Directory) -> None:
    found = load().groupBy("key").agg({"offset": "max"}).collect()
    newest: dict[bytes | None, int] = {}
    for row in shared_data.rows:
        newest[row.key] = max(row.offset, newest.get(row.key, -1))
    assert {row.key: row["max(offset)"] for row in found} == newest
    assert len(load().limit(7).collect()) == 7


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_filters_under_both_pushdown_settings(
    spark: SparkSession, load: Callable[..., DataFrame], pushdown: str
) -> None:
    before = spark.conf.get("spark.sql.python.filterPushdown.enabled")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        assert load().where("offset >= 10 AND offset < 30 AND partition = 1").count() == 20
        assert load().where("timestamp < timestamp'2013-02-08 05:05:00Z'").count() == 15
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", before)


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_push_down_in_a_session(spark: SparkSession, data: Directory, enabled: str) -> None:
    """Spark passes filters as klog.spark.pushdown expects them: each of three bounds keeps a query from a batch that
    cannot be read. Without the setting, Spark's error names it."""
    with klog.open(data.path, read_only=True) as logs:
        segments = [(Path(each.path), each.base_offset) for each in logs.log("flights", 0).segments]
        other = Path(logs.log("flights", 2).segments[0].path)
    (oldest, _), (_, first), *_, (newest, last) = segments
    assert 20 <= first < last - 20 < EACH
    conditions = {
        "partition": "partition IN (0, 1)",
        "offset": f"offset < {last}",
        "timestamp": f"timestamp >= timestamp_millis({START_MS + first * STEP_MS})",
    }
    more = "topic = 'flights' AND key IS NOT NULL AND NOT offset = 25 AND (partition = 1 OR offset > 50)"

    def rows(pushdown: str, names: Iterable[str]) -> list[Any]:
        frame = spark.read.format("klog").option("pushdown", pushdown).load(str(data.path))
        for name in names:
            frame = frame.where(conditions[name])
        return sorted(frame.where(more).select("partition", "offset").collect())

    expected = rows("false", conditions)
    assert len(expected) > 100
    for path in (oldest, newest, other):
        content = bytearray(path.read_bytes())
        content[100] ^= 1  # in the records of the first batch
        path.write_bytes(content)
    before = spark.conf.get("spark.sql.python.filterPushdown.enabled")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", enabled)
    try:
        if enabled == "false":
            with pytest.raises(Exception, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
                rows("true", conditions)
            return
        assert rows("true", conditions) == expected
        with pytest.raises(Exception, match="checksum"):
            rows("false", conditions)
        for name in conditions:
            with pytest.raises(Exception, match="checksum"):
                rows("true", conditions.keys() - {name})
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", before)


def test_metadata_columns(load: Callable[..., DataFrame]) -> None:
    """Spark checks the schema of Arrow batches exactly. The test reads all columns, in two orders."""
    names = ",".join(METADATA)
    found = load(metadataColumns=names, includeHeaders="true")
    assert found.columns == [name for name, _ in [*KAFKA_SCHEMA, KAFKA_HEADERS]] + list(METADATA)
    rows = found.orderBy("partition", "offset").collect()
    assert len(rows) == FLIGHTS
    assert {(row.codec, row.crcValid, row.isControl, row.producerId, row.sequence) for row in rows} == {
        ("none", True, False, -1, -1),
        ("lz4", True, False, -1, -1),
    }
    assert all(row.batchBaseOffset == row.offset // 20 * 20 for row in rows)
    reverse = load(columns=",".join([*reversed(METADATA), "offset"]))
    assert reverse.columns == [*reversed(METADATA), "offset"]
    assert Counter(reverse.collect()) == Counter(found.select(*reverse.columns).collect())


@pytest.mark.parametrize(
    "columns", ["offset", "value,key", "topic", "timestampType,offset", "headers,timestamp,partition"]
)
def test_columns_equal_a_narrow_schema(
    spark: SparkSession, shared_data: Directory, load: Callable[..., DataFrame], columns: str
) -> None:
    types = dict([*KAFKA_SCHEMA, KAFKA_HEADERS])
    ddl = ", ".join(f"{name} {types[name]}" for name in columns.split(","))
    by_option, by_schema = load(columns=columns), spark.read.format("klog").schema(ddl).load(str(shared_data.path))
    assert by_option.schema == by_schema.schema
    key = [repr(row) for row in by_option.collect()]
    assert Counter(key) == Counter(repr(row) for row in by_schema.collect())


def test_sizes_of_tasks(load: Callable[..., DataFrame]) -> None:
    assert load(minPartitions="7").rdd.getNumPartitions() == 7
    most = (
        load(maxRecordsPerPartition="100").selectExpr("spark_partition_id() AS task").groupBy("task").count().collect()
    )
    assert sum(row["count"] for row in most) == FLIGHTS
    assert max(row["count"] for row in most) <= 100
    assert load(subscribe="empty", minPartitions="7").count() == 0


def test_small_partitions_share_a_task(load: Callable[..., DataFrame]) -> None:
    assert load().rdd.getNumPartitions() == 1


@pytest.mark.parametrize("case", ["txn", "appendtime", "codecs"])
def test_directories_written_by_kafka(spark: SparkSession, golden: Callable[[str], Path], case: str) -> None:
    """Transactions, both timestamp types and every codec. Control records are not rows."""
    import base64
    import gzip

    home = golden(case)
    expected = Counter()
    for partition in json.loads((home / "manifest.json").read_text())["partitions"]:
        if partition["records_file"] is None:
            continue
        with gzip.open(home / partition["records_file"], "rt") as lines:
            for record in map(json.loads, lines):
                inside = partition["log_start_offset"] <= record["o"] < partition["high_watermark"]
                if record["ctl"] is None and inside:
                    value = None if record["v"] is None else base64.b64decode(record["v"])
                    kind = 1 if record["tt"] == "append" else 0
                    expected[partition["topic"], partition["partition"], record["o"], kind, value] += 1
    found = spark.read.format("klog").load(str(home / "logdir"))
    rows = found.select("topic", "partition", "offset", "timestampType", "value").collect()
    assert Counter((*row[:4], None if row.value is None else bytes(row.value)) for row in rows) == expected


def test_a_retried_task_reads_the_same_rows(spark: SparkSession, data: Directory) -> None:
    """The first attempt reads all rows, appends to the log and fails; the second reads the planned rows."""
    directory = str(data.path / "flights-0")
    more = [(record.key, record.value) for record in flights(0, EACH, 40)]

    def fail_once(batches: Iterator[object]) -> Iterator[object]:
        from pyspark import TaskContext

        import klog

        held = list(batches)
        if TaskContext.get().attemptNumber() == 0:
            with klog.Log.open(directory) as log:
                log.append(more)
            raise RuntimeError("first attempt")
        yield from held

    def load() -> DataFrame:
        return spark.read.format("klog").option("assign", '{"flights":[0]}').load(str(data.path))

    frame = load()
    offsets = [row.offset for row in frame.mapInArrow(fail_once, frame.schema).select("offset").collect()]
    assert offsets == list(range(EACH))
    assert load().count() == EACH + 40  # the append took place
    assert frame.count() == EACH  # the plan stays: Spark plans a DataFrame once


def test_a_start_at_the_latest_fails_the_query(load: Callable[..., DataFrame]) -> None:
    """load() does not fail: Spark calls it in the same way for a stream, for which 'latest' is valid."""
    with pytest.raises(Exception, match="option 'startingOffsets' can't be 'latest' in a batch query"):
        load(startingOffsets="latest").count()


def test_a_running_session_accepts_changeable_settings(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    again = klog.spark.session({"spark.sql.shuffle.partitions": 2, "spark.buffer.size": 4096})
    assert again is spark
    assert "a running session cannot change these; stop it and start it again: spark.buffer.size" in caplog.text


def run_bare(script: str, cwd: Path, *first: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a process whose Spark has no klog setting and finds its Python on the PATH."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (*first, ROOT)))
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.deep
def test_a_session_without_klog_settings(shared_data: Directory, tmp_path: Path) -> None:
    script = f"""
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
print("rows", spark.read.format("klog").load({str(shared_data.path)!r}).count())
try:
    spark.sql("CREATE TABLE lost USING klog OPTIONS (path {str(shared_data.path)!r})")
    spark.sql("SELECT * FROM lost").show()
except Exception as error:
    print("table", "CREATE TEMPORARY VIEW" in str(error))
spark.stop()
"""
    done = run_bare(script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "rows 900" in done.stdout
    assert "table True" in done.stdout


@pytest.mark.deep
def test_a_broken_klog_does_not_affect_other_sources(shared_data: Directory, tmp_path: Path) -> None:
    """The import of klog fails: format("klog") raises this error, and another pyspark_* source of the session still works."""
    (tmp_path / "klog").mkdir()
    (tmp_path / "klog" / "__init__.py").write_text("raise RuntimeError('a dependency is missing')\n")
    (tmp_path / "pyspark_other.py").write_text(
        "from pyspark.sql.datasource import DataSource, DataSourceReader\n"
        "class Reader(DataSourceReader):\n"
        "    def read(self, partition):\n"
        "        yield (42,)\n"
        "class DefaultSource(DataSource):\n"
        "    @classmethod\n"
        "    def name(cls):\n"
        "        return 'other'\n"
        "    def schema(self):\n"
        "        return 'n int'\n"
        "    def reader(self, schema):\n"
        "        return Reader()\n"
    )
    script = f"""
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    spark.read.format("klog").load({str(shared_data.path)!r}).count()
except Exception as error:
    print("klog", "klog does not load in Spark's Python" in str(error), "a dependency is missing" in str(error))
print("other", spark.read.format("other").load().collect()[0].n)
spark.stop()
"""
    (tmp_path / "elsewhere").mkdir()
    done = run_bare(script, tmp_path / "elsewhere", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "klog True True" in done.stdout
    assert "other 42" in done.stdout
