"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the requests of members of classic groups.

Any thread. Each takes the table's lock; responses that have to wait for other members are sent later.
Kafka: GroupCoordinatorService, GroupMetadataManager.classicGroupJoin and its neighbours.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from klog.coordinator.groups.classic_group import COMPLETING, EMPTY, PREPARING, STABLE, ClassicGroup
from klog.coordinator.groups.classic_member import MEMBER_ID_REQUIRED_VERSION, ClassicMember, join_refused, sync_refused
from klog.coordinator.groups.group_keys import read_group_id
from klog.coordinator.groups.group_records import group_record, group_record_with, restore
from klog.coordinator.groups.rebalances import Rebalances
from klog.coordinator.groups.table import AppendFailed, GroupTable
from klog.protocol import ApiKey, ErrorCode, messages

if TYPE_CHECKING:
    from klog.coordinator.groups.classic_member import Protocols
    from klog.coordinator.groups.consumer_kind import ConsumerKind
    from klog.coordinator.groups.group import Handler
    from klog.protocol.messages import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
    from klog.record import Record
    from klog.security.context import Context

_NONE = ErrorCode.NONE
_MEMBERS_LEAVE_VERSION = 3
_PROTOCOL_IN_SYNC_VERSION = 5
_SKIP_ASSIGNMENT_VERSION = 9
_NAME_CHARACTERS_MAX = 8000  # of a client or an instance in a member id: with its suffix it fits into a string


