"""Views on directories that Kafka wrote, without a JVM: planner and tasks, called as Spark calls them."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

import klog
from klog.clock import ManualClock
from klog.errors import CorruptData, CorruptLog, UnknownTopicOrPartition
from klog.spark import view_rows, views
from klog.spark.bounds import TopicPartition
from klog.spark.committed import OffsetCommit, OffsetKey, committed
from klog.spark.group_offsets import commit_key, commit_value
from klog.spark.read import DataLoss
from klog.spark.rows import PLAIN
from klog.spark.source import KlogSource
from tests.log import test_lost_ends
from tests.spark.conftest import GOLDEN
from tests.support.batches import marker, old, transactional
from tests.support.logs import NOW, one_log
from tests.support.unreadable import break_stat

CASES = ["txn", "txn-v1", "compacted", "epochs", "idempotent", "segments", "trimmed", "medley"]


def read(path: Path | str, view: str, columns: tuple[str, ...] = (), **options: str) -> list[dict[str, Any]]:
    """Return the rows of a view, from a reader that is pickled as for a task. No columns: all of them."""
    source = KlogSource(CaseInsensitiveDict({"path": str(path), "view": view, **options}))
    full = views.full_schema(view)
    schema = StructType([full[name] for name in columns]) if columns else full
    reader = pickle.loads(pickle.dumps(source.reader(schema)))
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert all(list(row) == list(schema.names) for row in rows)
    return rows


def ms(time: Any) -> int:
    return -1 if time is None else round(time.timestamp() * 1000)


def manifest(case: str) -> dict[tuple[str, int], dict[str, Any]]:
    listed = json.loads((GOLDEN / case / "manifest.json").read_text())["partitions"]
    return {(entry["topic"], entry["partition"]): entry for entry in listed}


def topic_id(directory: Path) -> str:
    """Return the topic id that Kafka wrote."""
    lines = (directory / "partition.metadata").read_text().splitlines()
    return next(line.split(": ")[1] for line in lines if line.startswith("topic_id"))


@pytest.mark.parametrize("case", CASES)
class TestAgainstKafka:
    def test_partitions(self, case: str) -> None:
        expected = manifest(case)
        rows = {(row["topic"], row["partition"]): row for row in read(GOLDEN / case / "logdir", "partitions")}
        assert rows.keys() == expected.keys()
        for pair, row in rows.items():
            entry = expected[pair]
            for name, of_kafka in [
                ("logStartOffset", "log_start_offset"),
                ("highWatermark", "high_watermark"),
                ("lastStableOffset", "last_stable_offset"),
                ("logEndOffset", "log_end_offset"),
            ]:
                assert row[name] == entry[of_kafka], (pair, name)
            assert row["topicId"] == topic_id(GOLDEN / case / "logdir" / f"{row['topic']}-{row['partition']}")
            assert row["path"] == str(GOLDEN / case / "logdir" / f"{row['topic']}-{row['partition']}")
            assert [list(epoch.values()) for epoch in row["leaderEpochs"]] == entry["leader_epochs"]
            assert row["segmentCount"] == len(entry["segments"])
            assert row["sizeInBytes"] == sum(segment["size"] for segment in entry["segments"])

    def test_segments(self, case: str) -> None:
        expected = manifest(case)
        found: dict[tuple[str, int], list[Any]] = {pair: [] for pair in expected}
        for row in read(GOLDEN / case / "logdir", "segments"):
            assert row["segment"] == f"{row['baseOffset']:020d}.log"
            known = row["baseOffset"], row["sizeInBytes"], ms(row["maxTimestamp"])
            found[row["topic"], row["partition"]].append(known)
        for pair, entry in expected.items():
            of_kafka = [(each["base_offset"], each["size"], each["max_timestamp"]) for each in entry["segments"]]
            assert found[pair] == of_kafka, pair

    def test_counts_of_batches(self, case: str) -> None:
        home = GOLDEN / case / "logdir"
        counts: dict[tuple[str, int], int] = {}
        for row in read(home, "batches", ("recordCount", "isControl", "partition", "topic")):
            pair = row["topic"], row["partition"]
            counts[pair] = counts.get(pair, 0) + (0 if row["isControl"] else row["recordCount"])
        with klog.open(home, read_only=True) as logs:
            for topic, numbers in logs.topics().items():
                for number in numbers:
                    assert counts.get((topic, number), 0) == sum(1 for _ in logs.log(topic, number).read())

    def test_producers(self, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Those that Kafka has with a clock at the log's largest timestamp."""
        home = GOLDEN / case / "logdir"
        columns = {
            "producerId": "producer_id",
            "producerEpoch": "epoch",
            "lastSequence": "last_sequence",
            "lastOffset": "last_offset",
            "currentTxnFirstOffset": "current_txn_first_offset",
            "coordinatorEpoch": "coordinator_epoch",
        }
        of_kafka = {pair: entry["producers"] for pair, entry in manifest(case).items()}
        segments = {pair: entry["segments"] for pair, entry in manifest(case).items()}
        assert any(of_kafka.values()) == (case != "segments")
        for (topic, number), expected in of_kafka.items():
            largest = max((segment["max_timestamp"] for segment in segments[topic, number]), default=0)
            monkeypatch.setattr("klog.log.log.SystemClock", partial(ManualClock, largest))
            rows = read(home, "producers", tuple(columns), assign=json.dumps({topic: [number]}))
            assert rows == [{name: entry[columns[name]] for name in columns} for entry in expected], (topic, number)

    def test_an_expired_producer_is_no_row(self, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """As in Kafka, a producer without an open transaction expires after a day."""
        monkeypatch.setattr("klog.log.log.SystemClock", partial(ManualClock, 2_000_000_000_000))
        expected = [
            (*pair, entry["producer_id"], entry["current_txn_first_offset"])
            for pair, partition in sorted(manifest(case).items())
            for entry in partition["producers"]
            if entry["current_txn_first_offset"] is not None
        ]
        rows = read(GOLDEN / case / "logdir", "producers")
        names = ("topic", "partition", "producerId", "currentTxnFirstOffset")
        assert [tuple(row[name] for name in names) for row in rows] == expected
        with klog.open(GOLDEN / case / "logdir", read_only=True) as logs:
            for row in rows:
                last = logs.log(row["topic"], row["partition"]).producers[row["producerId"]].timestamp
                assert row["lastTimestamp"] == datetime.fromtimestamp(last / 1000, UTC)

    def test_transactions(self, case: str) -> None:
        found: dict[tuple[str, int], list[Any]] = {pair: [] for pair in manifest(case)}
        blocking: dict[tuple[str, int], int] = {}
        for row in read(GOLDEN / case / "logdir", "transactions"):
            pair = row["topic"], row["partition"]
            if row["state"] == "aborted":
                names = ["producerId", "firstOffset", "lastOffset", "lastStableOffset"]
                found[pair].append(tuple(row[name] for name in names))
                assert not row["blocksLastStableOffset"]
            elif row["blocksLastStableOffset"]:
                blocking[pair] = row["firstOffset"]
        for pair, entry in manifest(case).items():
            start = entry["log_start_offset"]
            names = ["producer_id", "first_offset", "last_offset", "last_stable_offset"]
            of_kafka = [
                tuple(each[name] for name in names) for each in entry["aborted"] if each["last_offset"] >= start
            ]
            assert found[pair] == of_kafka, pair
            if entry["last_stable_offset"] < entry["high_watermark"]:
                assert blocking[pair] == entry["last_stable_offset"]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["plain", "lz4", "send", "commit", "abort", "old", "compact", "truncate", "delete", "roll"]),
        st.integers(0, 9),
    ),
    min_size=4,
    max_size=20,
)


