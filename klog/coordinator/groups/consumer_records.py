"""The records of a consumer group, as changes of its state.

    Change := (kind, fields of the key, fields of the value or None for a tombstone)

Kinds and fields are those of klog.internal_topics. A group changes by changes only: those of a request after they were
appended to the log, and those of the log at a start; so both give the same state. Kafka: GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, Any

from klog.coordinator.groups.consumer_member import ClassicMetadata, ConsumerMember, MemberState, partitions_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from klog.coordinator.groups.consumer_member import Owned, Target
    from klog.coordinator.groups.group import Records

Change = tuple[str, dict[str, Any], dict[str, Any] | None]

EPOCH = "consumer_group_metadata"
PARTITION_METADATA = "consumer_group_partition_metadata"  # of Kafka 4.0 and before; now the epoch has a hash
MEMBER = "consumer_group_member_metadata"
TARGET_EPOCH = "consumer_group_target_assignment_metadata"
TARGET = "consumer_group_target_assignment_member"
CURRENT = "consumer_group_current_member_assignment"
REGEX = "consumer_group_regular_expression"
KINDS = frozenset((EPOCH, PARTITION_METADATA, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX))


def encode_changes(changes: Iterable[Change]) -> Records:
    """The records of changes, for __consumer_offsets."""
    from klog.internal_topics import encode_key, encode_value

    return [
        (encode_key(kind, **key), None if value is None else encode_value(kind, 0, **value))
        for kind, key, value in changes
    ]


def epoch(group_id: str, group_epoch: int, metadata_hash: int) -> Change:
    return EPOCH, {"group_id": group_id}, {"epoch": group_epoch, "metadata_hash": metadata_hash}


def target_epoch(group_id: str, assignment_epoch: int, timestamp: int) -> Change:
    return (
        TARGET_EPOCH,
        {"group_id": group_id},
        {"assignment_epoch": assignment_epoch, "assignment_timestamp": timestamp},
    )


def target(group_id: str, member_id: str, partitions: Target) -> Change:
    return (
        TARGET,
        {"group_id": group_id, "member_id": member_id},
        {
            "topic_partitions": [
                {"topic_id": id_text(topic_id), "partitions": some} for topic_id, some in partitions_of(partitions)
            ]
        },
    )


def member_metadata(group_id: str, member: ConsumerMember) -> Change:
    classic = member.classic
    value: dict[str, Any] = {
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.names),
        "subscribed_topic_regex": member.regex,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "server_assignor": member.server_assignor,
        # None has to be written: Kafka reads a field that is left out as an empty one.
        "classic_member_metadata": None
        if classic is None
        else {
            "session_timeout_ms": classic.session_timeout_ms,
            "supported_protocols": [{"name": name, "metadata": metadata} for name, metadata in classic.protocols],
        },
    }
    return MEMBER, {"group_id": group_id, "member_id": member.member_id}, value


def current_assignment(group_id: str, member: ConsumerMember) -> Change:
    return (
        CURRENT,
        {"group_id": group_id, "member_id": member.member_id},
        {
            "member_epoch": member.member_epoch,
            "previous_member_epoch": member.previous_member_epoch,
            "state": int(member.state),
            "assigned_partitions": _owned(member.assigned),
            "partitions_pending_revocation": _owned(member.revoking),
        },
    )


def regular_expression(group_id: str, regex: str, topics: Iterable[str], timestamp: int) -> Change:
    """version: Kafka's of its metadata; 0 makes it resolve the expression again."""
    return (
        REGEX,
        {"group_id": group_id, "regular_expression": regex},
        {"topics": sorted(topics), "version": 0, "timestamp": timestamp},
    )


def regular_expression_tombstone(group_id: str, regex: str) -> Change:
    return REGEX, {"group_id": group_id, "regular_expression": regex}, None


def group_tombstone(kind: str, group_id: str) -> Change:
    return kind, {"group_id": group_id}, None


def member_tombstones(group_id: str, member_id: str) -> list[Change]:
    """All records of a member, in the order in which they may be deleted."""
    return [(kind, {"group_id": group_id, "member_id": member_id}, None) for kind in (CURRENT, TARGET, MEMBER)]


# ---- from records --------------------------------------------------------------------------------------------------


def with_metadata(member: ConsumerMember, value: dict[str, Any]) -> ConsumerMember:
    """The member with the fields of a record MEMBER."""
    classic = value.get("classic_member_metadata")
    return member.evolve(
        instance_id=value["instance_id"],
        rack_id=value["rack_id"],
        client_id=value["client_id"],
        client_host=value["client_host"],
        names=frozenset(value["subscribed_topic_names"] or ()),
        regex=value["subscribed_topic_regex"] or "",
        rebalance_timeout_ms=value["rebalance_timeout_ms"],
        server_assignor=value["server_assignor"],
        classic=None
        if classic is None
        else ClassicMetadata(
            classic["session_timeout_ms"],
            tuple((protocol["name"], protocol["metadata"]) for protocol in classic["supported_protocols"]),
        ),
    )


def with_assignment(member: ConsumerMember, value: dict[str, Any]) -> ConsumerMember:
    """The member with the fields of a record CURRENT."""
    member_epoch = value["member_epoch"]
    return member.evolve(
        member_epoch=member_epoch,
        previous_member_epoch=value["previous_member_epoch"],
        state=MemberState(value["state"]),
        assigned=_from_owned(value["assigned_partitions"], member_epoch),
        revoking=_from_owned(value["partitions_pending_revocation"], member_epoch),
    )


def target_of(value: dict[str, Any]) -> Target:
    """The target assignment of a record TARGET."""
    return {id_of(topic["topic_id"]): frozenset(topic["partitions"]) for topic in value["topic_partitions"]}


def _owned(owned: Owned) -> list[dict[str, Any]]:
    return [
        {
            "topic_id": id_text(topic_id),
            "partitions": partitions,
            "assignment_epochs": [owned[topic_id][partition] for partition in partitions],
        }
        for topic_id, partitions in partitions_of(owned)
    ]


def _from_owned(topics: list[dict[str, Any]], member_epoch: int) -> Owned:
    """Kafka 4.1 and before write no assignment epochs: then it is the member's epoch."""
    found: Owned = {}
    for topic in topics:
        partitions = topic["partitions"]
        epochs = topic.get("assignment_epochs") or [member_epoch] * len(partitions)
        found[id_of(topic["topic_id"])] = dict(zip(partitions, epochs, strict=True))
    return found


def id_text(topic_id: uuid.UUID) -> str:
    """A topic id in Kafka's 22 characters, as klog.internal_topics has them."""
    return urlsafe_b64encode(topic_id.bytes)[:22].decode()


def id_of(text: str) -> uuid.UUID:
    """The topic id of such a text."""
    return uuid.UUID(bytes=urlsafe_b64decode(text + "=="))
