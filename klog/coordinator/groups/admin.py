"""ListGroups, DescribeGroups, DeleteGroups: what administrators ask about groups of all kinds. Any thread.

Kafka: KafkaApis, GroupMetadataManager.listGroups, describeGroups, GroupCoordinatorShard.deleteGroups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog import security
from klog.coordinator.groups.classic_group import DEAD, ClassicGroup
from klog.coordinator.groups.offset_records import offset_key
from klog.coordinator.groups.table import AppendFailed, GroupTable
from klog.protocol import ApiKey, ErrorCode, messages
from klog.security.refusals import cluster_authorized

if TYPE_CHECKING:
    from klog.coordinator.groups.group import Group, Handler, Records
    from klog.protocol.messages import DeleteGroups, DescribeGroups, ListGroups
    from klog.security.context import Context

_NONE = ErrorCode.NONE
_NOT_FOUND_VERSION = 6


class GroupAdmin:
    """The groups of a table, for administrators."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.LIST_GROUPS: self.list,
            ApiKey.DESCRIBE_GROUPS: self.describe,
            ApiKey.DELETE_GROUPS: self.delete,
        }

    def list(self, context: Context, request: ListGroups.Request) -> ListGroups.Response:
        """The groups, or those in some states or of some types."""
        Response = messages.ListGroups.Response
        states = {state.strip().lower() for state in request.states_filter}
        types = {kind.strip().lower() for kind in request.types_filter}
        everything = cluster_authorized(context.authorized, "DESCRIBE")
        with self._table.lock:
            if self._table.unavailable is not _NONE:
                return Response(error_code=self._table.unavailable)
            groups = [
                Response.Group(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.kind,
                )
                for group in self._table.groups()
                if (not states or group.state.lower() in states) and (not types or group.kind in types)
            ]
        if not everything:
            groups = [group for group in groups if context.authorized("DESCRIBE", "GROUP", group.group_id)]
        return Response(error_code=_NONE, groups=groups)

    # ---- DescribeGroups ----------------------------------------------------------------------------------------------

    def describe(self, context: Context, request: DescribeGroups.Request) -> DescribeGroups.Response:
        """State and members of classic groups, each once. A group that does not exist is Dead."""
        described = []
        for group_id in dict.fromkeys(request.groups):
            if not context.authorized("DESCRIBE", "GROUP", group_id):
                code = ErrorCode.GROUP_AUTHORIZATION_FAILED
                described.append(messages.DescribeGroups.Response.Group(error_code=code, group_id=group_id))
                continue
            found = self._described(context, group_id)
            if request.include_authorized_operations and not found.error_code:
                found.authorized_operations = security.authorized_operations(context.authorized, "GROUP", group_id)
            described.append(found)
        return messages.DescribeGroups.Response(groups=described)

    def _described(self, context: Context, group_id: str) -> DescribeGroups.Response.Group:
        Described = messages.DescribeGroups.Response.Group
        with self._table.lock:
            if self._table.unavailable is not _NONE:
                return Described(error_code=self._table.unavailable, group_id=group_id)
            group = self._table.get(group_id)
            if isinstance(group, ClassicGroup):
                return group.describe()
        if context.version < _NOT_FOUND_VERSION:
            return Described(error_code=_NONE, group_id=group_id, group_state=DEAD)
        return Described(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {'not found' if group is None else 'is not a classic group'}.",
            group_id=group_id,
            group_state=DEAD,
        )

    # ---- DeleteGroups ------------------------------------------------------------------------------------------------

    def delete(self, context: Context, request: DeleteGroups.Request) -> DeleteGroups.Response:
        """Delete groups without members, with their offsets."""
        Response = messages.DeleteGroups.Response
        results = []
        for group_id in dict.fromkeys(request.groups_names):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            if context.authorized("DELETE", "GROUP", group_id):
                with self._table.lock:
                    code = self._delete_locked(group_id)
            results.append(Response.Result(group_id=group_id, error_code=code))
        return Response(results=results)

    def _delete_locked(self, group_id: str) -> ErrorCode:
        table = self._table
        if table.unavailable is not _NONE:
            return table.unavailable
        group = table.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        code = group.validate_delete()
        if code is not _NONE:
            return code
        partitions = list(table.offsets.partitions_of(group_id))
        records: Records = [(offset_key(group_id, *partition), None) for partition in partitions]
        try:
            table.append(group_id, records + group.tombstones())
        except AppendFailed as failed:
            return failed.code
        for partition in partitions:
            table.offsets.remove(group_id, *partition)
        forget(table, group)
        return _NONE


def forget(table: GroupTable, group: Group) -> None:
    """Remove a group whose tombstone is in the log."""
    table.remove(group.group_id)
    if isinstance(group, ClassicGroup):
        group.close(ErrorCode.UNKNOWN_MEMBER_ID, table.clock.wall_ms())
    group.deleted()