@given(STEPS, st.integers(0, 40), st.integers(0, 40), st.booleans())
def test_counts_of_batches_are_those_of_records(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], first: int, past_end: int, many: bool
) -> None:
    """After transactions, compactions, truncations and deletes, between any two offsets."""
    home = tmp_path_factory.mktemp("counts")
    sequence, is_open = 0, False
    with one_log(home, cleanup_policy="compact,delete") as log:
        for action, number in steps:
            end = log.log_end_offset
            if action in ("plain", "lz4"):
                keys = [b"k%d" % (each * number % 7) for each in range(number + 1)]
                log.append([(key, b"v") for key in keys], compression="lz4" if action == "lz4" else None)
            elif action == "send":
                log.append_batches(transactional(1, 0, sequence, number + 1))
                sequence, is_open = sequence + number + 1, True
            elif action in ("commit", "abort") and is_open:
                log.append_batches(marker(1, 0, action), origin="coordinator")
                is_open = False
            elif action == "old":
                codec = None if number % 3 == 0 else "gzip"
                log.append_batches(old(number % 2, end, end + number, codec), origin="replication")
            elif action == "compact":
                log.compact(roll=True)
            elif action == "truncate" and not is_open:
                log.truncate_to(max(end - number, log.log_start_offset))
            elif action == "delete":
                log.delete_records(min(log.log_start_offset + number, end))
            elif action == "roll":
                log.roll()
    with one_log(home) as log:  # without the end that a truncation inside a batch left
        start, end = log.log_start_offset, log.log_end_offset
    bounds = {
        "startingOffsets": json.dumps({"events": {"0": min(start + first, end)}}),
        "endingOffsets": json.dumps({"events": {"0": max(end - past_end, start)}}),
        "minPartitions": "9" if many else "1",
    }
    for options in ({}, bounds):
        counted = read(home, "batches", ("recordCount", "isControl"), **options)
        source = KlogSource(CaseInsensitiveDict({"path": str(home), "columns": "offset", **options}))
        task = source.reader(source.schema())
        rows = sum(batch.num_rows for part in task.partitions() for batch in task.read(part))
        assert sum(row["recordCount"] for row in counted if not row["isControl"]) == rows
    shutil.rmtree(home)


