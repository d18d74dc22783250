"""JoinGroup: ids, generations, protocols, limits, deadlines."""

from __future__ import annotations

from pathlib import Path

import pytest

from klog.protocol import ApiKey, ErrorCode
from tests.coordinator.harness import Groups, groups


@pytest.mark.parametrize("version", range(10))
def test_one_member_leads_in_every_version(g: Groups, version: int) -> None:
    joined = g.enter("g", version=version).response
    assert joined.error_code == 0
    assert joined.generation_id == 1
    assert joined.leader == joined.member_id
    assert joined.protocol_name == "range"
    assert [(each.member_id, each.metadata) for each in joined.members] == [(joined.member_id, b"meta")]
    assert joined.member_id.startswith("client-")
    assert joined.protocol_type == ("consumer" if version >= 7 else None)


def test_a_member_gets_its_id_before_it_joins(g: Groups) -> None:
    first = g.join("g", version=4)
    assert first.code is ErrorCode.MEMBER_ID_REQUIRED
    assert g.state("g") == "Empty"
    again = g.join("g", first.response.member_id, version=4)
    assert again.response.member_id == first.response.member_id
    older = g.join("h", version=3)
    assert older.code is ErrorCode.NONE


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session": 5999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session": -1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
@pytest.mark.parametrize("version", [6, 9])
def test_a_bad_request_is_refused_and_makes_no_group(
    g: Groups, fields: dict[str, object], code: ErrorCode, version: int
) -> None:
    call = g.join(**{"group": "g", "version": version, **fields})  # type: ignore[arg-type]
    assert call.code is code
    assert call.response.protocol_name == (None if version >= 7 else "")
    assert g.call(ApiKey.LIST_GROUPS).response.groups == []


def test_a_client_that_may_not_read_the_group(g: Groups) -> None:
    g.allowed = lambda operation, kind, name: (operation, kind, name) != ("READ", "GROUP", "g")
    assert g.join("g").code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert g.join("h").code is ErrorCode.MEMBER_ID_REQUIRED


