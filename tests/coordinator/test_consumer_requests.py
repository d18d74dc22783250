"""ConsumerGroupHeartbeat and ConsumerGroupDescribe through the coordinator: log, timers, restarts, authorization."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from klog.coordinator.groups.consumer_config import ConsumerGroupConfig
from klog.coordinator.groups.consumer_group import ConsumerGroup
from klog.errors import InvalidConfig
from klog.protocol import ApiKey, ErrorCode, messages
from tests.coordinator.harness import Call, Groups, groups

TopicPartitions = messages.ConsumerGroupHeartbeat.Request.TopicPartitions
JOIN: dict[str, Any] = {"member_epoch": 0, "rebalance_timeout_ms": 20_000, "topic_partitions": []}


def beat(g: Groups, group: str, member: str, epoch: int, *, version: int = 1, **more: Any) -> Call:
    owned = more.pop("owned", None)
    if owned is not None:
        topic_id = g.topics.topic_id("t")
        assert topic_id is not None
        more["topic_partitions"] = [TopicPartitions(topic_id=topic_id, partitions=sorted(owned))]
    fields = {**JOIN, "subscribed_topic_names": ["t"]} if epoch == 0 else {"member_epoch": epoch}
    return g.call(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **{"group_id": group, "member_id": member, **fields, **more}
    )


def assigned(call: Call) -> set[int] | None:
    if call.response.assignment is None:
        return None
    return {partition for topic in call.response.assignment.topic_partitions for partition in topic.partitions}


def group_of(g: Groups, name: str) -> ConsumerGroup:
    found = g.coordinator.table.get(name)
    assert isinstance(found, ConsumerGroup)
    return found


def described(g: Groups, *names: str, **more: Any) -> list[Any]:
    found: list[Any] = g.call(ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=list(names), **more).response.groups
    return found


def test_a_group_without_a_name_is_invalid_and_an_unknown_one_is_not_found(g: Groups) -> None:
    codes = [ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND]
    assert [each.error_code for each in described(g, "", "g")] == codes


def test_members_share_partitions(g: Groups) -> None:
    assert assigned(beat(g, "g", "a", 0)) == {0, 1, 2}
    assert assigned(beat(g, "g", "b", 0)) == set()
    kept = assigned(beat(g, "g", "a", 1))
    assert kept is not None
    assert beat(g, "g", "a", 1, owned=kept).response.member_epoch == 2
    assert assigned(beat(g, "g", "b", 2)) == {0, 1, 2} - kept
    (found,) = described(g, "g")
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 2, 2)
    assert {member.member_id: member.client_host for member in found.members} == {"a": "/127.0.0.1", "b": "/127.0.0.1"}


@pytest.mark.parametrize("version", [0, 1])
def test_both_versions(g: Groups, version: int) -> None:
    response = beat(g, "g", "" if version == 0 else "m", 0, version=version).response
    assert (response.error_code, response.member_epoch, response.heartbeat_interval_ms) == (0, 1, 5000)
    assert beat(g, "g", response.member_id, 1, version=version).response.member_epoch == 1


@pytest.mark.parametrize("seconds", [1, 30])
def test_a_restart_loads_the_same_group(g: Groups, seconds: int) -> None:
    beat(g, "g", "a", 0, instance_id="i", subscribed_topic_regex="t.*")
    beat(g, "g", "b", 0)
    beat(g, "g", "a", 1, instance_id="i")  # a has to revoke
    beat(g, "h", "c", 0)
    beat(g, "h", "c", -1)
    before = {name: group_of(g, name).snapshot() for name in "gh"}
    g.restart()
    assert {name: group_of(g, name).snapshot() for name in "gh"} == before
    g.clock.advance(seconds * 1000)
    # The rebalance timeout of a ends after 20 seconds.
    assert set(group_of(g, "g").members) == ({"a", "b"} if seconds == 1 else {"b"})


def test_a_member_without_heartbeats_is_removed(g: Groups) -> None:
    """Kafka: testSessionTimeoutExpiration"""
    beat(g, "g", "a", 0)
    beat(g, "g", "b", 0)
    for _ in range(4):
        g.clock.advance(11_200)
        beat(g, "g", "b", 2)
    assert set(group_of(g, "g").members) == {"a", "b"}
    g.clock.advance(300)
    assert set(group_of(g, "g").members) == {"b"}
    assert assigned(beat(g, "g", "b", 2)) == {0, 1, 2}
    assert beat(g, "g", "a", 1).code is ErrorCode.UNKNOWN_MEMBER_ID
    g.clock.advance(46_000)
    assert group_of(g, "g").state == "Empty"


def test_a_group_may_have_its_own_timeouts_and_intervals(g: Groups) -> None:
    own = ConsumerGroupConfig(session_timeout_ms=10_000, heartbeat_interval_ms=1000)
    g.coordinator.configure("early", own)
    assert beat(g, "early", "a", 0).response.heartbeat_interval_ms == 1000
    assert beat(g, "late", "a", 0).response.heartbeat_interval_ms == 5000
    g.coordinator.configure("late", own)
    assert beat(g, "late", "a", 1).response.heartbeat_interval_ms == 1000
    g.clock.advance(10_100)
    assert group_of(g, "early").is_empty and group_of(g, "late").is_empty
    g.coordinator.configure("early", None)
    beat(g, "early", "b", 0)
    g.clock.advance(44_000)
    assert not group_of(g, "early").is_empty


def test_a_member_that_does_not_revoke_is_removed(g: Groups) -> None:
    """Kafka: testRebalanceTimeoutExpiration"""
    beat(g, "g", "a", 0)
    beat(g, "g", "b", 0)
    beat(g, "g", "a", 1)
    for _ in range(3):
        g.clock.advance(6_000)
        assert beat(g, "g", "a", 1).code is ErrorCode.NONE
    g.clock.advance(3_000)
    assert beat(g, "g", "a", 1).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert assigned(beat(g, "g", "b", 2)) == {0, 1, 2}


def test_a_member_that_revokes_in_time_stays(g: Groups) -> None:
    beat(g, "g", "a", 0)
    beat(g, "g", "b", 0)
    kept = assigned(beat(g, "g", "a", 1))
    g.clock.advance(19_000)
    beat(g, "g", "a", 1, owned=kept)
    g.clock.advance(19_000)
    assert beat(g, "g", "a", 2).code is ErrorCode.NONE


def test_a_static_member_that_does_not_come_back_is_removed(g: Groups) -> None:
    """Kafka: testStaticMemberLeave and its session"""
    beat(g, "g", "a", 0, instance_id="i")
    assert beat(g, "g", "a", -2, instance_id="i").response.member_epoch == -2
    g.clock.advance(44_000)
    assert not group_of(g, "g").is_empty
    g.clock.advance(2_000)
    assert group_of(g, "g").is_empty


def test_the_session_timeout_of_a_replaced_member_does_not_remove_the_new_one(g: Groups) -> None:
    beat(g, "g", "a", 0, instance_id="i")
    beat(g, "g", "a", -2, instance_id="i")
    g.clock.advance(40_000)
    assert assigned(beat(g, "g", "b", 0, instance_id="i")) == {0, 1, 2}
    g.clock.advance(40_000)
    assert beat(g, "g", "b", 1, instance_id="i").code is ErrorCode.NONE


def test_the_timers_of_a_member_end_when_it_leaves(g: Groups) -> None:
    beat(g, "g", "a", 0)
    beat(g, "g", "b", 0)
    beat(g, "g", "a", 1)  # a has to revoke within 20 seconds
    g.clock.advance(1000)
    beat(g, "g", "a", -1)
    beat(g, "g", "a", 0)
    g.clock.advance(20_000)
    assert set(group_of(g, "g").members) == {"a", "b"}


@pytest.mark.parametrize(
    ("operation", "kind", "code"),
    [
        ("READ", "GROUP", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ("DESCRIBE", "TOPIC", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_heartbeats_need_authorization(g: Groups, operation: str, kind: str, code: ErrorCode) -> None:
    g.allowed = lambda *asked: asked[:2] != (operation, kind)
    assert beat(g, "g", "m", 0).code is code
    assert g.coordinator.table.get("g") is None


def test_a_regular_expression_matches_only_topics_that_the_member_may_describe(g: Groups) -> None:
    g.manager.create_topic("t2", 1)
    g.allowed = lambda operation, kind, name: name != "t2"
    names: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": "t.*"}
    assert assigned(beat(g, "g", "m", 0, **names)) == {0, 1, 2}
    assert beat(g, "h", "m", 0, **{**names, "subscribed_topic_regex": "("}).code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_requests_for_other_groups(g: Groups) -> None:
    assert beat(g, "", "m", 0).code is ErrorCode.INVALID_REQUEST
    assert beat(g, "g", "m", 1).code is ErrorCode.GROUP_ID_NOT_FOUND
    assert beat(g, "g", "m", -1).code is ErrorCode.GROUP_ID_NOT_FOUND
    assert g.coordinator.table.get("g") is None


def test_after_close_the_coordinator_is_not_available(g: Groups) -> None:
    beat(g, "g", "m", 0)
    g.coordinator.close()
    assert beat(g, "g", "m", 1).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert described(g, "g")[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_append_that_fails_changes_nothing(g: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    beat(g, "g", "a", 0)
    before = group_of(g, "g").snapshot()

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(g.coordinator.table.log, "append", fail)
        assert beat(g, "g", "b", 0).code is ErrorCode.NOT_COORDINATOR
        assert beat(g, "new", "b", 0).code is ErrorCode.NOT_COORDINATOR
        assert beat(g, "g", "a", 1).code is ErrorCode.NONE  # this heartbeat writes nothing
        g.clock.advance(46_000)
        assert group_of(g, "g").snapshot() == before
        assert g.coordinator.table.get("new") is None
    g.clock.advance(46_000)
    assert group_of(g, "g").is_empty  # the session of a has timed out once more


def test_a_change_of_topics_is_noticed_again_if_it_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka: testSubscriptionMetadataRefreshedAgainAfterWriteFailure"""

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with groups(tmp_path, consumers={"refresh_interval_ms": 10_000}) as g:
        beat(g, "g", "m", 0, subscribed_topic_names=None, subscribed_topic_regex="t.*")
        g.manager.create_topic("t2", 1)
        g.clock.advance(10_000)
        with monkeypatch.context() as patch:
            patch.setattr(g.coordinator.table.log, "append", fail)
            assert beat(g, "g", "m", 1).code is ErrorCode.NOT_COORDINATOR
        assert beat(g, "g", "m", 1).response.member_epoch == 2


