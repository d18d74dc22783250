"""DeleteRecords, DescribeLogDirs, AlterReplicaLogDirs and OffsetForLeaderEpoch over real logs."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog import record
from klog.progress import Event
from klog.protocol import ApiKey, ErrorCode, messages
from tests.broker.admin.world import CODES, World
from tests.support.failing_files import CountingFiles, FailingFiles
from tests.support.patience import PATIENCE


def filled(world: World, name: str, records: int = 10, config: dict[str, Any] | None = None) -> klog.Log:
    world.topics.create(name, 1, config)
    log = world.logs.log(name, 0)
    for number in range(records):
        log.append([(b"k", b"%d" % number)])
    return log


# ---- DeleteRecords ---------------------------------------------------------------------------------------------------


def delete(world: World, *asked: tuple[str, int, int], version: int | None = None) -> list[tuple[int, ErrorCode]]:
    Request = messages.DeleteRecords.Request
    topics = [Request.Topic(name=n, partitions=[Request.Partition(partition_index=p, offset=o)]) for n, p, o in asked]
    response = world.send(ApiKey.DELETE_RECORDS, version, topics=topics, timeout_ms=1000)
    assert [topic.name for topic in response.topics] == [name for name, _, _ in asked]
    found = [each for topic in response.topics for each in topic.partitions]
    return [(each.low_watermark, CODES[each.error_code]) for each in found]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_below_an_offset_are_deleted(world: World, version: int) -> None:
    log = filled(world, "a")
    assert delete(world, ("a", 0, 4), version=version) == [(4, ErrorCode.NONE)]
    assert [record.offset for record in log.read()] == list(range(4, 10))
    assert delete(world, ("a", 0, 2), version=version) == [(4, ErrorCode.NONE)], "the log start offset never decreases"
    assert delete(world, ("a", 0, -1), version=version) == [(10, ErrorCode.NONE)]
    assert log.log_start_offset == log.high_watermark == 10


def test_records_that_cannot_be_deleted(world: World) -> None:
    filled(world, "a")
    filled(world, "compacted", config={"cleanup.policy": "compact"})
    world.topics.ensure_internal("__consumer_offsets")
    cases = {
        ("a", 0, 11): ErrorCode.OFFSET_OUT_OF_RANGE,
        ("a", 0, -2): ErrorCode.OFFSET_OUT_OF_RANGE,
        ("a", 1, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("a", -1, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("x", 0, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("compacted", 0, 1): ErrorCode.POLICY_VIOLATION,
        ("__consumer_offsets", 0, 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert delete(world, *cases) == [(-1, code) for code in cases.values()]
    world.allow(("DELETE", "TOPIC", "compacted"))
    denied = (-1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert delete(world, ("a", 0, 1), ("x", 0, 1)) == [denied, denied]
    assert world.logs.log("a", 0).log_start_offset == 0


def test_log_starts_are_stored_once_before_the_response(tmp_path: Path) -> None:
    """One write of the checkpoint for each log.dir, whatever the number of partitions."""
    files, checkpoint = CountingFiles(), "log-start-offset-checkpoint"
    with World(tmp_path / "one", files=files) as world:
        world.topics.create("many", 20)
        for number in range(20):
            world.logs.log("many", number).append([(b"k", b"v")] * 10)
        files.replaced.clear()
        asked = [("many", number, 4) for number in range(20)]
        assert delete(world, *asked) == [(4, ErrorCode.NONE)] * 20
        assert files.replaced[checkpoint] == 1
        lines = (tmp_path / "one" / checkpoint).read_text().splitlines()
        assert sorted(lines[2:]) == sorted(f"many {number} 4" for number in range(20))
        assert delete(world, *asked) == [(4, ErrorCode.NONE)] * 20
        assert files.replaced[checkpoint] == 1, "nothing has changed"


def test_a_disk_that_does_not_store_log_starts(tmp_path: Path) -> None:
    files = FailingFiles()
    with World(tmp_path / "one", files=files) as world:
        filled(world, "a")
        files.under = [str(tmp_path / "one" / "log-start-offset-checkpoint")]
        assert delete(world, ("a", 0, 4), ("x", 0, 0)) == [
            (-1, ErrorCode.KAFKA_STORAGE_ERROR),
            (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        with pytest.raises(OSError, match="log-start-offset-checkpoint"):
            world.logs.close()


# ---- log directories -------------------------------------------------------------------------------------------------


@pytest.fixture
def two_dirs(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path / "one", tmp_path / "two") as made:
        yield made


def dirs(world: World, *asked: tuple[str, list[int]], version: int | None = None) -> dict[str, Any]:
    Topic = messages.DescribeLogDirs.Request.Topic
    topics = [Topic(topic=name, partitions=partitions) for name, partitions in asked] if asked else None
    response = world.send(ApiKey.DESCRIBE_LOG_DIRS, version, topics=topics)
    assert response.error_code == 0
    return {os.path.basename(each.log_dir): each for each in response.results}


def held(found: Any) -> list[tuple[str, int, bool]]:
    return [
        (topic.name, each.partition_index, each.is_future_key) for topic in found.topics for each in topic.partitions
    ]


def move(world: World, directory: str, *asked: tuple[str, int], version: int | None = None) -> list[ErrorCode]:
    Request = messages.AlterReplicaLogDirs.Request
    topics = [Request.Topic(name=name, partitions=[partition]) for name, partition in asked]
    response = world.send(ApiKey.ALTER_REPLICA_LOG_DIRS, version, dirs=[Request.Dir(path=directory, topics=topics)])
    return [CODES[each.error_code] for topic in response.results for each in topic.partitions]


@pytest.mark.parametrize("version", range(1, 6))
def test_sizes_of_all_partitions_by_directory(two_dirs: World, version: int) -> None:
    two_dirs.topics.create("a", 3)
    log = two_dirs.logs.log("a", 0)
    log.append([(b"k", b"v" * 100)])
    found = dirs(two_dirs, version=version)
    assert held(found["one"]) == [("a", 0, False), ("a", 2, False)] and held(found["two"]) == [("a", 1, False)]
    assert [each.partition_size for each in found["one"].topics[0].partitions] == [log.size, 0] and log.size > 100
    assert {each.offset_lag for each in found["one"].topics[0].partitions} == {0}
    total, usable = found["one"].total_bytes, found["one"].usable_bytes
    assert 0 < usable <= total if version >= 4 else (total, usable) == (-1, -1)


def test_only_the_requested_partitions_are_listed(two_dirs: World) -> None:
    two_dirs.topics.create("a", 3)
    two_dirs.topics.create("b", 1)
    found = dirs(two_dirs, ("a", [0, 0, 1, 7, -1]), ("x", [0]))
    assert held(found["one"]) == [("a", 0, False)] and held(found["two"]) == [("a", 1, False)]


def test_an_offline_directory_is_an_error(tmp_path: Path) -> None:
    world = World(tmp_path / "one", tmp_path / "two")
    world.topics.create("a", 2)
    gone = world.logs.paths[1]
    shutil.rmtree(gone)
    with pytest.raises(FileNotFoundError):
        world.logs.log("a", 1).append([(b"k", b"v")])
    assert gone in world.logs.offline_directories
    Path(gone).mkdir()  # the directory stays offline
    found = dirs(world)
    assert found["two"].error_code == ErrorCode.KAFKA_STORAGE_ERROR and found["two"].topics == []
    assert found["one"].error_code == 0 and held(found["one"]) == [("a", 0, False)]
    assert move(world, gone, ("a", 0)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    with pytest.raises(OSError, match="two"):
        world.__exit__()


def test_describing_log_dirs_needs_describe_on_the_cluster(two_dirs: World) -> None:
    two_dirs.allow()
    response = two_dirs.send(ApiKey.DESCRIBE_LOG_DIRS, topics=None)
    assert (response.error_code, response.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])


@pytest.mark.parametrize("version", [1, 2])
def test_a_partition_moves_to_another_directory_with_its_records(two_dirs: World, version: int) -> None:
    log = filled(two_dirs, "a")
    assert os.path.dirname(log.path) == two_dirs.logs.paths[0]
    assert move(two_dirs, two_dirs.logs.paths[1], ("a", 0), version=version) == [ErrorCode.NONE]
    assert two_dirs.admin.moves.wait(PATIENCE)
    assert held(dirs(two_dirs)["two"]) == [("a", 0, False)] and held(dirs(two_dirs)["one"]) == []
    assert len(list(two_dirs.logs.log("a", 0).read())) == 10


def test_moves_that_are_refused(two_dirs: World) -> None:
    two_dirs.topics.create("a", 1)
    there = two_dirs.logs.paths[1]
    assert move(two_dirs, there + "/x", ("a", 0)) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert move(two_dirs, "", ("a", 0)) == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert move(two_dirs, "two", ("a", 0)) == [ErrorCode.LOG_DIR_NOT_FOUND]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(two_dirs, there, ("x", 0), ("a", 1)) == [unknown, unknown]
    assert move(two_dirs, two_dirs.logs.paths[0], ("a", 0)) == [ErrorCode.NONE], (
        "the partition is in this directory already"
    )
    two_dirs.allow()
    assert move(two_dirs, there, ("a", 0)) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert two_dirs.admin.moves.wait(PATIENCE) and held(dirs_with_all_rights(two_dirs)["one"]) == [("a", 0, False)]


def dirs_with_all_rights(world: World) -> dict[str, Any]:
    world.deny()
    return dirs(world)


class Stopped:
    """Blocks a move after its first closed segment, until `go_on` is set."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go_on, self.calls = threading.Event(), threading.Event(), 0
        progress = world.admin.moves._progress

        def held_up(event: Event) -> None:
            self.calls += 1
            self.reached.set()
            assert self.go_on.wait(PATIENCE)
            progress(event)

        monkeypatch.setattr(world.admin.moves, "_progress", held_up)


