"""SyncGroup, Heartbeat, LeaveGroup, session timeouts, static members."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from klog.errors import StorageOffline
from klog.protocol import ApiKey, ErrorCode
from tests.coordinator.harness import Groups


def fail_appends(g: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every append to the log of the groups fail."""

    def append(*_: object, **__: object) -> None:
        raise StorageOffline("no disk")

    monkeypatch.setattr(g.coordinator.table.log, "append", append)


# ---- SyncGroup ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_the_leader_assigns(g: Groups, version: int) -> None:
    waiting = g.enter("g", version=3), g.enter("g", version=3)
    one = waiting[0].response
    waiting = (g.join("g", one.member_id, version=3), waiting[1])
    one, two = waiting[0].response, waiting[1].response
    follower = g.sync("g", two, version=version)
    assert not follower.done
    parts = {one.member_id: b"1", two.member_id: b"2", "unknown": b"3"}
    leader = g.sync("g", one, parts, version=version)
    assert (leader.response.assignment, follower.response.assignment) == (b"1", b"2")
    assert leader.response.protocol_name == ("range" if version >= 5 else None)
    assert g.state("g") == "Stable"
    assert g.sync("g", two, version=version).response.assignment == b"2"


def test_a_member_without_an_assignment_gets_an_empty_one(g: Groups) -> None:
    joined = g.enter("g").response
    assert g.sync("g", joined).response.assignment == b""
    assert g.state("g") == "Stable"


