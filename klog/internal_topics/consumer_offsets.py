"""The records of __consumer_offsets: committed offsets, and groups with their members.

    key    := type:i16 field*       the types are those of TYPES; never flexible
    value  := version:i16 field*    null: a tombstone

A member of a classic group of the protocol type `consumer` has its subscription and assignment in the consumers' own
format, which the broker does not read: version:i16 field*, never flexible.
Kafka: CoordinatorRecordType of the group coordinator (4.3); ConsumerProtocolSubscription, ConsumerProtocolAssignment.
"""

from __future__ import annotations

import struct
from typing import Final

from klog.errors import CorruptFrame
from klog.internal_topics.tables import Fields, KeyedType, keyed
from klog.protocol import decode_fields, encode_fields, versions_of

TYPES: Final[dict[int, KeyedType]] = {
    0: KeyedType(0, "legacy_offset_commit", "OffsetCommit"),
    **keyed(
        {
            1: "offset_commit",
            2: "group_metadata",
            3: "consumer_group_metadata",
            4: "consumer_group_partition_metadata",
            5: "consumer_group_member_metadata",
            6: "consumer_group_target_assignment_metadata",
            7: "consumer_group_target_assignment_member",
            8: "consumer_group_current_member_assignment",
            10: "share_group_member_metadata",
            11: "share_group_metadata",
            12: "share_group_target_assignment_metadata",
            13: "share_group_target_assignment_member",
            14: "share_group_current_member_assignment",
            15: "share_group_state_partition_metadata",
            16: "consumer_group_regular_expression",
            17: "streams_group_metadata",
            19: "streams_group_member_metadata",
            20: "streams_group_target_assignment_metadata",
            21: "streams_group_target_assignment_member",
            22: "streams_group_current_member_assignment",
            23: "streams_group_topology",
        }
    ),
}
_CONSUMER: Final = {"subscription": "ConsumerProtocolSubscription", "assignment": "ConsumerProtocolAssignment"}
_VERSION: Final = struct.Struct(">h")


def is_offset_key(key: bytes | None) -> bool:
    """Return whether it is the key of a committed offset."""
    return key is not None and key[:2] in (b"\0\0", b"\0\1")


def with_members_decoded(value: Fields) -> Fields:
    """Return a group_metadata value with the members' subscription and assignment as fields.

    Bytes of another form, such as those of Kafka Connect, stay as they are.
    """
    if value["protocol_type"] == "consumer":
        for member in value["members"]:
            for name, message in _CONSUMER.items():
                data = member[name]
                if len(data) < _VERSION.size:
                    continue
                (version,) = _VERSION.unpack_from(data)
                if version < 0:
                    continue
                # A newer version begins with the known fields; consumers read it in the same way.
                known = min(version, versions_of(message)[1])
                try:
                    member[name] = {"version": version, **decode_fields(message, known, data, _VERSION.size)[0]}
                except CorruptFrame:
                    continue
    return value


def with_members_encoded(value: Fields) -> Fields:
    """Return a group_metadata value whose members have their subscription and assignment as bytes: the reverse of
    with_members_decoded()."""
    members = value.get("members")
    if not isinstance(members, (list, tuple)) or not any(map(_has_fields, members)):
        return value
    return {**value, "members": [_encoded(member) if _has_fields(member) else member for member in members]}


def _has_fields(member: object) -> bool:
    return isinstance(member, dict) and any(isinstance(member.get(name), dict) for name in _CONSUMER)


def _encoded(member: Fields) -> Fields:
    made = dict(member)
    for name, message in _CONSUMER.items():
        if isinstance(made.get(name), dict):
            fields = dict(made[name])
            version = fields.pop("version", 0)
            made[name] = encode_fields(message, version, fields, _VERSION.pack(version))
    return made
