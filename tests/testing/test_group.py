"""TestBroker.group, wait_group, wait_group_lag: what a test can ask about consumer groups."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from klog.protocol import ApiKey, encode_data, messages
from klog.testing import TestBroker
from tests.support.patience import PATIENCE
from tests.support.wire_client import WireClient

JOIN, SYNC = 5, 3
ASSIGNMENT = messages.ConsumerProtocolAssignment


def join(client: WireClient, group: str, topic: str, assignment: bytes | None = None) -> Any:
    """Join as the only member, with partition 0 of the topic."""
    Protocol = messages.JoinGroup.Request.Protocol
    metadata = encode_data(messages.ConsumerProtocolSubscription(topics=[topic]), 0)
    fields: dict[str, Any] = {
        "group_id": group,
        "session_timeout_ms": 300_000,
        "rebalance_timeout_ms": 300_000,
        "protocol_type": "consumer",
        "protocols": [Protocol(name="range", metadata=metadata)],
    }
    first = client.call(ApiKey.JOIN_GROUP, JOIN, member_id="", **fields)
    joined = client.call(ApiKey.JOIN_GROUP, JOIN, member_id=first.member_id, **fields)
    assigned = ASSIGNMENT(assigned_partitions=[ASSIGNMENT.TopicPartition(topic=topic, partitions=[0])])
    Assignment = messages.SyncGroup.Request.Assignment
    client.call(
        ApiKey.SYNC_GROUP,
        SYNC,
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[Assignment(member_id=joined.member_id, assignment=assignment or encode_data(assigned, 0))],
    )
    return joined


def commit(client: WireClient, group: str, topic: str, offset: int, joined: Any) -> None:
    Request = messages.OffsetCommit.Request
    found = client.call(
        ApiKey.OFFSET_COMMIT,
        7,
        group_id=group,
        generation_id_or_member_epoch=joined.generation_id,
        member_id=joined.member_id,
        topics=[Request.Topic(name=topic, partitions=[Request.Partition(partition_index=0, committed_offset=offset)])],
    )
    assert found.topics[0].partitions[0].error_code == 0


CONFIG = {"group.initial.rebalance.delay.ms": 0}


def test_waiting_for_members_and_for_offsets() -> None:
    with TestBroker(topics=["orders"], config=CONFIG) as b, WireClient(b.bootstrap_servers) as client:
        b.topic("orders").append([(b"k", b"%d" % number) for number in range(3)])
        joined: list[Any] = []
        thread = threading.Thread(target=lambda: joined.append(join(client, "billing", "orders")))
        thread.start()
        group = b.wait_group("billing", members=1, timeout=PATIENCE)
        thread.join()
        assert group.state == "Stable"
        (member,) = group.members
        assert (member.member_id, member.client_id) == (joined[0].member_id, "test")
        assert member.partitions == {"orders": [0]}
        assert (group.offsets, group.lag("orders")) == ({}, 3)
        commit(client, "billing", "orders", 2, joined[0])
        assert (group.offsets, group.lag("orders"), group.lag("orders", 0)) == ({("orders", 0): 2}, 1, 1)
        b.wait_group_lag("billing", "orders", lag=1)
        with pytest.raises(TimeoutError, match="lag of 0 in orders expected; it is 1"):
            b.wait_group_lag("billing", "orders", timeout=0.01)
        commit(client, "billing", "orders", 3, joined[0])
        assert b.wait_group_lag("billing", "orders").lag("orders") == 0
        client.call(
            ApiKey.LEAVE_GROUP,
            3,
            group_id="billing",
            members=[messages.LeaveGroup.Request.Member(member_id=joined[0].member_id)],
        )
        assert b.wait_group("billing", "Empty", members=0, timeout=PATIENCE).members == ()


def test_waiting_for_a_group_that_does_not_exist_times_out() -> None:
    with TestBroker(topics=["orders"]) as b:
        with pytest.raises(TimeoutError, match="Stable with 2 members expected; it is billing: Dead, 0 members"):
            b.wait_group("billing", members=2, timeout=0.01)
        b.wait_group("billing", "Dead")
        with pytest.raises(TimeoutError, match="lag of 0 in nothing"):
            b.wait_group_lag("billing", "nothing", timeout=0.01)
        with pytest.raises(ValueError, match="state"):
            b.wait_group("billing", "stable")
        assert (b.group("billing").offsets, b.group("billing").lag("orders")) == ({}, 0)


def test_a_member_of_the_new_protocol() -> None:
    with TestBroker(topics={"orders": 2}) as b, WireClient(b.bootstrap_servers) as client:
        beat = client.call(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            0,
            group_id="new",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["orders"],
            topic_partitions=[],
        )
        assert beat.error_code == 0
        (member,) = b.wait_group("new", members=1, timeout=PATIENCE).members
        assert member.partitions == {"orders": [0, 1]}


def test_an_assignment_that_cannot_be_decoded_is_none() -> None:
    with TestBroker(topics=["orders"], config=CONFIG) as b, WireClient(b.bootstrap_servers) as client:
        join(client, "billing", "orders", assignment=b"\0\0\xff")
        (member,) = b.wait_group("billing", members=1, timeout=PATIENCE).members
        assert member.partitions == {}
