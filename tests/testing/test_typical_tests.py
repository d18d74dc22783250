"""Tests as users write them, with real clients: retries, rebalances, transactions, a crash, a bad record."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from klog.testing import TestBroker
from tests.support.patience import AIOKAFKA, KAFKA_PYTHON, KAFKA_PYTHON_PRODUCER, PATIENCE

confluent: Any = pytest.importorskip("confluent_kafka", reason="needs: confluent-kafka")
kafka: Any = pytest.importorskip("kafka", reason="needs: kafka-python")
aiokafka: Any = pytest.importorskip("aiokafka", reason="needs: aiokafka")


def send_confluent(b: TestBroker, values: list[bytes]) -> None:
    producer = confluent.Producer(b.client_config() | {"enable.idempotence": True})
    errors: list[Any] = []
    for value in values:
        producer.produce("orders", value, on_delivery=lambda error, _: errors.append(error))
        producer.flush(PATIENCE)
    assert errors == [None] * len(values)


def send_kafka_python(b: TestBroker, values: list[bytes]) -> None:
    producer = kafka.KafkaProducer(**b.client_config("kafka-python"), **KAFKA_PYTHON_PRODUCER)
    for value in values:
        producer.send("orders", value).get(PATIENCE)
    producer.close()


def send_aiokafka(b: TestBroker, values: list[bytes]) -> None:
    async def send() -> None:
        config = b.client_config("aiokafka") | AIOKAFKA | {"enable_idempotence": True}
        async with aiokafka.AIOKafkaProducer(**config) as producer:
            for value in values:
                await producer.send_and_wait("orders", value)

    asyncio.run(send())


def abort_confluent(b: TestBroker) -> None:
    producer = confluent.Producer(b.client_config() | {"transactional.id": "t"})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce("orders", b"aborted")
    producer.flush(PATIENCE)
    producer.abort_transaction(PATIENCE)
    producer.begin_transaction()
    producer.produce("orders", b"kept")
    producer.commit_transaction(PATIENCE)


def abort_kafka_python(b: TestBroker) -> None:
    config = b.client_config("kafka-python") | KAFKA_PYTHON_PRODUCER | {"transactional_id": "t"}
    producer = kafka.KafkaProducer(**config)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"aborted").get(PATIENCE)
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("orders", b"kept")
    producer.commit_transaction()
    producer.close()


def abort_aiokafka(b: TestBroker) -> None:
    async def send() -> None:
        config = b.client_config("aiokafka") | AIOKAFKA | {"transactional_id": "t"}
        async with aiokafka.AIOKafkaProducer(**config) as producer:
            with contextlib.suppress(KeyError):
                async with producer.transaction():
                    await producer.send_and_wait("orders", b"aborted")
                    raise KeyError
            async with producer.transaction():
                await producer.send_and_wait("orders", b"kept")

    asyncio.run(send())


SENDERS = [send_confluent, send_kafka_python, send_aiokafka]
Send = Callable[[TestBroker, list[bytes]], None]


@pytest.mark.parametrize("send", SENDERS)
@pytest.mark.parametrize(
    "fault", [{"error": "NOT_LEADER_OR_FOLLOWER"}, {"error": "REQUEST_TIMED_OUT"}, {"disconnect": "after"}], ids=str
)
def test_a_producer_retries(send: Send, fault: dict[str, Any]) -> None:
    with TestBroker(topics=["orders"]) as b:
        found = b.inject("produce", count=2, **fault)
        send(b, [b"v"])
        assert (found.hits, b.topic("orders").values()) == (2, [b"v"])


@pytest.mark.parametrize("send", SENDERS)
def test_a_broker_is_killed_and_starts_again(send: Send) -> None:
    with TestBroker(topics=["orders"]) as b:
        found = b.inject("produce", kill="after", restart_ms=1)
        send(b, [b"0", b"1", b"2"])
        assert (found.hits, b.topic("orders").values()) == (1, [b"0", b"1", b"2"])


@pytest.mark.parametrize("abort", [abort_confluent, abort_kafka_python, abort_aiokafka])
def test_a_transaction_is_aborted(abort: Callable[[TestBroker], None]) -> None:
    with TestBroker(topics=["orders"]) as b:
        abort(b)
        topic = b.topic("orders")
        assert topic.values() == [b"kept"]
        assert [record.value for record in topic.records(isolation="read_uncommitted")] == [b"aborted", b"kept"]


def consume_confluent(b: TestBroker, is_over: threading.Event) -> None:
    config = {"group.id": "billing", "auto.offset.reset": "earliest", "heartbeat.interval.ms": 50}
    consumer = confluent.Consumer(b.client_config() | config)
    consumer.subscribe(["orders"])
    while not is_over.is_set():
        consumer.poll(0.02)
    consumer.close()


def consume_kafka_python(b: TestBroker, is_over: threading.Event) -> None:
    config = b.client_config("kafka-python") | KAFKA_PYTHON | {"group_id": "billing", "heartbeat_interval_ms": 50}
    consumer = kafka.KafkaConsumer("orders", **config)
    while not is_over.is_set():
        consumer.poll(20)
    consumer.close()


def consume_aiokafka(b: TestBroker, is_over: threading.Event) -> None:
    async def consume() -> None:
        config = b.client_config("aiokafka") | AIOKAFKA | {"group_id": "billing", "heartbeat_interval_ms": 50}
        async with aiokafka.AIOKafkaConsumer("orders", **config) as consumer:
            while not is_over.is_set():
                await consumer.getmany(timeout_ms=20)

    asyncio.run(consume())


def shared_partitions(b: TestBroker, members: int) -> list[int]:
    """The partitions that so many members have. kafka-python may lead a group before it knows its topic: then it assigns
    none, and joins again."""
    until = time.monotonic() + PATIENCE
    while True:
        found = b.wait_group("billing", members=members, timeout=PATIENCE)
        shared = sorted(part for member in found.members for part in member.partitions.get("orders", []))
        if shared or time.monotonic() > until:
            return shared
        time.sleep(0.01)


@pytest.mark.parametrize("consume", [consume_confluent, consume_kafka_python, consume_aiokafka])
def test_a_group_shares_its_partitions(consume: Callable[[TestBroker, threading.Event], None]) -> None:
    with TestBroker(topics={"orders": 4}) as b:
        ends = [threading.Event(), threading.Event()]
        threads = [threading.Thread(target=consume, args=(b, is_over)) for is_over in ends]
        try:
            for number, thread in enumerate(threads, 1):
                thread.start()
                assert shared_partitions(b, members=number) == [0, 1, 2, 3]
            ends[0].set()
            assert shared_partitions(b, members=1) == [0, 1, 2, 3]
        finally:
            for is_over in ends:
                is_over.set()
            for thread in threads:
                thread.join()


def test_a_bad_record_goes_to_the_dead_letter_topic_and_the_group_continues() -> None:
    with TestBroker(topics=["orders", "dead"]) as b:
        b.topic("orders").append([(b"1", b"1"), (b"2", b"x"), (b"3", b"3")])
        config = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = confluent.Consumer(b.client_config() | config)
        producer = confluent.Producer(b.client_config())
        consumer.subscribe(["orders"])
        seen = 0
        while seen < 3:
            message = consumer.poll(0.1)
            if message is None:
                continue
            seen += 1
            try:
                int(message.value())
            except ValueError:
                producer.produce("dead", message.value(), key=message.key())
                producer.flush(PATIENCE)
            consumer.commit(message, asynchronous=False)
        consumer.close()
        assert b.topic("dead").values() == [b"x"]
        assert b.wait_group_lag("billing", "orders", timeout=PATIENCE).offsets == {("orders", 0): 3}