def test_an_open_transaction_blocks_the_last_stable_offset(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        for producer in (1, 2, 3):
            log.append_batches(transactional(producer, 0, 0))
        log.append_batches(marker(1, 0, "abort"), origin="coordinator")
    rows = read(tmp_path, "transactions", ("state", "producerId", "firstOffset", "blocksLastStableOffset"))
    assert [tuple(row.values()) for row in rows] == [
        ("aborted", 1, 0, False),
        ("open", 2, 1, True),
        ("open", 3, 2, False),
    ]
    assert [row["producerId"] for row in read(tmp_path, "producers", ("producerId",))] == [2, 3]


def test_clean_segments_of_a_compacted_log(tmp_path: Path) -> None:
    config = {"cleanup_policy": "compact", "segment_bytes": 500}
    with one_log(tmp_path, **config) as log:
        for number in range(40):
            log.append([(b"k%d" % (number % 3), b"v" * 50)])
        log.compact()
        for number in range(20):
            log.append([(b"k%d" % (number % 3), b"v" * 50)])
    [partition] = read(tmp_path, "partitions", ("firstDirtyOffset",))
    rows = read(tmp_path, "segments", ("nextOffset", "isClean", "isActive"))
    assert {row["isClean"] for row in rows} == {True, False}
    assert all(row["isClean"] == (row["nextOffset"] <= partition["firstDirtyOffset"]) for row in rows)
    assert [row["isActive"] for row in rows] == [False] * (len(rows) - 1) + [True]


@pytest.mark.parametrize("column", ["modified", "maxTimestamp", "firstTimestamp"])
def test_a_segment_that_retention_deletes_meanwhile_has_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", config={"internal.segment.bytes": 500})
        for _ in range(10):
            logs.append("t", [(b"k", bytes(100))])
        left = logs.log("t").segments[-1].base_offset

    def after_retention(*of_row: Any) -> Any:
        with klog.open(tmp_path) as logs:
            logs.log("t").delete_records(left)
            logs.log("t").apply_retention()
        return segment_of(*of_row)

    segment_of = view_rows.SegmentOf
    monkeypatch.setattr(view_rows, "SegmentOf", after_retention)
    assert [row["baseOffset"] for row in read(tmp_path, "segments", ("baseOffset", column))] == [left]


def test_an_index_whose_size_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with one_log(tmp_path) as log:
        log.append([(b"k", b"v")])
        index = Path(log.segments[0].paths[-1])
    break_stat(monkeypatch, index)
    assert read(tmp_path, "segments", ("baseOffset",)) == [{"baseOffset": 0}]
    with pytest.raises(OSError, match=index.name):
        read(tmp_path, "segments", ("indexSizeInBytes",))


class TestBatches:
    def test_all_columns_are_those_of_the_headers(self, shared_data: Any) -> None:
        rows = read(shared_data.path, "batches", subscribe="flights")
        with klog.open(shared_data.path, read_only=True) as logs:
            expected = [
                {
                    "topic": "flights",
                    "partition": number,
                    "segment": Path(chunk.path).name,
                    "position": batch.position,
                    "sizeInBytes": batch.size,
                    "baseOffset": batch.base_offset,
                    "lastOffset": batch.last_offset,
                    "recordCount": batch.count,
                    "baseTimestamp": batch.base_timestamp,
                    "maxTimestamp": batch.max_timestamp,
                    "timestampType": 0,
                    "codec": batch.compression,
                    "leaderEpoch": batch.leader_epoch,
                    "producerId": -1,
                    "producerEpoch": -1,
                    "baseSequence": -1,
                    "isTransactional": False,
                    "isControl": False,
                }
                for number in range(3)
                for chunk in logs.log("flights", number).read().chunks()
                for batch in klog.record.decode(chunk.buffer, path=chunk.path, file_position=chunk.file_position)
            ]
        found = [{**row, **{name: ms(row[name]) for name in ("baseTimestamp", "maxTimestamp")}} for row in rows]
        assert found == expected

    def test_few_large_batches_for_spark(self, shared_data: Any) -> None:
        source = KlogSource({"path": str(shared_data.path), "view": "batches"})
        reader = source.reader(views.full_schema("batches"))
        assert [batch.num_rows for part in reader.partitions() for batch in reader.read(part)] == [45]

    def test_offsets_removed_after_planning(self, data: Any) -> None:
        reader = KlogSource({"path": str(data.path), "view": "batches"}).reader(views.full_schema("batches"))
        planned = reader.partitions()
        with klog.open(data.path) as logs:
            logs.log("flights", 0).truncate_to(100)
        with pytest.raises(DataLoss, match=r"flights-0: planned to read \[0, 300\), but .* now holds \[0, 100\)"):
            [batch for part in planned for batch in reader.read(part)]

    def test_a_topic_created_again_after_planning(self, data: Any) -> None:
        """The new topic is longer, so that only its id shows that it is another one."""
        reader = KlogSource({"path": str(data.path), "view": "batches"}).reader(views.full_schema("batches"))
        planned = reader.partitions()
        with klog.open(data.path) as logs:
            logs.delete_topic("flights")
            logs.create_topic("flights", partitions=3)
            for number in range(3):
                logs.log("flights", number).append([(b"k", b"v")] * 2000)
        with pytest.raises(DataLoss, match=r"flights-\d: planned to read .*: the topic was deleted and created again"):
            [batch for part in planned for batch in reader.read(part)]

    def test_a_log_truncated_while_the_task_reads(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(view_rows, "ROWS_MIN", 1)
        with klog.open(tmp_path, create=True) as logs:
            logs.create_topic("t", config={"segment.bytes": 2000})
            log = logs.log("t")
            for _ in range(200):
                log.append([(b"k", bytes(30))] * 5)
            reader = KlogSource({"path": str(tmp_path), "view": "batches"}).reader(views.full_schema("batches"))
            (planned,) = reader.partitions()
            running = reader.read(planned)
            next(running)
            log.truncate_to(300)
            with pytest.raises(
                DataLoss, match=r"t-0: planned to read \[0, 1000\), but .*\[0, 300\): the log was trunc"
            ):
                list(running)


class TestConsumerOffsets:
    def test_offsets_that_kafka_stored(self) -> None:
        rows = read(GOLDEN / "internal" / "logdir", "consumerOffsets")
        by_key = {(row["groupId"], row["topic"], row["partition"]): row for row in rows}
        assert len(by_key) == len(rows) == 9
        assert {"", "note 13"} <= {row["metadata"] for row in rows}
        entry = manifest("internal")
        for (_, topic, partition), row in by_key.items():
            end = entry[topic, partition]["high_watermark"]
            assert (row["highWatermark"], row["lag"]) == (end, end - row["offset"])
            assert row["commitTimestamp"] is not None
            assert row["expireTimestamp"] is None

    def test_the_subscription_is_of_the_committed_topics(self) -> None:
        home = GOLDEN / "internal" / "logdir"
        assert {row["topic"] for row in read(home, "consumerOffsets", subscribe="clicks")} == {"clicks"}
        assert read(home, "consumerOffsets", subscribe="elsewhere") == []
        assert {row["partition"] for row in read(home, "consumerOffsets", assign='{"clicks":[2]}')} == {2}
        assert len(read(home, "consumerOffsets", subscribePattern="cl.*")) == 9

    def test_no_other_log_is_opened_that_the_query_does_not_need(self, golden: Callable[[str], Path]) -> None:
        """One topic, and one partition with committed offsets, are damaged: each open of them fails."""
        home = golden("internal") / "logdir"
        shutil.rmtree(home / "clicks-2")
        for name in ("other-0", "clicks-2"):
            lost = test_lost_ends.written(home / name)[test_lost_ends.LOST]
            (home / name / f"{lost:020d}.log").unlink()
            with pytest.raises(CorruptLog):
                klog.Log.open(home / name, read_only=True)
        rows = read(home, "consumerOffsets", ("topic", "partition", "offset"))
        assert len(rows) == 9 and {row["partition"] for row in rows} == {0, 1, 2}
        lags = read(home, "consumerOffsets", ("partition", "lag"), assign='{"clicks":[0,1]}')
        assert {row["partition"] for row in lags} == {0, 1} and all(row["lag"] is not None for row in lags)
        for column in ("lag", "highWatermark"):
            with pytest.raises(CorruptLog):
                read(home, "consumerOffsets", (column,))

    def test_without_the_topic(self, shared_data: Any) -> None:
        with pytest.raises(UnknownTopicOrPartition, match="view=consumerOffsets reads the topic __consumer_offsets"):
            read(shared_data.path, "consumerOffsets")

    def test_the_latest_value_counts_and_a_tombstone_removes(self, tmp_path: Path) -> None:
        def key(group: bytes) -> bytes:
            return b"\0\1" + len(group).to_bytes(2, "big") + group + b"\0\1t" + (7).to_bytes(4, "big")

        def value(offset: int) -> bytes:
            return b"\0\3" + offset.to_bytes(8, "big") + b"\0\0\0\5" + b"\0\4note" + NOW.to_bytes(8, "big")

        with one_log(tmp_path, None, "__consumer_offsets") as log:
            log.append([(key(b"a"), value(1)), (key(b"b"), value(2)), (b"\0\2\0\1a", b"\0\3"), (key(b"a"), value(3))])
            log.append([(key(b"b"), None)])
            assert committed(log) == {OffsetKey("a", "t", 7): OffsetCommit(3, 5, "note", NOW, -1)}
            log.append([(key(b"a"), value(4)[:-3])])
            with pytest.raises(CorruptData, match=r"commit_timestamp: .* \(position 20\)") as caught:
                committed(log)
            assert (caught.value.offset, caught.value.path) == (5, log.path)


class TestOptions:
    @pytest.mark.parametrize("view", ["records", "RECORDS "])
    def test_records_is_the_default(self, shared_data: Any, view: str) -> None:
        assert KlogSource({"path": str(shared_data.path), "view": view}).schema().names == [*PLAIN]

    def test_names_in_any_case(self) -> None:
        assert views.take({"VIEW": "consumeroffsets", "Columns": "LAG, groupid"}) == (
            "consumerOffsets",
            ("lag", "groupId"),
            {},
        )

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({"view": "batchs"}, "'view' must be one of records, batches, segments, .*, not 'batchs'"),
            ({"view": "remoteSegments"}, "'view' = 'remoteSegments' is not supported .* no remote tiers; use one of"),
            ({"view": "batches", "includeHeaders": "true"}, "'includeHeaders' has no meaning with view=batches"),
            ({"view": "batches", "isolationLevel": "read_committed"}, "'isolationLevel' has no meaning"),
            ({"view": "batches", "kafka.isolation.level": "read_committed"}, "'kafka.isolation.level' has no meaning"),
            ({"view": "producers", "endingTimestamp": "1"}, "'endingTimestamp' has no meaning with view=producers"),
            (
                {"view": "segments", "columns": "size"},
                "'columns' names 'size', which is unknown; view=segments has: top",
            ),
            ({"view": "segments", "columns": " ,"}, "names no column; view=segments has"),
        ],
    )
    def test_wrong_options(self, options: dict[str, str], why: str) -> None:
        with pytest.raises(ValueError, match=why):
            views.take(options)

    @pytest.mark.parametrize("view", views.COLUMNS)
    def test_columns_in_any_order(self, view: str) -> None:
        home = GOLDEN / "internal" / "logdir"
        every = read(home, view)
        names = tuple(reversed(views.COLUMNS[view]))
        assert read(home, view, names) == [{name: row[name] for name in names} for row in every]
        assert read(home, view, names[:1]) == [{names[0]: row[names[0]]} for row in every]
        source = KlogSource({"path": str(home), "view": view, "columns": ",".join(names)})
        assert source.schema() == StructType([views.full_schema(view)[name] for name in names])

    def test_schemas_that_are_refused(self, shared_data: Any) -> None:
        from pyspark.sql.types import IntegerType, StringType, StructField

        source = KlogSource({"path": str(shared_data.path), "view": "segments"})
        for fields, why in [
            ([], "the schema has no columns; view=segments has"),
            ([StructField("codec", StringType())], "view=segments has no column 'codec'"),
            ([StructField("topic", IntegerType())], "column 'topic' is string, not int"),
            ([StructField("topic", StringType())] * 2, "names column 'topic' twice"),
            ([StructField("topic", StringType(), False)], "leave NOT NULL out"),
        ]:
            with pytest.raises(ValueError, match=why):
                source.reader(StructType(fields))


