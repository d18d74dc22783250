"""ListGroups, DescribeGroups, DeleteGroups, FindCoordinator."""

from __future__ import annotations

from typing import Any

import pytest

from klog.coordinator import FindCoordinator
from klog.errors import StorageOffline
from klog.protocol import ApiKey, ErrorCode, decode, encode, messages
from tests.coordinator.harness import Call, Groups

T0 = ("t", 0)


def listed(g: Groups, version: int = 5, **filters: Any) -> dict[str, str]:
    found = g.call(ApiKey.LIST_GROUPS, version, **filters).response.groups
    return {each.group_id: each.group_state for each in found}


def test_groups_are_listed_by_state_and_type(g: Groups) -> None:
    g.stable("stable")
    g.commit("simple", {T0: 1})
    g.enter("assigning")
    assert listed(g) == {"stable": "Stable", "simple": "Empty", "assigning": "CompletingRebalance"}
    assert listed(g, states_filter=["stable", "PREPARINGREBALANCE"]) == {"stable": "Stable"}
    assert listed(g, states_filter=["Empty", "CompletingRebalance"]).keys() == {"simple", "assigning"}
    assert listed(g, types_filter=["Classic"]).keys() == {"stable", "simple", "assigning"}
    assert listed(g, types_filter=["consumer"]) == {}
    (one,) = g.call(ApiKey.LIST_GROUPS, states_filter=["Stable"]).response.groups
    assert (one.protocol_type, one.group_type) == ("consumer", "classic")
    assert set(listed(g, 0)) == {"stable", "simple", "assigning"}


def test_only_groups_that_the_client_may_describe_are_listed(g: Groups) -> None:
    g.commit("a", {T0: 1})
    g.commit("b", {T0: 1})
    g.allowed = lambda operation, kind, name: kind == "GROUP" and name == "a"
    assert set(listed(g)) == {"a"}
    g.allowed = lambda operation, kind, name: (operation, kind) == ("DESCRIBE", "CLUSTER")
    assert set(listed(g)) == {"a", "b"}


def test_a_group_is_described(g: Groups) -> None:
    (one,) = g.stable("g")
    (found,) = g.call(ApiKey.DESCRIBE_GROUPS, groups=["g"], include_authorized_operations=True).response.groups
    assert (found.error_code, found.group_state, found.protocol_type, found.protocol_data) == (
        0,
        "Stable",
        "consumer",
        "range",
    )
    (member,) = found.members
    assert (member.member_id, member.client_id, member.client_host) == (one.member_id, "client", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"meta", b"part of " + one.member_id.encode())
    assert found.authorized_operations == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
    g.allowed = lambda operation, kind, name: operation == "DESCRIBE"
    (found,) = g.call(ApiKey.DESCRIBE_GROUPS, groups=["g"], include_authorized_operations=True).response.groups
    assert found.authorized_operations == 1 << 8
    (found,) = g.call(ApiKey.DESCRIBE_GROUPS, groups=["g"]).response.groups
    assert found.authorized_operations == -(2**31)
    g.allowed = lambda operation, kind, name: True
    g.join("g", one.member_id)
    (found,) = g.call(ApiKey.DESCRIBE_GROUPS, groups=["g"]).response.groups
    assert (found.group_state, found.protocol_data, found.members[0].member_metadata) == (
        "CompletingRebalance",
        "",
        b"",
    )