def test_changes_of_topics_are_noticed_at_once_after_topics_changed(tmp_path: Path) -> None:
    with groups(tmp_path, consumers={"refresh_interval_ms": 3_600_000}) as g:
        assert assigned(beat(g, "g", "m", 0)) == {0, 1, 2}
        g.manager.add_partitions("t", 5)
        assert assigned(beat(g, "g", "m", 1)) is None
        g.coordinator.topics_changed()
        assert assigned(beat(g, "g", "m", 1)) == {0, 1, 2, 3, 4}


# ---- other requests ------------------------------------------------------------------------------------------------


def test_offsets_need_the_epoch(g: Groups) -> None:
    beat(g, "g", "m", 0)
    offsets = {("t", 0): 5}
    assert g.commit("g", offsets, member="m", generation=1) == {("t", 0): ErrorCode.NONE}
    assert g.commit("g", offsets, member="m", generation=2) == {("t", 0): ErrorCode.STALE_MEMBER_EPOCH}
    assert g.commit("g", offsets, member="x", generation=1) == {("t", 0): ErrorCode.UNKNOWN_MEMBER_ID}
    assert g.commit("g", offsets) == {("t", 0): ErrorCode.UNKNOWN_MEMBER_ID}
    assert g.offsets("g") == {("t", 0): 5}
    beat(g, "g", "m", -1)
    assert g.commit("g", {("t", 1): 6}) == {("t", 1): ErrorCode.NONE}  # as an administrator does


