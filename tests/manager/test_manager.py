"""LogManager and klog.open: topics, configuration, close, and the next open."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import (
    AlreadyLocked,
    CorruptCheckpoint,
    CorruptLog,
    ForkedHandle,
    InconsistentTopicId,
    InvalidConfig,
    InvalidTopic,
    LogClosed,
    NewerFormat,
    NotALogDirectory,
    ReadOnly,
    TopicExists,
    UnknownTopicOrPartition,
)
from klog.manager.cleaner_threads import BackgroundCleaner
from klog.scheduler import Scheduler
from tests.support.abandon import abandon
from tests.support.child import in_child, living_child
from tests.support.logs import one_log, tree, values
from tests.support.own_json import unchecked_in
from tests.support.patience import PATIENCE

MARKER = ".kafka_cleanshutdown"


# ---- opening ---------------------------------------------------------------------------------------------------------


def test_the_directory_of_a_partition_is_no_log_dir(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        logs.append("t", [(b"k", b"v")])
    for options in ({}, {"read_only": True}, {"create": True}):
        with pytest.raises(NotALogDirectory, match=r"klog.Log.open, or its log.dir .* with klog.open"):
            klog.open(tmp_path / "t-0", **options)
        with pytest.raises(NotALogDirectory):
            klog.open([tmp_path, tmp_path / "t-0"], **options)
    assert not (tmp_path / "t-0" / ".lock").exists()


def test_a_directory_is_created_only_on_request(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"create=True\) creates a new log.dir"):
        klog.open(tmp_path / "a")
    with pytest.raises(ValueError, match="create=True, read_only=True"):
        klog.open(tmp_path / "a", create=True, read_only=True)
    with pytest.raises(FileNotFoundError, match="no such directory; name a log.dir"):
        klog.open(tmp_path / "a", read_only=True)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError, match="no directory can be created there"):
        klog.open("/proc/klog", create=True)
    with klog.open(tmp_path / "a" / "b", create=True) as logs:
        assert logs.path == str(tmp_path / "a" / "b")
        assert logs.topics() == {}


def test_a_file_instead_of_a_directory_raises(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(NotADirectoryError, match="a log.dir is a directory"):
        klog.open(tmp_path / "f", create=True)


@pytest.mark.parametrize("options", [{"recovery": "hope"}, {"durability": "often"}, {"durability": None}])
def test_an_invalid_choice_raises_with_the_choices(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match="(recovery|durability)=.* '(kafka|sync)'"):
        klog.open(tmp_path, **options)
    if options.get("durability", "") is not None:
        with pytest.raises(ValueError, match="choose '"):
            klog.Log.open(tmp_path / "t-0", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_second_open_raises_naming_the_holder(tmp_path: Path) -> None:
    with klog.open(tmp_path) as logs:
        logs.create_topic("events")
        with pytest.raises(AlreadyLocked, match=f"process {os.getpid()} .this one."):
            klog.open(tmp_path)
        with pytest.raises(AlreadyLocked, match=f"process {os.getpid()}"):
            klog.Log.open(tmp_path / "events-0")
        assert in_child(lambda: klog.open(tmp_path))[0] == "AlreadyLocked"
        with klog.open(tmp_path, read_only=True) as reader:  # takes no lock
            assert reader.topics() == {"events": [0]}
    klog.open(tmp_path).close()


def test_a_failed_open_releases_the_lock(tmp_path: Path) -> None:
    (tmp_path / "klog-topics.json").write_text("{}")
    with pytest.raises(CorruptCheckpoint):
        klog.open(tmp_path)
    (tmp_path / "klog-topics.json").unlink()
    klog.open(tmp_path).close()


# ---- topics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 249, "...", "-", "a-1"])
def test_topic_names_kafka_accepts(tmp_path: Path, name: str) -> None:
    with klog.open(tmp_path) as logs:
        logs.create_topic(name, partitions=2)
        logs.log(name, 1).append([(None, b"x")])
        assert logs.topics() == {name: [0, 1]}


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "../a", "a\n", "\u00e4", "a\0", "a:b", "a,b"])
def test_topic_names_kafka_refuses(tmp_path: Path, name: str) -> None:
    with klog.open(tmp_path) as logs:
        with pytest.raises(InvalidTopic, match="is not a topic name") as caught:
            logs.create_topic(name)
        assert caught.value.code == 17
        assert logs.topics() == {}
        with pytest.raises(UnknownTopicOrPartition):
            logs.log(name)


def test_a_topic_name_must_be_a_str(tmp_path: Path) -> None:
    with (
        klog.open(tmp_path) as logs,
        pytest.raises(TypeError, match="name=b'events': a topic's name, a str, expected, not bytes"),
    ):
        logs.create_topic(b"events")  # type: ignore[arg-type]


@pytest.mark.parametrize("partitions", [0, -1, 1.0, True, "2", None])
def test_a_topic_needs_at_least_one_partition(tmp_path: Path, partitions: Any) -> None:
    with klog.open(tmp_path) as logs:
        with pytest.raises(ValueError if partitions in (0, -1) else TypeError, match="partitions="):
            logs.create_topic("events", partitions=partitions)
        assert logs.topics() == {}


def test_creating_an_existing_topic_raises(tmp_path: Path) -> None:
    with klog.open(tmp_path) as logs:
        logs.create_topic("events")
        with pytest.raises(TopicExists, match=r"logs.log\('events', 0\) opens it") as caught:
            logs.create_topic("events", partitions=3)
        assert caught.value.code == 36
        assert logs.topics() == {"events": [0]}


def test_an_invalid_config_creates_nothing(tmp_path: Path) -> None:
    with klog.open(tmp_path) as logs:
        with pytest.raises(InvalidConfig, match="did you mean segment.bytes"):
            logs.create_topic("events", config={"segment.byte": 1})
        assert logs.topics() == {}
        logs.create_topic("events")


def test_an_unknown_topic_raises_with_the_known_ones(tmp_path: Path) -> None:
    with klog.open(tmp_path) as logs:
        with pytest.raises(UnknownTopicOrPartition, match=r"none yet: logs.create_topic\(name\) creates one"):
            logs.log("events")
        logs.create_topic("events", partitions=2)
        logs.create_topic("other")
        for call in (lambda: logs.log("event"), lambda: logs.read("event"), lambda: logs.append("event", [])):
            with pytest.raises(
                UnknownTopicOrPartition, match="no topic 'event' in .*; topics there: events, other"
            ) as caught:
                call()
            assert caught.value.code == 3
            assert isinstance(caught.value, LookupError)
        for partition in (2, -1):
            with pytest.raises(
                UnknownTopicOrPartition, match=f"topic 'events' has no partition {partition}; it has 0, 1"
            ):
                logs.log("events", partition)


def test_foreign_entries_are_not_topics(tmp_path: Path) -> None:
    with klog.open(tmp_path) as logs:
        logs.create_topic("events")
        for name in (
            "plain",
            "a-01",
            "a-x",
            "-0",
            "a-99999999999",
            "events-0.0123456789abcdef0123456789abcdef-delete",
            "a b-0",
        ):
            (tmp_path / name).mkdir()
        (tmp_path / "file-0").write_bytes(b"")
        (tmp_path / "link-0").symlink_to(tmp_path / "events-0")
        assert logs.topics() == {"events": [0]}


def test_topic_ids_are_kept_and_compared(tmp_path: Path) -> None:
    given = uuid.uuid4()
    with klog.open(tmp_path) as logs:
        logs.create_topic("events", partitions=2, topic_id=given)
        assert [logs.log("events", i).topic_id for i in range(2)] == [given, given]
        logs.create_topic("other")
        assert logs.log("other").topic_id not in (None, given)
    with klog.Log.open(tmp_path / "events-0", topic_id=given) as log:
        assert log.topic_id == given
    with pytest.raises(InconsistentTopicId, match="belongs to topic id") as caught:
        klog.Log.open(tmp_path / "events-0", topic_id=uuid.uuid4())
    assert caught.value.code == 103
    with klog.Log.open(tmp_path / "events-0"):
        pass
    with pytest.raises(ValueError, match="Kafka's 22 characters"):
        klog.Log.open(tmp_path / "events-0", topic_id="nonsense")


# ---- configuration ---------------------------------------------------------------------------------------------------


def test_configuration_comes_from_topic_then_directory_then_default(tmp_path: Path) -> None:
    broker = {"log.segment.bytes": 5000, "log.roll.ms": 777, "log.cleaner.threads": 3}
    with klog.open(tmp_path, config=broker) as logs:
        logs.create_topic("events", config={"segment_bytes": 300, "cleanup.policy": "compact,delete"})
        config = logs.log("events").config
        assert (config.segment_bytes, config.segment_ms, config["segment.index.bytes"]) == (300, 777, 10_485_760)
        assert config.cleanup_policy == ("compact", "delete")
        assert logs.config.log_cleaner_threads == 3
    with klog.open(tmp_path) as logs:  # the topic's config is stored, the directory's is passed at each open
        config = logs.topic_config("events")
        assert (config.segment_bytes, config.segment_ms) == (300, 604_800_000)


def test_altering_a_topic(tmp_path: Path) -> None:
    with klog.open(tmp_path) as logs:
        logs.create_topic("events", config={"segment.bytes": 300, "retention.ms": 5})
        altered = logs.alter_topic("events", {"segment.bytes": 400, "retention.ms": None})
        assert (altered.segment_bytes, altered.retention_ms) == (400, 604_800_000)
        with pytest.raises(InvalidConfig, match="did you mean"):
            logs.alter_topic("events", {"segment.byte": 1})
        with pytest.raises(UnknownTopicOrPartition):
            logs.alter_topic("nothing", {})
    with klog.open(tmp_path) as logs:
        assert logs.log("events").config.segment_bytes == 400


def test_the_directory_s_configuration_changes_while_it_is_open(tmp_path: Path) -> None:
    with klog.open(tmp_path, config={"log.retention.hours": 1}) as logs:
        logs.create_topic("events")
        logs.create_topic("own", config={"retention.ms": 9})
        logs.alter_config({"log.retention.ms": 7})
        assert (logs.topic_config("events").retention_ms, logs.topic_config("own").retention_ms) == (7, 9)
        logs.alter_config({"log.retention.ms": None})
        assert logs.topic_config("events").retention_ms == 3_600_000
        with pytest.raises(InvalidConfig, match="log.retention.hours cannot change while the directory is open"):
            logs.alter_config({"log.retention.hours": 2})
        logs.alter_config({"num.recovery.threads.per.data.dir": 4})
        with pytest.raises(InvalidConfig, match="it is 4 now; choose 2 to 8"):
            logs.alter_config({"num.recovery.threads.per.data.dir": 1})
        assert logs.config.num_recovery_threads_per_data_dir == 4


def test_tiering_must_be_enabled_for_the_directory(tmp_path: Path) -> None:
    with klog.open(tmp_path) as logs, pytest.raises(InvalidConfig, match="remote.log.storage.system.enable=true first"):
        logs.create_topic("events", config={"remote.storage.enable": True})
    with klog.open(tmp_path, config={"remote.log.storage.system.enable": True}) as logs:
        logs.create_topic("events", config={"remote.storage.enable": True})
        with pytest.raises(InvalidConfig, match="remote.log.delete.on.disable=true"):
            logs.alter_topic("events", {"remote.storage.enable": False})
        logs.alter_topic("events", {"remote.storage.enable": False, "remote.log.delete.on.disable": True})


def test_alter_topic_sets_the_config_of_a_brokers_topic(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        wanted = log.topic_id
    (tmp_path / "klog-topics.json").unlink()
    with klog.open(tmp_path) as logs:
        assert logs.topics() == {"events": [0]}
        logs.alter_topic("events", {"segment.bytes": 400})
        assert logs.log("events").topic_id == wanted
    entry = json.loads((tmp_path / "klog-topics.json").read_text())["topics"]["events"]
    assert entry["config"] == {"segment.bytes": 400}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        '{"version": 1}',
        '{"version": 1, "topics": []}',
        '{"version": 1, "topics": {"a b": {"topic_id": "AAECAwQFBgcICQoLDA0ODw", "partitions": 1, "config": {}}}}',
        '{"version": 1, "topics": {"a": {"topic_id": "short", "partitions": 1, "config": {}}}}',
        '{"version": 1, "topics": {"a": {"topic_id": "AAECAwQFBgcICQoLDA0ODw", "partitions": "1", "config": {}}}}',
        '{"version": 1, "topics": {"a": {"topic_id": "AAECAwQFBgcICQoLDA0ODw", "partitions": 1, "config": []}}}',
        '{"version": 1, "topics": {"a": 5}}',
        '{"version": 1, "topics": {',
    ],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_broken_topics_file_raises(tmp_path: Path, text: str, read_only: bool) -> None:
    path = tmp_path / "klog-topics.json"
    path.write_text(text)
    with pytest.raises(CorruptCheckpoint, match="move the file away") as caught:
        klog.open(tmp_path, read_only=read_only)
    assert caught.value.path == str(path)
    assert path.read_text() == text


def test_a_newer_topics_file_raises(tmp_path: Path) -> None:
    path = tmp_path / "klog-topics.json"
    path.write_text('{"version": 2, "topics": {}, "new": 1}')
    with pytest.raises(NewerFormat, match="klog-topics.json has version 2, this klog reads 1: upgrade klog"):
        klog.open(tmp_path)
    assert "new" in path.read_text()


def test_an_invalid_stored_config_raises_with_file_and_topic(tmp_path: Path) -> None:
    with klog.open(tmp_path) as logs:
        logs.create_topic("events")
    path = tmp_path / "klog-topics.json"
    document = unchecked_in(path)
    document["topics"]["events"]["config"] = {"segment.bytes": -4}
    path.write_text(json.dumps(document))
    with (
        klog.open(tmp_path) as logs,
        pytest.raises(InvalidConfig, match="klog-topics.json: topic events: segment.bytes=-4"),
    ):
        logs.log("events")


# ---- whole topics ----------------------------------------------------------------------------------------------------


def test_keys_are_partitioned_as_in_kafka(tmp_path: Path) -> None:
    partitioner = pytest.importorskip("kafka.partitioner.default", reason="needs: kafka-python")
    keys = [b"key-%d" % i for i in range(200)] + [b"", b"\xff" * 33]
    with klog.open(tmp_path) as logs:
        logs.create_topic("events", partitions=7)
        done = logs.append("events", [(key, b"%d" % i) for i, key in enumerate(keys)])
        assert sum(info.count for info in done.values()) == len(keys)
        for number in range(7):
            mine = [(r.key, int(r.value or b"")) for r in logs.log("events", number).read()]
            wanted = [(k, i) for i, k in enumerate(keys) if (partitioner.murmur2(k) & 0x7FFFFFFF) % 7 == number]
            assert mine == wanted
        everything = [r.key for r in logs.read("events")]
        assert sorted(everything) == sorted(keys)
        assert [r.key for r in logs.read("events", partition=3)] == [r.key for r in logs.log("events", 3).read()]


def test_records_without_a_key_stay_together(tmp_path: Path) -> None:
    with klog.open(tmp_path) as logs:
        logs.create_topic("events", partitions=3)
        for _ in range(3):
            assert len(logs.append("events", [(None, b"x")] * 100)) == 1
        assert [log.count() for log in logs.logs()] == [100, 100, 100]


# ---- closing ---------------------------------------------------------------------------------------------------------


def test_calls_after_close_raise(tmp_path: Path) -> None:
    with klog.open(tmp_path) as logs:
        logs.create_topic("events")
        log = logs.log("events")
        log.append([(None, b"x")])
        reader = log.read()
    logs.close()
    log.close()
    calls: list[Callable[[], object]] = [
        logs.topics,
        lambda: logs.log("events"),
        lambda: logs.create_topic("b"),
        lambda: logs.append("events", [(None, b"x")]),
        lambda: logs.read("events"),
        lambda: log.append([(None, b"x")]),
        lambda: log.append([]),
        log.roll,
        log.flush,
        log.read,
        log.count,
        lambda: log.fetch(0),
        lambda: log.offset_for_timestamp(0),
        log.refresh,
        lambda: list(reader),
    ]
    for call in calls:
        with pytest.raises(LogClosed, match="is closed: open it again") as caught:
            call()
        assert isinstance(caught.value, ValueError)
    assert "closed" in repr(log)
    assert "closed" in repr(logs)
    assert (log.log_end_offset, log.closed) == (1, True)


def test_the_manager_reopens_a_closed_log(tmp_path: Path) -> None:
    with klog.open(tmp_path) as logs:
        logs.create_topic("events")
        log = logs.log("events")
        assert logs.log("events") is log
        log.append([(None, b"x")])
        log.close()
        again = logs.log("events")
        assert again is not log
        assert again.recovery.clean_shutdown
        assert values(again) == [b"x"]
        again.append([(None, b"y")])
    assert (tmp_path / MARKER).exists()
    with klog.open(tmp_path) as logs:
        assert values(logs.log("events")) == [b"x", b"y"]


def forget(opened: list[Any]) -> None:
    opened.clear()
    gc.collect()


def test_an_unclosed_manager_warns_and_leaves_an_unclean_directory(tmp_path: Path) -> None:
    opened = [klog.open(tmp_path, create=True)]
    opened[0].create_topic("events")
    opened[0].log("events").append([(None, b"x")])
    with pytest.warns(ResourceWarning, match="was never closed: use `with`, or call close"):
        forget(opened)
    assert not (tmp_path / MARKER).exists()
    with klog.open(tmp_path) as again:  # the lock is free
        log = again.log("events")
        assert not log.recovery.clean_shutdown
        assert log.recovery.reason == "no clean shutdown"
        assert log.recovery.segments_scanned == 1
        assert values(log) == [b"x"]


def test_an_unclosed_log_warns(tmp_path: Path) -> None:
    opened = [klog.Log.open(tmp_path / "t-0")]
    opened[0].append([(None, b"x")])
    with pytest.warns(ResourceWarning, match="t-0.*was never closed"):
        forget(opened)
    with klog.Log.open(tmp_path / "t-0") as again:
        assert not again.recovery.clean_shutdown
        assert values(again) == [b"x"]


def test_an_unclean_open_scans_only_from_the_recovery_point(tmp_path: Path) -> None:
    logs = klog.open(tmp_path, create=True)
    logs.create_topic("events")
    log = logs.log("events")
    for i in range(4):
        log.append([(None, b"%d" % i)])
        log.roll()
    log.append([(None, b"4")])
    abandon(logs)
    with klog.open(tmp_path) as again:
        log = again.log("events")
        assert log.recovery.segments_scanned == 1
        assert log.recovery_point == 4
        assert values(log) == [b"%d" % i for i in range(5)]


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"]
)
@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"0\n",
        b"junk",
        b"0\n9\nevents 0 1\n",
        b"\xff",
        b"0\n1\nevents 0 " + b"9" * 30 + b"\n",
    ],
)
def test_a_lost_or_broken_checkpoint_only_costs_time(tmp_path: Path, name: str, data: bytes | None) -> None:
    logs = klog.open(tmp_path, create=True)
    logs.create_topic("events")
    log = logs.log("events")
    for i in range(3):
        log.append([(None, b"%d" % i)])
        log.roll()
    abandon(logs)
    (tmp_path / name).unlink(missing_ok=True)
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with klog.open(tmp_path) as again:
        log = again.log("events")
        assert values(log) == [b"0", b"1", b"2"]
        assert log.recovery.segments_scanned == (4 if name.startswith("recovery") else 1)
    for file in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert (tmp_path / file).read_text() == "0\n1\nevents 0 3\n"


def test_checkpoints_above_the_log_end_are_ignored(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"x")] * 3)
    (tmp_path / MARKER).unlink()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (tmp_path / name).write_text("0\n1\nevents 0 999\n")
    with klog.open(tmp_path, read_only=True) as logs:
        assert logs.log("events").high_watermark == 3
    with klog.open(tmp_path) as logs:
        log = logs.log("events")
        assert (log.log_end_offset, log.recovery_point, log.high_watermark) == (3, 3, 3)


def test_a_log_start_above_the_log_end_raises_in_strict_mode(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"x")] * 3)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nevents 0 50\n")
    with klog.open(tmp_path) as logs, pytest.raises(CorruptLog, match="opening would delete every record"):
        logs.log("events")
    assert (tmp_path / "events-0" / f"{0:020d}.log").stat().st_size > 0
    with klog.open(tmp_path, recovery="kafka") as logs:
        log = logs.log("events")
        assert (log.log_start_offset, log.log_end_offset, [s.base_offset for s in log.segments]) == (50, 50, [50])


# ---- the clean-shutdown file -----------------------------------------------------------------------------------------


def test_the_clean_shutdown_file_exists_only_while_no_writer_is_open(tmp_path: Path) -> None:
    logs = klog.open(tmp_path, create=True)
    assert not (tmp_path / MARKER).exists()
    logs.create_topic("events")
    logs.log("events").append([(None, b"x")])
    logs.close()
    assert (tmp_path / MARKER).read_text() == '{"version":0,"brokerEpoch":-1}'
    with klog.open(tmp_path) as logs:
        assert logs.clean_shutdown
        assert not (tmp_path / MARKER).exists()
    assert (tmp_path / MARKER).exists()


def test_an_unopened_partition_keeps_its_state(tmp_path: Path) -> None:
    """A clean partition stays clean, and an unclean partition stays marked for recovery, however often others are
    opened and closed."""
    with klog.open(tmp_path, create=True) as logs:
        for topic in ("a", "b"):
            logs.create_topic(topic)
            logs.log(topic).append([(None, b"x")])
    with klog.open(tmp_path) as logs:
        logs.log("a")
    assert (tmp_path / MARKER).exists()
    logs = klog.open(tmp_path)
    logs.log("b").append([(None, b"y")])
    abandon(logs)
    with klog.open(tmp_path) as logs:
        logs.log("a")
    assert not (tmp_path / MARKER).exists()  # b was not opened
    with klog.open(tmp_path) as logs:
        assert not logs.log("b").recovery.clean_shutdown
        assert values(logs.log("b")) == [b"x", b"y"]
        logs.log("a")
    assert (tmp_path / MARKER).exists()
    with klog.open(tmp_path) as logs:
        assert [log.recovery.clean_shutdown for log in logs.logs()] == [True, True]


def test_created_but_unopened_topics_do_not_prevent_a_clean_shutdown(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("events", partitions=3)
        logs.log("events", 1).append([(None, b"x")])
    assert (tmp_path / MARKER).exists()


def test_log_open_restores_the_clean_shutdown_file(tmp_path: Path) -> None:
    with one_log(tmp_path) as log:
        log.append([(None, b"x")])
    log = klog.Log.open(tmp_path / "events-0")
    assert log.recovery.clean_shutdown
    assert not (tmp_path / MARKER).exists()
    log.append([(None, b"y")])
    log.close()
    assert (tmp_path / MARKER).exists()
    with klog.open(tmp_path) as logs:
        assert values(logs.log("events")) == [b"x", b"y"]


def test_log_open_creates_no_clean_shutdown_file(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0") as log:
        log.append([(None, b"x")])
    assert not (tmp_path / MARKER).exists()
    with klog.Log.open(tmp_path / "t-0") as log:
        assert not log.recovery.clean_shutdown
        assert log.recovery_point == 1
    with klog.Log.open(tmp_path / "t-0", clean_shutdown=True) as log:
        assert log.recovery.clean_shutdown


def test_a_crash_after_log_open_leaves_the_directory_unclean(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        for topic in ("a", "b"):
            logs.create_topic(topic)
            logs.log(topic).append([(None, b"x")])
    log = klog.Log.open(tmp_path / "a-0")
    log.append([(None, b"y")])
    abandon(log)
    assert not (tmp_path / MARKER).exists()


def test_log_open_opens_several_partitions(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", partitions=3)
        for log in logs.logs():
            log.append([(None, b"x")])
    opened = [klog.Log.open(tmp_path / f"t-{i}") for i in range(3)]
    with pytest.raises(AlreadyLocked, match="t-1 is open for writing already"):
        klog.Log.open(tmp_path / "t-1")
    with pytest.raises(AlreadyLocked):
        klog.open(tmp_path)
    for i, log in enumerate(opened):
        log.append([(None, b"%d" % i)])
    for log in opened:
        log.close()
    with klog.open(tmp_path) as logs:
        assert [values(log) for log in logs.logs()] == [[b"x", b"%d" % i] for i in range(3)]
        assert [log.recovery_point for log in logs.logs()] == [2, 2, 2]


def test_a_crashed_log_keeps_the_directory_unclean(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        for topic in ("a", "b"):
            logs.create_topic(topic)
            logs.log(topic).append([(None, b"x")])
    first = klog.Log.open(tmp_path / "a-0")
    second = klog.Log.open(tmp_path / "b-0")
    second.append([(None, b"y")])
    abandon(second)
    first.close()
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize("name", ["nodash", "t-x", "t-01", "-0"])
def test_log_open_needs_a_partition_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidTopic, match="its name must be <topic>-<number>"):
        klog.Log.open(tmp_path / name)
    with pytest.raises(UnknownTopicOrPartition, match="does not exist"):
        klog.Log.open(tmp_path / "t-0", read_only=True)
    assert list(tmp_path.iterdir()) == []


# ---- read_only -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_reading_changes_nothing_on_disk(tmp_path: Path, clean: bool) -> None:
    path = tmp_path / "logs"
    logs = klog.open(path, create=True, clock=ManualClock())
    logs.create_topic("events", config={"segment.bytes": 200, "index.interval.bytes": 0})
    logs.create_topic("empty")
    for i in range(8):
        logs.log("events").append([(None, b"%d" % i, i)])
    if clean:
        logs.close()
    else:
        abandon(logs)
        for name in (f"{2:020d}.index", f"{4:020d}.timeindex", "leader-epoch-checkpoint"):
            (path / "events-0" / name).unlink(missing_ok=True)
        with open(next(iter(sorted((path / "events-0").glob("*.log"), reverse=True))), "ab") as last:
            last.write(b"torn")
    before = tree(path), [(p, p.stat().st_mtime_ns) for p in sorted(path.rglob("*"))]
    os.chmod(path, 0o500)
    try:
        with klog.open(path, read_only=True) as reader:
            log = reader.log("events")
            assert values(log, isolation="log_end") == [b"%d" % i for i in range(8)]
            assert log.offset_for_timestamp(5) == (5, 5)
            assert log.count() == 8
            assert log.fetch(3).size > 0
            assert (log.producers, log.aborted_transactions()) == ({}, [])
            log.refresh()
            assert values(reader.log("empty")) == []
            reader.log("empty").refresh()
            calls: list[Callable[[], object]] = [
                lambda: log.append([(None, b"x")]),
                log.roll,
                log.flush,
                lambda: reader.create_topic("b"),
                lambda: reader.append("events", [(None, b"x")]),
                lambda: reader.alter_topic("events", {}),
            ]
            for call in calls:
                with pytest.raises(ReadOnly, match="was opened with read_only=True"):
                    call()
            log.close()
        with klog.Log.open(path / "events-0", read_only=True) as log:
            assert values(log, isolation="log_end") == [b"%d" % i for i in range(8)]
    finally:
        os.chmod(path, 0o750)
    assert (tree(path), [(p, p.stat().st_mtime_ns) for p in sorted(path.rglob("*"))]) == before


# ---- forks -----------------------------------------------------------------------------------------------------------


def test_a_forked_child_cannot_use_its_parents_manager(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("events")
        log = logs.log("events")
        log.append([(None, b"x")])
        calls: list[Any] = [lambda: log.append([(None, b"child")]), log.roll, log.flush, lambda: logs.create_topic("b")]
        calls += [lambda: values(log), lambda: log.fetch(0), lambda: list(log.tail(0, timeout=0)), logs.topics]
        for call in calls:
            name, text = in_child(call)
            assert name == ForkedHandle.__name__
            assert f"belongs to process {os.getpid()}: open it again in this one" in text
        in_child(logs.close)
        in_child(log.close)
        log.append([(None, b"y")])
        with pytest.raises(AlreadyLocked):
            klog.open(tmp_path)
    assert (tmp_path / MARKER).exists()
    with klog.open(tmp_path) as logs:
        assert values(logs.log("events")) == [b"x", b"y"]


@pytest.mark.parametrize("alone", [True, False], ids=["Log.open", "klog.open"])
def test_a_running_child_holds_no_lock(tmp_path: Path, alone: bool) -> None:
    with one_log(tmp_path):
        pass
    holder: Any = klog.Log.open(tmp_path / "events-0") if alone else klog.open(tmp_path)
    with living_child():
        holder.close()
        with klog.Log.open(tmp_path / "events-0") if alone else klog.open(tmp_path):
            pass


ORPHAN = """
import os, sys, klog
holder = klog.Log.open(sys.argv[1] + "/events-0") if sys.argv[2] == "alone" else klog.open(sys.argv[1])
if os.fork() == 0:
    print("ready", flush=True)
    sys.stdin.read()
