"""One group of KIP-848: joining, reconciliation, epochs, static members, regular expressions, changes of topics, offsets."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from klog.coordinator.groups import consumer_records
from klog.coordinator.groups.consumer_group import ConsumerGroup
from klog.coordinator.groups.consumer_member import ConsumerMember
from klog.coordinator.groups.consumer_records import Change
from klog.coordinator.groups.refusal import Refused
from klog.protocol import ErrorCode
from tests.coordinator.consumers import Consumer, FakeTopics, Harness, Request, settle


@pytest.fixture
def harness() -> Harness:
    return Harness(FakeTopics(foo=6, bar=3))


def all_of(topic: str, count: int) -> set[tuple[str, int]]:
    return {(topic, partition) for partition in range(count)}


@contextmanager
def refused(code: ErrorCode) -> Iterator[None]:
    """The block raises Refused with this code."""
    with pytest.raises(Refused) as caught:
        yield
    assert caught.value.code is code


# ---- requests that are not valid -----------------------------------------------------------------------------------

JOIN: dict[str, Any] = {
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 5000,
    "subscribed_topic_names": ["foo"],
    "topic_partitions": [],
}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        (
            {"topic_partitions": [Request.TopicPartitions(topic_id=uuid.uuid4(), partitions=[0])]},
            ErrorCode.INVALID_REQUEST,
        ),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),  # without an instance id
        ({"member_epoch": -3, "instance_id": "i"}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": 1, "instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": -2, "instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_invalid_heartbeats_are_refused(harness: Harness, changes: dict[str, Any], code: ErrorCode) -> None:
    with refused(code):
        harness.send(**{**JOIN, **changes})
    assert harness.group.state == "Empty"


def test_the_broker_makes_the_member_id_before_version_1(harness: Harness) -> None:
    response = harness.send(version=0, **{**JOIN, "member_id": ""})
    assert response.member_id in harness.group.members
    assert len(response.member_id or "") == 22


# ---- joining and reconciliation ------------------------------------------------------------------------------------


def test_the_only_member_gets_all_partitions_at_once(harness: Harness) -> None:
    response = harness.join("m", "foo", "bar", "missing")
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == ("m", 1, 5000)
    assert harness.named(response.assignment) == all_of("foo", 6) | all_of("bar", 3)
    assert harness.group.state == "Stable"
    assert harness.outcome.timers == {("session", "m"): 45_000}


def test_the_records_of_a_join_are_those_of_kafka(harness: Harness) -> None:
    harness.join("m", "foo")
    assert [change[0].removeprefix("consumer_group_") for change in harness.outcome.changes] == [
        "member_metadata",
        "metadata",
        "target_assignment_member",
        "target_assignment_metadata",
        "current_member_assignment",
    ]


def test_a_heartbeat_without_changes_writes_nothing_and_returns_no_assignment(harness: Harness) -> None:
    harness.join("m", "foo")
    response = harness.beat("m")
    assert (response.member_epoch, response.assignment, harness.outcome.changes) == (1, None, [])


def test_the_response_to_a_full_request_has_the_assignment(harness: Harness) -> None:
    harness.join("m", "foo")
    response = harness.beat("m", owned=all_of("foo", 6), rebalance_timeout_ms=10_000, subscribed_topic_names=["foo"])
    assert harness.named(response.assignment) == all_of("foo", 6)
    assert harness.outcome.changes == []


def test_partitions_are_revoked_before_another_member_gets_them(harness: Harness) -> None:
    """Kafka: testReconciliationProcess"""
    harness.join("a", "foo")
    joined = harness.join("b", "foo")
    assert (joined.member_epoch, harness.named(joined.assignment)) == (2, set())
    assert harness.group.state == "Reconciling"
    assert harness.named(harness.beat("b").assignment) is None  # a still owns them

    response = harness.beat("a")
    kept = harness.named(response.assignment)
    assert response.member_epoch == 1  # until a has revoked its partitions
    assert kept is not None
    assert len(kept) == 3
    assert harness.outcome.timers["rebalance", "a"] == 10_000
    assert harness.named(harness.beat("b").assignment) is None

    assert harness.beat("a", owned=all_of("foo", 6)).assignment is None  # a has not revoked yet
    assert ("rebalance", "a") not in harness.outcome.timers
    response = harness.beat("a", owned=kept)
    assert response.member_epoch == 2
    assert harness.outcome.timers["rebalance", "a"] is None
    response = harness.beat("b")
    assert harness.named(response.assignment) == all_of("foo", 6) - kept
    assert harness.group.state == "Stable"


def test_three_members_that_join_one_after_the_other_share_evenly(harness: Harness) -> None:
    consumers = [Consumer(harness, name, "foo", "bar") for name in "abc"]
    for count in (1, 2, 3):
        settle(consumers[:count])
        assert harness.group.state == "Stable"
        assert {len(consumer.owned) for consumer in consumers[:count]} <= {9 // count, -(-9 // count)}


def test_a_member_that_leaves_frees_its_partitions(harness: Harness) -> None:
    consumers = [Consumer(harness, name, "foo") for name in "ab"]
    settle(consumers)
    response = harness.leave("a")
    assert (response.member_id, response.member_epoch) == ("a", -1)
    assert harness.outcome.left == ["a"]
    assert harness.group.state == "Assigning"
    settle(consumers[1:])
    assert consumers[1].owned == all_of("foo", 6)


def test_the_group_is_empty_after_its_last_member_has_left(harness: Harness) -> None:
    harness.join("m", "foo")
    harness.leave("m")
    assert (harness.group.state, harness.group.epoch, harness.group.is_empty) == ("Empty", 2, True)
    assert harness.group.metadata_hash == 0
    assert dict(harness.group.target) == {}
    assert harness.join("m", "foo").member_epoch == 3  # the epochs of the group continue


def test_a_target_that_changes_during_a_revocation_is_reached(harness: Harness) -> None:
    a, b, c = (Consumer(harness, name, "foo") for name in "abc")
    settle([a])
    b.beat()
    a.beat()  # a must revoke 3 partitions
    c.beat()
    settle([a, b, c])
    assert sorted(len(each.owned) for each in (a, b, c)) == [2, 2, 2]
    b.names = []
    harness.leave("b")
    harness.leave("c")
    settle([a])
    assert a.owned == all_of("foo", 6)


def test_a_new_subscription_takes_effect_at_once(harness: Harness) -> None:
    """Kafka: testUpdatingSubscriptionTriggersNewTargetAssignment"""
    harness.join("m", "foo")
    response = harness.beat("m", owned=all_of("foo", 6), subscribed_topic_names=["bar"])
    assert harness.named(response.assignment) == set()  # foo must be revoked first
    response = harness.beat("m", owned=set())
    assert harness.named(response.assignment) == all_of("bar", 3)


def test_partitions_of_unsubscribed_topics_are_revoked_before_the_next_assignment() -> None:
    harness = Harness(FakeTopics(foo=2, bar=2), assignment_interval_ms=1000)
    harness.join("m", "foo", "bar")
    response = harness.beat("m", subscribed_topic_names=["bar"])
    assert (response.member_epoch, harness.group.state) == (1, "Assigning")
    assert harness.named(response.assignment) == all_of("bar", 2)
    harness.beat("m", owned=all_of("bar", 2))
    assert harness.assigned("m") == all_of("bar", 2)  # although the target still has foo
    harness.now_ms += 1000
    response = harness.beat("m", owned=all_of("bar", 2))
    assert (response.member_epoch, harness.group.state) == (2, "Stable")


def test_the_next_assignment_is_computed_after_the_assignment_interval() -> None:
    harness = Harness(FakeTopics(foo=2), assignment_interval_ms=1000)
    harness.join("a", "foo")
    assert harness.named(harness.join("b", "foo").assignment) == set()
    assert (harness.group.epoch, harness.group.target_epoch, harness.group.state) == (2, 1, "Assigning")
    harness.now_ms += 999
    harness.beat("a")
    assert harness.group.target_epoch == 1
    harness.now_ms += 1
    harness.beat("a")
    assert (harness.group.target_epoch, harness.group.state) == (2, "Reconciling")


def test_the_assignor_that_most_members_prefer_is_used(harness: Harness) -> None:
    """Kafka: testPreferredServerAssignor"""
    harness.join("a", "foo", server_assignor="range")
    assert harness.group.preferred_assignor(harness.group.members.values()) == "range"
    harness.join("b", "foo", server_assignor="uniform")
    assert harness.group.preferred_assignor(harness.group.members.values()) == "uniform"
    harness.join("c", "foo", server_assignor="range")
    assert harness.group.preferred_assignor(harness.group.members.values()) == "range"
    assert harness.target("a") == {("foo", 0), ("foo", 1)}


def test_a_full_group_refuses_further_members() -> None:
    """Kafka: testConsumerGroupMaximumSize"""
    harness = Harness(FakeTopics(foo=2), max_size=1)
    harness.join("a", "foo")
    with refused(ErrorCode.GROUP_MAX_SIZE_REACHED):
        harness.join("b", "foo")
    harness.join("a", "foo")
    harness.beat("a")


# ---- epochs --------------------------------------------------------------------------------------------------------


def test_other_epochs_are_fenced(harness: Harness) -> None:
    """Kafka: testConsumerGroupMemberEpochValidation"""
    consumers = [Consumer(harness, name, "foo") for name in "ab"]
    settle(consumers)
    epoch = harness.group.member("a").member_epoch
    assert harness.group.member("a").previous_member_epoch == epoch - 1
    for wrong in (epoch + 1, epoch - 1, 2**31 - 1):
        with refused(ErrorCode.FENCED_MEMBER_EPOCH):
            harness.beat("a", wrong)
    settle([*consumers, Consumer(harness, "c", "foo")])
    epoch += 1
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        harness.beat("a", epoch - 2, owned=set())
    # The response with the epoch was lost: the member reports some of its partitions.
    assert harness.beat("a", epoch - 1, owned=harness.assigned("a")).member_epoch == epoch
    assert harness.beat("a", epoch - 1, owned=set()).member_epoch == epoch
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        harness.beat("a", epoch - 1, owned=all_of("foo", 6))


def test_a_member_joins_again_with_epoch_0(harness: Harness) -> None:
    consumers = [Consumer(harness, name, "foo") for name in "ab"]
    settle(consumers)
    response = harness.join("a", "foo")
    assert response.member_epoch == harness.group.epoch
    assert harness.named(response.assignment) == consumers[0].owned


def test_a_member_that_joins_again_has_revoked_everything(harness: Harness) -> None:
    harness.join("a", "foo")
    harness.join("b", "foo")
    harness.beat("a")
    response = harness.join("a", "foo")
    assert response.member_epoch == 2
    assert harness.named(harness.beat("b").assignment) == harness.target("b")


def test_a_fenced_member_is_unknown(harness: Harness) -> None:
    consumers = [Consumer(harness, name, "foo") for name in "ab"]
    settle(consumers)
    harness.fence("a")
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        harness.beat("a", 2)
    settle(consumers[1:])
    consumers[0].fenced()
    settle(consumers)
    assert len(consumers[0].owned) == 3


# ---- static members ------------------------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(harness: Harness) -> None:
    """Kafka: testStaticMemberGetsBackAssignmentUponRejoin"""
    consumers = [Consumer(harness, name, "foo", instance_id=f"i-{name}") for name in "ab"]
    settle(consumers)
    epoch = harness.group.epoch
    response = harness.leave("a", member_epoch=-2, instance_id="i-a")
    assert (response.member_id, response.member_epoch) == ("a", -2)
    assert harness.outcome.left == []
    assert harness.group.epoch == epoch
    assert harness.assigned("a") == consumers[0].owned

    response = harness.join("a2", "foo", instance_id="i-a")
    assert harness.named(response.assignment) == consumers[0].owned
    assert (response.member_epoch, harness.group.epoch) == (epoch, epoch)
    assert set(harness.group.members) == {"a2", "b"}
    assert harness.group.state == "Stable"
    with refused(ErrorCode.FENCED_INSTANCE_ID):
        harness.beat("a2", epoch, instance_id="i-b")
    with refused(ErrorCode.FENCED_INSTANCE_ID):
        harness.send(member_id="a", member_epoch=epoch, instance_id="i-a")
    with refused(ErrorCode.FENCED_INSTANCE_ID):
        harness.leave("a", instance_id="i-a")


def test_an_instance_id_has_one_member(harness: Harness) -> None:
    """Kafka: testShouldThrowUnreleasedInstanceIdExceptionWhenNewMemberJoinsWithInUseInstanceId"""
    harness.join("a", "foo", instance_id="i")
    with refused(ErrorCode.UNRELEASED_INSTANCE_ID):
        harness.join("b", "foo", instance_id="i")
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        harness.beat("a", 1, instance_id="j")
    assert harness.named(harness.join("a", "foo", instance_id="i").assignment) == all_of("foo", 6)


def test_a_static_member_that_comes_back_with_another_subscription_rebalances(harness: Harness) -> None:
    consumers = [Consumer(harness, name, "foo", instance_id=f"i-{name}") for name in "ab"]
    settle(consumers)
    harness.leave("a", member_epoch=-2, instance_id="i-a")
    response = harness.join("a2", "bar", instance_id="i-a")
    assert harness.named(response.assignment) == all_of("bar", 3)
    settle(consumers[1:])
    assert consumers[1].owned == all_of("foo", 6)


def test_a_static_member_comes_back_with_its_own_id(harness: Harness) -> None:
    harness.join("a", "foo", instance_id="i")
    harness.leave("a", member_epoch=-2, instance_id="i")
    response = harness.join("a", "foo", instance_id="i")
    assert harness.named(response.assignment) == all_of("foo", 6)
    assert response.member_epoch == 1


def test_a_static_member_can_leave_permanently(harness: Harness) -> None:
    harness.join("a", "foo", instance_id="i")
    harness.leave("a", instance_id="i")
    assert harness.group.is_empty
    assert harness.group.static_member("i") is None
    harness.join("b", "foo", instance_id="i")


# ---- topics --------------------------------------------------------------------------------------------------------


def test_new_partitions_and_topics_are_noticed(harness: Harness) -> None:
    """Kafka: testSubscriptionMetadataRefreshedAgainAfterWriteFailure and others"""
    harness.join("m", "foo", "baz")
    harness.topics.grow("foo", 8)
    response = harness.beat("m")
    assert (response.member_epoch, harness.named(response.assignment)) == (2, all_of("foo", 8))
    harness.topics.create("baz", 1)
    assert harness.named(harness.beat("m").assignment) == all_of("foo", 8) | {("baz", 0)}
    harness.topics.create("other", 1)
    assert harness.beat("m").assignment is None


def test_a_topic_that_was_deleted_is_revoked(harness: Harness) -> None:
    harness.join("m", "foo", "bar")
    gone = harness.topics.topic_id("bar")
    harness.topics.delete("bar")
    response = harness.beat("m")
    assert harness.named(response.assignment) == all_of("foo", 6)
    assert gone not in {topic.topic_id for topic in response.assignment.topic_partitions}  # type: ignore[union-attr]
    assert harness.beat("m", owned=all_of("foo", 6)).member_epoch == 2
    harness.topics.create("bar", 2)  # another id
    assert harness.named(harness.beat("m").assignment) == all_of("foo", 6) | all_of("bar", 2)


def test_topics_are_checked_once_in_a_refresh_interval() -> None:
    harness = Harness(FakeTopics(foo=1), refresh_interval_ms=1000)
    harness.join("m", "foo")
    harness.topics.grow("foo", 2)
    assert harness.beat("m").assignment is None
    harness.now_ms += 1000
    assert harness.named(harness.beat("m").assignment) == all_of("foo", 2)
    harness.topics.grow("foo", 3)
    harness.group.request_refresh()
    assert harness.named(harness.beat("m").assignment) == all_of("foo", 3)


# ---- regular expressions -------------------------------------------------------------------------------------------


def test_a_regular_expression_matches_new_topics(harness: Harness) -> None:
    """Kafka: testConsumerGroupMemberJoinsWithNewRegex and testConsumerGroupMemberJoinsRefreshTopicAfterMetadataUpdate"""
    response = harness.join("m", subscribed_topic_regex="foo.*")
    assert harness.named(response.assignment) == all_of("foo", 6)
    assert harness.group.resolved["foo.*"].topics == {"foo"}
    assert harness.group.subscribes("foo")
    harness.topics.create("foo2", 2)
    assert harness.named(harness.beat("m").assignment) == all_of("foo", 6) | all_of("foo2", 2)
    harness.topics.delete("foo")
    assert harness.named(harness.beat("m").assignment) == all_of("foo2", 2)
    assert not harness.group.subscribes("foo")


def test_a_member_may_subscribe_to_names_and_to_a_regular_expression(harness: Harness) -> None:
    response = harness.join("m", "bar", subscribed_topic_regex="fo+")
    assert harness.named(response.assignment) == all_of("foo", 6) | all_of("bar", 3)
    response = harness.beat("m", subscribed_topic_regex="")
    assert harness.named(response.assignment) == all_of("bar", 3)


def test_a_regular_expression_without_members_is_deleted(harness: Harness) -> None:
    """Kafka: testConsumerGroupMemberLeavesWithRegex and testConsumerGroupMemberJoinsWithUpdatedRegex"""
    harness.join("a", subscribed_topic_regex="foo")
    harness.join("b", subscribed_topic_regex="foo")
    harness.beat("a", subscribed_topic_regex="bar")
    assert set(harness.group.resolved) == {"foo", "bar"}
    harness.beat("b", subscribed_topic_regex="bar")
    assert set(harness.group.resolved) == {"bar"}
    harness.leave("a")
    assert set(harness.group.resolved) == {"bar"}
    harness.leave("b")
    assert set(harness.group.resolved) == set()


def test_a_topic_that_the_member_may_not_see_does_not_match(harness: Harness) -> None:
    harness.denied = {"bar"}
    assert harness.named(harness.join("m", subscribed_topic_regex=".*").assignment) == all_of("foo", 6)


def test_regular_expressions_are_resolved_again_after_their_interval() -> None:
    harness = Harness(FakeTopics(foo=1, bar=1), regex_refresh_interval_ms=60_000)
    harness.denied = {"bar"}
    harness.join("m", subscribed_topic_regex=".*")
    harness.denied = set()
    assert harness.beat("m").assignment is None  # no topic has changed
    harness.now_ms += 60_001
    assert harness.named(harness.beat("m").assignment) == {("foo", 0), ("bar", 0)}
    assert harness.group.resolved[".*"].timestamp == harness.now_ms


def test_a_regular_expression_that_matches_nothing(harness: Harness) -> None:
    assert harness.named(harness.join("m", subscribed_topic_regex="x").assignment) == set()
    assert harness.group.state == "Stable"


# ---- offsets, deletion, description --------------------------------------------------------------------------------


def test_commits_need_the_epoch_of_the_member(harness: Harness) -> None:
    """Kafka: testValidateOffsetCommit"""
    group = harness.group

    def commit(member_id: str, epoch: int, version: int = 9, *, transactional: bool = False) -> ErrorCode:
        return group.validate_commit(member_id, None, epoch, transactional=transactional, version=version)

    assert commit("", -1) is ErrorCode.NONE  # the group has no members
    assert commit("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    harness.join("m", "foo")
    assert commit("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("", -1, transactional=True) is ErrorCode.NONE
    assert commit("m", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit("m", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit("m", 1, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert commit("m", 1, version=3, transactional=True) is ErrorCode.NONE
    assert commit("m", 1) is ErrorCode.NONE


def test_offset_fetches_need_the_epoch_of_the_member(harness: Harness) -> None:
    """Kafka: testValidateOffsetFetch"""
    harness.join("m", "foo")
    assert harness.group.validate_fetch(None, -1) is ErrorCode.NONE
    assert harness.group.validate_fetch("other", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.group.validate_fetch("m", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert harness.group.validate_fetch("m", 1) is ErrorCode.NONE


def test_a_stale_commit_of_partitions_that_the_member_has_kept_is_accepted(harness: Harness) -> None:
    """KIP-1251"""
    consumers = [Consumer(harness, name, "foo") for name in "ab"]
    settle(consumers[:1])
    settle(consumers)
    a, b = consumers
    kept, lost = min(a.owned), min(b.owned)
    assert a.epoch == 2
    owned_since = harness.group.has_owned_since
    assert owned_since("a", 1, *kept)
    assert not owned_since("a", 0, *kept)
    assert not owned_since("a", 3, *kept)
    assert not owned_since("a", 1, *lost)
    assert not owned_since("b", 1, *lost)  # b owns it since epoch 2
    assert not owned_since("a", 1, "missing", 0)
    assert not owned_since("missing", 1, *kept)
    harness.join("c", "foo")
    a.beat()
    revoking = min(harness.by_name(harness.group.member("a").revoking.items()))
    assert owned_since("a", 1, *revoking)


def test_only_an_empty_group_can_be_deleted(harness: Harness) -> None:
    harness.join("m", "foo", subscribed_topic_regex="bar")
    assert harness.group.validate_delete() is ErrorCode.NON_EMPTY_GROUP
    assert harness.group.validate_offset_delete() is ErrorCode.NONE
    harness.leave("m")
    assert harness.group.validate_delete() is ErrorCode.NONE
    harness.group.apply(harness.group.deletion())
    empty = ConsumerGroup("g", harness.topics, harness.config).snapshot()
    assert harness.group.snapshot() == {**empty, "target_epoch": -1}


def test_the_tombstones_of_a_group_with_members_remove_its_whole_state(harness: Harness) -> None:
    harness.join("a", "foo", subscribed_topic_regex="ba.")
    harness.join("b", "foo", instance_id="i")
    harness.group.apply(harness.group.deletion())
    empty = ConsumerGroup("g", harness.topics, harness.config).snapshot()
    assert harness.group.snapshot() == {**empty, "target_epoch": -1}


def test_the_description_has_names_and_both_assignments(harness: Harness) -> None:
    harness.join("a", "foo", rack_id="r", instance_id="i", server_assignor="range")
    harness.join("b", "foo", subscribed_topic_regex="x.*")
    found = harness.group.describe()
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Reconciling", 2, 2)
    assert found.assignor_name == "range"
    a, b = found.members
    assert (a.member_id, a.instance_id, a.rack_id, a.member_epoch, a.member_type) == ("a", "i", "r", 1, 1)
    assert (a.client_id, a.client_host) == ("client", "/127.0.0.1")
    assert [(topic.topic_name, topic.partitions) for topic in a.assignment.topic_partitions] == [
        ("foo", [0, 1, 2, 3, 4, 5])
    ]
    assert [(topic.topic_name, topic.partitions) for topic in a.target_assignment.topic_partitions] == [
        ("foo", [0, 1, 2])
    ]
    assert (b.subscribed_topic_names, b.subscribed_topic_regex) == (["foo"], "x.*")
    assert b.assignment.topic_partitions == []


# ---- records of other versions, and of a log that is being cleaned ---------------------------------------------------


def test_the_partition_metadata_record_of_older_kafka_versions_is_deleted(harness: Harness) -> None:
    key = {"group_id": "g"}
    for group in (harness.group, harness.copy):
        group.apply([("consumer_group_partition_metadata", key, {"topics": []})])
    harness.join("m", "foo")
    assert ("consumer_group_partition_metadata", key, None) in harness.outcome.changes
    assert not harness.group.has_partition_metadata


def test_a_member_in_a_state_of_a_newer_kafka_version_must_rejoin(harness: Harness) -> None:
    harness.join("m", "foo")
    _, key, value = next(
        change for change in harness.outcome.changes if change[0] == "consumer_group_current_member_assignment"
    )
    assert value is not None
    for group in (harness.group, harness.copy):
        group.apply([("consumer_group_current_member_assignment", key, {**value, "state": 5})])
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        harness.beat("m", subscribed_topic_names=["bar"])
    assert harness.join("m", "foo").member_epoch == 1


def test_the_latest_owner_counts_if_the_cleaner_has_kept_an_older_record(harness: Harness) -> None:
    """While a log is being cleaned, the record in which `a` gives up a partition may already be removed, and an older
    record of `a` not yet."""

    def current(member_id: str, *partitions: int) -> Change:
        member = ConsumerMember.new(member_id).evolve(member_epoch=3, assigned={topic_id: dict.fromkeys(partitions, 3)})
        return consumer_records.current_assignment("g", member)

    topic_id = uuid.uuid4()
    harness.group.apply([current("a", 0, 1), current("b", 1), current("a", 0)])
    assert [harness.group.owner(topic_id, partition) for partition in (0, 1, 2)] == ["a", "b", None]
