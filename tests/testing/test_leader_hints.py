"""Leader hints: a broker that does not lead a partition names the one that does, and clients follow."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from klog.protocol import ApiKey, ErrorCode, messages
from klog.record import encode
from klog.testing import TestBroker
from tests.support.patience import PATIENCE
from tests.support.wire_client import WireClient
from tests.testing.test_several_brokers import clients

NOT_LEADER, FENCED = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH
NONE = (-1, -1)
Hint = tuple[int, tuple[int, int], list[tuple[int, str, int]]]


def hint(response: Any) -> Hint:
    """Return the error of the only partition, its leader's id and epoch, and the addresses."""
    (topic,) = response.responses
    (found,) = topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions
    leader = found.current_leader.leader_id, found.current_leader.leader_epoch
    return found.error_code, leader, [(each.node_id, each.host, each.port) for each in response.node_endpoints]


def address(b: TestBroker, node_id: int) -> list[tuple[int, str, int]]:
    host, _, port = b.bootstrap_servers.split(",")[node_id - 1].rpartition(":")
    return [(node_id, host, int(port))]


def produced(b: TestBroker, client: WireClient, version: int) -> Hint:
    Request = messages.Produce.Request
    batch = Request.Partition(index=0, records=encode([(b"k", b"v", 1_700_000_000_000)]))
    asked = Request.Topic(name="orders", topic_id=b.broker.topics.topic_id("orders"), partition_data=[batch])
    return hint(client.call(ApiKey.PRODUCE, version, acks=1, timeout_ms=1000, topic_data=[asked]))


def fetched(b: TestBroker, client: WireClient, version: int, leader_epoch: int = -1) -> Hint:
    Request = messages.Fetch.Request
    partition = Request.Partition(partition=0, partition_max_bytes=1000, current_leader_epoch=leader_epoch)
    asked = Request.Topic(topic="orders", topic_id=b.broker.topics.topic_id("orders"), partitions=[partition])
    return hint(client.call(ApiKey.FETCH, version, max_wait_ms=0, min_bytes=0, topics=[asked]))


@pytest.mark.parametrize(
    ("version", "has_hints"), [(9, False), (10, True), (ApiKey.PRODUCE.high, True)], ids=lambda each: str(each)
)
def test_a_response_to_produce_names_the_leader(version: int, has_hints: bool) -> None:
    with TestBroker(brokers=3, topics=["orders"]) as b, ExitStack() as stack:
        first, _, third = clients(b, stack)
        assert produced(b, first, version) == (0, NONE, [])
        assert produced(b, third, version) == (NOT_LEADER, *(((1, 0), address(b, 1)) if has_hints else (NONE, [])))
        b.move_leader("orders", 0, 2)
        assert produced(b, first, version) == (NOT_LEADER, *(((2, 1), address(b, 2)) if has_hints else (NONE, [])))


@pytest.mark.parametrize(
    ("version", "has_hints"), [(15, False), (16, True), (ApiKey.FETCH.high, True)], ids=lambda each: str(each)
)
def test_a_response_to_fetch_names_the_leader(version: int, has_hints: bool) -> None:
    with TestBroker(brokers=2, topics=["orders"]) as b, ExitStack() as stack:
        first, second = clients(b, stack)
        assert fetched(b, first, version) == (0, NONE, [])
        assert fetched(b, second, version) == (NOT_LEADER, *(((1, 0), address(b, 1)) if has_hints else (NONE, [])))


def test_a_fetch_with_an_old_leader_epoch_gets_the_new_one() -> None:
    with TestBroker(brokers=2, topics=["orders"]) as b, ExitStack() as stack:
        first, second = clients(b, stack)
        b.logs.log("orders", 0).append_batches(encode([(b"k", b"v", 1_700_000_000_000)]), leader_epoch=5)
        assert fetched(b, first, 16, leader_epoch=4) == (FENCED, (1, 5), address(b, 1))
        assert fetched(b, second, 16, leader_epoch=5) == (NOT_LEADER, (1, 5), address(b, 1))


def test_responses_to_members_of_share_groups_name_the_leader() -> None:
    with TestBroker(brokers=2, topics=["orders"]) as b, WireClient(b.bootstrap_servers.split(",")[1]) as client:
        who = {"group_id": "g", "member_id": "m"}
        topic_id = b.broker.topics.topic_id("orders")
        Fetch, Acknowledge = messages.ShareFetch.Request, messages.ShareAcknowledge.Request
        asked = [Fetch.Topic(topic_id=topic_id, partitions=[Fetch.Partition(partition_index=0)])]
        sizes = {"min_bytes": 1, "max_bytes": 1000, "max_records": 1, "batch_size": 1}
        found = client.call(ApiKey.SHARE_FETCH, 1, share_session_epoch=0, topics=asked, **who, **sizes)
        assert hint(found) == (NOT_LEADER, (1, 0), address(b, 1))
        accepted = Acknowledge.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
        partition = Acknowledge.Partition(partition_index=0, acknowledgement_batches=[accepted])
        topics = [Acknowledge.Topic(topic_id=topic_id, partitions=[partition])]
        found = client.call(ApiKey.SHARE_ACKNOWLEDGE, 1, share_session_epoch=1, topics=topics, **who)
        assert hint(found) == (NOT_LEADER, (1, 0), address(b, 1))


def test_an_error_that_a_test_injects_at_the_leader_has_no_hint() -> None:
    with TestBroker(brokers=2, topics=["orders"]) as b, ExitStack() as stack:
        first, _ = clients(b, stack)
        for api, ask in (("produce", produced), ("fetch", fetched)):
            b.inject(api, topic="orders", error=NOT_LEADER)
            assert ask(b, first, 17 if api == "fetch" else 10) == (NOT_LEADER, NONE, [])


def test_a_producer_follows_a_hint_while_there_is_no_metadata() -> None:
    confluent: Any = pytest.importorskip("confluent_kafka", reason="needs: confluent-kafka")
    with TestBroker(brokers=2, topics=["orders"]) as b:
        producer = confluent.Producer(b.client_config())
        producer.produce("orders", b"before")
        assert producer.flush(PATIENCE) == 0
        b.inject("metadata", topic="orders", error="LEADER_NOT_AVAILABLE", count=None)
        b.move_leader("orders", 0, 2)
        producer.produce("orders", b"after")
        assert producer.flush(PATIENCE) == 0
        assert b.topic("orders").values() == [b"before", b"after"]
        producer.purge()
