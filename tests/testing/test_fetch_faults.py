"""Faults of Fetch with the consumers of real clients: selected by topic, in a fetch session, and as errors that the
clients report."""

from __future__ import annotations

from typing import Any

import pytest

from klog.clock import SystemClock
from klog.protocol import ApiKey, ErrorCode, messages
from klog.testing import TestBroker
from klog.testing.waiting import wait_for
from tests.support.patience import KAFKA_PYTHON, PATIENCE, PATIENCE_MS
from tests.support.wire_client import WireClient

kafka: Any = pytest.importorskip("kafka", reason="needs: kafka-python")
confluent: Any = pytest.importorskip("confluent_kafka", reason="needs: confluent-kafka")
Fetch = messages.Fetch.Request


def polled(b: TestBroker, *topics: str) -> Any:
    """Return a consumer of kafka-python that has a fetch session."""
    consumer = kafka.KafkaConsumer(
        *topics, bootstrap_servers=b.bootstrap_servers, auto_offset_reset="earliest", **KAFKA_PYTHON
    )
    incremental = b.watch("fetch", when=lambda request: request.message.session_epoch > 0)
    wait_for(lambda: consumer.poll(20) is not None and incremental.hits > 0, PATIENCE, lambda: "no fetch of a session")
    return consumer


def raised(consumer: Any) -> type[Exception]:
    """Poll until an exception is raised. Return its class."""
    clock = SystemClock()
    deadline = clock.monotonic() + PATIENCE
    while clock.monotonic() < deadline:
        try:
            consumer.poll(20)
        except Exception as error:
            return type(error)
    raise TimeoutError("nothing was raised")


def test_a_delay_by_topic_applies_to_the_fetches_of_a_session() -> None:
    with TestBroker(topics=["orders", "other"]) as b:
        consumer = polled(b, "orders")
        delayed = b.inject("fetch", topic="orders", delay_ms=1, count=None)
        never = b.inject("fetch", topic="other", delay_ms=1, count=None)
        wait_for(lambda: consumer.poll(20) is not None and delayed.hits > 0, PATIENCE, lambda: repr(delayed))
        assert never.hits == 0
        consumer.unsubscribe()
        consumer.subscribe(["other"])
        wait_for(lambda: consumer.poll(20) is not None and never.hits > 0, PATIENCE, lambda: repr(never))
        consumer.close()


def test_kafka_python_raises_the_error_of_a_session_and_goes_on_after_it() -> None:
    with TestBroker(topics=["orders"]) as b:
        consumer = polled(b, "orders")
        fault = b.inject("fetch", error="TOPIC_AUTHORIZATION_FAILED", count=None)
        assert raised(consumer) is kafka.errors.TopicAuthorizationFailedError
        fault.stop()
        b.topic("orders").append([(b"k", b"v")])
        values: list[bytes] = []

        def is_there() -> bool:
            try:
                values.extend(record.value for records in consumer.poll(20).values() for record in records)
            except kafka.errors.TopicAuthorizationFailedError:  # of a response that arrived before the fault ended
                pass
            return values == [b"v"]

        wait_for(is_there, PATIENCE, lambda: f"{values}")
        consumer.close()


def test_confluent_kafka_reports_the_error() -> None:
    with TestBroker(topics=["orders"]) as b:
        consumer = confluent.Consumer(b.client_config() | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        b.inject("fetch", topic="orders", error="TOPIC_AUTHORIZATION_FAILED", count=None)
        codes: list[int] = []

        def is_there() -> bool:
            message = consumer.poll(0.02)
            codes.extend([] if message is None or message.error() is None else [message.error().code()])
            return codes[-1:] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]

        wait_for(is_there, PATIENCE, lambda: f"{codes}")
        consumer.close()


def test_an_error_of_one_topic_does_not_affect_the_others() -> None:
    with TestBroker(topics={"orders": 2, "other": 1}) as b, WireClient(b.bootstrap_servers) as client:
        for topic in ("orders", "other"):
            b.topic(topic).append([(b"k", b"v")] * 3)
        asked = [
            Fetch.Topic(
                topic=topic, partitions=[Fetch.Partition(partition=each, partition_max_bytes=1000) for each in numbers]
            )
            for topic, numbers in (("orders", (0, 1)), ("other", (0,)))
        ]

        def fetched(**fields: Any) -> Any:
            return client.call(ApiKey.FETCH, 12, max_wait_ms=0, min_bytes=0, **fields)

        def by_partition(response: Any) -> dict[tuple[str, int], int]:
            return {
                (topic.topic, each.partition_index): each.error_code
                for topic in response.responses
                for each in topic.partitions
            }

        b.inject("fetch", topic="orders", partition=1, error="NOT_LEADER_OR_FOLLOWER")
        first = fetched(session_epoch=0, topics=asked)
        assert by_partition(first) == {("orders", 0): 0, ("orders", 1): 6, ("other", 0): 0}
        assert (first.error_code, first.session_id > 0) == (0, True)
        b.inject("fetch", topic="orders", error="NOT_LEADER_OR_FOLLOWER")
        second = fetched(session_id=first.session_id, session_epoch=1)
        assert {key: code for key, code in by_partition(second).items() if code} == {
            ("orders", 0): 6,
            ("orders", 1): 6,
        }
        third = fetched(session_id=first.session_id, session_epoch=2)
        assert (third.error_code, set(by_partition(third).values())) == (0, {0})
        for topic in asked:
            for each in topic.partitions:
                each.fetch_offset = b.logs.log(topic.topic, each.partition).log_end_offset
        fetched(session_id=first.session_id, session_epoch=3, topics=asked)
        assert by_partition(fetched(session_id=first.session_id, session_epoch=4)) == {}  # nothing is new
        b.inject("fetch", topic="orders", partition=0, error="NOT_LEADER_OR_FOLLOWER")
        assert by_partition(fetched(session_id=first.session_id, session_epoch=5)) == {("orders", 0): 6}


@pytest.mark.parametrize("name", ["FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH"])
def test_an_error_of_the_session_is_at_the_top(name: str) -> None:
    with TestBroker(topics=["orders"]) as b, WireClient(b.bootstrap_servers) as client:
        b.inject("fetch", error=name)
        asked = [Fetch.Topic(topic="orders", partitions=[Fetch.Partition(partition=0)])]
        found = client.call(ApiKey.FETCH, 12, session_epoch=0, topics=asked)
        assert (found.error_code, found.responses) == (ErrorCode[name], [])
        b.topic("orders").append([(b"k", b"v")])
        b.inject("fetch", error=name)
        consumer = kafka.KafkaConsumer(
            "orders",
            bootstrap_servers=b.bootstrap_servers,
            auto_offset_reset="earliest",
            consumer_timeout_ms=PATIENCE_MS,
            **KAFKA_PYTHON,
        )
        assert next(iter(consumer)).value == b"v"
        consumer.close()