def test_a_rebalance_waits_for_the_members_of_the_generation(g: Groups) -> None:
    (one,) = g.stable("g")
    new = g.enter("g")
    assert not new.done
    assert g.state("g") == "PreparingRebalance"
    assert g.heartbeat("g", one.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = g.join("g", one.member_id)
    assert again.response.generation_id == new.response.generation_id == 2
    assert new.response.leader == again.response.leader == one.member_id
    assert new.response.members == []
    assert {each.member_id for each in again.response.members} == {one.member_id, new.response.member_id}
    assert g.state("g") == "CompletingRebalance"


def test_a_member_that_does_not_join_again_is_removed_after_the_rebalance_timeout(g: Groups) -> None:
    one, two = g.stable("g", 2, session=300_000, rebalance=30_000)
    new = g.enter("g", session=300_000, rebalance=20_000)
    again = g.join("g", two.member_id, session=300_000, rebalance=20_000)
    g.clock.advance(29_999)  # the longest timeout of all members, also of the late one
    assert not new.done
    g.clock.advance(1)
    assert new.response.generation_id == again.response.generation_id == two.generation_id + 1
    assert new.response.leader in (two.member_id, new.response.member_id)  # the old leader was removed
    assert g.heartbeat("g", one.member_id, two.generation_id) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_rebalance_timeout_of_version_0_is_the_session_timeout(g: Groups) -> None:
    g.stable("g", session=300_000, version=0)
    new = g.join("g", session=6_000, version=0)
    g.clock.advance(299_999)
    assert not new.done
    g.clock.advance(1)
    assert new.response.generation_id == 2


def test_a_rebalance_waits_for_pending_member_ids(g: Groups) -> None:
    (one,) = g.stable("g", session=30_000)
    pending = g.join("g", session=20_000).response.member_id
    new = g.enter("g", session=30_000)
    again = g.join("g", one.member_id, session=30_000)
    assert not new.done
    joined = g.join("g", pending, session=30_000)
    assert new.response.generation_id == again.response.generation_id == joined.response.generation_id == 2


def test_a_pending_member_id_is_removed_after_its_session_timeout(g: Groups) -> None:
    (one,) = g.stable("g", session=60_000, rebalance=60_000)
    pending = g.join("g", session=7_000).response.member_id
    new = g.enter("g", session=60_000)
    g.join("g", one.member_id, session=60_000)
    g.clock.advance(6_999)
    assert not new.done
    g.clock.advance(1)
    assert new.response.generation_id == 2
    assert g.join("g", pending).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_that_waits_too_long_is_removed(g: Groups) -> None:
    g.stable("g", session=1_800_000, rebalance=1_800_000)
    new = g.enter("g", rebalance=1_000)
    g.clock.advance(299_999)
    assert not new.done
    g.clock.advance(1)
    assert new.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert new.response.member_id == ""
    assert g.state("g") == "PreparingRebalance"


def test_the_first_rebalance_is_delayed_while_members_join(tmp_path: Path) -> None:
    with groups(tmp_path, config={"initial_rebalance_delay_ms": 3_000}) as g:
        one = g.enter("g", rebalance=8_000)
        g.clock.advance(2_999)
        two = g.enter("g", rebalance=7_000)
        g.clock.advance(1)
        assert not one.done
        g.clock.advance(2_999)
        assert not one.done
        g.clock.advance(1)
        assert one.response.generation_id == two.response.generation_id == 1
        assert one.response.leader == one.response.member_id


def test_the_first_rebalance_is_not_delayed_beyond_the_rebalance_timeout(tmp_path: Path) -> None:
    with groups(tmp_path, config={"initial_rebalance_delay_ms": 3_000}) as g:
        calls = [g.enter("g", rebalance=8_000)]
        for _ in range(7):
            g.clock.advance(1_000)
            calls.append(g.enter("g", rebalance=1_000))
        assert not any(call.done for call in calls)
        g.clock.advance(999)
        assert not any(call.done for call in calls)
        g.clock.advance(1)
        assert {call.response.generation_id for call in calls} == {1}


def test_only_the_first_rebalance_is_delayed(tmp_path: Path) -> None:
    with groups(tmp_path, config={"initial_rebalance_delay_ms": 9_000}) as g:
        one = g.enter("g", session=6_000, rebalance=60_000)
        g.clock.advance(8_999)  # longer than the session timeout, for which the member id was valid
        assert not one.done
        g.clock.advance(1)
        (two,) = g.stable_after(9_000, "h", session=1_000_000, rebalance=60_000)
        new = g.enter("h", session=1_000_000)
        g.clock.advance(59_999)
        assert not new.done
        g.clock.advance(1)
        assert new.response.generation_id == two.generation_id + 1


def test_of_the_protocols_that_all_members_support_the_one_with_most_votes_is_chosen(g: Groups) -> None:
    one = g.stable("g", protocols={"a": b"", "b": b"", "c": b""})[0]
    new = g.enter("g", protocols={"c": b"3", "b": b"2", "x": b""})
    third = g.enter("g", protocols={"y": b"", "c": b"4", "b": b""})
    g.join("g", one.member_id, protocols={"a": b"", "b": b"1", "c": b"0"})
    assert new.response.protocol_name == third.response.protocol_name == "c"
    assert {each.metadata for each in new.response.members or third.response.members} <= {b"0", b"3", b"4"}


def test_a_member_without_a_common_protocol_is_refused(g: Groups) -> None:
    g.stable("g", protocols={"a": b""})
    assert g.join("g", protocols={"b": b""}).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert g.join("g", protocols={"a": b""}, protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert g.state("g") == "Stable"


def test_a_protocol_named_twice_counts_once(g: Groups) -> None:
    from klog.protocol import messages

    g.stable("g", protocols={"a": b"1"})
    Protocol = messages.JoinGroup.Request.Protocol
    call = g.call(
        ApiKey.JOIN_GROUP,
        3,
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[Protocol(name="b", metadata=b""), Protocol(name="b", metadata=b"")],
    )
    assert call.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_follower_of_a_stable_group_joins_again_without_a_rebalance(g: Groups) -> None:
    leader, follower = g.stable("g", 2)
    again = g.join("g", follower.member_id)
    assert again.response == follower
    assert g.state("g") == "Stable"
    changed = g.join("g", follower.member_id, protocols={"range": b"other"})
    assert not changed.done
    assert g.state("g") == "PreparingRebalance"
    g.join("g", leader.member_id)
    assert changed.response.generation_id == leader.generation_id + 1


def test_the_leader_of_a_stable_group_joins_again_for_a_new_assignment(g: Groups) -> None:
    (leader,) = g.stable("g")
    again = g.join("g", leader.member_id)
    assert again.response.generation_id == 2
    assert g.state("g") == "CompletingRebalance"


def test_a_member_that_missed_its_response_joins_again_before_the_assignment(g: Groups) -> None:
    joined = g.enter("g").response
    assert g.join("g", joined.member_id).response == joined
    changed = g.join("g", joined.member_id, protocols={"range": b"other"})
    assert changed.response.generation_id == 2


def test_a_join_that_is_sent_again_completes_the_first_one(g: Groups) -> None:
    g.stable("g")
    first = g.enter("g")
    second = g.join("g", g.calls[-2].response.member_id)
    assert first.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert not second.done


def test_a_full_group_refuses_further_members(tmp_path: Path) -> None:
    with groups(tmp_path, config={"max_size": 2}) as g:
        one, two = g.stable("g", 2)
        refused = g.join("g")
        assert refused.code is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert g.state("g") == "Stable"
        first = g.join("g", one.member_id)  # the leader starts a rebalance
        third = g.join("g")
        assert third.code is ErrorCode.MEMBER_ID_REQUIRED  # now only members that have joined count
        second = g.join("g", two.member_id)
        assert not first.done and not second.done  # the rebalance waits for the member with the new id
        assert g.join("g", third.response.member_id).code is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert first.response.generation_id == second.response.generation_id == one.generation_id + 1


def test_a_loaded_group_that_is_larger_than_the_limit_loses_members(tmp_path: Path) -> None:
    with groups(tmp_path) as g:
        members = [each.member_id for each in g.stable("g", 3)]
    with groups(tmp_path, config={"max_size": 2}) as g:
        assert g.state("g") == "PreparingRebalance"
        calls = [g.join("g", member) for member in members]
        assert calls[2].code is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert calls[0].response.generation_id == calls[1].response.generation_id
        assert calls[0].code is ErrorCode.NONE


def test_an_empty_group_takes_another_protocol_type(g: Groups) -> None:
    (one,) = g.stable("g")
    g.leave("g", one.member_id)
    assert g.state("g") == "Empty"
    joined = g.enter("g", protocol_type="connect", protocols={"x": b""}).response
    assert joined.protocol_type == "connect"
    assert joined.generation_id == one.generation_id + 2  # the leave made a generation without members


@pytest.mark.parametrize("name", ["\u20ac" * 10_922, "i" * 32_767])
def test_a_member_id_is_made_from_the_longest_names(g: Groups, name: str) -> None:
    assert g.enter(name, client_id=name, version=5).code is ErrorCode.NONE
    assert g.enter("g", instance=name, version=5).code is ErrorCode.NONE


def test_timeouts_at_the_limits_of_their_type(g: Groups) -> None:
    g.stable("g", rebalance=-(2**31))
    new = g.enter("g", rebalance=-1)
    g.clock.advance(1)
    assert new.response.error_code == 0
    g.stable("h", rebalance=2**31 - 1)
    late = g.enter("h", rebalance=2**31 - 1)
    g.clock.advance(10_000)
    assert late.response.generation_id == 2  # the old member's session has ended


def test_after_close_waiting_and_new_requests_are_refused(g: Groups) -> None:
    waiting = (g.stable("g"), g.enter("g"))[1]
    g.coordinator.close()
    assert waiting.code is ErrorCode.NOT_COORDINATOR
    assert g.join("g").code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    g.coordinator.close()
    g.clock.advance(10_000_000)
