"""The jobs of klog.spark in a Spark session: verify, compact, reindex, import_, export."""

from __future__ import annotations

import csv
import datetime
import itertools
import json
import os
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import klog
import klog.spark
from klog.errors import AlreadyLocked, UnknownTopicOrPartition
from klog.importing import UnknownColumn, import_file
from klog.progress import Event
from klog.spark.jobs import Item, Job, segments_of
from klog.spark.verifying import check_partitions
from tests.inspect.test_examine import damages
from tests.spark.test_compacting import TOPIC, fill, newest
from tests.support import golden
from tests.support.patience import until
from tests.support.spark_session import spark_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs: a JDK"),
]


def leftovers(path: Path) -> list[str]:
    kept = ("klog-topics", "klog-stream")
    return [found.name for found in path.rglob("*klog-*") if not found.name.startswith(kept)]


def titles(spark: SparkSession) -> str:
    """Return the descriptions of all Spark jobs of this session."""
    jobs: Any = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    return "\n".join(str(jobs.apply(number).description()) for number in range(jobs.size()))


# ---- verify ----------------------------------------------------------------------------------------------------------


def test_the_problems_are_those_of_klog_verify(spark: SparkSession, tmp_path: Path) -> None:
    directory = Path(golden.copy_logdir("medley", tmp_path))
    for _ in damages(directory, 12, 5):
        pass
    expected = klog.verify(directory).problems
    events: list[Event] = []
    found = klog.spark.verify(spark, directory, progress=events.append).collect()
    assert [tuple(row)[2:] for row in found] == [
        (each.path, each.position, each.offset, each.kind, each.message) for each in expected
    ]
    assert {(row.topic, row.partition) for row in found if row.topic is None} <= {(None, None)}
    assert all(f"/{row.topic}-{row.partition}/" in row.path for row in found if row.path.endswith(".log"))
    assert events[-1].done == events[-1].total and f"klog.spark.verify {directory}" in titles(spark)
    partitions = [str(directory / name) for name in sorted(os.listdir(directory)) if (directory / name).is_dir()]
    logs = {path: [(f"{path}/{base:020d}.log", size) for base, size in segments_of(path)] for path in partitions}
    in_parts = check_partitions(Job(spark, "verify", str(directory), None), logs, 4096)
    assert [problem for path in partitions for problem in in_parts[path]] == [
        problem for problem in expected if os.path.dirname(problem.path) in partitions
    ]


def test_topics_and_paths_are_checked(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path)
    assert klog.spark.verify(spark, tmp_path, TOPIC).collect() == []
    for call in (klog.spark.verify, klog.spark.compact, klog.spark.reindex):
        with pytest.raises(UnknownTopicOrPartition, match="'nope'"):
            call(spark, tmp_path, ["nope"])
        with pytest.raises(FileNotFoundError, match="executor"):
            call(spark, tmp_path / "nowhere")
        with pytest.raises(TypeError, match="progress"):
            call(spark, tmp_path, progress=3)
    with pytest.raises(UnknownTopicOrPartition, match="'nope'"):
        klog.spark.export(spark, tmp_path, "nope", f"{tmp_path}-out")


# ---- jobs ------------------------------------------------------------------------------------------------------------


def test_results_have_the_order_of_the_items_and_come_once(spark: SparkSession, tmp_path: Path) -> None:
    """J2. A task that fails once is tried again; its result counts once."""
    marker = str(tmp_path / "failed")

    def task(value: int) -> int:
        if value == 3 and not os.path.exists(marker):
            open(marker, "w").close()
            raise RuntimeError("this attempt fails")
        return value * value

    events: list[Event] = []
    each: list[tuple[int, int]] = []
    job = Job(spark, "verify", "here", events.append)
    job.total = 45
    items = [Item(value, value, f"t-{value}") for value in range(10)]
    assert job.run(items, task, lambda number, result: each.append((number, result))) == [n * n for n in range(10)]
    assert sorted(each) == [(n, n * n) for n in range(10)] and os.path.exists(marker)
    assert [event.done for event in events] == sorted(event.done for event in events)
    assert (events[-1].done, events[-1].total, events[-1].unit) == (45, 45, "bytes")


def test_an_error_of_the_progress_callback_cancels_the_job(spark: SparkSession) -> None:
    """J3"""

    def stop(event: Event) -> None:
        raise InterruptedError("enough")

    def slow(value: int) -> int:
        time.sleep(60 if value else 0)
        return value

    with pytest.raises(InterruptedError, match="enough"):
        Job(spark, "verify", "here", stop).run([Item(value, 1, "t-0") for value in range(2)], slow)
    tracker = spark.sparkContext.statusTracker()
    until(lambda: tracker.getActiveJobsIds() == [])  # Spark notes the end of a job a little later


# ---- compact, reindex ------------------------------------------------------------------------------------------------