@pytest.mark.parametrize(
    ("view", "column"), [("batches", "maxTimestamp"), ("batches", "baseTimestamp"), ("segments", "maxTimestamp")]
)
def test_times_that_spark_cannot_hold_are_null(tmp_path: Path, view: str, column: str) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", config={"message.timestamp.after.max.ms": 2**63 - 1})
        logs.log("t", 0).append([klog.Record(key=None, value=b"", timestamp=2**62)])
    assert read(tmp_path, view, (column,)) == [{column: None}]


MOVED = ("batches", "segments", "partitions", "producers", "transactions", "consumerOffsets")


def planned_then(path: list[Path], view: str, then: Callable[[], None]) -> list[dict[str, Any]]:
    """Return the rows of a view, without those columns that tell the directory; `then` is called after its planning."""
    places = json.dumps([str(each) for each in path])
    full = views.full_schema(view)
    names = [name for name in full.names if name not in ("path", "modified")]
    reader = KlogSource({"paths": places, "view": view}).reader(StructType([full[name] for name in names]))
    planned = reader.partitions()
    then()
    rows = [row for part in planned for batch in reader.read(part) for row in batch.to_pylist()]
    return sorted(rows, key=str)


@pytest.fixture
def two_homes(tmp_path: Path) -> list[Path]:
    homes = [tmp_path / "a", tmp_path / "b"]
    with klog.open(homes, create=True) as logs:
        for topic in ("t", "__consumer_offsets"):
            logs.create_topic(topic, directory=homes[0])
        logs.log("t").append_batches(transactional(1, 0, 0))
        key, value = commit_key("g", TopicPartition("t", 0)), commit_value(1, NOW)
        logs.log("__consumer_offsets").append([(key, value, NOW)])
    return homes


