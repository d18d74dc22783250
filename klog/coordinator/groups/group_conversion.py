"""Conversion of a group with members from one kind to the other: online upgrades and downgrades of KIP-848.

    upgrade     a member joins a classic group of consumers with the new protocol: the group becomes a consumer group;
                its members stay, and go on with the classic protocol
    downgrade   the last member with the new protocol leaves, or is a static one that comes back with the classic
                protocol: the group becomes a classic group, which rebalances

Members keep their ids and partitions; the generation goes on as the epoch, and the other way round.
Kafka: ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup, ConsumerGroupMigrationPolicy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.coordinator.groups import consumer_records as records
from klog.coordinator.groups.classic_group import CONSUMER
from klog.coordinator.groups.classic_member import ClassicMember
from klog.coordinator.groups.consumer_member import ClassicMetadata, ConsumerMember, partitions_of
from klog.coordinator.groups.group_records import group_record
from klog.errors import KlogError
from klog.protocol import decode_data, encode_data, messages

if TYPE_CHECKING:
    import uuid
    from collections.abc import Collection

    from klog.coordinator.groups.classic_group import ClassicGroup
    from klog.coordinator.groups.consumer_group import ConsumerGroup
    from klog.coordinator.groups.consumer_member import Owned
    from klog.coordinator.groups.group import Records
    from klog.protocol.messages import ConsumerProtocolSubscription
    from klog.security.context import Topics


def read_subscription(metadata: bytes) -> tuple[int, ConsumerProtocolSubscription] | None:
    """Version and subscription of a consumer's metadata; None for bytes that are none."""
    try:
        return decode_data(messages.ConsumerProtocolSubscription, metadata)
    except KlogError:
        return None


def assignment_bytes(member: ConsumerMember, topics: Topics) -> bytes:
    """The partitions of a member in the format of consumers, in the version of its subscription."""
    assert member.classic is not None
    found = read_subscription(member.classic.protocols[0][1])
    made = messages.ConsumerProtocolAssignment
    assignment = made(
        assigned_partitions=[
            made.TopicPartition(topic=name, partitions=partitions)
            for topic_id, partitions in partitions_of(member.assigned)
            if (name := topics.name_of(topic_id)) is not None
        ]
    )
    return encode_data(assignment, min(found[0], 3) if found else 0)


# ---- upgrade -------------------------------------------------------------------------------------------------------


def to_consumer(classic: ClassicGroup, group: ConsumerGroup) -> list[records.Change] | None:
    """The changes that give a new consumer group the members of a classic one; None if one is not a consumer.

    If the classic group is rebalancing, its members have the assignments of the last generation, or none.
    """
    if classic.protocol_type != CONSUMER or len(classic.members) > group.config.max_size:
        return None
    generation, group_id = classic.generation, group.group_id
    taken: set[tuple[uuid.UUID, int]] = set()
    members = []
    for member in classic.members.values():
        made = _consumer_member(classic, member, group.topics, taken)
        if made is None:
            return None
        members.append(made)
    changes = [records.member_metadata(group_id, member) for member in members]
    changes.append(records.epoch(group_id, generation, 0))
    changes += [
        records.target(group_id, member.member_id, {key: frozenset(some) for key, some in member.assigned.items()})
        for member in members
    ]
    changes.append(records.target_epoch(group_id, generation, 0))
    changes += [records.current_assignment(group_id, member) for member in members]
    return changes


def _consumer_member(
    classic: ClassicGroup, member: ClassicMember, topics: Topics, taken: set[tuple[uuid.UUID, int]]
) -> ConsumerMember | None:
    protocols = tuple(member.protocols)
    found = read_subscription(member.metadata(classic.protocol) or protocols[0][1])
    if found is None:
        return None
    subscription = found[1]
    return ConsumerMember.new(member.member_id).evolve(
        member_epoch=classic.generation,
        previous_member_epoch=classic.generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        names=frozenset(subscription.topics),
        assigned=_assigned(member.assignment, classic.generation, topics, taken),
        classic=ClassicMetadata(member.session_timeout_ms, protocols),
    )


def _assigned(data: bytes, generation: int, topics: Topics, taken: set[tuple[uuid.UUID, int]]) -> Owned:
    """The partitions of an assignment. Those that an earlier member has, too, stay with that: the assignment was made
    by a client."""
    owned: Owned = {}
    if not data:
        return owned
    try:
        _, assignment = decode_data(messages.ConsumerProtocolAssignment, data)
    except KlogError:
        return owned
    for topic in assignment.assigned_partitions:
        topic_id = topics.topic_id(topic.topic)
        count = topics.partitions(topic.topic)
        if topic_id is None or count is None:
            continue
        for partition in topic.partitions:
            if 0 <= partition < count and (topic_id, partition) not in taken:
                taken.add((topic_id, partition))
                owned.setdefault(topic_id, {})[partition] = generation
    return owned


# ---- downgrade -----------------------------------------------------------------------------------------------------


def can_become_classic(group: ConsumerGroup, without: Collection[str], *, size_max: int) -> bool:
    """Do all members but these use the classic protocol, and is there one at least?"""
    rest = [member for member in group.members.values() if member.member_id not in without]
    return (
        group.config.may_downgrade
        and 0 < len(rest) <= size_max
        and all(member.classic is not None for member in rest)
        and any(group.members[member_id].classic is None for member_id in without if member_id in group.members)
    )


def classic_members(group: ConsumerGroup, without: Collection[str]) -> list[ClassicMember]:
    """The members of a consumer group as classic ones, with their partitions."""
    return [
        ClassicMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.classic.session_timeout_ms,
            CONSUMER,
            list(member.classic.protocols),
            assignment_bytes(member, group.topics),
        )
        for member in group.members.values()
        if member.member_id not in without and member.classic is not None
    ]


def to_classic(
    group: ConsumerGroup, made: ClassicGroup, scratch: ClassicGroup, members: list[ClassicMember]
) -> Records:
    """Fill a new classic group with these members. Returns the records that replace the consumer group by it.

    scratch: another new group, to find out which protocol the members choose.
    """
    scratch.restore(0, CONSUMER, None, None, 0, members)
    protocol = scratch.select_protocol() or members[0].protocols[0][0]
    made.restore(group.epoch, CONSUMER, protocol, None, made.state_timestamp, members)
    return [*records.encode_changes(group.deletion()), group_record(made)]
