"""The sinks without a JVM: planner, tasks and commits, called and pickled as by Spark."""

from __future__ import annotations

import datetime
import functools
import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.datasource import CaseInsensitiveDict

import klog
from klog.clock import ManualClock
from klog.errors import (
    AlreadyLocked,
    CorruptLog,
    InvalidRecord,
    InvalidTopic,
    PolicyViolation,
    StagingLost,
    UnknownTopicOrPartition,
)
from klog.manager.partitioner import targets
from klog.manager.staging import commit_staged
from klog.spark import sink_plan
from klog.spark import writer as writers
from klog.spark.sink_options import check_columns, parse
from klog.spark.sink_plan import plan_sink
from klog.spark.sink_rows import _gathered, numbered
from pyspark_klog import DefaultSource
from tests.crash.staged import Stop, StopsAtManifest

_STRING, _BINARY = types.StringType(), types.BinaryType()
KINDS = {
    "string": _STRING,
    "binary": _BINARY,
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "timestamp": types.TimestampType(),
    "timestamp_ntz": types.TimestampNTZType(),
    "array<string>": types.ArrayType(_STRING),
    "map<string,string>": types.MapType(_STRING, _STRING),
    "array<struct<key:string,value:string>>": types.ArrayType(
        types.StructType([types.StructField("key", _STRING), types.StructField("value", _STRING)])
    ),
    "array<struct<value:binary,key:string>>": types.ArrayType(
        types.StructType([types.StructField("value", _BINARY), types.StructField("key", _STRING)])
    ),
}


def schema_of(text: str) -> types.StructType:
    """Return the schema of a text such as "key string, value binary". Spark's own parser needs a JVM."""
    columns = [column.split(" ") for column in text.split(", ")]
    return types.StructType([types.StructField(name, KINDS[kind]) for name, kind in columns])


ROWS = schema_of("key string, value binary")


class Context:
    """The values that TaskContext has for a task."""

    def __init__(self, partition: int, attempt: int, query: str | None = None, batch: int | None = None) -> None:
        self._values = partition, attempt
        self._properties = {
            "sql.streaming.queryId": query,
            "streaming.sql.batchId": None if batch is None else str(batch),
        }

    def partitionId(self) -> int:  # noqa: N802  Spark's names
        return self._values[0]

    def taskAttemptId(self) -> int:  # noqa: N802
        return self._values[1]

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self._properties[name]


def source(path: Path, **options: Any) -> DefaultSource:
    given = {name.replace("_", "."): str(value) for name, value in options.items()}
    return DefaultSource(CaseInsensitiveDict({"path": str(path), **given}))


def batch(*values: str, key: str | None = "k", **columns: Any) -> pa.RecordBatch:
    made = {"key": pa.array([key] * len(values), pa.string()), "value": pa.array([v.encode() for v in values])}
    return pa.record_batch({**made, **columns})