@pytest.mark.parametrize("view", MOVED)
def test_a_partition_that_moves_after_the_planning_has_its_rows(two_homes: list[Path], view: str) -> None:
    def move() -> None:
        for name in ("t-0", "__consumer_offsets-0"):  # LogManager.move also rolls the segment
            (two_homes[0] / name).rename(two_homes[1] / name)

    before = planned_then(two_homes, view, lambda: None)
    assert len(before) > 0
    assert planned_then(two_homes, view, move) == before


@pytest.mark.parametrize("view", MOVED[1:])
def test_a_partition_that_is_deleted_after_the_planning_has_no_row(two_homes: list[Path], view: str) -> None:
    def delete() -> None:
        with klog.open(two_homes) as logs:
            logs.delete_topic("__consumer_offsets" if view == "consumerOffsets" else "t")

    rows = planned_then(two_homes, view, delete)
    assert {row["topic"] for row in rows} <= {"__consumer_offsets"}


@pytest.mark.parametrize("view", MOVED)
def test_a_log_directory_that_a_task_of_a_view_does_not_see_is_an_error(two_homes: list[Path], view: str) -> None:
    with pytest.raises(FileNotFoundError, match="log directory does not exist on .*all executors must have access"):
        planned_then(two_homes, view, lambda: shutil.rmtree(two_homes[0]))


def test_a_partition_that_moves_while_its_batches_are_read(
    two_homes: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_rows, "ROWS_MIN", 1)
    with klog.open(two_homes) as logs:
        log = logs.log("t")
        for _ in range(9):
            log.append([(b"k", b"v")] * 3)
            log.roll()
        source = KlogSource(
            {"paths": json.dumps([str(each) for each in two_homes]), "view": "batches", "subscribe": "t"}
        )
        reader = source.reader(StructType([views.full_schema("batches")["baseOffset"]]))
        (planned,) = reader.partitions()
        running = reader.read(planned)
        found = next(running).to_pylist()
        logs.move("t", 0, two_homes[1])
        found += [row for batch in running for row in batch.to_pylist()]
    assert [row["baseOffset"] for row in found] == [0, *range(1, 28, 3)]