def test_a_commit_that_was_sent_before_the_epoch_rose_is_accepted(g: Groups) -> None:
    """KIP-1251"""
    beat(g, "g", "a", 0)
    beat(g, "g", "b", 0)
    kept = assigned(beat(g, "g", "a", 1)) or set()
    beat(g, "g", "a", 1, owned=kept)
    beat(g, "g", "b", 2)
    (mine, other) = min(kept), min({0, 1, 2} - kept)
    accepted = {("t", mine): 5}
    assert g.commit("g", accepted, member="a", generation=1) == {("t", mine): ErrorCode.NONE}
    both = {**accepted, ("t", other): 6}
    assert set(g.commit("g", both, member="a", generation=1).values()) == {ErrorCode.STALE_MEMBER_EPOCH}
    assert g.offsets("g") == {("t", mine): 5}
    assert g.txn_commit("g", {("t", mine): 7}, member_id="a", generation_id=1) == {("t", mine): ErrorCode.NONE}
    assert g.txn_commit("g", {("t", other): 7}, member_id="a", generation_id=1) == {
        ("t", other): ErrorCode.ILLEGAL_GENERATION
    }


def test_a_group_that_had_offsets_only_becomes_a_consumer_group(g: Groups) -> None:
    g.commit("g", {("t", 0): 5})
    beat(g, "g", "m", 0)
    assert group_of(g, "g").state == "Stable"
    assert g.offsets("g") == {("t", 0): 5}
    g.restart()
    assert group_of(g, "g").state == "Stable"