@pytest.mark.parametrize("version", range(7))
def test_a_group_that_does_not_exist_is_dead(g: Groups, version: int) -> None:
    (found,) = g.call(ApiKey.DESCRIBE_GROUPS, version, groups=["g"]).response.groups
    assert found.group_state == "Dead"
    assert found.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    assert found.error_message == ("Group g not found." if version >= 6 else None)
    g.allowed = lambda operation, kind, name: name != "g"
    refused, found = g.call(ApiKey.DESCRIBE_GROUPS, version, groups=["g", "h"]).response.groups
    assert (refused.group_id, refused.error_code) == ("g", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert found.group_id == "h"


def deleted(g: Groups, *names: str) -> dict[str, int]:
    results = g.call(ApiKey.DELETE_GROUPS, groups_names=list(names)).response.results
    assert len(results) == len(set(names))
    return {each.group_id: each.error_code for each in results}


def test_groups_without_members_are_deleted_with_their_offsets(g: Groups) -> None:
    g.stable("full")
    (one,) = g.stable("left")
    g.commit("left", {T0: 1}, member=one.member_id, generation=1)
    g.leave("left", one.member_id)
    g.commit("simple", {T0: 1, ("t", 1): 2})
    g.txn_commit("simple", {("t", 2): 3})
    assert deleted(g, "full", "left", "simple", "nothing", "left") == {
        "full": ErrorCode.NON_EMPTY_GROUP,
        "left": 0,
        "simple": 0,
        "nothing": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    g.end("simple", True)
    for _ in range(2):
        assert listed(g) == {"full": "Stable"}
        assert g.offsets("left") == g.offsets("simple") == {}
        g.restart()


def test_a_pending_member_id_is_unknown_after_its_group_was_deleted(g: Groups) -> None:
    pending = g.join("g").response.member_id
    assert deleted(g, "g") == {"g": 0}
    assert g.join("g", pending).code is ErrorCode.UNKNOWN_MEMBER_ID
    g.clock.advance(20_000)
    assert listed(g) == {}


def test_deletions_that_are_refused(g: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    g.commit("g", {T0: 1})
    g.allowed = lambda operation, kind, name: operation != "DELETE"
    assert deleted(g, "g") == {"g": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    g.allowed = lambda operation, kind, name: True

    def append(*_: object, **__: object) -> None:
        raise StorageOffline("no disk")

    with monkeypatch.context() as patch:
        patch.setattr(g.coordinator.table.log, "append", append)
        assert deleted(g, "g") == {"g": ErrorCode.NOT_COORDINATOR}
    assert g.offsets("g") == {T0: 1}


# ---- FindCoordinator ---------------------------------------------------------------------------------------------


class Lookup:
    def __init__(self, g: Groups) -> None:
        self.groups = g
        self.find = FindCoordinator(
            g.topics, lambda listener, _topic, _partition: (1, f"host-of-{listener}", 9092)
        ).handlers()

    def __call__(self, version: int, **fields: Any) -> Any:
        call = Call(ApiKey.FIND_COORDINATOR, version, "client", self.groups.allowed)
        request = messages.FindCoordinator.Request(**fields)
        response = self.find[ApiKey.FIND_COORDINATOR](
            call, decode(messages.FindCoordinator.Request, version, encode(request, version))
        )
        assert response is not None
        call.respond(response)
        return call.response


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("kind", [0, 1])
def test_this_broker_is_the_coordinator_of_every_key(g: Groups, version: int, kind: int) -> None:
    lookup = Lookup(g)
    kind = kind if version else 0
    topic = ("__consumer_offsets", "__transaction_state")[kind]
    assert g.topics.partitions(topic) is None
    if version < 4:
        found = lookup(version, key="k", key_type=kind)
        assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "host-of-PLAINTEXT", 9092)
        assert found.error_message == ("NONE" if version else "")
    else:
        found = lookup(version, coordinator_keys=["a", "b"], key_type=kind).coordinators
        assert [(each.key, each.error_code, each.node_id) for each in found] == [("a", 0, 1), ("b", 0, 1)]
    assert g.topics.partitions(topic) == 1


@pytest.mark.parametrize("version", [3, 6])
def test_lookups_that_are_refused(g: Groups, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lookup = Lookup(g)

    def code(kind: int) -> int:
        found = lookup(version, key_type=kind, **({"key": "k"} if version < 4 else {"coordinator_keys": ["k"]}))
        found = found if version < 4 else found.coordinators[0]
        assert found.node_id == -1
        error = next(each for each in ErrorCode if each == found.error_code)
        assert found.error_message == (error.name if version < 4 else "")
        return error

    assert code(2) == code(-1) == ErrorCode.INVALID_REQUEST
    g.allowed = lambda operation, kind, name: operation != "DESCRIBE"
    assert code(0) == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert code(1) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    g.allowed = lambda operation, kind, name: True

    def ensure(topic: str) -> None:
        raise OSError("no space")

    monkeypatch.setattr(g.topics, "ensure_internal", ensure)
    assert code(0) == ErrorCode.COORDINATOR_NOT_AVAILABLE
