"""The state of groups after a load of their log, also of a log that Kafka has written."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from klog.clock import ManualClock
from klog.coordinator.groups import GroupCoordinator
from klog.errors import CorruptData
from klog.internal_topics import encode_key, encode_value
from klog.protocol import ApiKey, ErrorCode
from klog.record import Record, encode
from tests.coordinator.harness import TOPIC, Groups, groups
from tests.coordinator.test_offsets import fetch
from tests.support.golden import copy_logdir

T0 = ("t", 0)


def test_a_stable_group_continues_after_a_restart(g: Groups) -> None:
    leader, follower = g.stable("g", 2, session=10_000)
    g.clock.advance(9_999)
    g.restart()
    assert g.state("g") == "Stable"
    g.clock.advance(9_999)  # the sessions have begun again
    for each in (leader, follower):
        assert g.heartbeat("g", each.member_id, leader.generation_id) is ErrorCode.NONE
    assert g.sync("g", follower).response.assignment == b"part of " + follower.member_id.encode()
    assert g.join("g", follower.member_id).response == follower
    again = g.join("g", leader.member_id)
    g.join("g", follower.member_id)
    assert again.response.generation_id == leader.generation_id + 1
    assert again.response.leader == leader.member_id


def test_members_that_do_not_return_after_a_restart_time_out(g: Groups) -> None:
    g.stable("g", 2, session=10_000)
    g.restart()
    g.clock.advance(9_999)
    assert g.state("g") == "Stable"
    g.clock.advance(1)
    assert g.state("g") == "Empty"


def test_after_a_restart_during_a_rebalance_the_group_has_its_last_generation(g: Groups) -> None:
    (one,) = g.stable("g")
    g.enter("g")
    g.join("g", one.member_id)
    assert g.state("g") == "CompletingRebalance"
    g.restart()
    assert g.state("g") == "Stable"
    assert g.heartbeat("g", one.member_id, 1) is ErrorCode.NONE


def test_an_empty_group_keeps_its_generation_and_the_time(g: Groups) -> None:
    (one,) = g.stable("g")
    g.commit("g", {T0: 5}, member=one.member_id, generation=1)
    g.clock.advance(1_000)
    g.leave("g", one.member_id)
    since = g.clock.wall_ms()
    g.clock.advance(1_000)
    g.restart()
    group = g.coordinator.table.get("g")
    assert group is not None
    assert group.state == "Empty"
    assert group.expires_since(0) == since
    joined = g.enter("g").response
    assert joined.generation_id == 3


def test_groups_are_spread_over_50_partitions(tmp_path: Path) -> None:
    with groups(tmp_path, partitions=50) as g:
        names = [f"group-{number}" for number in range(60)]
        for number, name in enumerate(names):
            g.commit(name, {T0: number})
        g.restart()
        assert [g.offsets(name) for name in names] == [{T0: number} for number in range(60)]
        used = {partition for partition in range(50) if (log := g.topics.log(TOPIC, partition)) and log.log_end_offset}
        assert len(used) > 20


def test_requests_before_the_load(tmp_path: Path) -> None:
    with groups(tmp_path) as g:
        coordinator = GroupCoordinator(g.topics, g.scheduler, g.clock)
        g._handlers = coordinator.handlers()
        assert g.join("g").code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert g.heartbeat("g", "m", 1) is ErrorCode.NONE
        assert g.commit("g", {T0: 1}) == {T0: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        assert g.txn_commit("g", {T0: 1}, version=2) == {T0: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        assert g.txn_commit("g", {T0: 1}, version=1) == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert g.call(ApiKey.LIST_GROUPS).code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert g.leave("g", "m").error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_groups_that_kafka_has_written_are_loaded(tmp_path: Path) -> None:
    """Golden case `internal`: classic groups, KIP-848 groups, a transaction, tombstones."""
    with groups(copy_logdir("internal", tmp_path), clock=ManualClock(1_795_000_000_000)) as g:
        assert g.offsets("group-classic0") == {("clicks", 0): 54, ("clicks", 2): 54}
        assert g.offsets("group-txn") == {("clicks", 0): 10}  # the other transaction was aborted
        assert g.state("group-classic0") == "Empty"
        assert g.state("group-classic1") == "Dead"
        (topic,) = fetch(g, 9, "group-classic0", {"clicks": [2]}).topics
        assert topic.partitions[0].metadata == "note 13"
        joined = g.enter("group-classic0").response
        assert joined.generation_id == 5  # it was 4 when Kafka stopped
        assert g.sync("group-classic0", joined).code is ErrorCode.NONE


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"v"),
        (b"\0", b"v"),
        (b"\0\1\0\5g", b"v"),
        (b"\0\1\0\1g\0\1t\0\0\0\0", b""),
        (b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\x09"),
        (b"\0\1\0\1\xff\0\1t\0\0\0\0", None),
        (b"\0\2\xff\xff", None),
        (b"\0\2\0\1", None),
        (b"\0\2\0\1g", b"\0\3\0"),
        (b"\0\2\0\1g", b"\0\x63"),
        (
            encode_key("consumer_group_current_member_assignment", group_id="g", member_id="m"),
            encode_value(
                "consumer_group_current_member_assignment",
                0,
                member_epoch=1,
                assigned_partitions=[{"topic_id": uuid.UUID(int=7), "partitions": [0, 1], "assignment_epochs": [1]}],
            ),
        ),
    ],
)
def test_damaged_records_raise_corrupt_data(g: Groups, key: bytes | None, value: bytes | None) -> None:
    g.commit("g", {T0: 1})
    log = g.topics.log(TOPIC, 0)
    assert log is not None
    log.append_batches(encode([(key, value)], base_offset=1), origin="replication")
    with pytest.raises(CorruptData):
        GroupCoordinator(g.topics, g.scheduler, g.clock).load()


def test_records_of_unknown_types_are_skipped(g: Groups) -> None:
    g.commit("g", {T0: 1})
    log = g.topics.log(TOPIC, 0)
    assert log is not None
    log.append([(b"\0\x63\0\1g", b"x"), (b"\0\3\0\1c", None)])
    g.restart()
    assert g.offsets("g") == {T0: 1}
    assert g.state("c") == "Dead"


def test_a_kind_of_groups_can_be_plugged_in(g: Groups) -> None:
    replayed: list[object] = []

    class Kind:
        record_types = frozenset((3,))

        def handlers(self) -> dict[ApiKey, object]:
            return {ApiKey.CONSUMER_GROUP_HEARTBEAT: lambda context, request: None}

        def replay(self, record: Record) -> None:
            replayed.append(record.key)

        def loaded(self) -> None:
            replayed.append("loaded")

        def closed(self) -> None:
            replayed.append("closed")

    log = g.topics
    log.ensure_internal(TOPIC)
    found = log.log(TOPIC, 0)
    assert found is not None
    found.append([(b"\0\3\0\1c", None)])
    coordinator = GroupCoordinator(g.topics, g.scheduler, g.clock)
    coordinator.plug(Kind())  # type: ignore[arg-type]
    coordinator.load()
    assert ApiKey.CONSUMER_GROUP_HEARTBEAT in coordinator.handlers()
    coordinator.close()
    assert replayed == [b"\0\3\0\1c", "loaded", "closed"]
