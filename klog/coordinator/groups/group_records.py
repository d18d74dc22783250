"""Records of classic groups: one for each generation with its members and their assignments.

Version 3 of the value, as Kafka 4 writes it. Kafka: GroupCoordinatorRecordHelpers.newGroupMetadataRecord.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.coordinator.groups.classic_member import ClassicMember
from klog.coordinator.groups.group_keys import group_key
from klog.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Iterable

    from klog.coordinator.groups.classic_group import ClassicGroup
    from klog.record import Record

_VERSION = 3


def group_record(group: ClassicGroup, assignments: dict[str, bytes] | None = None) -> tuple[bytes, bytes]:
    """The record of a group. assignments: by member id, where a member that is missing has an empty one; None: those
    that the members have. Raises ValueError for a name that is too long."""
    return _record(group, group.members.values(), group.leader, assignments)


def group_record_with(group: ClassicGroup, old: ClassicMember, new: ClassicMember) -> tuple[bytes, bytes]:
    """The record of a group as it is after replace_static(old, new)."""
    members = [new if member is old else member for member in group.members.values()]
    return _record(group, members, new.member_id if group.leader == old.member_id else group.leader, None)


def _record(
    group: ClassicGroup,
    members: Iterable[ClassicMember],
    leader: str | None,
    assignments: dict[str, bytes] | None,
) -> tuple[bytes, bytes]:
    from klog.internal_topics import encode_value  # reads schemas

    listed = [
        {
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "rebalance_timeout": member.rebalance_timeout_ms,
            "session_timeout": member.session_timeout_ms,
            "subscription": member.metadata(group.protocol),
            "assignment": member.assignment if assignments is None else assignments.get(member.member_id, b""),
        }
        for member in members
    ]
    value = encode_value(
        "group_metadata",
        _VERSION,
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol,
        leader=leader,
        current_state_timestamp=group.state_timestamp,
        members=listed,
    )
    return group_key(group.group_id), value


def restore(group: ClassicGroup, record: Record) -> None:
    """Take over the value of a record. Raises CorruptData."""
    from klog.internal_topics.consumer_offsets import TYPES

    assert record.value is not None
    try:
        _, fields = TYPES[2].read_value(record.value)
        members = {each["member_id"]: _member(fields, each) for each in fields["members"] or ()}
        instances = [member.instance_id for member in members.values() if member.instance_id is not None]
        if None in members or len(set(instances)) < len(instances):
            raise ValueError("two members with one group.instance.id, or one without an id")
    except ValueError as error:
        raise CorruptData(f"a group cannot be decoded: {error}", offset=record.offset) from None
    group.restore(
        fields["generation"],
        fields["protocol_type"] or "",
        fields["protocol"],
        fields["leader"],
        fields.get("current_state_timestamp", -1),
        members.values(),
    )


def _member(group: dict[str, Any], fields: dict[str, Any]) -> ClassicMember:
    session_timeout_ms = fields["session_timeout"]
    return ClassicMember(
        fields["member_id"],
        fields.get("group_instance_id"),
        fields["client_id"] or "",
        fields["client_host"] or "",
        fields.get("rebalance_timeout", session_timeout_ms),
        session_timeout_ms,
        group["protocol_type"] or "",
        [(group["protocol"] or "", fields["subscription"] or b"")],
        fields["assignment"] or b"",
    )
