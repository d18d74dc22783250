"""Topics are created and deleted as a whole or not at all. Files of a deleted topic stay for its readers, and a start
finishes an interrupted deletion."""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import (
    ConfigUnknown,
    InvalidConfig,
    InvalidPartitions,
    InvalidTopic,
    LogClosed,
    StorageOffline,
    TopicExists,
    UnknownTopicOrPartition,
)
from klog.log.directory import checkpoint
from tests.support.abandon import abandon
from tests.support.failing_files import FailingFiles
from tests.support.logs import tree
from tests.support.own_json import unchecked_in

NOW = 1_700_000_000_000
DELAY = {"file.delete.delay.ms": 1000}


def entries(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir())


def opened(path: Path, clock: ManualClock | None = None, **options: Any) -> klog.LogManager:
    return klog.open(path, create=True, clock=clock or ManualClock(NOW), **options)


# ---- create ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_a_creation_that_fails_anywhere_leaves_nothing(tmp_path: Path, error: int) -> None:
    for nth in range(1, 100):
        path = tmp_path / str(nth)
        files = FailingFiles(nth, error)
        files.armed = False
        logs = opened(path, files=files)
        logs.create_topic("before")
        files.armed = True
        try:
            logs.create_topic("t", partitions=3)
            failed = False
        except OSError:
            failed = True
            if not logs.offline_directories:
                assert entries(path) == ["before-0"]
                assert logs.topics() == {"before": [0]}
        files.armed = False
        expected = [[], [0, 1, 2]] if failed else [[0, 1, 2]]
        if failed and not logs.offline_directories:
            logs.create_topic("t", partitions=2)  # the name is free
            assert entries(path) == ["before-0", "t-0", "t-1"]
            expected = [[0, 1]]
        abandon(logs)
        with opened(path) as logs:
            assert logs.topics()["before"] == [0]
            assert logs.topics().get("t", []) in expected
            assert ("t" in logs.topics()) == ("t-1" in entries(path))
        if not files.failed:
            assert nth > 5
            return
    raise AssertionError("no attempt succeeded")


def test_a_name_that_differs_from_another_only_by_dots_and_underscores_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        logs.create_topic("a.b_c")
        for name in ("a_b.c", "a.b.c", "a_b_c"):
            with pytest.raises(InvalidTopic, match="from the topic 'a.b_c' only by '.' and '_'"):
                logs.create_topic(name)
        logs.create_topic("a.b_c", exist_ok=True)
        logs.create_topic("a-b-c")
        logs.delete_topic("a.b_c")
        logs.create_topic("a_b_c")
        assert [*logs.topics()] == ["a-b-c", "a_b_c"] == [*logs.topic_entries()]


