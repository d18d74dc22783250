"""What a ShareGroupHeartbeat does to a share group: a member joins, stays, changes its subscription, or leaves.

    epoch 0    joins, or joins again
    epoch N    lives; fields that are null have not changed
    epoch -1   leaves

Functions of a group and a request. They return changes, and change nothing but states of new partitions, which
`initialize` writes first: a group has no partition without a state. Kafka: GroupMetadataManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.coordinator.groups.consumer_member import JOIN_EPOCH, LEAVE_EPOCH
from klog.coordinator.groups.refusal import Refused
from klog.coordinator.groups.topics_hash import topics_hash
from klog.coordinator.share.assignor import assign
from klog.coordinator.share.share_group import (
    EPOCH,
    TARGET,
    TARGET_EPOCH,
    ShareMember,
    member_tombstones,
    topic_fields,
)
from klog.protocol import ErrorCode, messages

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable, Mapping

    from klog.coordinator.groups.consumer_heartbeat import Client
    from klog.coordinator.groups.consumer_records import Change
    from klog.coordinator.share.share_group import ShareGroup

    Request = messages.ShareGroupHeartbeat.Request
    Response = messages.ShareGroupHeartbeat.Response
    # The partitions of a group that are to have a state, which begins at this epoch.
    Initialize = Callable[[int, list[tuple[uuid.UUID, int]]], object]


def check_heartbeat(request: Request) -> None:
    """Refuse a request that is not valid in itself. Raises Refused."""
    for value, name in ((request.group_id, "GroupId"), (request.member_id, "MemberId"), (request.rack_id, "RackId")):
        if value is not None and not value.strip():
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        raise Refused(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVE_EPOCH:
        raise Refused(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")


def heartbeat(
    group: ShareGroup, request: Request, client: Client, initialize: Initialize
) -> tuple[Response, list[Change]]:
    """A member joins, or sends a heartbeat. Raises Refused."""
    before = _member(group, request)
    member = before._replace(client_id=client.client_id, client_host=client.host)
    if request.rack_id is not None:
        member = member._replace(rack_id=request.rack_id)
    if request.subscribed_topic_names is not None:
        member = member._replace(names=frozenset(request.subscribed_topic_names))
    draft = _Draft(group, {**group.members, member.member_id: member})
    if member != before:
        draft.changes.append(member.metadata(group.group_id))
    bump = group.epoch == 0 or member.names != before.names
    if bump or group.is_refresh_due(client.monotonic_ms):
        draft.refresh(bump=bump, initialize=initialize)
        group.refreshed(client.monotonic_ms)
    draft.assign(client.now_ms)
    after = draft.reconcile(member)
    response = messages.ShareGroupHeartbeat.Response(
        member_id=member.member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=group.config.heartbeat_interval_ms,
    )
    if request.subscribed_topic_names is not None or after.assigned != before.assigned:
        made = messages.ShareGroupHeartbeat.Response
        response.assignment = made.Assignment(
            topic_partitions=[
                made.TopicPartitions(topic_id=topic_id, partitions=sorted(some))
                for topic_id, some in sorted(after.assigned.items())
            ]
        )
    return response, draft.changes


def leave(group: ShareGroup, member_ids: Iterable[str]) -> list[Change]:
    """Members have left, or their sessions have ended."""
    gone = set(member_ids)
    draft = _Draft(group, {name: member for name, member in group.members.items() if name not in gone})
    for member_id in sorted(gone):
        draft.changes += member_tombstones(group.group_id, member_id)
    draft.bump(draft.metadata_hash())
    return draft.changes


def _member(group: ShareGroup, request: Request) -> ShareMember:
    """The member of a request, which may be new. Raises Refused."""
    member_id, epoch = request.member_id, request.member_epoch
    if member_id not in group.members and epoch == JOIN_EPOCH:
        if len(group.members) >= group.config.max_size:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {group.config.max_size} members.",
            )
        return ShareMember(member_id)
    member = group.member(member_id)
    # The epoch before is that of a member that did not get the last response.
    if epoch not in (JOIN_EPOCH, member.epoch, member.previous_epoch):
        how = "greater" if epoch > member.epoch else "smaller"
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The share group member has a {how} member epoch ({epoch}) than the one known by the group coordinator "
            f"({member.epoch}). The member must abandon all its partitions and rejoin.",
        )
    return member


class _Draft:
    """A group as it will be when the changes are in the log."""

    def __init__(self, group: ShareGroup, members: Mapping[str, ShareMember]) -> None:
        self.changes: list[Change] = []
        self._group = group
        self._members = members
        self._epoch = group.epoch
        self._target_epoch = group.target_epoch
        self._targets = dict(group.target)

    def _names(self) -> frozenset[str]:
        return frozenset().union(*(member.names for member in self._members.values()))

    def metadata_hash(self) -> int:
        """A number for the topics of all members."""
        return topics_hash(self._group.topics, self._names())

    def bump(self, metadata_hash: int) -> None:
        """Raise the epoch: there must be another target assignment."""
        self._epoch += 1
        value = {"epoch": self._epoch, "metadata_hash": metadata_hash}
        self.changes.append((EPOCH, {"group_id": self._group.group_id}, value))

    def refresh(self, *, bump: bool, initialize: Initialize) -> None:
        """Check the subscribed topics, and give their partitions states."""
        metadata_hash = self.metadata_hash()
        if bump or metadata_hash != self._group.metadata_hash:
            self.bump(metadata_hash)
        topics, known = self._group.topics, self._group.initialized
        names = {topic_id: name for name in self._names() if (topic_id := topics.topic_id(name)) is not None}
        wanted = {topic_id: range(topics.partitions(name) or 0) for topic_id, name in names.items()}
        missing = [
            (topic_id, number)
            for topic_id, numbers in wanted.items()
            for number in numbers
            if number not in known.get(topic_id, ())
        ]
        if missing:
            initialize(self._epoch, missing)
            more = {topic_id: known.get(topic_id, frozenset()) | set(numbers) for topic_id, numbers in wanted.items()}
            self.changes.append(self._group.state_change({**known, **more}, names))

    def assign(self, now_ms: int) -> None:
        """Compute the target assignment of the group's epoch, unless it has it. Only what differs is recorded."""
        if self._epoch <= self._target_epoch:
            return
        topics, group_id = self._group.topics, self._group.group_id
        ids = {name: topic_id for name in self._names() if (topic_id := topics.topic_id(name)) is not None}
        sizes = {topic_id: topics.partitions(name) or 0 for name, topic_id in ids.items()}
        specs = {
            member_id: (
                frozenset(ids[name] for name in member.names if name in ids),
                self._targets.get(member_id, {}),
            )
            for member_id, member in self._members.items()
        }
        for member_id, target in assign(specs, sizes).items():
            if self._targets.get(member_id) != target:
                self._targets[member_id] = target
                key = {"group_id": group_id, "member_id": member_id}
                self.changes.append((TARGET, key, {"topic_partitions": topic_fields(target)}))
        self._target_epoch = self._epoch
        value = {"assignment_epoch": self._epoch, "assignment_timestamp": now_ms}
        self.changes.append((TARGET_EPOCH, {"group_id": group_id}, value))

    def reconcile(self, member: ShareMember) -> ShareMember:
        """The member with its target assignment: no other member has to give up a partition first."""
        target = self._targets.get(member.member_id, {})
        if member.epoch == self._target_epoch and member.assigned == target:
            return member
        after = member._replace(epoch=self._target_epoch, previous_epoch=member.epoch, assigned=target)
        self.changes.append(after.current(self._group.group_id))
        return after
