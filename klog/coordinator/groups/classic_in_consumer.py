"""Members with the classic protocol in a consumer group: their JoinGroup, SyncGroup, Heartbeat and LeaveGroup requests.

    JoinGroup   a step of the member's reconciliation, answered at once; its generation is the member's epoch
    SyncGroup   the partitions that it has now
    Heartbeat   REBALANCE_IN_PROGRESS if it has to join again: its group has another epoch, it must revoke partitions,
                or partitions that it waits for are free

Under the coordinator's lock. Kafka: classicGroupJoinToConsumerGroup and its neighbours of GroupMetadataManager.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from klog.coordinator.groups.classic_group import CONSUMER
from klog.coordinator.groups.classic_member import MEMBER_ID_REQUIRED_VERSION, join_refused, sync_refused
from klog.coordinator.groups.consumer_draft import ConsumerDraft
from klog.coordinator.groups.consumer_group import ConsumerGroup
from klog.coordinator.groups.consumer_heartbeat import Outcome, Subscription, check_size, check_static, replace_static
from klog.coordinator.groups.consumer_member import ClassicMetadata, ConsumerMember, MemberState
from klog.coordinator.groups.consumer_records import id_text
from klog.coordinator.groups.group_conversion import assignment_bytes, read_subscription
from klog.coordinator.groups.refusal import Refused
from klog.coordinator.groups.table import AppendFailed
from klog.protocol import ErrorCode, messages

if TYPE_CHECKING:
    from klog.coordinator.groups.classic_member import Protocols
    from klog.coordinator.groups.consumer_groups import ConsumerGroups
    from klog.coordinator.groups.group import Group
    from klog.protocol.messages import ConsumerProtocolSubscription, Heartbeat, JoinGroup, SyncGroup
    from klog.security.context import Context


def _consumer(group: Group) -> ConsumerGroup:
    assert isinstance(group, ConsumerGroup)
    return group


class ClassicInConsumer:
    """The classic requests to consumer groups."""

    def __init__(self, consumers: ConsumerGroups) -> None:
        self._consumers = consumers

    # ---- JoinGroup -------------------------------------------------------------------------------------------------

    def join(
        self, context: Context, group: Group, request: JoinGroup.Request, protocols: Protocols
    ) -> JoinGroup.Response | None:
        """A member joins, or joins again. None: this member was the last one with the new protocol, and the group is a
        classic one now, or empty."""
        try:
            return self._join(context, _consumer(group), request, protocols)
        except Refused as refused:
            return join_refused(context, refused.code, request.member_id)
        except AppendFailed as failed:
            return join_refused(context, failed.code, request.member_id)

    def _join(
        self, context: Context, group: ConsumerGroup, request: JoinGroup.Request, protocols: Protocols
    ) -> JoinGroup.Response | None:
        is_new = not request.member_id
        member_id = request.member_id or id_text(uuid.uuid4())
        instance_id = request.group_instance_id
        check_size(group, member_id)
        subscription = self._check_protocols(group, request, protocols)
        if is_new and instance_id is None and context.version >= MEMBER_ID_REQUIRED_VERSION:
            return join_refused(context, ErrorCode.MEMBER_ID_REQUIRED, member_id)
        draft = ConsumerDraft(group, self._consumers.now_ms())
        before = self._member(draft, member_id, instance_id, is_new=is_new)
        if self._consumers.downgrade_for(group, instance_id):
            return None
        member = before.evolve(
            instance_id=instance_id if instance_id is not None else before.instance_id,
            rack_id=subscription.rack_id or before.rack_id,
            rebalance_timeout_ms=request.session_timeout_ms if context.version == 0 else request.rebalance_timeout_ms,
            names=frozenset(subscription.topics),
            regex="",
            client_id=context.client_id,
            client_host=context.client_host,
            classic=ClassicMetadata(request.session_timeout_ms, tuple(protocols)),
        )
        if member != before:
            draft.put(member)
        change = Subscription(draft, before, member, self._consumers.client(context))
        change.update(bump=False)
        draft.assign()
        topic_id = group.topics.topic_id
        reported = [
            (found, owned.partitions)
            for owned in subscription.owned_partitions
            if (found := topic_id(owned.topic)) is not None
        ]
        after = draft.reconcile(member, subscription_changed=change.changed, reported=reported)
        outcome = Outcome(draft.changes)
        outcome.timers["session", member_id] = request.session_timeout_ms
        outcome.timers["sync", member_id] = member.rebalance_timeout_ms
        outcome.timers["join", member_id] = outcome.timers["rebalance", member_id] = None
        self._consumers.commit(group, outcome)
        return messages.JoinGroup.Response(
            error_code=ErrorCode.NONE,
            generation_id=after.member_epoch,
            protocol_type=CONSUMER,
            protocol_name=protocols[0][0],
            member_id=member_id,
        )

    @staticmethod
    def _check_protocols(
        group: ConsumerGroup, request: JoinGroup.Request, protocols: Protocols
    ) -> ConsumerProtocolSubscription:
        """The subscription of the preferred protocol. A protocol must be one of all classic members. Raises Refused."""
        classic = [member.classic for member in group.classic_members if member.member_id != request.member_id]
        names = {name for name, _ in protocols}
        for metadata in classic:
            if metadata is not None:
                names &= {name for name, _ in metadata.protocols}
        found = read_subscription(protocols[0][1])
        if request.protocol_type != CONSUMER or not names or found is None:
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {request.member_id}'s protocols are not supported."
            )
        return found[1]

    @staticmethod
    def _member(draft: ConsumerDraft, member_id: str, instance_id: str | None, *, is_new: bool) -> ConsumerMember:
        existing = None if instance_id is None else draft.group.static_member(instance_id)
        if instance_id is not None and not is_new:
            return check_static(existing, member_id, instance_id)
        if existing is not None:
            return replace_static(draft, existing, member_id)
        return draft.group.members.get(member_id) or ConsumerMember.new(member_id)

    # ---- SyncGroup -------------------------------------------------------------------------------------------------

    def sync(self, found: Group, request: SyncGroup.Request) -> SyncGroup.Response:
        """A member asks for its partitions."""
        group = _consumer(found)
        try:
            member = self._find(group, request.member_id, request.group_instance_id, request.generation_id)
            assert member.classic is not None
            if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (
                None,
                member.classic.protocols[0][0],
            ):
                raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "another protocol than in the join response")
        except Refused as refused:
            return sync_refused(refused.code)
        if group.epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._consumers.set_timer_if_absent(group, "join", member.member_id, member.rebalance_timeout_ms)
            return sync_refused(ErrorCode.REBALANCE_IN_PROGRESS)
        timers = Outcome()
        timers.timers["sync", member.member_id] = None
        timers.timers["session", member.member_id] = member.classic.session_timeout_ms
        self._consumers.commit(group, timers)
        return messages.SyncGroup.Response(
            error_code=ErrorCode.NONE,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_bytes(member, group.topics),
        )

    # ---- Heartbeat -------------------------------------------------------------------------------------------------

    def heartbeat(self, found: Group, request: Heartbeat.Request) -> ErrorCode:
        """A member is alive."""
        group = _consumer(found)
        try:
            member = self._find(group, request.member_id, request.group_instance_id, request.generation_id)
        except Refused as refused:
            return refused.code
        assert member.classic is not None
        timers = Outcome()
        timers.timers["session", member.member_id] = member.classic.session_timeout_ms
        self._consumers.commit(group, timers)
        # A member that has to revoke partitions is at an older epoch, too.
        released = member.state is MemberState.UNRELEASED_PARTITIONS and not self._waits(group, member)
        if member.member_epoch < group.epoch or released:
            self._consumers.set_timer_if_absent(group, "join", member.member_id, member.rebalance_timeout_ms)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    @staticmethod
    def _waits(group: ConsumerGroup, member: ConsumerMember) -> bool:
        """Are partitions of its target still owned by other members?"""
        return any(
            group.owner(topic_id, partition) not in (None, member.member_id)
            for topic_id, partitions in group.target.get(member.member_id, {}).items()
            for partition in partitions
        )

    @staticmethod
    def _find(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
        """A classic member at its generation. Raises Refused."""
        if instance_id is None:
            member = group.member(member_id)
        else:
            member = check_static(group.static_member(instance_id), member_id, instance_id)
        if member.classic is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
        if member.member_epoch != generation:
            raise Refused(ErrorCode.ILLEGAL_GENERATION, f"generation {generation}, not {member.member_epoch}")
        return member

    # ---- LeaveGroup ------------------------------------------------------------------------------------------------

    def leave(self, found: Group, leaving: list[tuple[str, str | None]]) -> list[ErrorCode]:
        """Members leave, or are removed by their instance ids: (member id, instance id). Returns their errors."""
        group = _consumer(found)
        codes, left = [], []
        for member_id, instance_id in leaving:
            try:
                member = self._leaving(group, member_id, instance_id)
            except Refused as refused:
                codes.append(refused.code)
                continue
            codes.append(ErrorCode.NONE)
            if member.member_id not in left:
                left.append(member.member_id)
        if left:
            try:
                self._consumers.remove_members(group, left)
            except AppendFailed as failed:
                return [failed.code if code is ErrorCode.NONE else code for code in codes]
        return codes

    @staticmethod
    def _leaving(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
        if instance_id is None:
            member = group.member(member_id)
        else:
            existing = group.static_member(instance_id)
            wanted = member_id or (existing.member_id if existing is not None else "")
            member = check_static(existing, wanted, instance_id)
        if member.classic is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
        return member
