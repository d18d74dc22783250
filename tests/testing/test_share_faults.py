"""Faults of members of share groups: by topic, also in a share session, whose requests do not name their partitions."""

from __future__ import annotations

from typing import Any

import pytest

from klog.protocol import ApiKey, ErrorCode
from klog.testing import TestBroker
from tests.broker.test_share_groups import ACCEPT, Member, acquired, append, code_of, earliest, join

NONE, NOT_LEADER = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER


def codes(response: Any) -> dict[int, tuple[int, int]]:
    """Return {partition: (error of the fetch, error of the acknowledgement)}."""
    assert response.error_code == 0, response
    return {
        part.partition_index: (part.error_code, part.acknowledge_error_code)
        for topic in response.responses
        for part in topic.partitions
    }


def fetch_again(member: Member) -> None:
    """Fetch in the session of a member, without naming a partition."""
    asked = {"group_id": member.group, "member_id": member.id, "share_session_epoch": member.session}
    assert codes(member.client.call(ApiKey.SHARE_FETCH, 2, max_bytes=1000, **asked)) == {}


def test_an_error_by_topic_meets_the_fetches_of_a_session() -> None:
    with TestBroker(topics={"t": 2, "u": 1}) as b:
        earliest(b.broker)
        append(b.broker)
        member = join(b.broker)
        member.fetch(max_records=0)
        never = b.inject("share_fetch", topic="u", error=NOT_LEADER, count=None)
        other = b.inject("share_fetch", topic="t", partition=1, error=NOT_LEADER, count=None)
        fault = b.inject("share_fetch", topic="t", error=NOT_LEADER)
        assert codes(member.fetch(max_wait_ms=60_000)) == {0: (NOT_LEADER, 0)}
        assert fault.requests[0].partitions == (("t", None), ("t", 0))
        assert member.acquire() == [(0, 0, 1)]
        assert (fault.hits, other.hits, never.hits) == (1, 0, 0)
        member.close()


def test_an_error_of_one_partition_does_not_affect_the_others() -> None:
    with TestBroker(topics={"t": 2}) as b:
        earliest(b.broker)
        for partition in (0, 1):
            append(b.broker, partition=partition)
        member = join(b.broker, partitions=2)
        b.inject("share_fetch", topic="t", partition=1, error=NOT_LEADER)
        found = member.fetch()
        assert (codes(found)[1], acquired(found)) == ((NOT_LEADER, 0), [(0, 0, 1)])
        b.inject("share_fetch", topic="t", partition=0, error=NOT_LEADER)
        assert codes(member.fetch((0, 0, [ACCEPT]))) == {0: (NOT_LEADER, NOT_LEADER), 1: (0, 0)}
        b.inject("share_acknowledge", topic="t", partition=0, error=NOT_LEADER)
        assert [code_of(member.acknowledge(0, 0, ACCEPT)) for _ in range(2)] == [NOT_LEADER, NONE]
        member.close()


@pytest.mark.parametrize("name", ["SHARE_SESSION_NOT_FOUND", "GROUP_AUTHORIZATION_FAILED"])
def test_an_error_of_the_session_is_at_the_top(name: str) -> None:
    with TestBroker(topics=["t"]) as b:
        earliest(b.broker)
        member = join(b.broker)
        append(b.broker)
        assert member.acquire() == [(0, 0, 1)]
        for api in ("share_fetch", "share_acknowledge"):
            b.inject(api, topic="t", error=name)
        for found in (member.fetch(), member.acknowledge(0, 0, ACCEPT)):
            assert (found.error_code, found.responses) == (ErrorCode[name], [])
        assert code_of(member.acknowledge(0, 0, ACCEPT)) is NONE
        member.close()


def test_a_session_at_one_broker_does_not_name_the_partitions_of_a_session_at_another() -> None:
    with TestBroker(brokers=2, topics={"t": 2}) as b:
        first, second = (Member(b.broker, address=each) for each in b.bootstrap_servers.split(","))
        second.id, second.partitions = first.id, [1]
        for member in (first, second):
            assert codes(member.fetch(max_records=0)) == {}
        watches = [b.watch("share_fetch", topic="t", partition=partition) for partition in (0, 1)]
        fetch_again(second)
        assert [each.hits for each in watches] == [0, 1]
        fetch_again(first)
        assert [each.hits for each in watches] == [1, 1]
        assert [each.requests[0].partitions for each in watches] == [(("t", None), ("t", number)) for number in (0, 1)]
        for member in (first, second):
            member.close()
