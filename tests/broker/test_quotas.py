"""Quotas of clients through connections: what a request counts."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from klog.broker import Broker
from klog.clock import ManualClock
from klog.protocol import ApiKey, ErrorCode, messages
from klog.record import encode
from tests.broker.test_share_groups import CONFIG, acquired, earliest, join
from tests.support.patience import until
from tests.support.wire_client import WireClient

Topic = messages.CreateTopics.Request.Topic
TOKENS = 11  # of a second each
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
ASSIGNED = [messages.CreateTopics.Request.Assignment(partition_index=number, broker_ids=[1]) for number in range(30)]


@pytest.mark.parametrize(
    ("topic", "partitions"),
    [
        (Topic(name="t", num_partitions=20, replication_factor=1), 20),
        (Topic(name="t", num_partitions=-1, replication_factor=1), 50),
        (Topic(name="t", num_partitions=-1, replication_factor=-1, assignments=ASSIGNED), 30),
    ],
)
def test_each_partition_of_a_new_topic_counts(tmp_path: Path, topic: Any, partitions: int) -> None:
    Alter = messages.AlterClientQuotas.Request
    quota = Alter.Entry(
        entity=[Alter.Entity(entity_type="user", entity_name=None)],
        ops=[Alter.Op(key="controller_mutation_rate", value=1.0)],
    )
    config = {"num.partitions": 50, "node.id": 1}
    with (
        Broker(tmp_path / "data", listeners=["127.0.0.1:0"], config=config, clock=ManualClock()) as broker,
        WireClient(broker.bootstrap_servers) as client,
    ):
        assert client.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[quota]).entries[0].error_code == 0
        created = client.call(ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=1000)
    assert created.topics[0].error_code == 0
    assert created.throttle_time_ms == (partitions - TOKENS) * 1000


def test_only_topics_that_are_changed_count_and_only_those_beyond_the_quota_are_refused(tmp_path: Path) -> None:
    """As in Kafka: a client that asks for topics which exist already gets TOPIC_ALREADY_EXISTS however often it asks."""
    Alter = messages.AlterClientQuotas.Request
    quota = Alter.Entry(
        entity=[Alter.Entity(entity_type="user", entity_name=None)],
        ops=[Alter.Op(key="controller_mutation_rate", value=0.005)],
    )
    with Broker(tmp_path / "data", listeners=["127.0.0.1:0"]) as broker:

        def call(api: ApiKey, version: int, **fields: Any) -> Any:
            with WireClient(broker.bootstrap_servers) as client:  # one that waits is not read again
                return client.call(api, version, **fields)

        def create(*names: str) -> Any:
            asked = [Topic(name=name, num_partitions=4, replication_factor=1) for name in names]
            return call(ApiKey.CREATE_TOPICS, 7, topics=asked, timeout_ms=1000)

        def codes(found: Any) -> list[int]:
            return [each.error_code for each in found]

        broker.topics.create("there", 9)
        broker.topics.create("other", 1)
        assert codes(call(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[quota]).entries) == [0]
        for _ in range(20):
            assert codes(create("there", "../t").topics) == [
                ErrorCode.TOPIC_ALREADY_EXISTS,
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            ]
        found = create("a", "there", "b")
        refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert codes(found.topics) == [0, ErrorCode.TOPIC_ALREADY_EXISTS, refused]
        assert 0 < found.throttle_time_ms <= 4 / 0.005 * 1000
        Extend, Delete = messages.CreatePartitions.Request.Topic, messages.DeleteTopics.Request.Topic
        extend = [Extend(name=name, count=2, assignments=None) for name in ("there", "other")]
        assert codes(call(ApiKey.CREATE_PARTITIONS, 3, topics=extend).results) == [
            ErrorCode.INVALID_PARTITIONS,
            refused,
        ]
        delete = [Delete(name="nothing"), Delete(name="other")]
        assert codes(call(ApiKey.DELETE_TOPICS, 6, topics=delete).responses) == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            refused,
        ]
        assert sorted(broker.logs.topics()) == ["a", "other", "there"]


def test_a_topic_that_metadata_creates_counts(tmp_path: Path) -> None:
    """As in Kafka, which asks for it with a version of CreateTopics that is refused beyond the quota."""
    Alter, Topic = messages.AlterClientQuotas.Request, messages.Metadata.Request.Topic
    quota = Alter.Entry(
        entity=[Alter.Entity(entity_type="client-id", entity_name="limited")],
        ops=[Alter.Op(key="controller_mutation_rate", value=0.001)],
    )
    config = {"auto.create.topics.enable": True}
    with (
        Broker(tmp_path / "data", listeners=["127.0.0.1:0"], config=config) as broker,
        WireClient(broker.bootstrap_servers) as free,
        WireClient(broker.bootstrap_servers, "limited") as client,
    ):
        assert client.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[quota]).entries[0].error_code == 0

        def created(client: WireClient, *names: str) -> list[int]:
            found = client.call(ApiKey.METADATA, 12, topics=[Topic(name=name) for name in names]).topics
            return [each.error_code for each in found]

        assert created(client, "../t", "a", "b") == [ErrorCode.INVALID_TOPIC_EXCEPTION, 0, UNKNOWN]
        assert created(free, "c") == [0]
        assert created(client, "a", "b") == [0, UNKNOWN]
        assert sorted(broker.logs.topics()) == ["a", "c"]


def test_requests_without_a_response_have_no_quota_of_time(tmp_path: Path) -> None:
    Alter, Produce = messages.AlterClientQuotas.Request, messages.Produce.Request
    quota = Alter.Entry(
        entity=[Alter.Entity(entity_type="client-id", entity_name="slow")],
        ops=[Alter.Op(key="request_percentage", value=1e-6)],
    )
    topic = Produce.Topic(name="t", partition_data=[Produce.Partition(index=0, records=encode([(None, b"v")]))])
    with (
        Broker(tmp_path / "data", listeners=["127.0.0.1:0"]) as broker,
        WireClient(broker.bootstrap_servers) as admin,
        WireClient(broker.bootstrap_servers, "slow") as client,
    ):
        broker.topics.create("t", 1)
        assert admin.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[quota]).entries[0].error_code == 0
        for _ in range(5):
            client.send(ApiKey.PRODUCE, 9, Produce(acks=0, timeout_ms=1000, topic_data=[topic]))
        until(lambda: broker.logs.log("t").log_end_offset == 5)
        assert broker.metrics()["RequestsThrottled"] == 0


def test_a_quota_of_an_address_limits_its_new_connections(tmp_path: Path) -> None:
    Alter = messages.AlterClientQuotas.Request
    quota = Alter.Entry(
        entity=[Alter.Entity(entity_type="ip", entity_name=None)],
        ops=[Alter.Op(key="connection_creation_rate", value=1.0)],
    )
    config = {"quota.window.num": 2, "quota.window.size.seconds": 20}
    with ExitStack() as stack, Broker(tmp_path / "data", listeners=["127.0.0.1:0"], config=config) as broker:
        client = stack.enter_context(WireClient(broker.bootstrap_servers))
        assert client.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[quota]).entries[0].error_code == 0
        for _ in range(300):
            stack.enter_context(WireClient(broker.bootstrap_servers))
        until(lambda: broker.metrics()["ConnectionsAccepted"] + broker.metrics()["ConnectionsRejected"] == 301)
        assert 10 < broker.metrics()["ConnectionsAccepted"] < 300
        assert client.call(ApiKey.METADATA, 12, topics=[]).brokers


def test_records_of_a_share_group_count_and_a_response_has_no_more_than_the_quota_lets_pass(tmp_path: Path) -> None:
    """A client that must wait has got its records. Once they did not count, it got twice its quota."""
    Alter = messages.AlterClientQuotas.Request
    quota = Alter.Entry(
        entity=[Alter.Entity(entity_type="client-id", entity_name="test")],
        ops=[Alter.Op(key="consumer_byte_rate", value=1.0)],
    )
    config = CONFIG | {"quota.window.num": 11, "quota.window.size.seconds": 200}
    with Broker(tmp_path / "data", listeners=["127.0.0.1:0"], config=config) as broker:
        broker.topics.create("t", 1)
        earliest(broker)
        for _ in range(9):
            broker.logs.log("t").append([(None, bytes(900))])
        members = [join(broker) for _ in range(3)]
        with WireClient(broker.bootstrap_servers, "admin") as client:
            assert client.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[quota]).entries[0].error_code == 0
        found = [member.fetch() for member in members]
        assert [acquired(each) for each in found] == [[(0, 1, 1)], [(2, 3, 1)], [(4, 5, 1)]]
        assert [each.throttle_time_ms > 0 for each in found] == [False, True, True]
        assert found[2].throttle_time_ms > found[1].throttle_time_ms