def test_an_empty_group_changes_its_kind_both_ways(g: Groups) -> None:
    """Kafka: testConsumerGroupHeartbeatWithStableClassicGroup, with no members"""
    (joined,) = g.stable("g")
    g.leave("g", joined.member_id)
    beat(g, "g", "m", 0)
    assert group_of(g, "g").state == "Stable"
    g.restart()
    assert group_of(g, "g").state == "Stable"
    beat(g, "g", "m", -1)
    g.stable("g")
    assert g.state("g") == "Stable"
    g.restart()
    assert g.state("g") == "Stable"
    assert described(g, "g")[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_groups_are_listed_described_and_deleted(g: Groups) -> None:
    beat(g, "g", "m", 0)
    (listed,) = g.call(ApiKey.LIST_GROUPS).response.groups
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        "g",
        "consumer",
        "Stable",
        "consumer",
    )
    deleted = g.call(ApiKey.DELETE_GROUPS, groups_names=["g"]).response.results[0]
    assert deleted.error_code == ErrorCode.NON_EMPTY_GROUP
    beat(g, "g", "m", -1)
    deleted = g.call(ApiKey.DELETE_GROUPS, groups_names=["g"]).response.results[0]
    assert deleted.error_code == ErrorCode.NONE
    assert described(g, "g")[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    g.restart()
    assert g.coordinator.table.get("g") is None


def test_descriptions_need_authorization(g: Groups) -> None:
    beat(g, "g", "m", 0)
    (found,) = described(g, "g", include_authorized_operations=True)
    assert found.authorized_operations == sum(1 << bit for bit in (3, 6, 8, 10, 11))
    assert described(g, "g")[0].authorized_operations == -(2**31)
    g.allowed = lambda operation, kind, name: kind != "GROUP"
    assert described(g, "g")[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    g.allowed = lambda operation, kind, name: kind != "TOPIC"
    (found,) = described(g, "g")
    assert (found.error_code, found.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    g.allowed = lambda operation, kind, name: operation != "DELETE"
    (found,) = described(g, "g", include_authorized_operations=True)
    assert found.authorized_operations == sum(1 << bit for bit in (3, 8, 10, 11))


def test_unknown_topics_in_a_report_are_ignored(g: Groups) -> None:
    beat(g, "g", "m", 0)
    report = [TopicPartitions(topic_id=uuid.uuid4(), partitions=[-1, 2**31 - 1])]
    assert beat(g, "g", "m", 1, topic_partitions=report).code is ErrorCode.NONE


# ---- configuration -------------------------------------------------------------------------------------------------


def test_the_configuration_has_the_names_of_kafka() -> None:
    found = ConsumerGroupConfig.of(
        {
            "group.consumer.session.timeout.ms": "50000",
            "group.consumer.assignors": "org.apache.kafka.coordinator.group.assignor.RangeAssignor, uniform",
            "group.consumer.migration.policy": "UPGRADE",
            "log.dirs": "/x",
        }
    )
    assert (found.session_timeout_ms, found.assignors) == (50_000, ("range", "uniform"))
    assert (found.may_upgrade, found.may_downgrade) == (True, False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group.consumer.max.size", "0"),
        ("group.consumer.max.size", "many"),
        ("group.consumer.assignors", ""),
        ("group.consumer.assignors", "uniform,uniform"),
        ("group.consumer.assignors", "com.example.Mine"),
        ("group.consumer.migration.policy", "sometimes"),
    ],
)
def test_invalid_values_of_the_configuration(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig):
        ConsumerGroupConfig.of({name: value})
