"""commitGroup: the offsets of a stream are committed as those of a consumer group."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import klog
from klog.clock import ManualClock
from klog.errors import AlreadyLocked, UnknownTopicOrPartition
from klog.internal_topics.names import CONSUMER_OFFSETS
from klog.spark.bounds import TopicPartition
from klog.spark.group_offsets import GroupOffsets, commit_key, commit_value, partition_for_group
from klog.spark.rows import full_schema
from klog.spark.source import KlogSource
from klog.spark.stream import KlogStreamReader

from .conftest import GOLDEN


def reader(path: Path, **options: str) -> KlogStreamReader:
    given = {"path": str(path), "startingoffsets": "earliest", "subscribe": "t", "commitgroup": "job", **options}
    return KlogSource(given).streamReader(full_schema())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", partitions=2)
        logs.log("t", 0).append([(b"k", b"v")] * 10)
        logs.log("t", 1).append([(b"k", b"v")] * 5)
    return tmp_path / "data"


def committed(path: Path, group: str = "job") -> list[tuple[bytes, bytes]]:
    """Return key and value of all records for the group, in order."""
    with klog.open(path, read_only=True) as logs:
        log = logs.log(CONSUMER_OFFSETS, partition_for_group(group, len(logs.topics()[CONSUMER_OFFSETS])))
        found = [(bytes(record.key or b""), bytes(record.value or b"")) for record in log.read()]
    return [(key, value) for key, value in found if key.startswith(commit_key(group, TopicPartition("", 0))[:-6])]


def offset_of(value: bytes) -> int:
    return int.from_bytes(value[2:10], "big")


def records_of_kafka() -> Iterator[tuple[bytes, bytes]]:
    """Yield the offset commits of the broker that wrote the golden directory."""
    with gzip.open(GOLDEN / "internal" / "records" / f"{CONSUMER_OFFSETS}-0.jsonl.gz", "rt") as lines:
        for record in map(json.loads, lines):
            key = base64.b64decode(record["k"] or "")
            if record["ctl"] is None and record["v"] is not None and key[:2] == b"\x00\x01":
                yield key, base64.b64decode(record["v"])


def test_the_bytes_are_those_of_kafka() -> None:
    """All bytes are equal except the metadata: the clients of that broker set it, and a stream leaves it empty."""
    empty = 0
    for key, value in records_of_kafka():
        size = int.from_bytes(key[2:4], "big")
        group, rest = key[4 : 4 + size].decode(), key[4 + size :]
        topic = rest[2 : 2 + int.from_bytes(rest[:2], "big")].decode()
        assert commit_key(group, TopicPartition(topic, int.from_bytes(rest[-4:], "big"))) == key
        metadata = value[14 : 14 + value[14]]
        time_ms = int.from_bytes(value[14 + len(metadata) : -1], "big")
        made = commit_value(offset_of(value), time_ms)
        assert made[:14] + metadata + made[15:] == value
        empty += made == value
    assert empty


@pytest.mark.parametrize(
    ("group", "partition"),
    # java.lang.String.hashCode; the last ones are Integer.MIN_VALUE, and a pair of surrogates.
    [("", 0), ("a", 47), ("job", 5), ("group-classic0", 4), ("polygenelubricants", 0), ("𝄞", 44)],
)
def test_the_partition_of_a_group(group: str, partition: int) -> None:
    assert partition_for_group(group, 50) == partition
    assert partition_for_group(group, 1) == 0


def test_each_batch_is_committed(data: Path) -> None:
    made = reader(data, maxOffsetsPerTrigger="6")
    start = made.initialOffset()
    assert made.latestOffset(start, made.getDefaultReadLimit()) == start  # the first batch is empty
    assert committed(data) == []
    end = made.latestOffset(start, made.getDefaultReadLimit())
    assert committed(data) == []  # it is not done yet
    made.commit(end)
    first = committed(data)
    assert [(key, offset_of(value)) for key, value in first] == [
        (commit_key("job", TopicPartition("t", 0)), end["t"]["0"]),
        (commit_key("job", TopicPartition("t", 1)), end["t"]["1"]),
    ]
    last = made.latestOffset(end, ReadAllAvailable())
    made.latestOffset(last, ReadAllAvailable())  # S5: no commit() follows the last batch
    made.stop()
    assert [offset_of(value) for _, value in committed(data)[2:]] == [10, 5]


def test_only_changed_offsets_are_committed(data: Path) -> None:
    made = reader(data)
    end = made.latestOffset({"t": {"0": 3, "1": 5}}, ReadAllAvailable())
    for _ in range(3):
        made.commit(end)
    assert [offset_of(value) for _, value in committed(data)] == [3, 5, 10]


def test_the_topic_is_created_as_by_a_broker(data: Path) -> None:
    reader(data).prepareForTriggerAvailableNow()
    with klog.open(data) as logs:
        assert len(logs.topics()[CONSUMER_OFFSETS]) == 50
        assert logs.topic_config(CONSUMER_OFFSETS).cleanup_policy == ("compact",)


def test_a_topic_that_exists(golden: Callable[[str], Path]) -> None:
    path = golden("internal") / "logdir"
    before = len(committed(path, "job"))
    group = GroupOffsets([str(path)], "job")
    group.write({TopicPartition("clicks", 0): 7})
    key, value = committed(path, "job")[before]
    assert (key, offset_of(value)) == (commit_key("job", TopicPartition("clicks", 0)), 7)


def test_nothing_else_changes(data: Path) -> None:
    """G2: a lower high watermark in the checkpoint of a broker is kept."""
    GroupOffsets([str(data)], "job")
    (data / "replication-offset-checkpoint").write_text("0\n2\nt 0 8\nt 1 5\n")
    GroupOffsets([str(data)], "job").write({TopicPartition("t", 0): 7})
    with klog.open(data, read_only=True) as logs:
        assert logs.log("t", 0).high_watermark == 8
    assert [offset_of(value) for _, value in committed(data)] == [7]


def test_a_locked_directory_fails_the_start(data: Path) -> None:
    made = reader(data)
    made._clock = ManualClock()
    with klog.open(data), pytest.raises(AlreadyLocked, match=r"option 'commitGroup' needs to lock .*needs no lock"):
        made.initialOffset()


class Holder(ManualClock):
    """Another process that has the directory locked until the first one has waited for it a few times."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.waits, self.logs = path, 0, klog.open(path)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.waits += 1
        if self.waits % 3 == 0:
            self.logs.close()


