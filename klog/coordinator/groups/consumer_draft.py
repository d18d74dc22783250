"""ConsumerDraft: a consumer group as it will be when the changes of a request are in the log.

It sees the group's members, targets and expressions with its own changes over them, and collects the changes. The group
itself does not change (G1): if the append fails, the draft is dropped.
Kafka: GroupMetadataManager, TargetAssignmentBuilder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.coordinator.groups import consumer_records as records
from klog.coordinator.groups.assignors import ASSIGNORS, MemberSpec
from klog.coordinator.groups.reconciliation import Reconciliation
from klog.coordinator.groups.topics_hash import topics_hash

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Sequence

    from klog.coordinator.groups.consumer_group import ConsumerGroup
    from klog.coordinator.groups.consumer_member import ConsumerMember, Target


class ConsumerDraft:
    """The changes of one request. now_ms: ms since 1970."""

    def __init__(self, group: ConsumerGroup, now_ms: int) -> None:
        self.group = group
        self.changes: list[records.Change] = []
        self.epoch = group.epoch
        self.target_epoch = group.target_epoch
        self._now_ms = now_ms
        self._hash = group.metadata_hash
        self._target_timestamp = group.target_timestamp
        # Over what the group has; None: removed.
        self._members: dict[str, ConsumerMember | None] = {}
        self._targets: dict[str, Target | None] = {}
        self._expressions: dict[str, frozenset[str] | None] = {}

    # ---- the group with the changes --------------------------------------------------------------------------------

    def members(self) -> dict[str, ConsumerMember]:
        """The members by id."""
        found = dict(self.group.members)
        for member_id, member in self._members.items():
            if member is None:
                found.pop(member_id, None)
            else:
                found[member_id] = member
        return found

    def target_of(self, member_id: str) -> Target:
        """The target assignment of a member."""
        if member_id in self._targets:
            return self._targets[member_id] or {}
        return self.group.target.get(member_id, {})

    def expression(self, regex: str) -> frozenset[str] | None:
        """The topics of a regular expression; None if it is not resolved."""
        if regex in self._expressions:
            return self._expressions[regex]
        resolved = self.group.resolved.get(regex)
        return None if resolved is None else resolved.topics

    def topics_of(self, names: frozenset[str], regex: str) -> frozenset[str]:
        """The names of the topics of a subscription."""
        resolved = self.expression(regex) if regex else None
        return names if resolved is None else names | resolved

    def topic_ids_of(self, member: ConsumerMember) -> frozenset[uuid.UUID]:
        """The ids of the topics of a member that exist."""
        return self._ids(self.topics_of(member.names, member.regex))

    def _ids(self, names: Iterable[str]) -> frozenset[uuid.UUID]:
        topic_id = self.group.topics.topic_id
        return frozenset(found for name in names if (found := topic_id(name)) is not None)

    def subscribed(self) -> frozenset[str]:
        """The names of the topics of all members."""
        if not self._members and not self._expressions:
            return self.group.subscribed()
        subscriptions = {(member.names, member.regex) for member in self.members().values()}
        return frozenset().union(*(self.topics_of(*subscription) for subscription in subscriptions))

    # ---- changes ---------------------------------------------------------------------------------------------------

    def put(self, member: ConsumerMember) -> None:
        """Add or replace a member, with its record."""
        self._members[member.member_id] = member
        self.changes.append(records.member_metadata(self.group.group_id, member))

    def remove(self, member_id: str) -> None:
        """Remove a member, with its records."""
        self._members[member_id] = None
        self._targets[member_id] = None
        self.changes += records.member_tombstones(self.group.group_id, member_id)

    def replace(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """Give a static member another id. It keeps its target and its partitions."""
        target = self.target_of(old.member_id)
        if old.member_id != new.member_id:
            self.remove(old.member_id)
        self.put(new)
        self._targets[new.member_id] = target
        self.changes.append(records.target(self.group.group_id, new.member_id, target))
        self.changes.append(records.current_assignment(self.group.group_id, new))

    def resolve(self, regex: str, topics: frozenset[str]) -> bool:
        """Set the topics of an expression. Returns whether they are others than before."""
        changed = self.expression(regex) != topics
        self._expressions[regex] = topics
        self.changes.append(records.regular_expression(self.group.group_id, regex, topics, self._now_ms))
        return changed

    def forget_expressions(self) -> None:
        """Remove the expressions that no member has any more."""
        used = {member.regex for member in self.members().values()}
        for regex in sorted(self.group.resolved.keys() - used):
            if self._expressions.get(regex, frozenset()) is not None:
                self._expressions[regex] = None
                self.changes.append(records.regular_expression_tombstone(self.group.group_id, regex))

    def refresh(self, *, bump: bool, monotonic_ms: int) -> None:
        """Check the subscribed topics. The group's epoch rises if they have changed, or if bump is given."""
        metadata_hash = self._metadata_hash()
        if bump or metadata_hash != self._hash:
            self.bump(metadata_hash)
        self.group.refreshed(monotonic_ms)

    def bump(self, metadata_hash: int | None = None) -> None:
        """Raise the epoch: there must be another target assignment."""
        self._hash = self._metadata_hash() if metadata_hash is None else metadata_hash
        self.epoch += 1
        self.changes.append(records.epoch(self.group.group_id, self.epoch, self._hash))
        if self.group.has_partition_metadata:
            self.changes.append(records.group_tombstone(records.PARTITION_METADATA, self.group.group_id))

    def _metadata_hash(self) -> int:
        return topics_hash(self.group.topics, self.subscribed())

    def assign(self) -> None:
        """Compute the target assignment of the group's epoch, unless it has it. Only what differs is recorded."""
        since_ms = self._now_ms - self._target_timestamp
        if self.epoch <= self.target_epoch or 0 <= since_ms < self.group.config.assignment_interval_ms:
            return
        members = self.members()
        topics = self.group.topics
        sizes = {
            topic_id: count
            for name in self.subscribed()
            if (topic_id := topics.topic_id(name)) is not None and (count := topics.partitions(name)) is not None
        }
        subscriptions: dict[tuple[frozenset[str], str], frozenset[uuid.UUID]] = {}
        specs = {}
        for member_id, member in members.items():
            key = (member.names, member.regex)
            if key not in subscriptions:
                subscriptions[key] = self.topic_ids_of(member)
            specs[member_id] = MemberSpec(subscriptions[key], self.target_of(member_id), member.instance_id)
        assignor = ASSIGNORS[self.group.preferred_assignor(members.values())]
        for member_id, target in assignor(specs, sizes).items():
            known = self._targets.get(member_id) if member_id in self._targets else self.group.target.get(member_id)
            if known != target:
                self._targets[member_id] = target
                self.changes.append(records.target(self.group.group_id, member_id, target))
        self.target_epoch = self.epoch
        self._target_timestamp = self._now_ms
        self.changes.append(records.target_epoch(self.group.group_id, self.epoch, self._now_ms))

    def reconcile(
        self,
        member: ConsumerMember,
        *,
        subscription_changed: bool,
        reported: Sequence[tuple[uuid.UUID, Sequence[int]]] | None,
    ) -> ConsumerMember:
        """Take the member a step towards its target. Raises Refused."""
        if not subscription_changed and member.is_reconciled_to(self.target_epoch):
            return member
        step = Reconciliation(
            target_epoch=self.target_epoch,
            target=self.target_of(member.member_id),
            subscribed=self.topic_ids_of(member),
            subscription_changed=subscription_changed,
            reported=reported,
            owner=self.group.owner,
        )
        found = step.next(member)
        if found != member:
            self._members[member.member_id] = found
            self.changes.append(records.current_assignment(self.group.group_id, found))
        return found

    def fence(self, member_ids: Iterable[str]) -> None:
        """Remove members; the group's epoch rises."""
        for member_id in member_ids:
            self.remove(member_id)
        self.forget_expressions()
        self.bump()

    def leave_for_now(self, member: ConsumerMember, epoch: int) -> None:
        """A static member leaves and will come back: it keeps its target and its partitions."""
        left = member.evolve(member_epoch=epoch, revoking={})
        self._members[member.member_id] = left
        self.changes.append(records.current_assignment(self.group.group_id, left))