os._exit(0)
"""


@pytest.mark.parametrize("how", ["alone", "manager"])
def test_a_child_that_outlives_its_parent_holds_no_lock(tmp_path: Path, how: str) -> None:
    with one_log(tmp_path):
        pass
    command = [sys.executable, "-c", ORPHAN, str(tmp_path), how]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdin is not None
    assert parent.stdout is not None
    try:
        assert parent.stdout.readline() == "ready\n"
        assert parent.wait(PATIENCE) == 0
        with klog.Log.open(tmp_path / "events-0") if how == "alone" else klog.open(tmp_path):
            pass
    finally:
        parent.stdin.close()
        assert parent.stdout.read() == ""  # the child has ended too
        parent.stdout.close()


def test_a_killed_writers_directory_opens_at_once(tmp_path: Path) -> None:
    code = (
        "import sys, klog\n"
        "logs = klog.open(sys.argv[1], create=True); logs.create_topic('events')\n"
        "logs.log('events').append([(None, b'x')] * 100)\n"
        "print('written', flush=True); sys.stdin.read()\n"
    )
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "d")], stdin=pipe, stdout=pipe, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "written\n"
        with pytest.raises(AlreadyLocked, match=f"process {child.pid};"):
            klog.open(tmp_path / "d")
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    with klog.open(tmp_path / "d") as logs:
        assert logs.log("events").count() == 100
        assert not logs.clean_shutdown


@pytest.mark.parametrize(("of", "step"), [(BackgroundCleaner, "stop"), (Scheduler, "stop"), (klog.LogManager, "_stop")])
def test_an_interrupted_close_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: type, step: str
) -> None:
    def interrupt(_self: object) -> None:
        raise KeyboardInterrupt

    logs = klog.open(tmp_path, create=True)
    logs.create_topic("t")
    log = logs.log("t")
    log.append([(b"k", b"v")])
    with monkeypatch.context() as patch:
        patch.setattr(of, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            logs.close()
    with pytest.raises(LogClosed):
        log.append([(b"k", b"after")])
    with klog.open(tmp_path) as again:
        assert not again.clean_shutdown
        assert again.log("t").count() == 1
    logs.close()