def test_a_commit_waits_for_a_lock_that_is_held_for_a_moment(data: Path) -> None:
    clock = Holder(data)
    group = GroupOffsets([str(data)], "job", clock)
    assert clock.waits == 3
    clock.logs = klog.open(data)
    group.write({TopicPartition("t", 0): 3})
    assert clock.waits == 6
    assert [offset_of(value) for _, value in committed(data)] == [3]


def test_only_the_first_of_several_commits_waits_for_a_writer_that_stays(data: Path) -> None:
    """A stream beside it is not delayed in each batch."""
    clock = ManualClock()
    group = GroupOffsets([str(data)], "job", clock)
    with klog.open(data):
        group.write({TopicPartition("t", 0): 3})
        after = clock.monotonic()
        group.write({TopicPartition("t", 0): 4})
        assert clock.monotonic() == after > 10
    group.write({TopicPartition("t", 0): 5})
    with klog.open(data):
        group.write({TopicPartition("t", 0): 6})
        assert clock.monotonic() > after + 9
    assert [offset_of(value) for _, value in committed(data)] == [5]


def test_a_directory_that_is_locked_later(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The offsets of the locked time are written with the next ones."""
    made = reader(data)
    made._clock = ManualClock()
    made.initialOffset()
    with klog.open(data):
        made.commit({"t": {"0": 3, "1": 5}})
        assert "group=job offsets are not written now" in caplog.text
    made.commit({"t": {"0": 4, "1": 5}})
    assert [offset_of(value) for _, value in committed(data)] == [4, 5]


@pytest.mark.parametrize(
    "options",
    [{"subscribe": CONSUMER_OFFSETS}, {"assign": f'{{"{CONSUMER_OFFSETS}":[0]}}'}, {}],
)
def test_a_stream_that_would_read_its_own_commits(data: Path, options: dict[str, str]) -> None:
    given = {"path": str(data), "commitgroup": "job", **options}
    with pytest.raises(ValueError, match="'commitGroup' writes to __consumer_offsets, and the query reads that topic"):
        KlogSource(given).streamReader(full_schema())


def test_partition_directories(data: Path) -> None:
    with pytest.raises(ValueError, match="'commitGroup' needs a log directory as path, not only partition"):
        GroupOffsets([str(data / "t-0")], "job")


def test_a_part_of_the_offsets_topic(data: Path) -> None:
    """A broker with several log.dirs may have the group's partition in another one."""
    with klog.open(data) as logs:
        logs.create_topic(CONSUMER_OFFSETS, partitions=4)
    for path in sorted((data / f"{CONSUMER_OFFSETS}-1").iterdir()):
        path.unlink()
    (data / f"{CONSUMER_OFFSETS}-1").rmdir()
    with pytest.raises(UnknownTopicOrPartition, match=r"has only partitions \[0, 2, 3\] of __consumer_offsets"):
        GroupOffsets([str(data)], "job")
