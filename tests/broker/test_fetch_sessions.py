"""Fetch sessions: a response has every partition that has changed, whatever changed it, and no other one."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.broker import Broker
from klog.broker.fetch_sessions import FetchedPartition, FetchSessions
from klog.broker.partitions import NO_ID
from klog.broker.purgatory import Purgatory
from klog.clock import Clock, ManualClock, SystemClock
from klog.protocol import ApiKey, ErrorCode, messages
from klog.record import encode
from klog.scheduler import Scheduler
from tests.support.patience import PATIENCE, until
from tests.support.wire_client import WireClient

T = 1_700_000_000_000
PARTITIONS = 5


@pytest.fixture
def clock() -> Clock:
    return SystemClock()


@pytest.fixture
def broker(tmp_path: Path, clock: Clock) -> Iterator[Broker]:
    with Broker(tmp_path / "data", listeners=["127.0.0.1:0"], clock=clock) as found:
        found.topics.create("t", PARTITIONS)
        yield found


class Consumer:
    """Fetches all partitions in one fetch session, and keeps the values of each."""

    def __init__(self, broker: Broker, topic: str = "t", **fields: Any) -> None:
        self.client = WireClient(broker.bootstrap_servers)
        self.topic_id: Any = broker.topics.topic_id(topic)
        self.fields = {"min_bytes": 1, "max_bytes": 1 << 20, **fields}
        self.offsets = dict.fromkeys(range(PARTITIONS), 0)
        self.values: dict[int, list[bytes]] = {number: [] for number in self.offsets}
        self.number, self.epoch = 0, 0
        self.moved = list(self.offsets)  # partitions whose new offset the session does not know yet
        self.poll()
        assert self.number

    def send(self, max_wait_ms: int = 0) -> None:
        Request = messages.Fetch.Request
        asked = [
            Request.Partition(partition=number, fetch_offset=self.offsets[number], partition_max_bytes=1 << 20)
            for number in self.moved
        ]
        request = Request(
            session_id=self.number,
            session_epoch=self.epoch,
            max_wait_ms=max_wait_ms,
            topics=[Request.Topic(topic_id=self.topic_id, partitions=asked)] if asked else [],
            **self.fields,
        )
        self.client.send(ApiKey.FETCH, 18, request)

    def receive(self) -> list[int]:
        """Read a response and keep its records. Returns the partitions in it."""
        response = self.client.receive(ApiKey.FETCH, 18)
        assert response.error_code == 0
        self.number, self.epoch = response.session_id, self.epoch + 1
        self.moved = []
        found = [each for topic in response.responses for each in topic.partitions]
        for each in found:
            assert each.error_code == 0
            for record in klog.record.iter_records(bytes(each.records or b"")):
                assert record.offset == self.offsets[each.partition_index]
                self.offsets[each.partition_index] += 1
                self.values[each.partition_index].append(record.value or b"")
            if each.records:
                self.moved.append(each.partition_index)
        return [each.partition_index for each in found]

    def poll(self, max_wait_ms: int = 0) -> list[int]:
        self.send(max_wait_ms)
        return self.receive()


def until_one_waits(broker: Broker) -> None:
    """Wait until a fetch is in the purgatory."""
    until(lambda: broker.metrics()["PurgatorySize.Fetch"])


@pytest.fixture
def consumer(broker: Broker) -> Iterator[Consumer]:
    found = Consumer(broker)
    yield found
    found.client.socket.close()


def produce(broker: Broker, partition: int, value: bytes = b"v") -> None:
    """Append one record through a connection of its own."""
    Request = messages.Produce.Request
    asked = Request.Partition(index=partition, records=encode([(None, value, T)]))
    topic_id: Any = broker.topics.topic_id("t")
    with WireClient(broker.bootstrap_servers) as client:
        found = client.call(
            ApiKey.PRODUCE,
            13,
            acks=1,
            timeout_ms=1000,
            topic_data=[Request.Topic(topic_id=topic_id, partition_data=[asked])],
        )
    assert found.responses[0].partition_responses[0].error_code == 0


def test_a_record_completes_an_incremental_fetch_that_waits(broker: Broker, consumer: Consumer) -> None:
    for partition in (3, 1, 3):
        consumer.send(max_wait_ms=60_000)
        until_one_waits(broker)
        produce(broker, partition)
        assert consumer.receive() == [partition]
    assert {number: len(values) for number, values in consumer.values.items() if values} == {1: 1, 3: 2}


def test_a_session_gets_nothing_of_a_new_topic_with_the_name_of_its_deleted_one(
    broker: Broker, consumer: Consumer
) -> None:
    produce(broker, 3)
    assert consumer.poll() == [3]
    broker.topics.delete("t")
    broker.topics.create("t", PARTITIONS)
    for _ in range(2):
        produce(broker, 3)
    consumer.send()
    (found,) = consumer.client.receive(ApiKey.FETCH, 18).responses
    codes = {each.partition_index: each.error_code for each in found.partitions}
    assert codes == dict.fromkeys(range(PARTITIONS), ErrorCode.UNKNOWN_TOPIC_ID)


def test_a_session_whose_first_reads_failed_gets_nothing_of_a_new_topic(broker: Broker) -> None:
    """No read has noted the log of the partition. The session keeps the name that its id had."""
    Request = messages.Fetch.Request
    old_id: Any = broker.topics.topic_id("t")

    def fetch(session_id: int, session_epoch: int, leader_epoch: int) -> Any:
        asked = Request.Partition(
            partition=3, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=leader_epoch
        )
        return client.call(
            ApiKey.FETCH,
            18,
            session_id=session_id,
            session_epoch=session_epoch,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[Request.Topic(topic_id=old_id, partitions=[asked])],
        )

    with WireClient(broker.bootstrap_servers) as client:
        first = fetch(0, 0, leader_epoch=99)
        assert first.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        broker.topics.delete("t")
        broker.topics.create("t", PARTITIONS)
        produce(broker, 3)
        (found,) = fetch(first.session_id, 1, leader_epoch=-1).responses[0].partitions
    assert (found.error_code, found.records or b"") == (ErrorCode.UNKNOWN_TOPIC_ID, b"")


@pytest.mark.parametrize("clock", [ManualClock(T)])
def test_records_of_this_process_are_found_when_a_fetch_times_out(
    broker: Broker, consumer: Consumer, clock: ManualClock
) -> None:
    """Such an append is found late because Broker.check() is not called."""
    consumer.send(max_wait_ms=100)
    until_one_waits(broker)
    broker.logs.log("t", 2).append([(None, b"v", T)])
    clock.advance(99)
    assert broker.metrics()["PurgatorySize.Fetch"] == 1
    clock.advance(1)
    assert consumer.receive() == [2]


def test_unannounced_records_are_found_while_others_are_produced(broker: Broker, consumer: Consumer) -> None:
    """No fetch times out, since another partition always has records."""
    broker.logs.log("t", 2).append([(None, b"v", T)])
    clock = SystemClock()
    deadline = clock.monotonic() + PATIENCE
    while clock.monotonic() < deadline:
        produce(broker, 0)
        if 2 in consumer.poll(max_wait_ms=60_000):
            break
    assert consumer.values[2] == [b"v"]


def test_a_new_log_start_is_sent_when_a_fetch_times_out(broker: Broker, consumer: Consumer) -> None:
    produce(broker, 4)
    assert consumer.poll() == [4]
    assert consumer.poll() == []
    broker.logs.log("t", 4).delete_records(1)
    assert consumer.poll(max_wait_ms=20) == [4]
    assert consumer.poll(max_wait_ms=20) == []


def test_a_deleted_topic_is_reported_at_once(broker: Broker, consumer: Consumer) -> None:
    consumer.send(max_wait_ms=60_000)
    until_one_waits(broker)
    broker.topics.delete("t")
    response = consumer.client.receive(ApiKey.FETCH, 18)
    assert {each.error_code for topic in response.responses for each in topic.partitions} == {100}


def test_a_topic_that_the_program_deletes_is_reported_when_a_fetch_times_out(
    broker: Broker, consumer: Consumer
) -> None:
    broker.logs.delete_topic("t")
    consumer.send(max_wait_ms=20)
    response = consumer.client.receive(ApiKey.FETCH, 18)
    assert {each.error_code for topic in response.responses for each in topic.partitions} == {100}


def test_a_fetch_waits_for_min_bytes_of_all_its_partitions(broker: Broker) -> None:
    consumer = Consumer(broker, min_bytes=200)
    consumer.send(max_wait_ms=60_000)
    for partition in (1, 2, 3):
        produce(broker, partition, bytes(10))  # a batch of 80 bytes
    assert sorted(consumer.receive()) == [1, 2, 3]
    consumer.client.socket.close()


def test_a_session_gets_every_record_once(broker: Broker) -> None:
    """Two threads append in random order, with and without Broker.check(), while a consumer polls with and without
    waiting."""
    consumer = Consumer(broker, max_bytes=300)
    chance = random.Random(7)
    sent: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}

    def append(first: int) -> None:
        own = random.Random(first)
        for number in range(150):
            partition = own.randrange(first, PARTITIONS, 2)
            value = b"%d" % number
            broker.logs.log("t", partition).append([(None, value, T)])
            sent[partition].append(value)
            if own.random() < 0.8:
                broker.check("t", partition)

    threads = [threading.Thread(target=append, args=(first,)) for first in (0, 1)]
    for thread in threads:
        thread.start()
    clock = SystemClock()
    deadline = clock.monotonic() + PATIENCE
    while clock.monotonic() < deadline and (any(thread.is_alive() for thread in threads) or consumer.values != sent):
        consumer.poll(max_wait_ms=chance.choice((0, 5)))
    assert consumer.values == sent
    consumer.client.socket.close()


def test_a_closed_session_leaves_nothing_in_the_purgatory() -> None:
    clock = ManualClock()
    purgatory = Purgatory(Scheduler(clock))
    sessions = FetchSessions(1, clock, purgatory)
    asked = [FetchedPartition("t", NO_ID, messages.Fetch.Request.Partition(partition=n)) for n in range(3)]
    session = sessions.create(False, asked)
    assert session is not None
    session.take(lambda topic: True, everything=False)
    assert set(purgatory.watched) == {("t", 0), ("t", 1), ("t", 2)}
    session.change([], [("t", 1)])
    assert set(purgatory.watched) == {("t", 0), ("t", 2)}
    sessions.close(session.number)
    assert not purgatory.watched
    asked[0].changed()
    assert not session.take(lambda topic: True, everything=True)
