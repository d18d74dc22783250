"""The state of a group as of now, for programs in the broker's process: tests that wait for a rebalance, or for an
offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.protocol import decode_data, messages
from klog.values import NamedTuple

if TYPE_CHECKING:
    from klog.coordinator.groups.group import Group
    from klog.coordinator.groups.offsets import OffsetStore


class MemberDescription(NamedTuple):
    """One member. partitions: what it reads now, by topic; empty for a protocol that is not a consumer's."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: dict[str, list[int]]


class GroupDescription(NamedTuple):
    """One group at one moment. state: Kafka's name of it. kind: "classic", "consumer" or "share". offsets: the
    committed ones."""

    group_id: str
    kind: str
    state: str
    members: tuple[MemberDescription, ...]
    offsets: dict[tuple[str, int], int]


def describe(group: Group, offsets: OffsetStore) -> GroupDescription:
    """Describe a group. Under the lock of its table."""
    described: Any = group.describe()
    if group.kind != "classic":
        members = tuple(
            MemberDescription(
                each.member_id,
                getattr(each, "instance_id", None),
                each.client_id,
                each.client_host,
                {
                    topic.topic_name: sorted(topic.partitions)
                    for topic in each.assignment.topic_partitions
                    if topic.topic_name
                },
            )
            for each in described.members
        )
    else:
        members = tuple(
            MemberDescription(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                _assigned(bytes(each.member_assignment)) if group.protocol_type == "consumer" else {},
            )
            for each in described.members
        )
    committed = {
        (topic, partition): found.offset
        for topic, partitions in offsets.topics(group.group_id).items()
        for partition, found in partitions.items()
    }
    return GroupDescription(group.group_id, group.kind, group.state, members, committed)


def _assigned(data: bytes) -> dict[str, list[int]]:
    """The partitions in the assignment of a member, which a client has written; none if it cannot be decoded."""
    try:
        _, assignment = decode_data(messages.ConsumerProtocolAssignment, data)
    except KlogError:
        return {}
    return {each.topic: sorted(each.partitions) for each in assignment.assigned_partitions if each.partitions}
