"""The log of a coordinator: the partition of a key, appends, replay of plain and transactional records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import klog
from klog.coordinator import CoordinatorLog
from klog.coordinator.coordinator_log import java_hash
from klog.errors import InvalidProducerEpoch, UnknownTopicOrPartition
from klog.record import Record
from tests.support.batches import marker
from tests.support.golden import HOME
from tests.support.topics import ManagerTopics

TOPIC = "__consumer_offsets"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[klog.LogManager]:
    with klog.open(tmp_path) as manager:
        yield manager


def replayed(log: CoordinatorLog) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []

    def apply(partition: int, record: Record, producer_id: int) -> None:
        found.append((partition, record.offset, record.key, record.value, producer_id))

    def ended(partition: int, producer_id: int, committed: bool) -> None:
        found.append((partition, producer_id, committed))

    count = log.replay(apply, ended)
    assert count == sum(len(each) == 5 for each in found)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("hello world", 1794106052),
        ("polygenelubricants", -(2**31)),  # a known text whose hash has no positive counterpart
        ("é", 233),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
    ],
)
def test_the_hash_is_that_of_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_a_key_has_the_partition_that_kafka_gives_it(manager: klog.LogManager) -> None:
    log = CoordinatorLog(ManagerTopics(manager, internal_partitions=50), TOPIC)
    assert log.count is None
    assert log.partition_for("polygenelubricants") == 0
    assert log.count == 50
    assert log.partition_for("group") == 98629247 % 50
    negative = next(name for name in map(str, "abcdefghijklmnopqrstuvwxyz" * 1) if java_hash(name * 9) < 0) * 9
    assert log.partition_for(negative) == -java_hash(negative) % 50 != (java_hash(negative) & 0x7FFFFFFF) % 50


def test_one_partition_needs_no_hash(manager: klog.LogManager) -> None:
    log = CoordinatorLog(ManagerTopics(manager), TOPIC)
    assert {log.partition_for(name) for name in ("a", "b", "c")} == {0}


def test_replay_passes_records_in_order_and_markers(manager: klog.LogManager) -> None:
    topics = ManagerTopics(manager, internal_partitions=2)
    log = CoordinatorLog(topics, TOPIC)
    log.ensure()
    log.append(0, [(b"k", b"1"), (b"l", None)])
    log.append(1, [(b"m", b"2")], producer=(7, 3))
    log.append(1, [(b"n", b"3")], producer=(8, 0))
    log.append(1, [(b"m", b"4")])
    found = topics.log(TOPIC, 1)
    assert found is not None
    found.append_batches(marker(7, 3, "commit"), origin="coordinator")
    found.append_batches(marker(8, 0, "abort"), origin="coordinator")
    assert replayed(log) == [
        (0, 0, b"k", b"1", -1),
        (0, 1, b"l", None, -1),
        (1, 0, b"m", b"2", 7),
        (1, 1, b"n", b"3", 8),
        (1, 2, b"m", b"4", -1),
        (1, 7, True),
        (1, 8, False),
    ]


def test_a_fenced_producer_cannot_append(manager: klog.LogManager) -> None:
    log = CoordinatorLog(ManagerTopics(manager), TOPIC)
    log.ensure()
    log.append(0, [(b"m", b"2")], producer=(7, 3))
    with pytest.raises(InvalidProducerEpoch):
        log.append(0, [(b"m", b"2")], producer=(7, 2))
    assert len(replayed(log)) == 1


def test_a_partition_that_does_not_exist(manager: klog.LogManager) -> None:
    log = CoordinatorLog(ManagerTopics(manager), TOPIC)
    assert replayed(log) == []
    with pytest.raises(UnknownTopicOrPartition):
        log.append(0, [(b"k", b"v")])


def test_a_topic_that_cannot_be_created(manager: klog.LogManager) -> None:
    class Refusing(ManagerTopics):
        def ensure_internal(self, topic: str) -> None:
            pass

    with pytest.raises(UnknownTopicOrPartition, match="was not created"):
        CoordinatorLog(Refusing(manager), TOPIC).partition_for("g")


def test_replay_of_a_topic_that_kafka_wrote() -> None:
    with klog.open(HOME / "internal" / "logdir", read_only=True) as manager:
        found = replayed(CoordinatorLog(ManagerTopics(manager), TOPIC))
    transactional = [each for each in found if len(each) == 5 and each[4] == 0]
    assert [each[1] for each in transactional] == [378, 380]
    assert found[-6:-5] == [(0, 0, False)]
    assert found[-1] == (0, 386, b"\0\2\0\x0egroup-classic1", None, -1)