def test_compact_leaves_the_newest_record_of_each_key(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path)
    before = newest(tmp_path)
    events: list[Event] = []
    forecast = klog.spark.compact(spark, tmp_path, dry_run=True).collect()
    assert klog.verify(tmp_path).records == 120
    report = klog.spark.compact(spark, tmp_path, progress=events.append).collect()
    for row, foreseen in zip(report, forecast, strict=True):
        assert (row.topic, row.records_before, row.records_after, row.rounds, row.error) == (TOPIC, 60, 7, 1, None)
        assert (row.bytes_before, row.bytes_after) == (foreseen.bytes_before, foreseen.bytes_after)
        assert row.records_after == foreseen.records_after
    assert [row.partition for row in report] == [0, 1]
    assert newest(tmp_path) == before and klog.verify(tmp_path).ok and leftovers(tmp_path) == []
    assert events[-1].done == events[-1].total and f"klog.spark.compact {tmp_path}" in titles(spark)
    again = klog.spark.compact(spark, tmp_path, TOPIC).collect()
    assert [(row.rounds, row.records_after, row.error) for row in again] == [(0, 7, None)] * 2
    with klog.open(tmp_path), pytest.raises(AlreadyLocked, match=str(os.getpid())):
        klog.spark.compact(spark, tmp_path)


def test_reindex_replaces_what_differs(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, 3000)
    sorted(tmp_path.rglob("*.index"))[0].write_bytes(b"")
    sorted(tmp_path.rglob("*.timeindex"))[0].unlink()
    assert klog.verify(tmp_path).problems
    events: list[Event] = []
    report = klog.spark.reindex(spark, tmp_path, TOPIC, progress=events.append).collect()
    assert [(row.partition, row.files_replaced, row.error) for row in report] == [(0, 2, None), (1, 0, None)]
    assert all(row.segments > 1 and row.bytes for row in report)
    assert not klog.verify(tmp_path).problems and leftovers(tmp_path) == []
    assert events[-1].done == events[-1].total and "klog.spark.reindex" in titles(spark)


# ---- import_, export -------------------------------------------------------------------------------------------------


def content(path: Path, topic: str = "t", *, timed: bool = True) -> list[list[tuple[Any, ...]]]:
    with klog.open(path, read_only=True) as logs:
        return [
            [(record.key, record.value, record.timestamp if timed else None) for record in logs.log(topic, n).read()]
            for n in logs.topics()[topic]
        ]


CSV = 'id,zip,text,t\n1,00501,"a ""b"", c\nd",2013-01-01T00:00:00Z\n2,,é,2013-01-02\n1,1.50,true,1357138800000\n'
LINES = '{"id": 1, "b":  [1,2], "t": 5}\n\n{"id":2,"t":"2013-01-01"}\n{"t":7}\n'


def files(path: Path) -> dict[str, tuple[str | None, str | None]]:
    """Write one file of each format. Return its columns for keys and timestamps."""
    import pyarrow
    import pyarrow.parquet

    (path / "a.csv").write_text(CSV)
    (path / "a.jsonl").write_text(LINES)
    when = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)
    table = pyarrow.table(
        {
            "id": [1, 2, None],
            "t": pyarrow.array([when, when + datetime.timedelta(days=1), when], pyarrow.timestamp("us", "UTC")),
            "naive": pyarrow.array([when.replace(tzinfo=None)] * 3, pyarrow.timestamp("us")),
            "bytes": [b"\xff", b"a", None],
            "real": [1.5, float("nan"), 2.0],
            "list": [[1], [], None],
            "nested": [{"x": 1, "y": "z"}] * 3,
        }
    )
    pyarrow.parquet.write_table(table, path / "a.parquet", compression="none")
    return {"a.csv": ("id", None), "a.jsonl": (None, "t"), "a.parquet": ("naive", "t")}


def test_records_are_those_of_klog_import(spark: SparkSession, tmp_path: Path) -> None:
    for name, (key, timestamp) in files(tmp_path).items():
        by_import, by_spark = tmp_path / f"hand-{name}", tmp_path / f"spark-{name}"
        import_file(tmp_path / name, by_import, "t", key=key, timestamp=timestamp, partitions=3)
        imported = klog.spark.import_(spark, tmp_path / name, by_spark, "t", key=key, timestamp=timestamp, partitions=3)
        found, expected = (
            content(by_spark, timed=timestamp is not None),
            content(by_import, timed=timestamp is not None),
        )
        assert imported.records == 3 and not imported.was_done
        counts = {number: len(records) for number, records in enumerate(found) if records}
        assert {number: end - first for number, (first, end) in imported.partitions.items()} == counts
        if key is None:  # then a record may be in any partition
            found, expected = ([[*itertools.chain(*each)]] for each in (found, expected))
        assert [sorted(records, key=str) for records in found] == [sorted(records, key=str) for records in expected]
        with klog.open(by_spark, read_only=True) as logs:
            assert logs.topic_config("t")["retention.ms"] == -1
        assert leftovers(by_spark) == []


