"""Faults of members of share groups: by topic, also in a share session, whose requests do not name their partitions."""

from __future__ import annotations

from klog.protocol import ErrorCode
from klog.testing import TestBroker
from tests.broker.test_share_groups import append, earliest, join

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_error_by_topic_meets_the_fetches_of_a_session() -> None:
    with TestBroker(topics={"t": 2, "u": 1}) as b:
        earliest(b.broker)
        append(b.broker)
        member = join(b.broker)
        member.fetch(max_records=0)
        never = b.inject("share_fetch", topic="u", error=NOT_LEADER, count=None)
        other = b.inject("share_fetch", topic="t", partition=1, error=NOT_LEADER, count=None)
        fault = b.inject("share_fetch", topic="t", error=NOT_LEADER)
        assert member.fetch(max_wait_ms=60_000).error_code == NOT_LEADER
        assert fault.requests[0].partitions == (("t", None), ("t", 0))
        assert member.acquire() == [(0, 0, 1)]
        assert (fault.hits, other.hits, never.hits) == (1, 0, 0)
        member.close()