def test_the_next_start_undoes_a_creation_interrupted_by_a_crash(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        logs.create_topic("t", partitions=2)
        logs.create_topic("kept")
    path = tmp_path / "klog-topics.json"
    document = unchecked_in(path)
    document["topics"]["t"]["state"] = "creating"
    document["topics"]["t"]["partitions"] = 3
    path.write_text(json.dumps(document))
    with klog.open(tmp_path, read_only=True) as reader:
        assert reader.topics() == {"kept": [0], "t": [0, 1]}  # a reader changes nothing
    with opened(tmp_path) as logs:
        assert logs.topics() == {"kept": [0]}
        assert entries(tmp_path) == ["kept-0"]
        logs.create_topic("t")
    assert "state" not in json.loads(path.read_text())["topics"]["t"]


def test_a_creation_that_a_start_cannot_undo_shows_no_topic_and_the_next_start_undoes_it(tmp_path: Path) -> None:
    for nth in range(1, 100):
        path = tmp_path / str(nth)
        with opened(path) as logs:
            logs.create_topic("t", partitions=2)
            logs.create_topic("kept")
        document = unchecked_in(path / "klog-topics.json")
        document["topics"]["t"]["state"] = "creating"
        (path / "klog-topics.json").write_text(json.dumps(document))
        files = FailingFiles(nth, errno.EIO)
        with contextlib.suppress(OSError):
            logs = opened(path, files=files)
            files.armed = False
            if not logs.offline_directories:
                assert logs.topics() == {"kept": [0]}
                logs.create_topic("t", partitions=1)  # undoes it first
                assert logs.topics() == {"kept": [0], "t": [0]}
                logs.delete_topic("t")
            abandon(logs)
        with opened(path) as logs:
            assert logs.topics() == {"kept": [0]}
        if not files.failed:
            assert nth > 5
            return
    raise AssertionError("no attempt succeeded")


def test_a_new_partition_begins_at_0_where_another_program_has_removed_one(tmp_path: Path) -> None:
    """As in Kafka, the checkpoints of the old one do not count."""
    with opened(tmp_path) as logs:
        logs.create_topic("t", partitions=2)
        for number in range(2):
            logs.log("t", number).append([(None, b"old")] * 5)
            logs.log("t", number).delete_records(3)
    for number in range(2):
        shutil.rmtree(tmp_path / f"t-{number}")
    (tmp_path / "klog-topics.json").unlink()
    with opened(tmp_path) as logs:
        logs.create_topic("t")
        logs.add_partitions("t", 2)
        found = [logs.log("t", number) for number in range(2)]
        assert [(log.log_start_offset, log.log_end_offset) for log in found] == [(0, 0), (0, 0)]
        assert [log.append([(None, b"new")]).first_offset for log in found] == [0, 0]


def test_a_second_creation_does_not_change_the_topic(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        logs.create_topic("t")
        before = tree(tmp_path)
        with pytest.raises(TopicExists):
            logs.create_topic("t", partitions=3)
        assert tree(tmp_path) == before


def test_exist_ok_accepts_an_equal_topic_and_names_every_difference(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        logs.create_topic("t", partitions=2, config={"retention.ms": 5, "cleanup.policy": "compact"}, exist_ok=True)
        topic_id = logs.log("t").topic_id
        before = tree(tmp_path)
        logs.create_topic("t", 2, exist_ok=True)  # no config: any
        logs.create_topic("t", 2, {"cleanup.policy": ["compact"], "retention_ms": "5"}, topic_id, exist_ok=True)
        with pytest.raises(TopicExists, match=r"has 2 partitions, not 3; retention\.ms=5, not unset; add_partitions"):
            logs.create_topic("t", 3, {"cleanup.policy": "compact"}, exist_ok=True)
        with pytest.raises(TopicExists, match="topic_id="):
            logs.create_topic("t", 2, topic_id=uuid.uuid4(), exist_ok=True)
        assert tree(tmp_path) == before


def test_an_id_is_that_of_one_topic_and_none_that_kafka_reserves(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        logs.create_topic("t")
        before = tree(tmp_path)
        for reserved in (uuid.UUID(int=0), uuid.UUID(int=1), "A" * 22):
            with pytest.raises(ValueError, match="Kafka reserves"):
                logs.create_topic("u", topic_id=reserved)
        with pytest.raises(ValueError, match="is the id of topic 't'"):
            logs.create_topic("u", topic_id=logs.topic_id("t"))
        assert tree(tmp_path) == before


# ---- add partitions --------------------------------------------------------------------------------------------------


def test_added_partitions_take_their_share_of_the_keys(tmp_path: Path) -> None:
    keys = [b"%d" % number for number in range(100)]
    with opened(tmp_path) as logs:
        logs.create_topic("t", partitions=2, config={"retention.ms": 5})
        logs.append("t", [(key, b"old") for key in keys])
        logs.add_partitions("t", 5)
        assert logs.topics() == {"t": [0, 1, 2, 3, 4]} and logs.topic_config("t").retention_ms == 5
        assert {logs.log("t", partition).topic_id for partition in range(5)} == {logs.log("t").topic_id}
        logs.append("t", [(key, b"new") for key in keys])
        for partition in range(5):
            found = [record.key for record in logs.read("t", partition=partition) if record.value == b"new"]
            assert found == [key for key in keys if klog.partition_for(key, 5) == partition]
        before = tree(tmp_path)
        for total in (1, 5):
            with pytest.raises(InvalidPartitions, match=f"total={total}: topic 't' has 5 partitions already") as caught:
                logs.add_partitions("t", total)
            assert caught.value.code == 37
        with pytest.raises(UnknownTopicOrPartition):
            logs.add_partitions("u", 2)
        assert tree(tmp_path) == before
    assert klog.verify(tmp_path).problems == []


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_an_addition_that_fails_anywhere_leaves_nothing(tmp_path: Path, error: int) -> None:
    for nth in range(1, 100):
        path = tmp_path / str(nth)
        files = FailingFiles(nth, error)
        files.armed = False
        logs = opened(path, files=files)
        logs.create_topic("t", partitions=2)
        logs.append("t", [(b"k", b"v")])
        files.armed = True
        try:
            logs.add_partitions("t", 4)
            failed = False
        except OSError:
            failed = True
            assert logs.topics().get("t", []) == [0, 1]
            assert logs.offline_directories or entries(path) == ["t-0", "t-1"]
            with pytest.raises((UnknownTopicOrPartition, StorageOffline)):
                logs.log("t", 2)
        files.armed = False
        expected = [[0, 1], [0, 1, 2, 3]] if failed else [[0, 1, 2, 3]]
        if failed and not logs.offline_directories:
            logs.add_partitions("t", 3)
            assert entries(path) == ["t-0", "t-1", "t-2"]
            expected = [[0, 1, 2]]
        abandon(logs)
        with opened(path) as logs:
            assert logs.topics()["t"] in expected
            assert len(list(logs.read("t"))) == 1
        if not files.failed:
            assert nth > 5
            return
    raise AssertionError("no attempt succeeded")


def test_the_next_start_undoes_an_addition_interrupted_by_a_crash(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        logs.create_topic("t", partitions=4)
        logs.append("t", [(None, b"kept")])
    path = tmp_path / "klog-topics.json"
    document = unchecked_in(path)
    document["topics"]["t"].update(state="adding", partitions=2)
    path.write_text(json.dumps(document))
    (tmp_path / "t-4").mkdir()  # without its partition.metadata yet
    with opened(tmp_path) as logs:
        assert logs.topics() == {"t": [0, 1]} and entries(tmp_path) == ["t-0", "t-1"]
        assert [record.value for record in logs.read("t")] == [b"kept"]
        logs.add_partitions("t", 3)
    assert json.loads(path.read_text())["topics"]["t"]["partitions"] == 3


def test_partitions_are_added_to_a_topic_whose_configuration_is_unknown_and_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "klog-topics.json"
    with opened(tmp_path) as logs:
        logs.create_topic("t")
        logs.append("t", [(None, b"kept")])
    path.unlink()
    with opened(tmp_path) as logs:
        logs.add_partitions("t", 3)
        assert {logs.log("t", partition).topic_id for partition in range(3)} == {logs.topic_id("t")}
    document = unchecked_in(path)
    assert document["topics"] == {}
    with opened(tmp_path) as logs:
        assert logs.topics() == {"t": [0, 1, 2]}
        for partition in range(3):
            with pytest.raises(ConfigUnknown):
                logs.log("t", partition).apply_retention()
        topic_id = logs.topic_id("t")
        assert topic_id is not None
    note = {"topic_id": checkpoint.encode_uuid(topic_id), "partitions": 1, "config": None, "state": "adding"}
    path.write_text(json.dumps(document | {"topics": {"t": note}}))  # as after a crash
    with opened(tmp_path) as logs:
        assert logs.topics() == {"t": [0]}
        assert unchecked_in(path)["topics"] == {}
        with pytest.raises(ConfigUnknown):
            logs.log("t").apply_retention()
        logs.alter_topic("t", {})
        logs.add_partitions("t", 2)
        assert logs.log("t", 1).apply_retention() == 0


def test_no_partitions_are_added_while_it_is_unknown_which_there_are(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    with klog.open(paths, create=True) as logs:
        logs.create_topic("t", 2)
    for path in paths:
        (path / "klog-topics.json").unlink()
    offline = next(path for path in paths if (path / "t-1").exists())
    offline.rename(tmp_path / "gone")
    offline.write_text("not a directory")
    with klog.open(paths) as logs:
        assert logs.topics() == {"t": [0]}
        with pytest.raises(StorageOffline, match="unknown which partitions"):
            logs.add_partitions("t", 2)
    offline.unlink()
    (tmp_path / "gone").rename(offline)
    with klog.open(paths) as logs:
        logs.add_partitions("t", 3)
        assert logs.topics() == {"t": [0, 1, 2]}


# ---- delete ----------------------------------------------------------------------------------------------------------


def test_deletion_renames_at_once_and_removes_after_the_delay(tmp_path: Path) -> None:
    """LM8: the directory is renamed -delete; its log's files are readable under the new name, and are unlinked after
    file.delete.delay.ms."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        logs.create_topic("t", partitions=2, config={**DELAY, "segment.bytes": 300})
        logs.create_topic("kept")
        log = logs.log("t", 0)
        for number in range(10):
            log.append([(None, b"%d" % number * 20)])
        logs.log("t", 1)
        reader = iter(log.read())
        first = next(reader)
        logs.start()
        logs.delete_topic("t")
        assert logs.topics() == {"kept": [0]}
        deleted = [name for name in entries(tmp_path) if name.endswith("-delete")]
        assert sorted(name[:4] for name in deleted) == ["t-0.", "t-1."]
        assert Path(log.path).name in deleted
        assert all(Path(segment.path).parent == Path(log.path) for segment in log.segments)
        assert first.value == b"0" * 20
        assert [record.value for record in reader] == [b"%d" % number * 20 for number in range(1, 10)]
        assert log.count() == 10
        with pytest.raises(UnknownTopicOrPartition, match="t-0 has been deleted"):
            log.append([(None, b"no")])
        with pytest.raises(UnknownTopicOrPartition):
            logs.log("t", 0)
        clock.advance(999)
        assert len(entries(tmp_path)) == 3
        clock.advance(1)
        assert entries(tmp_path) == ["kept-0"]
        with pytest.raises(LogClosed):
            log.read()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text().splitlines() == ["0", "1", "kept 0 0"]


def test_a_topic_may_be_recreated_before_the_old_one_is_removed(tmp_path: Path) -> None:
    """LM11, LM8: after a topic is deleted and created again, each metric exists once, also when the old directory is
    removed."""
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as logs:
        logs.create_topic("t", config=DELAY)
        logs.log("t").append([(None, b"old")] * 5)
        old_id = logs.log("t").topic_id
        logs.delete_topic("t")
        assert logs.metrics()["LogEndOffset"] == {}
        logs.create_topic("t", config=DELAY)
        log = logs.log("t")
        assert (log.log_end_offset, log.topic_id == old_id) == (0, False)
        log.append([(None, b"new")])
        assert logs.metrics()["LogEndOffset"] == {"t-0": 1}
        logs.start()
        clock.advance(2000)
        assert logs.metrics()["LogEndOffset"] == {"t-0": 1}
        assert entries(tmp_path) == ["t-0"]
        assert [record.value for record in log.read()] == [b"new"]


def test_a_topic_name_of_any_length(tmp_path: Path) -> None:
    """LM8: 249 characters and a partition number: the directory's name is cut to 255."""
    with opened(tmp_path) as logs:
        name = "x" * 249
        logs.create_topic(name)
        logs.log(name).append([(None, b"x")])
        logs.delete_topic(name)
        (deleted,) = entries(tmp_path)
        assert len(deleted) == 255
        assert deleted.endswith("-delete")


def test_without_a_delay_a_topic_is_removed_at_once(tmp_path: Path) -> None:
    """LM8: with a delay of zero, nothing is pending at a shutdown."""
    with opened(tmp_path) as logs:
        logs.create_topic("t", config={"file.delete.delay.ms": 0})
        logs.log("t").append([(None, b"x")])
        logs.delete_topic("t")
        assert entries(tmp_path) == []


def test_the_next_start_removes_pending_deletions(tmp_path: Path) -> None:
    """10.1: -delete directories whose delay has not passed stay on disk; 4.1: a start queues them."""
    with opened(tmp_path) as logs:
        logs.create_topic("t")
        logs.log("t").append([(None, b"x")])
        logs.delete_topic("t")
    assert len(entries(tmp_path)) == 1
    clock = ManualClock(NOW)
    with opened(tmp_path, clock, config={"log.segment.delete.delay.ms": 500}) as logs:
        assert logs.topics() == {}
        logs.start()
        clock.advance(499)
        assert len(entries(tmp_path)) == 1
        clock.advance(1)
        assert entries(tmp_path) == []


def test_the_next_start_finishes_a_deletion_interrupted_by_a_crash(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        logs.create_topic("t", partitions=2)
        logs.log("t").append([(None, b"x")])
    path = tmp_path / "klog-topics.json"
    document = unchecked_in(path)
    document["topics"]["t"]["state"] = "deleting"
    path.write_text(json.dumps(document))
    (tmp_path / "t-0").rename(tmp_path / f"t-0.{7:032x}-delete")
    with opened(tmp_path) as logs:
        assert logs.topics() == {}
        assert [name[-7:] for name in entries(tmp_path)] == ["-delete"] * 2
    assert json.loads(path.read_text())["topics"] == {}


def test_an_unopened_topic_of_a_broker_can_be_deleted(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        logs.create_topic("t", partitions=2)
    (tmp_path / "klog-topics.json").unlink()
    with opened(tmp_path) as logs:
        logs.delete_topic("t")
        assert logs.topics() == {}
        with pytest.raises(UnknownTopicOrPartition):
            logs.delete_topic("t")


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_a_deletion_that_fails_anywhere_is_finished_later(tmp_path: Path, error: int) -> None:
    for nth in range(1, 100):
        path = tmp_path / str(nth)
        files = FailingFiles(nth, error)
        files.armed = False
        logs = opened(path, files=files)
        logs.create_topic("t", partitions=3)
        log = logs.log("t", 1)
        log.append([(None, b"x")])
        files.armed = True
        failed = False
        try:
            logs.delete_topic("t")
        except (OSError, StorageOffline):
            failed = True
        files.armed = False
        abandon(logs)
        assert log.closed
        with opened(path) as logs:
            assert logs.topics() in ({}, {"t": [0, 1, 2]})
            if logs.topics():
                assert failed
                assert logs.log("t", 1).count() == 1
        if not files.failed:
            assert nth > 4
            return
    raise AssertionError("no attempt succeeded")


def test_a_reader_follows_a_topic_that_is_created_again(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        logs.create_topic("t")
        logs.append("t", [(b"k", b"old")])
        with klog.open(tmp_path, read_only=True) as used, klog.open(tmp_path, read_only=True) as unused:
            assert [record.value for record in used.read("t")] == [b"old"]
            logs.delete_topic("t")
            logs.create_topic("t", partitions=2, config={"retention.ms": 7})
            logs.append("t", [(b"k", b"new")])
            for reader in (used, unused):
                before = reader.topics_generation
                assert [record.value for record in reader.read("t")] == [b"new"]
                assert (reader.topic_id("t"), reader.topic_config("t").retention_ms) == (logs.topic_id("t"), 7)
                logs.alter_topic("t", {"retention.ms": None})
                assert reader.topics_generation != before
                assert reader.topic_entries() == logs.topic_entries()
                (tmp_path / "klog-topics.json").write_text("{")
                assert reader.topic_entries() == logs.topic_entries()
                logs.alter_topic("t", {"retention.ms": 7})
        (tmp_path / "klog-topics.json").unlink()
        with klog.open(tmp_path, read_only=True) as reader:
            assert reader.topic_entries() == {}
            logs.alter_topic("t", {})
            assert reader.topic_entries() == logs.topic_entries()


def test_a_reader_loads_a_log_with_the_log_start_that_it_has_by_then(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        for name in ("again", "cut"):
            logs.create_topic(name)
            logs.append(name, [(b"k", b"old")] * 50)
            logs.log(name).delete_records(40)
        with klog.open(tmp_path, read_only=True) as reader:
            logs.delete_topic("again")
            logs.create_topic("again")
            logs.log("cut").truncate_fully_and_start_at(10)
            for name in ("again", "cut"):
                logs.append(name, [(b"k", b"new")] * 50)
            assert [(reader.log(name).log_start_offset, reader.count(name)) for name in ("again", "cut")] == [
                (0, 50),
                (10, 50),
            ]


# ---- configuration of logs in use ------------------------------------------------------------------------------------


def test_open_logs_apply_a_new_config_at_once(tmp_path: Path) -> None:
    """10.3: updateTopicConfig applies to all logs of the topic."""
    with opened(tmp_path) as logs:
        logs.create_topic("t", partitions=2)
        log = logs.log("t", 0)
        log.append([(None, b"x" * 2000)])
        logs.alter_topic("t", {"max.message.bytes": 500, "segment.bytes": 600})
        with pytest.raises(klog.errors.RecordTooLarge):
            log.append([(None, b"x" * 2000)])
        for _ in range(4):
            log.append([(None, b"x" * 300)])
        assert len(log.segments) > 2
        logs.alter_topic("t", {"cleanup.policy": "compact", "max.message.bytes": None})
        with pytest.raises(klog.errors.InvalidRecord, match="Compacted topic"):
            log.append([(None, b"no key")])
        assert log.config.compacts
        assert logs.log("t", 1).config.compacts


def test_a_change_of_the_directorys_config_applies_to_all_logs(tmp_path: Path) -> None:
    """LM9: a broker-level change reloads all configs; a topic's own value stays."""
    with opened(tmp_path) as logs:
        logs.create_topic("t")
        logs.create_topic("own", config={"segment.ms": 7})
        held = [logs.log("t"), logs.log("own")]
        logs.alter_config({"log.roll.ms": 5})
        assert [log.config.segment_ms for log in held] == [5, 7]
        with pytest.raises(InvalidConfig):
            logs.alter_config({"log.roll.ms": 0})
        assert [log.config.segment_ms for log in held] == [5, 7]


def test_a_change_of_the_directorys_config_that_a_topic_excludes_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        for name in ("a", "t", "z"):
            logs.create_topic(name, config={"max.compaction.lag.ms": 1000} if name == "t" else None)
        held, before = [logs.log("a"), logs.log("z")], logs.config
        with pytest.raises(InvalidConfig, match=r"topic t has set .*min.compaction.lag.ms exceeds max.compaction.lag"):
            logs.alter_config({"log.cleaner.min.compaction.lag.ms": 5000, "log.roll.ms": 5})
        assert logs.config == before
        assert [(log.config.min_compaction_lag_ms, log.config.segment_ms) for log in held] == [(0, 604_800_000)] * 2
        assert logs.log("t").config.max_compaction_lag_ms == 1000
        logs.delete_topic("t")
        logs.alter_config({"log.cleaner.min.compaction.lag.ms": 5000})
        assert [log.config.min_compaction_lag_ms for log in held] == [5000, 5000]


def test_the_last_change_of_a_key_counts_whatever_its_name(tmp_path: Path) -> None:
    with opened(tmp_path) as logs:
        logs.create_topic("t")
        log = logs.log("t")
        for number, name in enumerate(("log.roll.ms", "segment.ms", "log_roll_ms", "log.roll.ms"), 1):
            logs.alter_config({name: number})
            assert log.config.segment_ms == number
        logs.alter_config({"segment.ms": None})
        assert log.config.segment_ms == 604_800_000


@pytest.mark.parametrize("level", ["topic", "directory"])
def test_a_change_while_a_log_is_being_loaded_is_not_lost(
    tmp_path: Path, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LM9: a change during a load reloads that topic only; a broker-level one reloads all."""
    from klog.log import core

    with opened(tmp_path) as logs:
        logs.create_topic("t")
        logs.create_topic("u")
        real = core.Log
        settled: list[str] = []

        def slow(path: str, options: Any) -> klog.Log:
            log = real(path, options)
            if log.topic == "t":
                if level == "topic":
                    logs.alter_topic("t", {"segment.ms": 5})
                else:
                    logs.alter_config({"log.roll.ms": 5})
            return log

        plain = real.update_config

        def update(log: klog.Log, config: klog.LogConfig) -> None:
            settled.append(log.topic)
            plain(log, config)

        monkeypatch.setattr(core, "Log", slow)
        monkeypatch.setattr(real, "update_config", update)
        other = logs.log("u")
        assert logs.log("t").config.segment_ms == 5
        assert settled == (["t"] if level == "topic" else ["u", "t"])
        assert other.config.segment_ms == (604_800_000 if level == "topic" else 5)
        monkeypatch.undo()
        logs.alter_topic("t", {"segment.ms": 6})  # the load has left nothing
        assert logs.log("t").config.segment_ms == 6


def test_deleting_the_topic_of_a_closed_log_leaves_a_clean_shutdown(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with klog.open(tmp_path, create=True, clock=clock) as logs:
        logs.create_topic("t")
        logs.log("t").close()
        logs.delete_topic("t")
        clock.advance(120_000)
        assert not list(tmp_path.glob("t-*"))
    with klog.open(tmp_path) as logs:
        assert logs.clean_shutdown


def test_a_failed_load_leaves_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LM9: this also holds if the creation failed."""
    from klog.log import core

    with opened(tmp_path) as logs:
        logs.create_topic("t")

        def broken(path: str, options: Any) -> klog.Log:
            raise RuntimeError("no log today")

        monkeypatch.setattr(core, "Log", broken)
        with pytest.raises(RuntimeError, match="no log today"):
            logs.log("t")
        monkeypatch.undo()
        logs.alter_topic("t", {"segment.ms": 6})
        assert logs.log("t").config.segment_ms == 6


def test_a_start_reads_topic_ids_only_if_topics_were_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with klog.open(tmp_path / "d", create=True) as logs:
        logs.create_topic("t", partitions=20)
    read: list[str] = []
    monkeypatch.setattr(checkpoint, "read_topic_id", read.append)
    with klog.open(tmp_path / "d") as logs:
        assert logs.topics() == {"t": list(range(20))}
    assert read == []
