"""Reconciliation: the next step of a member from the partitions that it has to its target assignment.

  1  What it has beyond its target is taken from `assigned` and becomes `revoking`. The member keeps its epoch, in the
     state UNREVOKED_PARTITIONS, until it reports partitions without any of these.
  2  Then it moves to the epoch of the target and gets those partitions of it that have no owner. If others are still
     owned, it is UNRELEASED_PARTITIONS and gets them when it heartbeats after they are free; else it is STABLE.

  R1  A partition is assigned to a member only if no other member has it in `assigned` or `revoking`.

Kafka: CurrentAssignmentBuilder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.coordinator.groups.consumer_member import MemberState
from klog.coordinator.groups.refusal import Refused
from klog.protocol import ErrorCode

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Sequence

    from klog.coordinator.groups.consumer_member import ConsumerMember, Owned, Target

# What a member reports: topic ids with partitions; None if it reports nothing in this heartbeat.
Reported = "Sequence[tuple[uuid.UUID, Sequence[int]]] | None"


class Reconciliation:
    """One step of one member. owner: the id of the member that owns a partition now, None for a free one."""

    def __init__(
        self,
        *,
        target_epoch: int,
        target: Target,
        subscribed: frozenset[uuid.UUID],
        subscription_changed: bool,
        reported: Sequence[tuple[uuid.UUID, Sequence[int]]] | None,
        owner: Callable[[uuid.UUID, int], str | None],
    ) -> None:
        self._target_epoch = target_epoch
        self._target = target
        self._subscribed = subscribed
        self._subscription_changed = subscription_changed
        self._reported = reported
        self._owner = owner

    def next(self, member: ConsumerMember) -> ConsumerMember:
        """The member after the step; itself if it has to wait. Raises Refused."""
        if member.state is MemberState.STABLE:
            if member.member_epoch != self._target_epoch:
                return self._advance(member)
            return self._unsubscribe(member) if self._subscription_changed else member
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            if self._still_owns(member.revoking):
                return self._unsubscribe(member) if self._subscription_changed else member
            return self._advance(member)
        if member.state is MemberState.UNRELEASED_PARTITIONS:
            return self._advance(member)
        if self._reported is None or self._reported:
            raise Refused(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in an unknown state; it must abandon all its partitions and rejoin.",
            )
        return self._advance(member)

    def _still_owns(self, owned: Owned) -> bool:
        """Does the member still own some of these? A member that reports nothing owns what it owned."""
        if self._reported is None:
            return True
        return any(
            partition in owned.get(topic_id, ()) for topic_id, partitions in self._reported for partition in partitions
        )

    def _unsubscribe(self, member: ConsumerMember) -> ConsumerMember:
        """Revoke the partitions of topics that the member no longer subscribes to; the target comes later."""
        gone = {topic_id: owned for topic_id, owned in member.assigned.items() if topic_id not in self._subscribed}
        if not gone:
            return member
        assigned = {topic_id: owned for topic_id, owned in member.assigned.items() if topic_id not in gone}
        revoking = dict(member.revoking)
        for topic_id, owned in gone.items():
            revoking[topic_id] = {**revoking.get(topic_id, {}), **owned}
        if self._still_owns(revoking):
            return member.at_epoch(
                member.member_epoch, state=MemberState.UNREVOKED_PARTITIONS, assigned=assigned, revoking=revoking
            )
        return member.at_epoch(member.member_epoch, assigned=assigned)

    def _advance(self, member: ConsumerMember) -> ConsumerMember:
        assigned: Owned = {}
        revoking: Owned = {}
        waits = False
        for topic_id in self._target.keys() | member.assigned.keys():
            target = self._target.get(topic_id, frozenset()) if topic_id in self._subscribed else frozenset()
            owned = member.assigned.get(topic_id, {})
            kept = {partition: epoch for partition, epoch in owned.items() if partition in target}
            if len(kept) < len(owned):
                revoking[topic_id] = {partition: epoch for partition, epoch in owned.items() if partition not in target}
            for partition in target:
                if partition not in kept:
                    # What the member itself has given up is free for it, too.
                    if self._owner(topic_id, partition) in (None, member.member_id):
                        kept[partition] = self._target_epoch
                    else:
                        waits = True
            if kept:
                assigned[topic_id] = kept
        if revoking and self._still_owns(revoking):
            # Without what is new: the member stays at its epoch.
            before = {
                topic_id: old
                for topic_id, some in assigned.items()
                if (old := {p: epoch for p, epoch in some.items() if p in member.assigned.get(topic_id, ())})
            }
            return member.at_epoch(
                member.member_epoch, state=MemberState.UNREVOKED_PARTITIONS, assigned=before, revoking=revoking
            )
        state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
        return member.at_epoch(self._target_epoch, state=state, assigned=assigned, revoking={})