class ClassicGroups:
    """The classic groups of a table. A GroupKind."""

    record_types = frozenset((2,))

    def __init__(self, table: GroupTable, rebalances: Rebalances, consumers: ConsumerKind) -> None:
        self._table = table
        self._consumers = consumers
        self._rebalances = rebalances
        self._config = table.config

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.JOIN_GROUP: self.join,
            ApiKey.SYNC_GROUP: self.sync,
            ApiKey.HEARTBEAT: self.heartbeat,
            ApiKey.LEAVE_GROUP: self.leave,
        }

    # ---- life: under the lock ----------------------------------------------------------------------------------------

    def replay(self, record: Record) -> None:
        assert record.key is not None
        offset = -1 if record.offset is None else record.offset
        group_id = read_group_id(record.key, offset)
        existing = self._table.get(group_id)
        if record.value is None:
            if existing is not None and existing.kind == "classic":
                self._table.remove(group_id)
            return
        group = self._rebalances.new_group(group_id)
        restore(group, record)
        self._table.put(group)

    def loaded(self) -> None:
        for group in self._table.groups():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    self._rebalances.watch(group, member)
                    member.alive()
                if len(group.members) > self._config.max_size:
                    self._rebalances.prepare(group, "the group is larger than group.max.size")

    def closed(self) -> None:
        now_ms = self._table.clock.wall_ms()
        for group in self._table.groups():
            if isinstance(group, ClassicGroup):
                group.close(ErrorCode.NOT_COORDINATOR, now_ms)

    # ---- JoinGroup ---------------------------------------------------------------------------------------------------

    def join(self, context: Context, request: JoinGroup.Request) -> JoinGroup.Response | None:
        """A member joins, or joins again. The response has its generation, once all members have joined."""
        code = self._check_join(context, request)
        if code is not _NONE:
            return join_refused(context, code, request.member_id)
        protocols = list({each.name: each.metadata for each in request.protocols}.items())
        with self._table.lock:
            code = self._table.unavailable
            if code is not _NONE:
                return join_refused(context, code, request.member_id)
            found = self._table.get(request.group_id)
            if found is not None and found.kind == "consumer" and not found.is_empty:
                response = self._consumers.classic.join(context, found, request, protocols)
                if response is not None:
                    return response
            group = self._group_to_join(request)
            if isinstance(group, ErrorCode):
                return join_refused(context, group, request.member_id)
            if not self._may_join(group, request.member_id):
                return self._full(context, group, request.member_id)
            if not group.supports(request.protocol_type, [name for name, _ in protocols]):
                return join_refused(context, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
            if request.member_id:
                return self._join_again(context, request, group, protocols)
            return self._join_first(context, request, group, protocols)

    def _check_join(self, context: Context, request: JoinGroup.Request) -> ErrorCode:
        if not context.authorized("READ", "GROUP", request.group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        low, high = self._config.min_session_timeout_ms, self._config.max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if not request.protocol_type or not request.protocols:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return _NONE

    def _group_to_join(self, request: JoinGroup.Request) -> ClassicGroup | ErrorCode:
        """The group; a new one for a member without an id."""
        group = self._table.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return group
        if group is not None and (group.kind == "share" or not group.is_empty):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        made = self._rebalances.new_group(request.group_id)
        records = [] if group is None else group.tombstones()
        try:
            self._table.append(request.group_id, [*records, group_record(made)])
        except AppendFailed as failed:
            return failed.code
        self._table.put(made)
        return made

    def _may_join(self, group: ClassicGroup, member_id: str) -> bool:
        """Is the member one of the group, or may it come? While members join, those count that have joined."""
        member = group.members.get(member_id)
        if group.state == PREPARING:
            joined = member is not None and member.joining is not None
            return joined or group.joining_count < self._config.max_size
        return group.state == EMPTY or member is not None or len(group.members) < self._config.max_size

    def _full(self, context: Context, group: ClassicGroup, member_id: str) -> JoinGroup.Response:
        member = group.members.get(member_id)
        if member is not None:
            group.remove(member)
        group.remove_pending(member_id)
        self._rebalances.maybe_complete_join(group)  # the others may have waited for this one alone
        return join_refused(context, ErrorCode.GROUP_MAX_SIZE_REACHED)

    def _join_first(
        self, context: Context, request: JoinGroup.Request, group: ClassicGroup, protocols: Protocols
    ) -> JoinGroup.Response | None:
        """Without a member id."""
        instance_id = request.group_instance_id
        prefix = context.client_id if instance_id is None else instance_id
        member_id = f"{prefix[:_NAME_CHARACTERS_MAX]}-{uuid.uuid4()}"
        existing = None if instance_id is None else group.static_member(instance_id)
        if existing is not None:
            new = _member(context, request, member_id, protocols)
            return self._replace_static(context, group, group.members[existing], new)
        if instance_id is None and context.version >= MEMBER_ID_REQUIRED_VERSION:
            self._rebalances.add_pending(group, member_id, request.session_timeout_ms)
            return join_refused(context, ErrorCode.MEMBER_ID_REQUIRED, member_id)
        self._rebalances.add(group, _member(context, request, member_id, protocols), context)
        return None

    def _join_again(
        self, context: Context, request: JoinGroup.Request, group: ClassicGroup, protocols: Protocols
    ) -> JoinGroup.Response | None:
        """With the member id of an earlier response."""
        member_id = request.member_id
        if request.group_instance_id is None and member_id in group.pending:
            self._rebalances.add(group, _member(context, request, member_id, protocols), context)
            return None
        code = group.check_member(member_id, request.group_instance_id)
        if code is not _NONE:
            return join_refused(context, code, member_id)
        member = group.members[member_id]
        same = member.protocols == protocols
        if (group.state == COMPLETING and same) or (
            group.state == STABLE and same and group.leader != member_id
        ):  # fmt: skip
            return self._rebalances.join_response(group, member)
        # The leader of a stable group joins again to have partitions assigned anew.
        group.update(member, protocols, _rebalance_timeout(context, request), request.session_timeout_ms)
        group.wait_for_join(member, context)
        self._rebalances.begin_or_complete(group, f"member {member_id} joins again: {request.reason}")
        return None

    def _replace_static(
        self, context: Context, group: ClassicGroup, old: ClassicMember, new: ClassicMember
    ) -> JoinGroup.Response | None:
        """A static member has restarted. A stable group keeps its generation if that changes nothing for it."""
        old_leader = group.leader
        new.assign(old.assignment)
        if group.state == STABLE and self._keeps_protocol(group, old, new):
            try:
                self._table.append(group.group_id, [group_record_with(group, old, new)])
            except AppendFailed as failed:
                return join_refused(context, failed.code)
            self._rebalances.watch(group, new)
            group.replace_static(old, new)
            new.alive()
            if context.version >= _SKIP_ASSIGNMENT_VERSION:
                return self._rebalances.join_response(group, new, skip=group.leader == new.member_id)
            # An older client would assign partitions if the response named it as the leader.
            response = self._rebalances.join_response(group, new)
            return messages.JoinGroup.Response(
                error_code=_NONE,
                generation_id=response.generation_id,
                protocol_type=response.protocol_type,
                protocol_name=response.protocol_name,
                leader=old_leader or "",
                member_id=new.member_id,
            )
        new.wait_for_join(context)
        self._rebalances.watch(group, new)
        group.replace_static(old, new)
        new.alive()
        self._rebalances.begin_or_complete(group, f"static member {new.instance_id} has restarted")
        return None

    @staticmethod
    def _keeps_protocol(group: ClassicGroup, old: ClassicMember, new: ClassicMember) -> bool:
        """Would the group select its protocol again with the new member?"""
        return group.select_protocol(old, new) == group.protocol

    # ---- SyncGroup ---------------------------------------------------------------------------------------------------

    def sync(self, context: Context, request: SyncGroup.Request) -> SyncGroup.Response | None:
        """A member asks for its assignment; the leader brings those of all members."""
        if context.version >= _PROTOCOL_IN_SYNC_VERSION and (
            request.protocol_type is None or request.protocol_name is None
        ):
            return sync_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not context.authorized("READ", "GROUP", request.group_id):
            return sync_refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        with self._table.lock:
            group = self._table.get(request.group_id)
            if group is not None and group.kind == "consumer" and self._table.unavailable is _NONE:
                return self._consumers.classic.sync(group, request)
            code = self._check_sync(group, request)
            if code is not _NONE:
                return sync_refused(code)
            assert isinstance(group, ClassicGroup)
            member = group.members[request.member_id]
            group.sync_from(member.member_id)
            if group.state == STABLE:
                return member.sync_response(group.protocol_type, group.protocol)
            member.wait_for_sync(context)
            if group.leader == member.member_id:
                self._rebalances.assign(group, {each.member_id: each.assignment for each in request.assignments})
        return None

    def _check_sync(self, group: object, request: SyncGroup.Request) -> ErrorCode:
        if self._table.unavailable is not _NONE:
            return self._table.unavailable
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not isinstance(group, ClassicGroup):
            return ErrorCode.UNKNOWN_MEMBER_ID
        code = group.check_member(request.member_id, request.group_instance_id)
        if code is not _NONE:
            return code
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type not in (None, group.protocol_type) or (
            request.protocol_name not in (None, group.protocol) and group.protocol is not None
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state == PREPARING else _NONE

    # ---- Heartbeat ---------------------------------------------------------------------------------------------------

    def heartbeat(self, context: Context, request: Heartbeat.Request) -> Heartbeat.Response:
        """A member is alive."""
        group_id = request.group_id
        if not context.authorized("READ", "GROUP", group_id):
            return messages.Heartbeat.Response(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        table = self._table
        with table.lock:
            group = table.get(group_id)
            if not isinstance(group, ClassicGroup) or table.unavailable is not _NONE:
                if group is not None and group.kind == "consumer" and table.unavailable is _NONE:
                    return messages.Heartbeat.Response(error_code=self._consumers.classic.heartbeat(group, request))
                return messages.Heartbeat.Response(error_code=self._no_group(group_id))
            member = group.members.get(request.member_id)
            if member is None or request.group_instance_id is not None:
                code = group.check_member(request.member_id, request.group_instance_id)
                if member is None or code is not _NONE:
                    return messages.Heartbeat.Response(error_code=code)
            if request.generation_id != group.generation:
                code = ErrorCode.ILLEGAL_GENERATION
            else:
                session = member.session
                if session is not None:
                    session.set(member.session_timeout_ms)
                code = ErrorCode.REBALANCE_IN_PROGRESS if group.state == PREPARING else _NONE
        return messages.Heartbeat.Response(error_code=code)

    def _no_group(self, group_id: str) -> ErrorCode:
        unavailable = self._table.unavailable
        if unavailable is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return _NONE  # the group is there in a moment
        if unavailable is not _NONE:
            return unavailable
        return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID

    # ---- LeaveGroup --------------------------------------------------------------------------------------------------

    def leave(self, context: Context, request: LeaveGroup.Request) -> LeaveGroup.Response:
        """Members leave, or are removed by an administrator by their group.instance.id."""
        Response = messages.LeaveGroup.Response
        if not context.authorized("READ", "GROUP", request.group_id):
            return Response(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if context.version >= _MEMBERS_LEAVE_VERSION:
            leaving = [(each.member_id, each.group_instance_id) for each in request.members]
        else:
            leaving = [(request.member_id, None)]
        with self._table.lock:
            if self._table.unavailable is not _NONE:
                return Response(error_code=self._table.unavailable)
            if not request.group_id:
                return Response(error_code=ErrorCode.INVALID_GROUP_ID)
            group = self._table.get(request.group_id)
            if isinstance(group, ClassicGroup):
                codes = [self._leave_one(group, *each) for each in leaving]
                if _NONE in codes:
                    if group.state in (COMPLETING, STABLE):
                        self._rebalances.prepare(group, "members have left")
                    else:
                        self._rebalances.maybe_complete_join(group)
            elif group is not None and group.kind == "consumer":
                codes = self._consumers.classic.leave(group, leaving)
            else:
                codes = [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
        if context.version < _MEMBERS_LEAVE_VERSION:
            return Response(error_code=codes[0])
        return Response(
            error_code=_NONE,
            members=[
                Response.Member(member_id=member_id, group_instance_id=instance_id, error_code=code)
                for (member_id, instance_id), code in zip(leaving, codes, strict=True)
            ],
        )

    def _leave_one(self, group: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
        if not member_id and instance_id is not None:
            member_id = group.static_member(instance_id) or ""
        elif member_id in group.pending:
            group.remove_pending(member_id)
            return _NONE
        code = group.check_member(member_id, instance_id)
        if code is _NONE:
            group.remove(group.members[member_id])
        return code


def _rebalance_timeout(context: Context, request: JoinGroup.Request) -> int:
    return request.session_timeout_ms if context.version == 0 else max(request.rebalance_timeout_ms, 0)


def _member(
    context: Context, request: JoinGroup.Request, member_id: str, protocols: Protocols
) -> ClassicMember:  # fmt: skip
    return ClassicMember(
        member_id,
        request.group_instance_id,
        context.client_id,
        context.client_host,
        _rebalance_timeout(context, request),
        request.session_timeout_ms,
        request.protocol_type,
        protocols,
    )