def test_sync_requests_that_are_refused(g: Groups) -> None:
    joined = g.enter("g").response
    generation, member = joined.generation_id, joined.member_id
    assert g.sync("nothing", joined).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert g.sync("", joined).code is ErrorCode.INVALID_GROUP_ID
    joined.generation_id = generation + 1
    assert g.sync("g", joined).code is ErrorCode.ILLEGAL_GENERATION
    joined.generation_id, joined.member_id = generation, "unknown"
    assert g.sync("g", joined).code is ErrorCode.UNKNOWN_MEMBER_ID
    joined.member_id = member
    assert g.sync("g", joined, protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert g.sync("g", joined, protocol_type=None).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert g.sync("g", joined, version=4, protocol_type=None).code is ErrorCode.NONE
    joined.protocol_name = "other"
    assert g.sync("g", joined).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    joined.protocol_name = "range"
    g.enter("g")
    assert g.sync("g", joined).code is ErrorCode.REBALANCE_IN_PROGRESS
    g.allowed = lambda operation, kind, name: operation != "READ"
    assert g.sync("g", joined).code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_rebalance_notifies_members_that_wait_for_assignments(g: Groups) -> None:
    one, two = g.stable("g", 2)
    g.join("g", one.member_id)
    call = g.join("g", two.member_id)
    waiting = g.sync("g", call.response)
    assert not waiting.done
    g.enter("g")
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_never_sync_are_removed(g: Groups) -> None:
    first = g.stable("g", 2, session=1_000_000, rebalance=25_000)
    calls = [g.join("g", each.member_id, session=1_000_000, rebalance=25_000) for each in first]
    follower = next(call.response for call in calls if not call.response.members)
    waiting = g.sync("g", follower)
    g.clock.advance(24_999)
    assert not waiting.done
    g.clock.advance(1)  # the leader has not sent its request
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS
    again = g.join("g", follower.member_id)
    assert again.response.leader == follower.member_id
    assert len(again.response.members) == 1


def test_a_leader_whose_assignment_cannot_be_stored(g: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    first = g.stable("g", 2)
    calls = [g.join("g", each.member_id) for each in first]
    leader, follower = sorted((call.response for call in calls), key=lambda response: not response.members)
    waiting = g.sync("g", follower)
    with monkeypatch.context() as patch:
        fail_appends(g, patch)
        assert g.sync("g", leader, {follower.member_id: b"x"}).code is ErrorCode.NOT_COORDINATOR
    assert waiting.code is ErrorCode.NOT_COORDINATOR
    assert g.state("g") == "PreparingRebalance"
    calls = [g.join("g", each.member_id) for each in first]
    assert {call.response.generation_id for call in calls} == {leader.generation_id + 1}


def test_a_group_that_cannot_be_stored_is_not_made(g: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        fail_appends(g, patch)
        assert g.join("g").code is ErrorCode.NOT_COORDINATOR
    assert g.state("g") == "Dead"


# ---- Heartbeat ---------------------------------------------------------------------------------------------------


def test_heartbeats_keep_a_member(g: Groups) -> None:
    (one,) = g.stable("g", session=10_000)
    for _ in range(20):
        g.clock.advance(9_999)
        assert g.heartbeat("g", one.member_id, 1) is ErrorCode.NONE
    g.clock.advance(9_999)
    assert g.state("g") == "Stable"
    g.clock.advance(1)
    assert g.state("g") == "Empty"
    assert g.heartbeat("g", one.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_that_are_refused_by_a_classic_group(g: Groups) -> None:
    (one,) = g.stable("g")
    assert g.heartbeat("g", one.member_id, 2) is ErrorCode.ILLEGAL_GENERATION
    assert g.heartbeat("g", "unknown", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert g.heartbeat("g", one.member_id, 1, instance="i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert g.heartbeat("nothing", one.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert g.heartbeat("", one.member_id, 1) is ErrorCode.INVALID_GROUP_ID
    g.allowed = lambda operation, kind, name: False
    assert g.heartbeat("g", one.member_id, 1) is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_heartbeat_of_the_wrong_generation_does_not_extend_the_session(g: Groups) -> None:
    (one,) = g.stable("g", session=10_000)
    g.clock.advance(9_999)
    g.heartbeat("g", one.member_id, 7)
    g.clock.advance(1)
    assert g.state("g") == "Empty"


def test_a_failed_member_starts_a_rebalance_of_the_others(g: Groups) -> None:
    one, two = g.stable("g", 2, session=10_000)
    for _ in range(2):
        g.clock.advance(5_000)
        code = g.heartbeat("g", two.member_id, two.generation_id)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS
    again = g.join("g", two.member_id)
    assert again.response.leader == two.member_id
    assert g.heartbeat("g", one.member_id, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_session_of_a_member_that_waits_does_not_time_out(g: Groups) -> None:
    first = g.stable("g", 2, session=6_000, rebalance=60_000)
    call = g.join("g", first[0].member_id, session=6_000, rebalance=60_000)
    g.clock.advance(5_999)
    g.heartbeat("g", first[1].member_id, first[1].generation_id)
    assert not call.done
    g.clock.advance(5_999)  # twice the session timeout of the one that waits
    other = g.join("g", first[1].member_id, session=6_000, rebalance=60_000)
    assert call.code is ErrorCode.NONE
    assert other.response.generation_id == call.response.generation_id
    g.clock.advance(5_999)  # the session began again with the response
    assert g.heartbeat("g", first[0].member_id, call.response.generation_id) is ErrorCode.NONE


def test_many_heartbeats_need_one_task_of_the_scheduler(g: Groups) -> None:
    (one,) = g.stable("g", session=10_000)
    before = len(g.scheduler._heap)
    for _ in range(1_000):
        g.clock.advance(1)
        g.heartbeat("g", one.member_id, 1)
    assert len(g.scheduler._heap) == before


def test_nothing_keeps_a_group_that_was_deleted_until_its_timeouts(g: Groups) -> None:
    for version in (3, 9):
        (one,) = g.stable("g", version=version, session=1_800_000, rebalance=2**31 - 1)
        g.leave("g", one.member_id)
        g.join("g", session=1_800_000)  # gets a member id, and does not use it
        group = weakref.ref(g.coordinator.table.get("g"))
        assert g.call(ApiKey.DELETE_GROUPS, groups_names=["g"]).response.results[0].error_code == 0
        gc.collect()
        assert group() is None


def test_a_group_forgets_the_protocols_of_members_that_have_left(g: Groups) -> None:
    for number in range(3):
        (one,) = g.stable("g", protocols={f"protocol-{number}": b""})
        g.leave("g", one.member_id)
    group: Any = g.coordinator.table.get("g")
    assert group._supported == {}


# ---- LeaveGroup --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_the_group_is_empty_and_stored_after_its_last_member_has_left(g: Groups, version: int) -> None:
    (one,) = g.stable("g")
    response = g.leave("g", one.member_id, version=version)
    assert response.error_code == 0
    if version >= 3:
        assert [(each.member_id, each.error_code) for each in response.members] == [(one.member_id, 0)]
    assert g.state("g") == "Empty"
    *_, last = g.records()
    assert (last.value["generation"], last.value["members"], last.value["protocol"]) == (2, [], None)
    assert (last.value["protocol_type"], last.value["leader"]) == ("consumer", None)


@pytest.mark.parametrize("version", [2, 5])
def test_an_unknown_member_cannot_leave(g: Groups, version: int) -> None:
    g.stable("g")
    for group in ("g", "nothing"):
        response = g.leave(group, "unknown", version=version)
        errors = [each.error_code for each in response.members] if version >= 3 else [response.error_code]
        assert errors == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert g.leave("", "unknown", version=version).error_code == ErrorCode.INVALID_GROUP_ID
    assert g.state("g") == "Stable"


def test_some_of_several_members_leave(g: Groups) -> None:
    one, two, three = g.stable("g", 3)
    response = g.leave("g", two.member_id, "unknown", three.member_id)
    assert [each.error_code for each in response.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    again = g.join("g", one.member_id)
    assert len(again.response.members) == 1


def test_a_pending_member_id_can_leave(g: Groups) -> None:
    (one,) = g.stable("g")
    pending = g.join("g").response.member_id
    again = g.join("g", one.member_id)
    assert not again.done
    assert g.leave("g", pending).members[0].error_code == 0
    assert again.response.generation_id == 2


def test_a_leave_completes_the_join_that_waits(g: Groups) -> None:
    (one,) = g.stable("g")
    new = g.enter("g")
    g.leave("g", new_id(g, "g"))
    assert new.code is ErrorCode.UNKNOWN_MEMBER_ID
    again = g.join("g", one.member_id)
    assert again.response.generation_id == 2


def test_leaving_is_refused_without_authorization(g: Groups) -> None:
    (one,) = g.stable("g")
    g.allowed = lambda operation, kind, name: False
    assert g.leave("g", one.member_id).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    g.allowed = lambda operation, kind, name: True
    assert g.state("g") == "Stable"


# ---- static members ----------------------------------------------------------------------------------------------


def static(g: Groups, **more: Any) -> list[Any]:
    """A stable group of two static members: i (the leader) and j."""
    joined = g.enter("g", instance="i", **more).response
    two = g.enter("g", instance="j", **more)
    one = g.join("g", joined.member_id, instance="i", **more)
    first, second = one.response, two.response
    g.sync("g", second, instance="j")
    g.sync("g", first, {first.member_id: b"1", second.member_id: b"2"}, instance="i")
    assert g.state("g") == "Stable"
    return [first, second]


def test_a_static_member_needs_no_second_request(g: Groups) -> None:
    joined = g.join("g", instance="i").response
    assert joined.error_code == 0
    assert joined.member_id.startswith("i-")
    assert joined.members[0].group_instance_id == "i"


def test_a_restarted_follower_keeps_the_generation(g: Groups) -> None:
    first, second = static(g)
    again = g.join("g", instance="j").response
    assert again.generation_id == second.generation_id
    assert again.member_id != second.member_id
    assert (again.leader, again.skip_assignment, again.members) == (first.member_id, False, [])
    assert g.state("g") == "Stable"
    synced = g.sync("g", again, instance="j").response
    assert synced.assignment == b"2"
    assert g.heartbeat("g", second.member_id, 2, instance="j") is ErrorCode.FENCED_INSTANCE_ID
    assert g.heartbeat("g", second.member_id, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert g.heartbeat("g", again.member_id, 2, instance="j") is ErrorCode.NONE


def test_a_restarted_leader_skips_the_assignment(g: Groups) -> None:
    _, second = static(g)
    again = g.join("g", instance="i").response
    assert again.skip_assignment
    assert again.leader == again.member_id
    assert {each.member_id for each in again.members} == {again.member_id, second.member_id}
    assert g.sync("g", again, instance="i").response.assignment == b"1"


def test_a_restarted_leader_of_an_older_version_gets_the_old_leader(g: Groups) -> None:
    first, _ = static(g)
    again = g.join("g", instance="i", version=8).response
    assert again.leader == first.member_id != again.member_id
    assert again.members == []
    assert g.sync("g", again, instance="i").response.assignment == b"1"


def test_the_new_id_of_a_static_member_survives_a_restart_of_the_broker(g: Groups) -> None:
    static(g)
    leader = g.join("g", instance="i").response
    follower = g.join("g", instance="j").response
    g.restart()
    for each, instance in ((leader, "i"), (follower, "j")):
        assert g.heartbeat("g", each.member_id, 2, instance=instance) is ErrorCode.NONE
    described = g.coordinator.table.groups()[0].describe()
    assert {m.member_id: m.member_assignment for m in described.members} == {  # type: ignore[attr-defined]
        leader.member_id: b"1",
        follower.member_id: b"2",
    }


def test_a_restarted_member_whose_new_id_cannot_be_stored_keeps_the_old_one(
    g: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, second = static(g)
    with monkeypatch.context() as patch:
        fail_appends(g, patch)
        assert g.join("g", instance="j").code is ErrorCode.NOT_COORDINATOR
    assert g.heartbeat("g", second.member_id, 2, instance="j") is ErrorCode.NONE


def test_a_restarted_member_with_another_protocol_starts_a_rebalance(g: Groups) -> None:
    both = {"a": b"", "b": b""}
    joined = g.join("g", instance="i", protocols=both).response
    g.sync("g", joined, {joined.member_id: b"1"}, instance="i")
    assert joined.protocol_name == "a"
    again = g.join("g", instance="i", protocols={"b": b"", "a": b""}).response
    assert again.protocol_name == "b"
    assert again.generation_id == 2


def test_a_restarted_member_fences_the_old_one_that_waits(g: Groups) -> None:
    first, _ = static(g)
    waiting = g.join("g", first.member_id, instance="i")
    assert not waiting.done
    again = g.join("g", instance="i")
    assert waiting.code is ErrorCode.FENCED_INSTANCE_ID
    assert not again.done
    g.clock.advance(20_000)
    assert again.response.generation_id == 3


def test_a_member_with_the_instance_of_another_is_fenced(g: Groups) -> None:
    first, _ = static(g)
    assert g.join("g", first.member_id, instance="j").code is ErrorCode.FENCED_INSTANCE_ID
    assert g.sync("g", first, instance="j").code is ErrorCode.FENCED_INSTANCE_ID
    assert g.leave("g", first.member_id, instance="j").members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    codes = g.commit("g", {("t", 0): 1}, member=first.member_id, generation=2, group_instance_id="j")
    assert codes == {("t", 0): ErrorCode.FENCED_INSTANCE_ID}
    assert g.join("g", first.member_id, instance="k").code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_is_late_stays_until_its_session_ends(g: Groups) -> None:
    _, second = static(g)
    new = g.enter("g")
    g.join("g", second.member_id, instance="j")
    g.clock.advance(9_999)
    assert not new.done
    g.clock.advance(1)  # the session of i ends before the rebalance timeout
    assert new.response.generation_id == 3
    g.restart()


def test_an_administrator_removes_a_static_member_by_its_instance(g: Groups) -> None:
    static(g)
    response = g.leave("g", "", instance="j")
    assert response.members[0].error_code == 0
    assert response.members[0].group_instance_id == "j"
    assert g.leave("g", "", instance="j").members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert g.leave("g", "").members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert g.state("g") == "PreparingRebalance"


def test_a_restarted_member_while_assignments_are_awaited_starts_a_rebalance(g: Groups) -> None:
    first, second = static(g)
    one = g.join("g", first.member_id, instance="i")
    two = g.join("g", second.member_id, instance="j")
    assert two.done
    waiting = g.sync("g", two.response, instance="j")
    again = g.join("g", instance="j")
    assert waiting.code is ErrorCode.FENCED_INSTANCE_ID
    assert g.state("g") == "PreparingRebalance"
    g.join("g", first.member_id, instance="i")
    assert again.response.generation_id == one.response.generation_id + 1


def test_static_members_that_are_late_are_in_the_next_generation(g: Groups) -> None:
    first, second = static(g, session=100_000)
    new = g.enter("g", session=100_000)
    g.leave("g", new_id(g, "g"))
    assert new.code is ErrorCode.UNKNOWN_MEMBER_ID
    g.clock.advance(20_000)  # the rebalance timeout: no member has joined, so it begins again
    assert g.state("g") == "PreparingRebalance"
    again = g.join("g", second.member_id, instance="j", session=100_000)
    g.clock.advance(19_999)
    assert not again.done
    g.clock.advance(1)
    assert again.response.leader == second.member_id
    assert {each.member_id for each in again.response.members} == {first.member_id, second.member_id}


def new_id(g: Groups, group: str) -> str:
    """The id of the member that joined last."""
    member_id: str = g.coordinator.table.get(group).describe().members[-1].member_id  # type: ignore[union-attr, attr-defined]
    return member_id


def test_a_static_member_that_left_comes_back_as_a_new_one(g: Groups) -> None:
    joined = g.join("g", instance="i").response
    g.leave("g", joined.member_id, instance="i")
    again = g.join("g", instance="i").response
    assert again.error_code == 0
    assert again.member_id != joined.member_id


def test_a_restarted_static_member_times_out(g: Groups) -> None:
    static(g)
    g.clock.advance(9_000)
    g.join("g", instance="i")
    g.join("g", instance="j")
    g.clock.advance(9_999)
    assert g.state("g") == "Stable"
    g.clock.advance(1)
    assert g.state("g") == "Empty"


def test_sessions_begin_again_with_the_assignment(g: Groups) -> None:
    """Sessions of members that wait for the assignment do not time out."""
    first = g.stable("g", 2, session=6_000, rebalance=60_000)
    calls = [g.join("g", each.member_id, session=6_000, rebalance=60_000) for each in first]
    leader, follower = sorted((call.response for call in calls), key=lambda response: not response.members)
    g.sync("g", follower)
    for _ in range(3):
        g.clock.advance(5_000)
        g.heartbeat("g", leader.member_id, leader.generation_id)
    g.sync("g", leader)
    for _ in range(2):
        assert g.state("g") == "Stable"
        g.clock.advance(3_000)
        g.heartbeat("g", leader.member_id, leader.generation_id)
    assert g.state("g") == "PreparingRebalance"


def test_sessions_begin_again_when_a_rebalance_replaces_the_assignment(g: Groups) -> None:
    first = g.stable("g", 2, session=6_000, rebalance=60_000)
    calls = [g.join("g", each.member_id, session=6_000, rebalance=60_000) for each in first]
    leader, follower = sorted((call.response for call in calls), key=lambda response: not response.members)
    g.sync("g", follower)
    for _ in range(3):
        g.clock.advance(5_000)
        g.heartbeat("g", leader.member_id, leader.generation_id)
    again = g.join("g", leader.member_id, protocols={"range": b"other"}, session=6_000, rebalance=60_000)
    g.clock.advance(5_999)
    assert not again.done
    g.clock.advance(1)  # the follower was asked to join again, and has left
    assert len(again.response.members) == 1