def test_a_copy_that_is_being_made_is_shown(two_dirs: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(two_dirs, "a", 4)
    log.roll()
    log.append([(b"k", b"v")])
    stopped = Stopped(two_dirs, monkeypatch)
    assert move(two_dirs, two_dirs.logs.paths[1], ("a", 0)) == [ErrorCode.NONE]
    assert stopped.reached.wait(PATIENCE)
    found = dirs(two_dirs)
    assert held(found["one"]) == [("a", 0, False)] and held(found["two"]) == [("a", 0, True)]
    ((copy,),) = [topic.partitions for topic in found["two"].topics]
    assert copy.partition_size > 0 and copy.offset_lag == 1
    stopped.go_on.set()
    assert two_dirs.admin.moves.wait(PATIENCE) and held(dirs(two_dirs)["two"]) == [("a", 0, False)]


def test_closing_abandons_moves(two_dirs: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        filled(two_dirs, name, 4).roll()
    stopped = Stopped(two_dirs, monkeypatch)
    first = os.path.dirname(two_dirs.logs.log("a", 0).path)
    other = next(path for path in two_dirs.logs.paths if path != first)
    second = os.path.dirname(two_dirs.logs.log("b", 0).path)
    move(two_dirs, other, ("a", 0))
    assert stopped.reached.wait(PATIENCE)
    move(two_dirs, first if second == other else other, ("b", 0))
    closing = threading.Thread(target=two_dirs.admin.close)
    closing.start()
    while not two_dirs.admin.moves._closed:
        closing.join(0.01)
    stopped.go_on.set()
    closing.join(PATIENCE)
    assert not closing.is_alive() and stopped.calls == 1, "the second move has begun"
    assert os.path.dirname(two_dirs.logs.log("a", 0).path) == first
    assert os.path.dirname(two_dirs.logs.log("b", 0).path) == second
    assert [name for path in two_dirs.logs.paths for name in os.listdir(path) if name.endswith("-future")] == []


# ---- OffsetForLeaderEpoch --------------------------------------------------------------------------------------------


def epoch_end(
    world: World, epoch: int, current: int = -1, *, topic: str = "a", partition: int = 0, version: int | None = None
) -> tuple[ErrorCode, int, int]:
    Request = messages.OffsetForLeaderEpoch.Request
    asked = Request.Partition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    response = world.send(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, version, topics=[Request.Topic(topic=topic, partitions=[asked])]
    )
    ((found,),) = [each.partitions for each in response.topics]
    assert found.partition == partition
    return CODES[found.error_code], found.leader_epoch, found.end_offset


@pytest.mark.parametrize("version", [2, 3, 4])
def test_ends_of_leader_epochs(world: World, version: int) -> None:
    world.topics.create("a", 1)
    log = world.logs.log("a", 0)
    assert epoch_end(world, 0, version=version) == (ErrorCode.NONE, 0, 0), "the epoch of an empty log"
    assert epoch_end(world, 1, version=version) == (ErrorCode.NONE, -1, -1)
    for epoch, count in ((0, 3), (2, 4), (5, 1)):
        batch = record.encode([(b"k", b"v")] * count)
        log.append_batches(bytes(batch), leader_epoch=epoch)
    ends = {0: (0, 3), 1: (0, 3), 2: (2, 7), 4: (2, 7), 5: (5, 8), 6: (-1, -1), -1: (-1, -1)}
    assert {epoch: epoch_end(world, epoch, version=version)[1:] for epoch in ends} == ends


def test_current_epochs_are_fenced(world: World) -> None:
    log = filled(world, "a", 1)
    current = log.leader_epochs[-1][0]
    assert epoch_end(world, current, current)[0] is ErrorCode.NONE
    assert epoch_end(world, current, current + 1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert epoch_end(world, 0, 0, topic="x") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert epoch_end(world, 0, 0, partition=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    world.allow()
    assert epoch_end(world, 0) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1)
    assert epoch_end(world, 0, topic="x") == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1)