def test_records_without_a_key_have_the_order_of_their_times(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 2000, 1, 8).selectExpr("2000 - id AS t", "cast(id AS string) AS text")
    klog.spark.import_(spark, rows, tmp_path, "t", value="text", timestamp="t", partitions=2)
    with klog.open(tmp_path, read_only=True) as logs:
        found = [[record.timestamp for record in logs.log("t", partition).read()] for partition in range(2)]
    assert sorted(itertools.chain(*found)) == list(range(1, 2001)) and all(found)
    assert found == [sorted(times) for times in found]


def test_a_named_job_is_committed_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(50).selectExpr("id", "cast(id AS string) AS text")
    first = klog.spark.import_(spark, rows, tmp_path / "data", "t", value="text", job="fifty")
    again = klog.spark.import_(spark, rows, tmp_path / "data", "t", value="text", job="fifty")
    assert (first.records, first.was_done, again.records, again.was_done) == (50, False, 0, True)
    klog.spark.import_(spark, rows.limit(1), tmp_path / "data", "t", value="text", job="one-more")
    assert Counter(value for _, value, _ in content(tmp_path / "data")[0]) == Counter(
        [*(b"%d" % n for n in range(50)), b"0"]
    )
    assert leftovers(tmp_path / "data") == []
    with pytest.raises(ValueError, match="job"):
        klog.spark.import_(spark, rows, tmp_path / "data", "t", job="no such/name")


def test_a_row_that_is_not_a_record_leaves_the_topic_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    klog.spark.import_(spark, spark.range(2), data, "t")
    (tmp_path / "short.csv").write_text("a,b\n" + "1,2\n" * 20_000 + "3\n")
    with pytest.raises(Exception, match="MALFORMED"):
        klog.spark.import_(spark, tmp_path / "short.csv", data, "t", job="short")
    (tmp_path / "a.jsonl").write_text(LINES)
    for source in (tmp_path / "a.jsonl", spark.range(1)):
        with pytest.raises(UnknownColumn, match="nope"):
            klog.spark.import_(spark, source, data, "t", key="nope")
    assert len(content(data)[0]) == 2 and leftovers(data) == []


def test_no_file_or_column_of_a_source_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    data, source = tmp_path / "data", tmp_path / "source"

    def values(topic: str) -> list[Any]:
        with klog.open(data, read_only=True) as logs:
            return sorted((json.loads(record.value) for record in logs.read(topic)), key=str)

    (source / "part=1" / "sub").mkdir(parents=True)
    (source / "part=1" / "a.csv").write_text("x.y,z\n1,2\n")
    (source / "part=1" / "sub" / "b.csv").write_text("x.y,z\n3,4\n")
    klog.spark.import_(spark, source, data, "cells", key="x.y", format="csv")
    assert values("cells") == [{"x.y": 1, "z": 2}, {"x.y": 3, "z": 4}]

    spark.createDataFrame([(1, "b")], "a INT, b STRING").write.parquet(f"{tmp_path}/p1.parquet", compression="none")
    spark.createDataFrame([(2, "c")], "a INT, c STRING").write.parquet(f"{tmp_path}/p2.parquet", compression="none")
    klog.spark.import_(spark, [f"{tmp_path}/p1.parquet", f"{tmp_path}/p2.parquet"], data, "rows", partitions=1)
    assert values("rows") == [{"a": 1, "b": "b", "c": None}, {"a": 2, "b": None, "c": "c"}]

    (source / "_hidden.jsonl").write_text("{}\n")
    with pytest.raises(ValueError, match=r"_hidden\.jsonl: Spark passes over files whose names begin with _"):
        klog.spark.import_(spark, source / "_hidden.jsonl", data, "lines")


ODD_TEXTS = [" a ", "\t", "a\rb", "\r", "a\\", '\\"', '"', "\x00x", "#c", "a\nb\n", "\u00a0x\u2003", "", "a,b", "null"]


def test_csv_has_every_character_of_a_text(spark: SparkSession, tmp_path: Path) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        logs.append("t", [(text.encode(), text.encode()) for text in ODD_TEXTS])
    written = klog.spark.export(spark, tmp_path / "data", "t", tmp_path / "out", format="csv")
    (part,) = Path(written["t"]).glob("part-*.csv")
    with open(part, newline="") as file:
        rows = [(row["key"], row["value"]) for row in csv.DictReader(file, strict=True)]
    assert rows == [(text, text) for text in ODD_TEXTS]


