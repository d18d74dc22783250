"""OffsetCommit, OffsetFetch, OffsetDelete, expiry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from klog.coordinator.groups import Group
from klog.errors import RecordTooLarge
from klog.protocol import ApiKey, ErrorCode, encode_data, messages
from tests.coordinator.harness import Groups, groups

DAY_MS = 24 * 60 * 60 * 1000
T0, T1 = ("t", 0), ("t", 1)


def subscription(*topics: str) -> bytes:
    """The metadata of a consumer that subscribes to these topics, version 0."""
    return encode_data(messages.ConsumerProtocolSubscription(topics=list(topics)), 0)


def fetch(g: Groups, version: int, group: str, topics: Mapping[Any, list[int]] | None, **more: Any) -> Any:
    """OffsetFetch for one group, in any version. The keys of topics are names, or ids from version 10 on."""
    Request = messages.OffsetFetch.Request
    if version < 8:
        listed = None
        if topics is not None:
            listed = [Request.Topic(name=name, partition_indexes=numbers) for name, numbers in topics.items()]
        return g.call(ApiKey.OFFSET_FETCH, version, group_id=group, topics=listed, **more).response
    field = "topic_id" if version >= 10 else "name"
    named = None
    if topics is not None:
        named = [Request.GroupTopic(**{field: name}, partition_indexes=numbers) for name, numbers in topics.items()]
    stable = {"require_stable": more.pop("require_stable")} if "require_stable" in more else {}
    asked = Request.Group(group_id=group, topics=named, **more)
    (found,) = g.call(ApiKey.OFFSET_FETCH, version, groups=[asked], **stable).response.groups
    assert found.group_id == group
    return found


# ---- OffsetCommit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 10))
def test_a_commit_in_every_version(g: Groups, version: int) -> None:
    (one,) = g.stable("g")
    more = {"retention_time_ms": 5_000} if version < 5 else {}
    codes = g.commit("g", {T0: 5, T1: 6}, member=one.member_id, generation=1, version=version, **more)
    assert set(codes.values()) == {ErrorCode.NONE}
    assert g.offsets("g") == {T0: 5, T1: 6}
    *_, last = g.records()
    assert last.version == (1 if more else 4)
    assert last.value["commit_timestamp"] == g.clock.wall_ms()
    g.restart()
    assert g.offsets("g") == {T0: 5, T1: 6}


def test_a_commit_by_topic_id(g: Groups) -> None:
    topic_id = g.topics.topic_id("t")
    assert topic_id is not None
    Request = messages.OffsetCommit.Request
    other = UUID(int=7)
    call = g.call(
        ApiKey.OFFSET_COMMIT,
        10,
        group_id="g",
        topics=[
            Request.Topic(topic_id=each, partitions=[Request.Partition(partition_index=n, committed_offset=3)])
            for each, n in ((topic_id, 0), (topic_id, 9), (other, 0))
        ],
    )
    assert [(each.topic_id, each.partitions[0].error_code) for each in call.response.topics] == [
        (topic_id, 0),
        (topic_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (other, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert g.offsets("g") == {T0: 3}
    committed = g.coordinator.table.offsets.get("g", "t", 0)
    assert committed is not None
    assert committed.topic_id == topic_id
    g.restart()
    assert g.coordinator.table.offsets.get("g", "t", 0) == committed


@pytest.mark.parametrize(
    ("member", "generation", "code"),
    [
        (None, 1, ErrorCode.NONE),
        (None, 2, ErrorCode.ILLEGAL_GENERATION),
        (None, -1, ErrorCode.ILLEGAL_GENERATION),
        ("unknown", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_commit_needs_the_member_and_its_generation(
    g: Groups, member: str | None, generation: int, code: ErrorCode
) -> None:
    (one,) = g.stable("g")
    member = one.member_id if member is None else member
    assert g.commit("g", {T0: 5}, member=member, generation=generation) == {T0: code}
    assert g.offsets("g") == ({} if code else {T0: 5})


def test_a_consumer_that_assigns_its_partitions_itself(g: Groups) -> None:
    assert g.commit("g", {T0: 5}) == {T0: ErrorCode.NONE}
    assert g.state("g") == "Empty"
    assert g.commit("g", {T0: 4}, member="x", generation=1) == {T0: ErrorCode.UNKNOWN_MEMBER_ID}
    assert g.commit("", {T0: 5}) == {T0: ErrorCode.NONE}
    g.restart()
    assert g.offsets("g") == {T0: 5}
    (one,) = g.stable("g")  # a member joins the group, so commits need a member id
    assert g.commit("g", {T0: 6}) == {T0: ErrorCode.UNKNOWN_MEMBER_ID}
    g.leave("g", one.member_id)
    assert g.commit("g", {T0: 6}) == {T0: ErrorCode.NONE}


def test_a_member_cannot_commit_to_an_unknown_group(g: Groups) -> None:
    assert g.commit("g", {T0: 5}, member="m", generation=1, version=8) == {T0: ErrorCode.ILLEGAL_GENERATION}
    assert g.commit("g", {T0: 5}, member="m", generation=1, version=9) == {T0: ErrorCode.GROUP_ID_NOT_FOUND}
    assert g.state("g") == "Dead"


def test_commits_during_a_rebalance(g: Groups) -> None:
    (one,) = g.stable("g")
    g.join("g", one.member_id)
    assert g.commit("g", {T0: 5}, member=one.member_id, generation=2) == {T0: ErrorCode.REBALANCE_IN_PROGRESS}
    g.enter("g")
    assert g.state("g") == "PreparingRebalance"
    assert g.commit("g", {T0: 5}, member=one.member_id, generation=2) == {T0: ErrorCode.NONE}


def test_a_commit_extends_the_session(g: Groups) -> None:
    (one,) = g.stable("g", session=10_000)
    for _ in range(5):
        g.clock.advance(9_999)
        g.commit("g", {T0: 5}, member=one.member_id, generation=1)
    assert g.state("g") == "Stable"


def test_each_partition_has_its_error(g: Groups) -> None:
    g.manager.create_topic("secret")
    g.allowed = lambda operation, kind, name: (operation, kind, name) != ("READ", "TOPIC", "secret")
    codes = g.commit("g", {T0: 5, ("t", 3): 1, ("t", -1): 1, ("nothing", 0): 1, ("secret", 0): 1})
    assert codes == {
        T0: ErrorCode.NONE,
        ("t", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nothing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("secret", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    assert g.offsets("g") == {T0: 5}
    g.allowed = lambda operation, kind, name: kind != "GROUP"
    assert g.commit("g", {T0: 6}) == {T0: ErrorCode.GROUP_AUTHORIZATION_FAILED}


def test_metadata_has_a_limit(g: Groups) -> None:
    Request = messages.OffsetCommit.Request
    partitions = [
        Request.Partition(partition_index=number, committed_offset=1, committed_metadata=metadata)
        for number, metadata in enumerate(("x" * 4096, "x" * 4097, None))
    ]
    call = g.call(ApiKey.OFFSET_COMMIT, 9, group_id="g", topics=[Request.Topic(name="t", partitions=partitions)])
    assert [each.error_code for each in call.response.topics[0].partitions] == [
        0,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        0,
    ]
    found = fetch(g, 9, "g", {"t": [0, 1, 2]})
    assert [each.metadata for each in found.topics[0].partitions] == ["x" * 4096, "", ""]
    g.restart()
    assert fetch(g, 9, "g", {"t": [0, 1, 2]}) == found


def test_a_commit_that_cannot_be_stored_changes_nothing(g: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    g.commit("g", {T0: 5})

    def append(*_: object, **__: object) -> None:
        raise RecordTooLarge("too large")

    with monkeypatch.context() as patch:
        patch.setattr(g.coordinator.table.log, "append", append)
        assert g.commit("g", {T0: 6}) == {T0: ErrorCode.UNKNOWN_SERVER_ERROR}
        assert g.commit("h", {T0: 6}) == {T0: ErrorCode.UNKNOWN_SERVER_ERROR}
    assert g.offsets("g") == {T0: 5}
    assert g.state("h") == "Dead"


# ---- OffsetFetch -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 10))
def test_a_fetch_in_every_version(g: Groups, version: int) -> None:
    g.commit("g", {T0: 5})
    found = fetch(g, version, "g", {"t": [0, 1], "nothing": [0]})
    assert found.error_code == 0
    assert [(topic.name, each.partition_index, each.committed_offset, each.metadata, each.error_code)
            for topic in found.topics for each in topic.partitions] == [
        ("t", 0, 5, "m", 0), ("t", 1, -1, "", 0), ("nothing", 0, -1, "", 0),
    ]  # fmt: skip
    assert {each.committed_leader_epoch for topic in found.topics for each in topic.partitions} == {-1}
    if version >= 2:
        every = fetch(g, version, "g", None)
        assert [(topic.name, len(topic.partitions)) for topic in every.topics] == [("t", 1)]
        assert fetch(g, version, "none", None).topics == []
    assert fetch(g, version, "none", {"t": [0]}).topics[0].partitions[0].committed_offset == -1


def test_a_fetch_by_topic_id(g: Groups) -> None:
    g.commit("g", {T0: 5})
    topic_id = g.topics.topic_id("t")
    assert topic_id is not None
    other = UUID(int=7)
    found = fetch(g, 10, "g", {topic_id: [0, 1], other: [0]})
    assert [(topic.topic_id, [(each.committed_offset, each.error_code) for each in topic.partitions])
            for topic in found.topics] == [
        (topic_id, [(5, 0), (-1, 0)]), (other, [(-1, ErrorCode.UNKNOWN_TOPIC_ID)]),
    ]  # fmt: skip
    every = fetch(g, 10, "g", None)
    assert [(topic.topic_id, topic.partitions[0].committed_offset) for topic in every.topics] == [(topic_id, 5)]
    g.manager.delete_topic("t")
    assert fetch(g, 10, "g", None).topics == []
    assert len(fetch(g, 9, "g", None).topics) == 1


def test_an_offset_of_a_deleted_topic_does_not_apply_to_a_new_topic_of_its_name(g: Groups) -> None:
    topic_id = g.topics.topic_id("t")
    assert topic_id is not None
    Request = messages.OffsetCommit.Request
    topic = Request.Topic(topic_id=topic_id, partitions=[Request.Partition(partition_index=0, committed_offset=3)])
    g.call(ApiKey.OFFSET_COMMIT, 10, group_id="g", topics=[topic])
    g.manager.delete_topic("t")
    g.manager.create_topic("t")
    found = fetch(g, 10, "g", {g.topics.topic_id("t"): [0]})
    assert found.topics[0].partitions[0].committed_offset == -1


@pytest.mark.parametrize("version", range(1, 10))
def test_a_fetch_without_authorization(g: Groups, version: int) -> None:
    g.commit("g", {T0: 5})
    g.allowed = lambda operation, kind, name: (operation, kind) != ("DESCRIBE", "GROUP")
    found = fetch(g, version, "g", {"t": [0]})
    code = found.topics[0].partitions[0].error_code if version == 1 else found.error_code
    assert code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    g.allowed = lambda operation, kind, name: (operation, kind) != ("DESCRIBE", "TOPIC")
    found = fetch(g, version, "g", {"t": [0]})
    assert found.topics[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert found.topics[0].partitions[0].committed_offset == -1
    if version >= 2:
        assert fetch(g, version, "g", None).topics == []


def test_a_fetch_of_many_groups(g: Groups) -> None:
    g.commit("a", {T0: 1})
    g.commit("b", {T0: 2})
    Group = messages.OffsetFetch.Request.Group
    call = g.call(ApiKey.OFFSET_FETCH, 8, groups=[Group(group_id=name, topics=None) for name in ("a", "x", "b")])
    assert [
        (group.group_id, [each.committed_offset for topic in group.topics for each in topic.partitions])
        for group in call.response.groups
    ] == [("a", [1]), ("x", []), ("b", [2])]


# ---- OffsetDelete ------------------------------------------------------------------------------------------------


def delete(g: Groups, group: str, *partitions: tuple[str, int]) -> Any:
    Request = messages.OffsetDelete.Request
    topics = [
        Request.Topic(name=name, partitions=[Request.Partition(partition_index=number)]) for name, number in partitions
    ]
    return g.call(ApiKey.OFFSET_DELETE, group_id=group, topics=topics).response


def errors(response: Any) -> list[int]:
    return [each.error_code for topic in response.topics for each in topic.partitions]


def test_offsets_of_an_empty_group_are_deleted(g: Groups) -> None:
    g.commit("g", {T0: 5, T1: 6})
    assert errors(delete(g, "g", T0, ("t", 2), ("t", 9), ("nothing", 0))) == [0, 0, 3, 3]
    assert g.offsets("g") == {T1: 6}
    *_, last = g.records()
    assert (last.key["partition"], last.value) == (0, None)
    g.restart()
    assert g.offsets("g") == {T1: 6}


def test_offsets_that_a_member_reads_are_not_deleted(g: Groups) -> None:
    g.manager.create_topic("u")
    (one,) = g.stable("g", protocols={"range": subscription("t")})
    g.commit("g", {T0: 5, ("u", 0): 6}, member=one.member_id, generation=1)
    assert errors(delete(g, "g", T0, ("u", 0))) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]
    assert g.offsets("g") == {T0: 5}


def test_a_group_with_unreadable_subscriptions_counts_as_subscribed_to_all_topics(g: Groups) -> None:
    (one,) = g.stable("g", protocols={"range": b"\0\0\0\0\0\5"})
    g.commit("g", {T0: 5}, member=one.member_id, generation=1)
    assert errors(delete(g, "g", T0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_of_members_of_another_type_are_not_deleted(g: Groups) -> None:
    g.enter("c", protocol_type="connect")
    assert delete(g, "c", T0).error_code == ErrorCode.NON_EMPTY_GROUP
    assert delete(g, "nothing", T0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete(g, "", T0).error_code == ErrorCode.INVALID_GROUP_ID
    g.commit("g", {T0: 5})
    g.allowed = lambda operation, kind, name: operation != "DELETE"
    assert delete(g, "g", T0).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    g.allowed = lambda operation, kind, name: kind != "TOPIC"
    assert errors(delete(g, "g", T0)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    g.allowed = lambda operation, kind, name: True
    assert g.offsets("g") == {T0: 5}


# ---- expiry ------------------------------------------------------------------------------------------------------


def test_offsets_without_a_group_expire_after_their_commit(g: Groups) -> None:
    g.commit("g", {T0: 5})
    g.clock.advance(DAY_MS)
    g.commit("g", {T1: 6})
    g.clock.advance(6 * DAY_MS - 1)
    assert g.offsets("g") == {T0: 5, T1: 6}
    g.clock.advance(600_001)
    assert g.offsets("g") == {T1: 6}
    g.clock.advance(DAY_MS)
    assert g.state("g") == "Dead"
    *_, last = g.records()
    assert (last.type, last.value) == ("group_metadata", None)
    g.restart()
    assert g.state("g") == "Dead"


def test_offsets_of_a_group_expire_after_it_became_empty(g: Groups) -> None:
    (one,) = g.stable("g", session=1_800_000)
    g.commit("g", {T0: 5}, member=one.member_id, generation=1)
    for _ in range(20 * 48):
        g.clock.advance(DAY_MS // 48 - 1)
        assert g.heartbeat("g", one.member_id, 1) is ErrorCode.NONE
    assert g.offsets("g") == {T0: 5}  # the topics of the members are unknown, so all offsets are kept
    g.leave("g", one.member_id)
    g.clock.advance(7 * DAY_MS - 600_000)
    assert g.offsets("g") == {T0: 5}
    g.clock.advance(1_200_000)
    assert g.state("g") == "Dead"


def test_offsets_that_no_member_reads_any_more_expire(g: Groups) -> None:
    g.manager.create_topic("u")
    (one,) = g.stable("g", protocols={"range": subscription("t")}, session=1_800_000)
    g.commit("g", {T0: 5, ("u", 0): 6}, member=one.member_id, generation=1)
    for _ in range(8 * 48):
        g.clock.advance(DAY_MS // 48 - 1)
        g.heartbeat("g", one.member_id, 1)
    assert g.offsets("g") == {T0: 5}
    assert g.state("g") == "Stable"


def test_the_retention_time_of_a_commit_overrides_the_configured_one(g: Groups) -> None:
    g.commit("g", {T0: 5}, version=4, retention_time_ms=3_600_000)
    g.commit("g", {T1: 5}, version=4, retention_time_ms=10 * DAY_MS)
    g.restart()
    g.clock.advance(3_600_000 - 1)
    assert g.offsets("g") == {T0: 5, T1: 5}
    g.clock.advance(600_001)
    assert g.offsets("g") == {T1: 5}
    g.clock.advance(9 * DAY_MS)
    assert g.offsets("g") == {T1: 5}


def test_a_retention_time_beyond_the_largest_timestamp_never_ends(g: Groups) -> None:
    assert g.commit("g", {T0: 5}, version=2, retention_time_ms=2**63 - 1) == {T0: ErrorCode.NONE}
    *_, last = g.records()
    assert last.value["expire_timestamp"] == 2**63 - 1
    g.clock.advance(400 * DAY_MS)
    g.restart()
    assert g.offsets("g") == {T0: 5}


def test_the_retention_and_its_interval_are_configured(tmp_path: Path) -> None:
    config = {"offsets_retention_minutes": 1, "offsets_retention_check_interval_ms": 7_000}
    with groups(tmp_path, config=config) as g:
        g.commit("g", {T0: 5})
        g.clock.advance(62_999)
        assert g.offsets("g") == {T0: 5}
        g.clock.advance(1)
        assert g.offsets("g") == {}


def test_a_pending_offset_does_not_expire(g: Groups) -> None:
    g.commit("g", {T0: 5, T1: 5})
    g.txn_commit("g", {T0: 6})
    g.clock.advance(8 * DAY_MS)
    assert g.offsets("g") == {T0: 5}
    g.txn_commit("pending", {T0: 6}, producer=(8, 0))
    g.clock.advance(8 * DAY_MS)
    assert g.state("g") == g.state("pending") == "Empty"


def test_offsets_of_deleted_partitions_are_deleted(g: Groups) -> None:
    g.commit("g", {T0: 5, T1: 6})
    g.commit("h", {T0: 7})
    g.txn_commit("h", {T1: 8})
    g.coordinator.partitions_deleted([T1, ("nothing", 0)])
    g.end("h", True)
    assert g.offsets("g") == {T0: 5}
    assert g.offsets("h") == {T0: 7}
    g.restart()
    assert g.offsets("g") == {T0: 5}
    assert g.offsets("h") == {T0: 7}


def test_a_group_is_what_both_kinds_have_in_common(g: Groups) -> None:
    g.commit("g", {T0: 5})
    group: Group = g.coordinator.table.groups()[0]  # mypy checks the Protocol
    assert (group.kind, group.state, group.protocol_type, group.is_empty) == ("classic", "Empty", "", True)
