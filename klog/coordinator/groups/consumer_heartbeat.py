"""What a ConsumerGroupHeartbeat does to a consumer group: a member joins, stays, changes its subscription, or leaves.

    epoch 0    joins, or joins again after it has given up all partitions
    epoch N    lives; fields that are null have not changed
    epoch -1   leaves
    epoch -2   a static member leaves and will come back with the same instance id

Functions of a group and a request. They return an Outcome, and change nothing (G1). Kafka: GroupMetadataManager.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Literal

from klog.coordinator.groups.consumer_draft import ConsumerDraft
from klog.coordinator.groups.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    MemberState,
    partitions_of,
)
from klog.coordinator.groups.consumer_records import id_text
from klog.coordinator.groups.refusal import Refused
from klog.coordinator.pattern import InvalidPattern, Pattern
from klog.protocol import ErrorCode, messages
from klog.values import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from klog.coordinator.groups.consumer_group import ConsumerGroup
    from klog.coordinator.groups.consumer_records import Change

    Request = messages.ConsumerGroupHeartbeat.Request
    Response = messages.ConsumerGroupHeartbeat.Response

Timer = Literal["session", "rebalance", "join", "sync"]


@dataclass(frozen=True, slots=True)
class Client:
    """Who sends a request, and when. now_ms: since 1970; monotonic_ms: of the other clock. may_describe: may the client
    know of this topic?"""

    client_id: str
    host: str
    now_ms: int
    monotonic_ms: int
    may_describe: Callable[[str], bool]


@dataclass(slots=True)
class Outcome:
    """What to do after a request: append the changes and apply them, then set the timers.

    timers: (timer, member id) to ms; None: there is no such timer any more. left: members whose timers all end.
    """

    changes: list[Change] = field(default_factory=list)
    timers: dict[tuple[Timer, str], int | None] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


def check_heartbeat(request: Request, version: int, assignors: Sequence[str]) -> None:
    """Refuse a request that is not valid in itself. Raises Refused."""
    if version >= 1 or request.member_epoch > 0 or request.member_epoch == LEAVE_EPOCH:
        _not_empty(request.member_id, "MemberId")
    _not_empty(request.group_id, "GroupId")
    _not_empty(request.instance_id, "InstanceId")
    _not_empty(request.rack_id, "RackId")
    if request.member_epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise Refused(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise Refused(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
            )
    elif request.member_epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise Refused(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        raise Refused(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _not_empty(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise Refused(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")


# ---- alive ---------------------------------------------------------------------------------------------------------


def heartbeat(group: ConsumerGroup, request: Request, client: Client) -> tuple[Response, Outcome]:
    """A member joins, or sends a heartbeat. Raises Refused."""
    draft = ConsumerDraft(group, client.now_ms)
    member_id = request.member_id or id_text(uuid.uuid4())
    check_size(group, member_id)
    reported = (
        None
        if request.topic_partitions is None
        else [(topic.topic_id, topic.partitions) for topic in request.topic_partitions]
    )
    if request.instance_id is None:
        before = _dynamic_member(group, member_id, request.member_epoch, reported)
    else:
        before = _static_member(draft, member_id, request.instance_id, request.member_epoch, reported)
    member = _updated(before, request, client)
    if member != before:
        draft.put(member)
    subscription = Subscription(draft, before, member, client)
    subscription.update(bump=group.epoch == 0)
    draft.assign()
    after = draft.reconcile(member, subscription_changed=subscription.changed, reported=reported)
    outcome = Outcome(draft.changes)
    outcome.timers["session", member_id] = group.config.session_timeout_ms
    set_rebalance_timer(outcome, before, after)
    response = messages.ConsumerGroupHeartbeat.Response(
        member_id=member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval_ms=group.config.heartbeat_interval_ms,
    )
    is_full = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and reported is not None
    )
    if request.member_epoch == JOIN_EPOCH or is_full or not before.same_partitions(after):
        made = messages.ConsumerGroupHeartbeat.Response
        response.assignment = made.Assignment(
            topic_partitions=[
                made.TopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in partitions_of(after.assigned)
            ]
        )
    return response, outcome


def set_rebalance_timer(outcome: Outcome, before: ConsumerMember, after: ConsumerMember) -> None:
    """A member that must revoke partitions has rebalance.timeout.ms for it, from the response that names them."""
    revokes = after.classic is None and after.state is MemberState.UNREVOKED_PARTITIONS
    revoked = before.state is MemberState.UNREVOKED_PARTITIONS
    if revokes and not (revoked and after.revoking == before.revoking):
        outcome.timers["rebalance", after.member_id] = after.rebalance_timeout_ms
    elif revoked and not revokes:
        outcome.timers["rebalance", after.member_id] = None


def check_size(group: ConsumerGroup, member_id: str) -> None:
    """Refuse a new member of a full group. Raises Refused."""
    if len(group.members) >= group.config.max_size and member_id not in group.members:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {group.config.max_size} members.",
        )


def _dynamic_member(
    group: ConsumerGroup, member_id: str, epoch: int, reported: list[tuple[uuid.UUID, list[int]]] | None
) -> ConsumerMember:
    if epoch == JOIN_EPOCH and member_id not in group.members:
        return ConsumerMember.new(member_id)
    member = group.member(member_id)
    _check_epoch(member, epoch, reported)
    return member


def _static_member(
    draft: ConsumerDraft,
    member_id: str,
    instance_id: str,
    epoch: int,
    reported: list[tuple[uuid.UUID, list[int]]] | None,
) -> ConsumerMember:
    group = draft.group
    existing = group.static_member(instance_id)
    if epoch != JOIN_EPOCH:
        member = check_static(existing, member_id, instance_id)
        _check_epoch(member, epoch, reported)
        return member
    if existing is None:
        return group.members.get(member_id) or ConsumerMember.new(member_id)
    if existing.classic is None and existing.member_epoch != LEAVE_STATIC_EPOCH:
        if existing.member_id == member_id:
            # It is the same process: its first request, whose response it did not get, or it was fenced. Kafka refuses
            # it, which ends the consumer.
            return existing
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {existing.member_id} member.",
        )
    return replace_static(draft, existing, member_id)


def replace_static(draft: ConsumerDraft, existing: ConsumerMember, member_id: str) -> ConsumerMember:
    """A static member comes back, with another id: it takes over the partitions."""
    member = existing.evolve(member_id=member_id, member_epoch=0, previous_member_epoch=0)
    draft.replace(existing, member)
    return member


def check_static(existing: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """The member of an instance id, which must have this member id. Raises Refused."""
    if existing is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if existing.member_id != member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {existing.member_id}.",
        )
    return existing


def _check_epoch(member: ConsumerMember, epoch: int, reported: list[tuple[uuid.UUID, list[int]]] | None) -> None:
    """Refuse another epoch than the member's, except 0, and except the one before if the response with the new one can
    have been lost: then the member reports no partitions but assigned ones."""
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    if epoch > member.member_epoch:
        how = "greater"
    elif epoch == member.previous_member_epoch and reported is not None and member.owns_partitions_of(reported):
        return
    else:
        how = "smaller"
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {how} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def _updated(member: ConsumerMember, request: Request, client: Client) -> ConsumerMember:
    """The member with the fields of the request."""
    changes: dict[str, object] = {"client_id": client.client_id, "client_host": client.host, "classic": None}
    if request.instance_id is not None:
        changes["instance_id"] = request.instance_id
    if request.rack_id is not None:
        changes["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.server_assignor is not None:
        changes["server_assignor"] = request.server_assignor
    if request.subscribed_topic_names is not None:
        changes["names"] = frozenset(request.subscribed_topic_names)
    if request.subscribed_topic_regex is not None:
        changes["regex"] = request.subscribed_topic_regex
    if all(getattr(member, name) == value for name, value in changes.items()):
        return member
    return member.evolve(**changes)


class Subscription:
    """What a request changes in the subscriptions of a group: the member's own, expressions, and topics."""

    def __init__(self, draft: ConsumerDraft, before: ConsumerMember, after: ConsumerMember, client: Client) -> None:
        self._draft = draft
        self._before = before
        self._after = after
        self._client = client
        self.changed = before.names != after.names or before.regex != after.regex

    def update(self, *, bump: bool) -> None:
        """Resolve expressions that need it, and raise the group's epoch if its assignment may have to change. bump:
        raise it in any case. Raises Refused for a regular expression that is not valid."""
        bump = bump or self.changed
        now_ms = self._client.monotonic_ms
        refresh = bump or self._draft.group.is_refresh_due(now_ms)
        if not refresh:
            return
        if self._before.regex != self._after.regex:
            self._draft.forget_expressions()
        if self._resolve():
            bump = True
        self._draft.refresh(bump=bump, monotonic_ms=now_ms)

    def _resolve(self) -> bool:
        """Match the expressions of the group: the member's if it is new, all if topics were created or deleted, or
        after group.consumer.regex.refresh.interval.ms. Kafka does so in another thread, and a heartbeat later."""
        draft, group = self._draft, self._draft.group
        own = self._after.regex
        if not own and not group.resolved:
            return False
        used = {member.regex for member in draft.members().values()} - {""}
        names = group.topics.names()
        now = hash(tuple(names))
        oldest = min((resolved.timestamp for resolved in group.resolved.values()), default=0)
        is_old = self._client.now_ms - oldest > group.config.regex_refresh_interval_ms
        again = now != group.names_resolved or is_old
        changed = False
        for regex in sorted(used):
            known = draft.expression(regex)
            if known is None or again:
                topics = self._match(regex, names, is_own=regex == own)
                if topics is not None and (topics != known or is_old):
                    changed = draft.resolve(regex, topics) or changed
        group.resolved_against(now)
        return changed

    def _match(self, regex: str, names: Sequence[str], *, is_own: bool) -> frozenset[str] | None:
        try:
            pattern = Pattern(regex)
        except InvalidPattern as error:
            if is_own:
                raise Refused(
                    ErrorCode.INVALID_REGULAR_EXPRESSION,
                    f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
                ) from None
            return None  # written by Kafka, whose limits are others
        return frozenset(name for name in names if pattern.matches(name) and self._client.may_describe(name))


# ---- leaving -------------------------------------------------------------------------------------------------------


def leave(group: ConsumerGroup, request: Request, client: Client) -> tuple[Response, Outcome]:
    """A member leaves, or a static member leaves for now. Raises Refused."""
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        existing = group.static_member(request.instance_id)
        member = check_static(existing, request.member_id, request.instance_id)
    response = messages.ConsumerGroupHeartbeat.Response(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
        draft = ConsumerDraft(group, client.now_ms)
        draft.leave_for_now(member, LEAVE_STATIC_EPOCH)
        # Its session goes on: a member that does not come back in time is removed.
        return response, Outcome(draft.changes, {("rebalance", member.member_id): None})
    return response, fence(group, [member.member_id], client.now_ms)


def fence(group: ConsumerGroup, member_ids: Sequence[str], now_ms: int) -> Outcome:
    """Remove members: they have left, or a timer of theirs has run out."""
    draft = ConsumerDraft(group, now_ms)
    draft.fence(member_ids)
    return Outcome(draft.changes, left=list(member_ids))