def copied(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Runs a copy of a writer as a task."""
    from pyspark import TaskContext

    def run(writer: Any, batches: list[pa.RecordBatch], partition: int = 0, attempt: int = 0, **stream: Any) -> Any:
        monkeypatch.setattr(TaskContext, "get", lambda: Context(partition, attempt, **stream))
        return copied(copied(writer).write(iter(batches)))

    return run


def values(path: Path, topic: str = "t") -> list[str]:
    with klog.open(path, read_only=True) as logs:
        return [(record.value or b"").decode() for record in logs.read(topic)]


def leftovers(path: Path) -> list[str]:
    return [found.name for found in path.rglob("*klog-*") if not found.name.startswith(("klog-topics", "klog-stream"))]


def test_a_job_with_retries_speculation_and_a_task_without_rows(tmp_path: Path, task: Any) -> None:
    writer = source(tmp_path / "data", topic="t", partitions=2, compression_type="zstd").writer(ROWS, False)
    task(writer, [batch("lost")], 0, 1)  # its message never arrived
    messages = [task(writer, [batch("a"), batch("b")], 0, 2), task(writer, [], 1, 3), task(writer, [batch("c")], 2, 4)]
    task(writer, [batch("slower")], 2, 5)
    copied(writer).commit(messages)
    assert values(tmp_path / "data") == ["a", "b", "c"]
    assert leftovers(tmp_path / "data") == []
    with klog.open(tmp_path / "data", read_only=True) as logs:
        assert logs.topics() == {"t": [0, 1]}
        assert dict(logs.topic_config("t").given) == {"compression.type": "zstd", "retention.ms": -1}
        (log,) = [log for log in logs.logs() if log.log_end_offset]
        assert {found.compression for found in log.read().batches()} == {"zstd"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_commit_without_the_message_of_a_task_is_refused(tmp_path: Path, task: Any, stream: bool) -> None:
    """Spark allows None there, for a task that has failed: its rows would be missing."""
    found = source(tmp_path, topic="t")
    writer = found.streamWriter(ROWS, False) if stream else found.writer(ROWS, False)
    given: dict[str, Any] = {"query": "q", "batch": 0} if stream else {}
    message = task(writer, [batch("x")], **given)
    number = (0,) if stream else ()
    for messages in ([message, None], [None]):
        with pytest.raises(StagingLost, match="no message of 1 of . tasks"):
            copied(writer).commit(messages, *number)
    copied(writer).abort([message, None], *number)
    with klog.open(tmp_path) as logs:
        assert logs.topics() == {}


def test_an_aborted_job_leaves_nothing(tmp_path: Path, task: Any) -> None:
    writer = source(tmp_path / "data", topic="t").writer(ROWS, False)
    message = task(writer, [batch("a")])
    copied(writer).abort([message, None])
    copied(writer).abort([None])
    assert leftovers(tmp_path / "data") == []
    with klog.open(tmp_path / "data") as logs:
        assert logs.topics() == {}


def test_a_commit_that_cannot_lock_fails_and_names_the_holder(
    tmp_path: Path, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "commit_staged", functools.partial(commit_staged, clock=ManualClock()))
    writer = source(tmp_path / "data", topic="t").writer(ROWS, False)
    message = task(writer, [batch("a")])
    with klog.open(tmp_path / "data"), pytest.raises(AlreadyLocked, match="this one"):
        copied(writer).commit([message])
    copied(writer).abort([message])
    assert leftovers(tmp_path / "data") == []


def test_a_directory_that_another_job_has_just_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_plan, "is_directory", lambda path: False)
    with klog.open(tmp_path / "data", create=True):
        source(tmp_path / "data", topic="t").writer(ROWS, False)


def test_all_columns(tmp_path: Path, task: Any) -> None:
    schema = schema_of(
        "value string, key binary, topic string, partition int, timestamp timestamp, "
        "headers array<struct<key:string,value:string>>"
    )
    when = datetime.datetime(2013, 2, 8, 5, tzinfo=datetime.UTC)
    rows = pa.record_batch(
        {
            "value": ["1", None, "3", "4"],
            "key": [b"k", b"k", None, b"k"],
            "topic": ["a", "b", "a", "a"],
            "partition": pa.array([None, 2, 0, 1], pa.int32()),
            "timestamp": pa.array([when, None, when, when], pa.timestamp("us", tz="America/New_York")),
            "headers": pa.array(
                [[{"key": "h", "value": "x"}], None, [], [{"key": "h", "value": None}]],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])),
            ),
        }
    )
    writer = source(tmp_path / "data", partitions=3).writer(schema, False)
    copied(writer).commit([task(writer, [rows])])
    with klog.open(tmp_path / "data", read_only=True) as logs:
        found = {
            record.value: (log.name, record.key, record.timestamp, list(record.headers))
            for log in logs.logs()
            for record in log.read()
        }
    keyed = int.from_bytes(targets(pa.record_batch({"key": [b"k"], "value": [b""]}), 3, 0)[:4], "little")
    ms = int(when.timestamp() * 1000)
    assert found[b"1"] == (f"a-{keyed}", b"k", ms, [("h", b"x")])
    assert found[None][:2] == ("b-2", b"k") and found[None][2] > ms
    assert found[b"3"] == ("a-0", None, ms, [])
    assert found[b"4"] == ("a-1", b"k", ms, [("h", None)])


@pytest.mark.parametrize("with_column", [False, True])
def test_keys_are_partitioned_as_by_klog(tmp_path: Path, task: Any, with_column: bool) -> None:
    keys = [f"N{number}" for number in range(500)]
    with klog.open(tmp_path / "one", create=True) as logs:
        logs.create_topic("t", partitions=7)
        logs.append("t", [(key.encode(), key.encode()) for key in keys])
    columns = {"key": keys, "value": keys, **({"partition": pa.nulls(500, pa.int32())} if with_column else {})}
    schema = "key string, value string" + (", partition int" if with_column else "")
    writer = source(tmp_path / "two", topic="t", partitions=7).writer(schema_of(schema), False)
    rows = pa.record_batch(columns)
    copied(writer).commit([task(writer, [rows.slice(0, 100), rows.slice(100)])])
    assert values(tmp_path / "one") == values(tmp_path / "two")


def test_rows_without_a_key_are_spread_over_the_partitions(tmp_path: Path, task: Any) -> None:
    writer = source(tmp_path / "data", topic="t", partitions=4).writer(ROWS, False)
    messages = [task(writer, [batch(f"{number}", key=None)], number, number) for number in range(8)]
    copied(writer).commit(messages)
    with klog.open(tmp_path / "data", read_only=True) as logs:
        assert Counter(log.log_end_offset for log in logs.logs()) == {2: 4}


def test_overwriting_an_existing_topic(tmp_path: Path, task: Any) -> None:
    path = tmp_path / "data"
    for value in ("old", "new"):
        writer = source(path, topic="t").writer(ROWS, value == "new")
        copied(writer).commit([task(writer, [batch(value)])])
    assert values(path) == ["new"]
    writer = source(path, topic="t").writer(ROWS, True)
    copied(writer).commit([task(writer, [])])
    assert values(path) == []


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"topik": "x"}, ValueError, "unknown option 'topik' of a write. Did you mean 'topic'"),
        ({"subscribe": "t"}, ValueError, "unknown option 'subscribe' of a write. Did you mean 'topic'"),
        (
            {"topic": "t", "includeHeaders": "true"},
            ValueError,
            "'includeHeaders' is of a read; a write stores the column",
        ),
        ({"codec": "lz4"}, ValueError, "unknown option 'codec' of a write. Did you mean 'compression.type'"),
        ({"kafka.compression.typ": "lz4"}, ValueError, "unknown option .* Did you mean 'kafka.compression.type'"),
        ({"topic": " "}, ValueError, "option 'topic' is empty"),
        ({"topic": "t", "partitions": "0"}, ValueError, "'partitions' = '0': a number from 1"),
        ({"topic": "t", "createTopics": "maybe"}, ValueError, "'createTopics' must be 'true' or 'false', not 'maybe'"),
        ({"topic": "t", "segment_bytes": "many"}, ValueError, "segment.bytes"),
        ({"topic": "there", "partitions": "4"}, ValueError, "topic 'there' has 2"),
        ({"topic": "there", "segment_bytes": "99999"}, ValueError, "'segment.bytes' = '99999', but topic 'there' has"),
        ({"topic": "other", "createTopics": "false"}, UnknownTopicOrPartition, "no topic 'other'.*createTopics=false"),
        ({"topic": "a/b"}, ValueError, "'a/b' is not a topic name"),
        ({}, ValueError, "no topic: set the option 'topic'"),
    ],
)
def test_options_that_are_refused(tmp_path: Path, options: dict[str, str], error: type, why: str) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("there", partitions=2)
    with pytest.raises(error, match=why):
        source(tmp_path, **options).writer(ROWS, False)


def test_a_compacted_topic_is_not_overwritten(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("latest", config={"cleanup.policy": "compact"})
    with pytest.raises(PolicyViolation, match="cannot be overwritten"):
        source(tmp_path, topic="latest").writer(ROWS, True)


def test_sparks_and_kafkas_options() -> None:
    options = parse(
        {"path": "/d", "checkpointLocation": "c", "kafka.bootstrap.servers": "b", "kafka.compression.type": "lz4"}
    )
    assert (options.codec, options.ignored, options.config) == ("lz4", ("kafka.bootstrap.servers",), {})
    assert parse({"path": "file:/d", "compression.type": "zstd"}).path == "/d"
    assert parse({"path": "/d", "kafka.compression.type": "none"}).codec == "none"
    for path in ("s3://d", "hdfs:/x", "S3a:/b", "~/x"):
        with pytest.raises(ValueError, match=f"path '{path}'"):
            parse({"path": path})
    with pytest.raises(ValueError, match=r"'kafka.compression.type' = 'foo'"):
        parse({"path": "/d", "kafka.compression.type": "foo"})


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("key string, value string, valeu string", "column 'valeu' cannot be written. Did you mean 'value'"),
        ("offset bigint, value string", "column 'offset' cannot be written"),
        ("key string", "no column 'value'"),
        ("value int", "column 'value' is int, expected string or binary"),
        ("key int, value string", "column 'key' is int"),
        ("value string, partition bigint", "column 'partition' is bigint, expected int"),
        ("value string, timestamp timestamp_ntz", "column 'timestamp' is timestamp_ntz"),
        ("value string, topic binary", "column 'topic' is binary"),
        ("value string, headers array<string>", "column 'headers' is array<string>"),
        ("value string, headers map<string,string>", "column 'headers' is map<string,string>"),
    ],
)
def test_columns_that_are_refused(schema: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_columns(schema_of(schema), "t")


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"partition": pa.array([3], pa.int32())}, "partition has 3; topic 't' has the partitions 0 to 1"),
        ({"partition": pa.array([-1], pa.int32())}, "partition has -1"),
        ({"topic": pa.array([None], pa.string())}, "null in the column topic"),
    ],
)
def test_rows_that_are_refused(tmp_path: Path, task: Any, columns: dict[str, Any], why: str) -> None:
    schema = "key string, value binary, " + ("topic string" if "topic" in columns else "partition int")
    options = {} if "topic" in columns else {"topic": "t"}
    writer = source(tmp_path, partitions=2, **options).writer(schema_of(schema), False)
    with pytest.raises(InvalidRecord, match=why):
        task(writer, [batch("x", **columns)])


def test_rows_of_more_than_two_gib_are_gathered_completely() -> None:
    size = 3 << 29  # untouched pages: they take no memory
    data = pa.py_buffer(np.zeros(size, np.uint8))
    offsets = pa.py_buffer(np.array([0, size], np.int32))
    large = pa.record_batch({"value": pa.Array.from_buffers(pa.binary(), 1, [None, offsets, data])})
    assert sum(len(found) for found in _gathered([large, large], lambda: 2 * size)) == 2


@pytest.mark.parametrize("first", [0, 1])
def test_rows_for_a_topic_in_two_log_dirs_are_refused(tmp_path: Path, task: Any, first: int) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    with klog.open(paths, create=True) as logs:
        logs.create_topic("t", partitions=2)
    path = next(path for path in paths if (path / f"t-{first}").exists())
    with pytest.raises(InvalidTopic, match="'t'.*one log directory"):
        source(path, topic="t").writer(ROWS, False)
    writer = source(path).writer(schema_of("key string, value binary, topic string"), False)
    with pytest.raises(InvalidTopic, match="'t'.*one log directory"):
        task(writer, [batch("x", topic=["t"])])
    copied(writer).abort([])
    copied(writer).commit([task(writer, [batch("x", topic=["other"])])])
    assert values(path, "other") == ["x"]


@pytest.mark.parametrize("column", [False, True])
def test_rows_for_a_topic_in_another_log_dir_are_refused(tmp_path: Path, task: Any, column: bool) -> None:
    """A topic of the same name and id in this one would be a second copy: the log.dirs could not be opened together."""
    paths = [tmp_path / "a", tmp_path / "b"]
    with klog.open(paths, create=True) as logs:
        logs.create_topic("t")
        logs.append("t", [(b"k", b"old")])
    path = next(path for path in paths if not (path / "t-0").exists())
    rows = [batch("x", topic=["t"])]
    writer = source(path, **({} if column else {"topic": "t"})).writer(
        schema_of("key string, value binary, topic string"), False
    )
    message = task(writer, rows)
    with pytest.raises(InvalidTopic, match="'t' has no partition in .* write to the log directory that has them"):
        copied(writer).commit([message])
    copied(writer).abort([message])
    with klog.open(paths) as logs:
        assert [record.value for record in logs.read("t")] == [b"old"]
    with klog.open(path) as logs:
        logs.create_topic("t")
    copied(writer).commit([task(writer, rows)])
    assert values(path) == ["x"]


@pytest.mark.parametrize("what", ["deleted", "damaged"])
def test_topics_that_a_job_does_not_write_do_not_stop_it(
    tmp_path: Path, task: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """One is deleted after the planner has listed it; a reader refuses the log of another one."""
    with klog.open(tmp_path, create=True) as logs:
        for topic in ("other", "t"):
            logs.create_topic(topic, config={"segment.bytes": 100})
            for value in range(3):
                logs.append(topic, [(b"k", b"%d" % value)])
    if what == "damaged":
        (tmp_path / "other-0" / f"{1:020}.log").unlink()
        with klog.open(tmp_path, read_only=True) as logs, pytest.raises(CorruptLog):
            logs.log("other")
    else:
        plain = klog.LogManager.topics

        def then_delete(logs: klog.LogManager) -> dict[str, list[int]]:
            found = plain(logs)
            if logs.read_only and "other" in found:
                with klog.open(tmp_path) as writer:
                    writer.delete_topic("other")
            return found

        monkeypatch.setattr(klog.LogManager, "topics", then_delete)
    writer = source(tmp_path).writer(schema_of("key string, value binary, topic string"), False)
    copied(writer).commit([task(writer, [batch("x", topic=["t"])])])
    assert values(tmp_path) == ["0", "1", "2", "x"]


def test_numbered_rows_agree_with_the_routing(tmp_path: Path) -> None:
    plan = plan_sink(parse({"path": str(tmp_path), "topic": "t", "partitions": "5"}), overwrite=False)
    rows = pa.record_batch(
        {"key": ["a", None, "c"], "value": ["1", "2", "3"], "partition": pa.array([None, None, 4], pa.int32())}
    )
    found = numbered(rows, plan, ["key", "value", "partition"]).column("partition").to_pylist()
    expected = int.from_bytes(targets(rows.select(["key", "value"]), 5, 0)[:4], "little")
    assert found == [expected, None, 4]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()], ids=str)
@pytest.mark.parametrize("has_key", [False, True])
def test_every_row_has_a_number_if_it_must(tmp_path: Path, kind: pa.DataType, has_key: bool) -> None:
    """Rows without a key spread over the partitions, each by its value."""
    plan = plan_sink(parse({"path": str(tmp_path), "topic": "t", "partitions": "5"}), overwrite=False)
    values = pa.array([str(n) for n in range(100)], pa.string()).cast(kind)
    rows = {"value": values, **({"key": pa.nulls(100, kind)} if has_key else {})}
    found = numbered(pa.record_batch(rows), plan, ["value", "partition"], every=True).column("partition")
    assert found.to_pylist() == [klog.partition_for(b"%d" % n, 5) for n in range(100)]


# ---- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["arrow", "rows"])
def test_a_batch_of_a_stream_is_committed_once(
    tmp_path: Path, task: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "rows":  # Spark 4.0
        monkeypatch.setattr(writers, "_ArrowStreamWriter", None)
    path = tmp_path / "data"

    def writer() -> Any:
        """Spark creates a writer for the tasks, and another one for each commit."""
        return source(path, topic="t", partitions=1, checkpointLocation="c").streamWriter(ROWS, False)

    def staged(number: int, value: str, attempt: int) -> Any:
        given: list[Any] = [batch(value)] if kind == "arrow" else [("k", value.encode())]
        return task(writer(), given, 0, attempt, query="q", batch=number)

    first = staged(0, "zero", 0)
    staged(0, "lost", 1)
    writer().commit([first], 0)
    writer().commit([staged(0, "replayed", 2)], 0)
    writer().commit([task(writer(), [], 0, 3, query="q", batch=1)], 1)  # no rows
    writer().commit([], 2)
    aborted = staged(3, "aborted", 4)
    writer().abort([None, aborted], 3)
    staged(4, "not seen", 5)
    writer().abort([None], 4)
    writer().commit([staged(4, "four", 6)], 4)
    assert values(path) == ["zero", "four"]
    assert leftovers(path) == []
    other = task(writer(), [batch("other")] if kind == "arrow" else [("k", b"other")], 0, 7, query="r", batch=0)
    writer().commit([other], 0)
    assert values(path) == ["zero", "four", "other"]


def test_rows_of_spark_4_0_have_the_columns_that_arrow_batches_have(
    tmp_path: Path, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fields of a header are found by name, a time is Spark's local one, and a null header is refused."""
    monkeypatch.setattr(writers, "_ArrowStreamWriter", None)
    when = datetime.datetime(2013, 2, 8, 5, tzinfo=datetime.UTC)
    header = types.Row("value", "key")
    kind = "value string, timestamp timestamp, headers array<struct<value:binary,key:string>>"

    def staged(headers: Any) -> Any:
        row = ("v", when.astimezone().replace(tzinfo=None), headers)
        return task(writer, [row], query="q", batch=0)  # type: ignore[list-item]

    writer = source(tmp_path, topic="t").streamWriter(schema_of(kind), False)
    with pytest.raises(InvalidRecord, match="header"):
        staged([None])
    writer.commit([staged([header(b"x", "h"), header(None, "none")])], 0)
    with klog.open(tmp_path, read_only=True) as logs:
        (record,) = logs.read("t")
    assert (record.value, record.timestamp) == (b"v", int(when.timestamp() * 1000))
    assert list(record.headers) == [("h", b"x"), ("none", None)]


def test_a_replay_does_not_change_the_files_of_a_commit(
    tmp_path: Path, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def writer() -> Any:
        return source(tmp_path, topic="t").streamWriter(ROWS, False)

    def staged(*values: str) -> Any:
        return task(writer(), [batch(*values)], 0, 0, query="q", batch=0)  # attempts begin at 0 in each application

    with monkeypatch.context() as patch:
        patch.setattr(writers, "commit_staged", functools.partial(commit_staged, files=StopsAtManifest()))
        with pytest.raises(Stop):
            writer().commit([staged("first", "second")], 0)
    replayed = staged("second", "first")
    klog.open(tmp_path).close()  # finishes the commit
    assert values(tmp_path) == ["first", "second"]
    writer().commit([replayed], 0)
    assert values(tmp_path) == ["first", "second"] and leftovers(tmp_path) == []


def test_messages_of_another_batch_are_refused(tmp_path: Path, task: Any) -> None:
    writer = source(tmp_path, topic="t").streamWriter(ROWS, False)
    message = task(writer, [batch("x")], query="q", batch=3)
    with pytest.raises(RuntimeError, match="messages of batch 3 in a commit of batch 4"):
        writer.commit([message], 4)


def test_a_spark_that_names_no_query_is_refused(tmp_path: Path, task: Any) -> None:
    writer = source(tmp_path, topic="t").streamWriter(ROWS, False)
    with pytest.raises(RuntimeError, match="cannot be committed exactly once"):
        task(writer, [batch("x")])
