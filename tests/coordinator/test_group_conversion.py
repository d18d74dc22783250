"""Members with the classic and with the consumer protocol in one group: upgrades, downgrades, and groups of both kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from klog.coordinator.groups.classic_group import ClassicGroup
from klog.coordinator.groups.consumer_group import ConsumerGroup
from klog.protocol import ApiKey, ErrorCode, decode_data, encode_data, messages
from tests.coordinator.harness import Call, Groups, groups
from tests.coordinator.test_consumer_requests import assigned, beat, described, group_of

Subscription = messages.ConsumerProtocolSubscription
Assignment = messages.ConsumerProtocolAssignment


def metadata(*topics: str, owned: set[int] | None = None, version: int = 3) -> bytes:
    partitions = [Subscription.TopicPartition(topic="t", partitions=sorted(owned))] if owned else []
    return encode_data(Subscription(topics=list(topics), owned_partitions=partitions), version)


def parts(*partitions: int) -> bytes:
    topic = Assignment.TopicPartition(topic="t", partitions=list(partitions))
    return encode_data(Assignment(assigned_partitions=[topic]), 3)


def partitions_in(call: Call) -> set[int]:
    _, found = decode_data(Assignment, bytes(call.response.assignment))
    return {partition for topic in found.assigned_partitions for partition in topic.partitions}


class ClassicConsumer:
    """A cooperative consumer with the classic protocol, in a group with members of both protocols."""

    def __init__(self, g: Groups, group: str = "g", instance: str | None = None) -> None:
        self.g = g
        self.group = group
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: set[int] = set()

    def join(self, **more: Any) -> Call:
        """Send JoinGroup, twice if the first response only has a member id."""
        for _ in range(2):
            protocols = {"cooperative-sticky": metadata("t", owned=self.owned)}
            call = self.g.join(self.group, self.member_id, protocols=protocols, instance=self.instance, **more)
            if call.done and call.code is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = call.response.member_id
        if call.done and call.code is ErrorCode.NONE:
            self.member_id, self.generation = call.response.member_id, call.response.generation_id
        return call

    def sync(self) -> Call:
        call = self.g.call(
            ApiKey.SYNC_GROUP,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="cooperative-sticky",
        )
        if call.done and call.code is ErrorCode.NONE:
            self.owned = partitions_in(call)
        return call

    def heartbeat(self) -> ErrorCode:
        return self.g.heartbeat(self.group, self.member_id, self.generation, instance=self.instance)

    def follow(self) -> None:
        """Send heartbeats, and join again as long as the response is REBALANCE_IN_PROGRESS."""
        for _ in range(10):
            if self.heartbeat() is not ErrorCode.REBALANCE_IN_PROGRESS:
                return
            assert self.join().code is ErrorCode.NONE
            assert self.sync().code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        raise AssertionError("the member joins again and again")


@pytest.fixture
def g(tmp_path: Path) -> Iterator[Groups]:
    with groups(tmp_path, topics={"t": 4}, consumers={"refresh_interval_ms": 0}) as made:
        yield made


def classic_group(g: Groups, count: int = 2, **more: Any) -> list[Any]:
    """A stable classic group, whose members have two partitions each."""
    protocols = {"cooperative-sticky": metadata("t"), "range": metadata("t")}
    joined = g.stable("g", count, protocols=protocols, **more)
    shares = [parts(0, 1), parts(2, 3)]
    assignments = {response.member_id: shares[number] for number, response in enumerate(joined)}
    leader = joined[0]
    again = g.join("g", leader.member_id, protocols=protocols, **more)
    for response in joined[1:]:
        g.join("g", response.member_id, protocols=protocols, **more)
    generation = again.response.generation_id
    for response in reversed(joined):
        response.generation_id = generation
        g.sync("g", response, assignments if response is leader else None)
    return joined


# ---- upgrade -------------------------------------------------------------------------------------------------------


def test_a_member_with_the_consumer_protocol_upgrades_the_group(g: Groups) -> None:
    """Kafka: testConsumerGroupHeartbeatWithStableClassicGroup"""
    first, second = classic_group(g)
    generation = first.generation_id
    call = beat(g, "g", "new", 0)
    assert call.code is ErrorCode.NONE
    assert (call.response.member_epoch, assigned(call)) == (generation + 1, set())
    group = group_of(g, "g")
    assert {member.member_id for member in group.classic_members} == {first.member_id, second.member_id}
    assert [group.member(r.member_id).member_epoch for r in (first, second)] == [generation] * 2
    snapshot = group.snapshot()
    g.restart()
    assert group_of(g, "g").snapshot() == snapshot

    # The classic members stay in the group, and are asked to join again.
    assert g.heartbeat("g", first.member_id, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    types = {member.member_id: member.member_type for member in described(g, "g")[0].members}
    assert types == {first.member_id: 0, second.member_id: 0, "new": 1}


def test_a_group_of_both_kinds_shares_its_partitions(g: Groups) -> None:
    """Kafka: testReconciliationRestartsWhenNewTargetAssignmentIsInstalled, of both protocols"""
    olds = []
    for response, owned in zip(classic_group(g), ({0, 1}, {2, 3}), strict=True):
        old = ClassicConsumer(g)
        old.member_id, old.generation, old.owned = response.member_id, response.generation_id, owned
        olds.append(old)
    epoch = beat(g, "g", "new", 0).response.member_epoch
    got: set[int] = set()
    for _ in range(5):
        for old in olds:
            old.follow()
        got = assigned(beat(g, "g", "new", epoch)) or got
        assert not (got & (olds[0].owned | olds[1].owned))
    assert group_of(g, "g").state == "Stable"
    assert got | olds[0].owned | olds[1].owned == {0, 1, 2, 3}
    assert sorted(map(len, (got, *(old.owned for old in olds)))) == [1, 1, 2]
    assert [old.heartbeat() for old in olds] == [ErrorCode.NONE] * 2


def test_members_that_wait_in_a_rebalance_join_the_consumer_group(g: Groups) -> None:
    """Kafka: testConsumerGroupHeartbeatToClassicGroupWithPreparingRebalance"""
    first, second = classic_group(g)
    protocols = {"cooperative-sticky": metadata("t"), "range": metadata("t")}
    waiting = g.join("g", first.member_id, protocols=protocols)
    assert not waiting.done
    assert beat(g, "g", "new", 0).code is ErrorCode.NONE
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS
    joined = g.join("g", first.member_id, protocols=protocols)
    # The member reports that it owns nothing, so it has nothing to revoke.
    assert (joined.code, joined.response.generation_id) == (ErrorCode.NONE, second.generation_id + 1)
    assert joined.response.leader == ""


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_the_policy_can_forbid_upgrades(tmp_path: Path, policy: str) -> None:
    with groups(tmp_path, topics={"t": 4}, consumers={"migration_policy": policy}) as g:
        classic_group(g)
        assert beat(g, "g", "new", 0).code is ErrorCode.GROUP_ID_NOT_FOUND
        assert g.state("g") == "Stable"


def test_a_group_that_is_not_of_consumers_is_not_upgraded(g: Groups) -> None:
    g.stable("connect", protocol_type="connect")
    assert beat(g, "connect", "new", 0).code is ErrorCode.GROUP_ID_NOT_FOUND
    g.stable("odd")  # its metadata is not a subscription
    assert beat(g, "odd", "new", 0).code is ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(g.coordinator.table.get("odd"), ClassicGroup)


def test_a_group_that_is_too_large_is_not_upgraded(tmp_path: Path) -> None:
    with groups(tmp_path, topics={"t": 4}, consumers={"max_size": 1}) as g:
        classic_group(g)
        assert beat(g, "g", "new", 0).code is ErrorCode.GROUP_ID_NOT_FOUND


def test_partitions_that_a_client_has_assigned_twice_have_one_owner(g: Groups) -> None:
    joined = g.stable("g", 2, protocols={"range": metadata("t")})
    again = [g.join("g", response.member_id, protocols={"range": metadata("t")}) for response in joined]
    latest = again[0].response
    both = {response.member_id: parts(0, 1, 99) for response in joined}
    for call in reversed(again):
        g.sync("g", call.response, both if call.response.member_id == latest.leader else None)
    beat(g, "g", "new", 0)
    group = group_of(g, "g")
    assert sorted(len(list(member.assigned.values())) for member in group.classic_members) == [0, 1]


# ---- classic members in a consumer group ---------------------------------------------------------------------------


def test_a_classic_member_joins_a_consumer_group(g: Groups) -> None:
    """Kafka: testJoiningConsumerGroupWithNewDynamicMember"""
    beat(g, "g", "new", 0)
    old = ClassicConsumer(g)
    call = old.join()
    assert (call.code, call.response.protocol_type, call.response.protocol_name) == (
        ErrorCode.NONE,
        "consumer",
        "cooperative-sticky",
    )
    assert old.sync().code is ErrorCode.NONE
    assert old.owned == set()
    assert old.heartbeat() is ErrorCode.NONE  # it waits for partitions of the other member
    kept = assigned(beat(g, "g", "new", 1))
    beat(g, "g", "new", 1, owned=kept)
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    old.follow()
    assert old.owned | (kept or set()) == {0, 1, 2, 3}
    assert len(old.owned) == 2
    assert group_of(g, "g").state == "Stable"


@pytest.mark.parametrize("timer", ["join", "sync", "session"])
def test_a_classic_member_that_sends_nothing_is_removed(g: Groups, timer: str) -> None:
    """Kafka: testClassicGroupJoinTimeout..., testSyncTimeout..., testSessionTimeout"""
    beat(g, "g", "new", 0)
    old = ClassicConsumer(g)
    old.join(session=10_000 if timer == "session" else 60_000, rebalance=20_000)
    if timer != "sync":
        old.sync()
    if timer == "join":
        g.manager.add_partitions("t", 6)
        beat(g, "g", "new", 1, owned=assigned(beat(g, "g", "new", 1)))
        assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    limit = 10_000 if timer == "session" else 20_000
    g.clock.advance(limit - 1000)
    if timer == "join":
        assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS  # the timer is not moved
    assert old.member_id in group_of(g, "g").members
    g.clock.advance(1001)
    assert old.member_id not in group_of(g, "g").members


def test_invalid_requests_of_classic_members_are_refused(g: Groups) -> None:
    beat(g, "g", "new", 0)
    old = ClassicConsumer(g)
    old.join()
    assert g.heartbeat("g", "new", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert g.heartbeat("g", old.member_id, 7) is ErrorCode.ILLEGAL_GENERATION
    assert g.heartbeat("g", "other", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert g.join("g", protocols={"roundrobin": metadata("t")}).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert g.join("g", protocols={"cooperative-sticky": b"x"}).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert g.join("g", protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    good = {"cooperative-sticky": metadata("t")}
    assert g.join("g", "x", protocols=good, instance="i").code is ErrorCode.UNKNOWN_MEMBER_ID
    old.generation += 1
    assert old.sync().code is ErrorCode.ILLEGAL_GENERATION
    old.generation -= 1
    assert [m.error_code for m in g.leave("g", "new", old.member_id, old.member_id).members] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert set(group_of(g, "g").members) == {"new"}


def test_offsets_of_a_classic_member_need_its_generation(g: Groups) -> None:
    beat(g, "g", "new", 0)
    old = ClassicConsumer(g)
    old.join()
    offsets = {("t", 0): 5}
    assert g.commit("g", offsets, member=old.member_id, generation=9) == {("t", 0): ErrorCode.ILLEGAL_GENERATION}
    assert g.commit("g", offsets, member=old.member_id, generation=old.generation, version=8) == {
        ("t", 0): ErrorCode.NONE
    }


# ---- downgrade -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["leaves", "dies"])
def test_the_group_is_downgraded_without_its_last_member_of_the_consumer_protocol(g: Groups, how: str) -> None:
    """Kafka: testLastConsumerProtocolMemberLeavingConsumerGroup, testConsumerGroupHeartbeat...SessionTimeoutExpiration"""
    olds = [ClassicConsumer(g), ClassicConsumer(g)]
    beat(g, "g", "new", 0)
    for old in olds:
        assert old.join(session=60_000, rebalance=60_000).code is ErrorCode.NONE
        old.sync()
    epoch = group_of(g, "g").epoch
    if how == "leaves":
        assert beat(g, "g", "new", -1).response.member_epoch == -1
    else:
        g.clock.advance(46_000)
    group = g.coordinator.table.get("g")
    assert isinstance(group, ClassicGroup)
    assert (group.state, group.generation, group.protocol) == ("PreparingRebalance", epoch, "cooperative-sticky")
    calls = [old.join() for old in olds]
    assert [call.code for call in calls] == [ErrorCode.NONE] * 2
    assert [call.response.generation_id for call in calls] == [epoch + 1] * 2
    g.restart()
    restored = g.coordinator.table.get("g")
    assert isinstance(restored, ClassicGroup)
    assert set(restored.members) == {old.member_id for old in olds}


def test_a_static_member_that_comes_back_with_the_classic_protocol_downgrades_the_group(g: Groups) -> None:
    """Kafka: testJoiningConsumerGroupReplacingExistingStaticMember with downgrade"""
    beat(g, "g", "new", 0, instance_id="i")
    old = ClassicConsumer(g)
    old.join()
    old.sync()
    beat(g, "g", "new", -2, instance_id="i")
    back = ClassicConsumer(g, instance="i")
    waiting = back.join()
    assert isinstance(g.coordinator.table.get("g"), ClassicGroup)
    assert not waiting.done
    assert old.join().code is ErrorCode.NONE
    assert waiting.code is ErrorCode.NONE


def test_the_only_static_member_comes_back_with_the_classic_protocol(g: Groups) -> None:
    beat(g, "g", "new", 0, instance_id="i")
    beat(g, "g", "new", -2, instance_id="i")
    assert ClassicConsumer(g, instance="i").join().code is ErrorCode.NONE
    assert isinstance(g.coordinator.table.get("g"), ClassicGroup)


def test_a_static_member_is_replaced_by_a_classic_one_in_a_group_with_others(g: Groups) -> None:
    beat(g, "g", "other", 0)
    beat(g, "g", "new", 0, instance_id="i")
    kept = assigned(beat(g, "g", "other", 1))
    beat(g, "g", "other", 1, owned=kept)
    beat(g, "g", "new", 2, instance_id="i")
    beat(g, "g", "new", -2, instance_id="i")
    back = ClassicConsumer(g, instance="i")
    assert back.join().code is ErrorCode.NONE
    assert back.sync().code is ErrorCode.NONE
    assert back.owned == {0, 1, 2, 3} - (kept or set())
    assert isinstance(g.coordinator.table.get("g"), ConsumerGroup)


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_the_policy_can_forbid_downgrades(tmp_path: Path, policy: str) -> None:
    with groups(tmp_path, topics={"t": 4}, consumers={"migration_policy": policy}) as g:
        beat(g, "g", "new", 0)
        old = ClassicConsumer(g)
        old.join()
        old.sync()
        beat(g, "g", "new", -1)
        assert set(group_of(g, "g").members) == {old.member_id}
        old.follow()
        assert old.owned == {0, 1, 2, 3}


def test_an_append_that_fails_converts_nothing(g: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    (first, _) = classic_group(g)
    with monkeypatch.context() as patch:
        patch.setattr(g.coordinator.table.log, "append", fail)
        assert beat(g, "g", "new", 0).code is ErrorCode.NOT_COORDINATOR
        assert g.heartbeat("g", first.member_id, first.generation_id) is ErrorCode.NONE
    beat(g, "g", "new", 0)
    before = group_of(g, "g").snapshot()
    with monkeypatch.context() as patch:
        patch.setattr(g.coordinator.table.log, "append", fail)
        assert beat(g, "g", "new", -1).code is ErrorCode.NOT_COORDINATOR
    assert group_of(g, "g").snapshot() == before


# ---- both kinds, at random -----------------------------------------------------------------------------------------


class NewConsumer:
    """A consumer with the consumer protocol."""

    def __init__(self, g: Groups, member_id: str) -> None:
        self.g = g
        self.member_id = member_id
        self.epoch = 0
        self.owned: set[int] = set()
        self._report = False

    def follow(self) -> None:
        call = beat(self.g, "g", self.member_id, self.epoch, owned=self.owned if self._report else None)
        assert call.code is ErrorCode.NONE
        self._report = False
        self.epoch = call.response.member_epoch
        wanted = assigned(call)
        if wanted is not None:
            self._report = wanted != self.owned
            self.owned = wanted


@pytest.mark.parametrize("seed", range(12))
def test_members_of_both_kinds_never_share_a_partition(g: Groups, seed: int) -> None:
    """Members join, leave and send heartbeats in random order. The first member stays, so the group is a consumer group all
    the time."""
    random = Random(seed)
    members: list[NewConsumer | ClassicConsumer] = [NewConsumer(g, "first")]
    members[0].follow()
    for step in range(60):
        choice = random.random()
        if choice < 0.1 and len(members) < 5:
            old = ClassicConsumer(g, instance=random.choice([None, f"i{step}"]))
            assert old.join().code is ErrorCode.NONE
            assert old.sync().code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
            members.append(old)
        elif choice < 0.2 and len(members) < 5:
            members.append(NewConsumer(g, f"m{step}"))
            members[-1].follow()
        elif choice < 0.3 and len(members) > 1:
            gone = members.pop(random.randrange(1, len(members)))
            if isinstance(gone, ClassicConsumer):
                assert g.leave("g", gone.member_id, instance=gone.instance).members[0].error_code == 0
            else:
                assert beat(g, "g", gone.member_id, -1).code is ErrorCode.NONE
        else:
            random.choice(members).follow()
        owned = [partition for member in members for partition in member.owned]
        assert len(owned) == len(set(owned)), step
    for _ in range(10):
        for member in members:
            member.follow()
    assert group_of(g, "g").state == "Stable"
    assert sorted(partition for member in members for partition in member.owned) == [0, 1, 2, 3]
    snapshot = group_of(g, "g").snapshot()
    g.restart()
    assert group_of(g, "g").snapshot() == snapshot