def test_export_does_not_replace_the_log_directory(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "t" / "data"
    with klog.open(data, create=True) as logs:
        logs.create_topic("t")
        logs.create_topic("data")
        logs.append("t", [(None, b"v")])
    for topic, target in (("t", tmp_path), ("data", tmp_path / "t"), ("t", f"file://{tmp_path}")):
        with pytest.raises(
            ValueError, match="would be replaced, but holds the log directory|is inside the log directory"
        ):
            klog.spark.export(spark, data, topic, target)
    with klog.open(data, read_only=True) as logs:
        assert logs.log("t").log_end_offset == 1


def test_export_writes_every_record(spark: SparkSession, tmp_path: Path) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", partitions=2)
        logs.create_topic("empty")
        logs.log("t", 0).append([klog.Record(b"k", b'a "quoted"\nline', 1000, [("h", b"\xff")]), (None, b"\xff\x00")])
        logs.log("t", 1).append([(b"", None), (b"\xc3\xa9", b"")])
    expected = [
        ("k", None, 'a "quoted"\nline', None),
        (None, None, None, "/wA="),
        ("", None, None, None),
        ("é", None, "", None),
    ]
    spark.conf.set("spark.sql.parquet.compression.codec", "uncompressed")
    events: list[Event] = []
    for form in ("parquet", "json", "csv"):
        out = tmp_path / form
        (out / "t").mkdir(parents=True)
        (out / "t" / "part-of-an-earlier-export").write_text("{}")
        written = klog.spark.export(spark, tmp_path / "data", None, out, format=form, progress=events.append)
        assert written == {topic: f"{out}/{topic}" for topic in ("empty", "t")}
        assert (out / "empty" / "_SUCCESS").exists()
        if form == "parquet":
            rows = spark.read.parquet(written["t"]).orderBy("partition", "offset").collect()
            assert [(row.key, row.value) for row in rows] == [
                (b"k", b'a "quoted"\nline'), (None, b"\xff\x00"), (b"", None), ("é".encode(), b"")
            ]  # fmt: skip
            assert [(h.key, bytes(h.value)) for h in rows[0].headers] == [("h", b"\xff")]
            assert spark.read.parquet(written["empty"]).columns == rows[0].__fields__
            continue
        if form == "json":
            rows = [json.loads(line) for file in Path(written["t"]).glob("part-*") for line in file.open()]
            found = [tuple(row.get(name) for name in ("key", "key_b64", "value", "value_b64")) for row in
                     sorted(rows, key=lambda row: (row["partition"], row["offset"]))]  # fmt: skip
        else:
            read = spark.read.option("header", True).option("multiLine", True).option("escape", '"').csv(written["t"])
            found = [tuple(row) for row in read.orderBy("partition", "offset")
                     .select("key", "key_b64", "value", "value_b64").collect()]  # fmt: skip
            found = [tuple("" if cell is None else cell for cell in row) for row in found]
        assert found == (expected if form == "json" else [tuple(cell or "" for cell in row) for row in expected])
    assert (events[-1].unit, events[-1].done) == ("tasks", events[-1].total)
    with pytest.raises(ValueError, match="inside"):
        klog.spark.export(spark, tmp_path / "data", "t", tmp_path / "data" / "out")
    with pytest.raises(ValueError, match="'view'"):
        klog.spark.export(spark, tmp_path / "data", "t", tmp_path / "out", view="batches")


# ---- deep ------------------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
import klog.spark
session = klog.spark.session({"spark.master": "local[2]", "spark.ui.enabled": False})
session.sparkContext.setLogLevel("OFF")
print("begun", flush=True)
what, path = sys.argv[1:]
if what == "compact":
    klog.spark.compact(session, path)
elif what == "reindex":
    klog.spark.reindex(session, path)
else:
    rows = session.range(20_000).selectExpr("cast(id AS string) AS value").repartition(8)
    klog.spark.import_(session, rows, path, "imported", value="value", partitions=4, job="twenty-thousand")
"""


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("what", ["compact", "reindex", "import"])
def test_a_program_that_is_killed_repeatedly_loses_nothing(tmp_path: Path, what: str) -> None:
    """Kill the driver, the JVM and the tasks at once, several times. Then run the job to its end."""
    fill(tmp_path, 30_000)
    before = newest(tmp_path)
    for delay in (0.3, 1.0, 2.0, 4.0, None):
        with spark_program(PROGRAM, what, tmp_path) as program:
            if delay is None:
                assert program.wait() == 0
            else:
                time.sleep(delay)
        assert newest(tmp_path) == before
    klog.open(tmp_path).close()
    assert leftovers(tmp_path) == [] and klog.verify(tmp_path).ok
    if what == "compact":
        assert [len(records) for records in content(tmp_path, TOPIC)] == [7, 7]
    if what == "import":
        found = Counter(int(value) for records in content(tmp_path, "imported") for _, value, _ in records)
        assert found == Counter(range(20_000))
