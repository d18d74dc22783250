"""Rebalances: how a classic group comes from one generation to the next, and what ends its members.

prepare ─► (all members join, or the rebalance timeout) ─► complete_join ─► (the leader assigns) ─► Stable

  R1  a member whose request waits is not ended by its session timeout. Its next response begins the timeout again
  R2  a JoinGroup request is answered within the rebalance timeout of its group, a SyncGroup request, too; that of a new
      member within 5 minutes

Under the coordinator's lock. Kafka: the part of GroupMetadataManager about classic groups.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from klog.coordinator.groups.classic_group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, ClassicGroup
from klog.coordinator.groups.group_records import group_record
from klog.coordinator.groups.table import AppendFailed, GroupTable
from klog.logger import logger_of
from klog.protocol import ErrorCode, messages

if TYPE_CHECKING:
    from klog.coordinator.groups.classic_member import ClassicMember
    from klog.protocol.messages import JoinGroup
    from klog.security.context import Context

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
_log = logger_of("coordinator")


class Rebalances:
    """The rebalances of all classic groups of a table."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._deadlines = table.deadlines
        self._wall_ms = table.clock.wall_ms
        self._delay_ms = table.config.initial_rebalance_delay_ms

    def new_group(self, group_id: str) -> ClassicGroup:
        """An empty group, which is not in the table yet."""
        make = self._deadlines.make
        group: ClassicGroup
        joining = make(f"join {group_id}", lambda: self._join_due(group))
        syncing = make(f"sync {group_id}", lambda: self._sync_due(group))
        group = ClassicGroup(group_id, joining, syncing, self._wall_ms())
        return group

    # ---- members -----------------------------------------------------------------------------------------------------

    def watch(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Give a member its session timeout, which does not begin yet."""
        member.watch(self._deadlines.make(f"session {member.member_id}", partial(self._session_due, group, member)))

    def add_pending(self, group: ClassicGroup, member_id: str, session_timeout_ms: int) -> None:
        """An id was given out: the member has its session timeout to join with it."""
        deadline = self._deadlines.make(f"pending {member_id}", partial(self._pending_due, group, member_id))
        group.add_pending(member_id, deadline)
        deadline.set(session_timeout_ms)

    def add(self, group: ClassicGroup, member: ClassicMember, context: Context) -> None:
        """A new member joins. context: its request, which waits."""
        member.wait_for_join(context, is_new=True)
        self.watch(group, member)
        group.add(member)
        assert member.session is not None
        member.session.set(NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.begin_or_complete(group, "a new member")

    # ---- join --------------------------------------------------------------------------------------------------------

    def begin_or_complete(self, group: ClassicGroup, reason: str) -> None:
        """A member has come, changed or gone: begin a rebalance, or end one that waited for it."""
        if group.state in (EMPTY, COMPLETING, STABLE):
            self.prepare(group, reason)
        else:
            self.maybe_complete_join(group)

    def prepare(self, group: ClassicGroup, reason: str) -> None:
        """Let all members join again. Those that wait for an assignment get REBALANCE_IN_PROGRESS."""
        first = group.state == EMPTY
        if group.state == COMPLETING:
            self.refuse_sync(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.expect_no_sync()
        group.enter("PreparingRebalance", self._wall_ms())
        _log.info("event=rebalance group=%r generation=%d reason=%r", group.group_id, group.generation, reason)
        if first and self._delay_ms:
            group.delay_first_rebalance(self._delay_ms)
            group.joining.set(self._delay_ms)
        elif first or group.all_joined:
            self.complete_join(group)
        else:
            group.joining.set(group.rebalance_timeout_ms)

    def maybe_complete_join(self, group: ClassicGroup) -> None:
        """End the first part of a rebalance if all members have joined; not of a group's first one, which is delayed
        for more members."""
        if group.state == PREPARING and not group.was_empty and group.all_joined:
            self.complete_join(group)

    def complete_join(self, group: ClassicGroup) -> None:
        """Begin the next generation with the members that have joined. Static ones may be late."""
        group.joining.cancel()
        for member in list(group.members.values()):
            if member.joining is None and member.instance_id is None:
                group.remove(member)
        if group.state == DEAD:
            return
        if not group.elect_joined_leader() and group.members:
            group.joining.set(group.rebalance_timeout_ms)
            return
        group.next_generation(self._wall_ms())
        if group.state == EMPTY:
            _log.info("event=group_empty group=%r generation=%d", group.group_id, group.generation)
            try:
                self._table.append(group.group_id, [group_record(group)])
            except AppendFailed:
                pass  # logged; the last generation is loaded after a restart, and its members then time out
            return
        for member in list(group.members.values()):
            group.joined(member, self.join_response(group, member))
            member.alive()
        group.expect_sync()

    def join_response(self, group: ClassicGroup, member: ClassicMember, *, skip: bool = False) -> JoinGroup.Response:
        """The current generation, with the members for the leader. skip: the leader need not assign."""
        listed = []
        if group.leader == member.member_id:
            listed = [
                messages.JoinGroup.Response.Member(
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    metadata=each.metadata(group.protocol),
                )
                for each in group.members.values()
            ]
        return messages.JoinGroup.Response(
            error_code=ErrorCode.NONE,
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol or "",
            leader=group.leader or "",
            skip_assignment=skip,
            member_id=member.member_id,
            members=listed,
        )

    # ---- sync --------------------------------------------------------------------------------------------------------

    def assign(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        """The leader's assignments: store them, and respond to all members that wait for theirs."""
        try:
            self._table.append(group.group_id, [group_record(group, assignments)])
        except AppendFailed as failed:
            self.refuse_sync(group, failed.code)
            self.prepare(group, "the assignments could not be stored")
            return
        group.assign(assignments)
        group.enter("Stable", self._wall_ms())
        _log.info(
            "event=group_stable group=%r generation=%d members=%d protocol=%s",
            group.group_id, group.generation, len(group.members), group.protocol,
        )  # fmt: skip
        for member in group.members.values():
            if member.synced(group.protocol_type, group.protocol):
                member.alive()

    def refuse_sync(self, group: ClassicGroup, code: ErrorCode) -> None:
        """Respond with an error to all members that wait for their assignments."""
        group.assign({})
        for member in group.members.values():
            if member.refuse_sync(code):
                member.alive()

    # ---- deadlines ---------------------------------------------------------------------------------------------------

    def _join_due(self, group: ClassicGroup) -> None:
        if group.state != PREPARING:
            return
        more_ms = group.extend_delay(self._delay_ms)
        if more_ms:
            group.joining.set(more_ms)
        else:
            self.complete_join(group)

    def _sync_due(self, group: ClassicGroup) -> None:
        if group.state not in (COMPLETING, STABLE):
            return
        late = [group.members[member_id] for member_id in group.not_synced]
        if not late:
            return
        for member in late:
            group.remove(member)
        self.prepare(group, f"{len(late)} members sent no SyncGroup request")

    def _session_due(self, group: ClassicGroup, member: ClassicMember) -> None:
        if group.members.get(member.member_id) is not member or member.waits:
            return
        _log.info("event=member_failed group=%r member=%r", group.group_id, member.member_id)
        group.remove(member)
        if group.state in (COMPLETING, STABLE):
            self.prepare(group, "a member's session timeout")
        elif group.state == PREPARING and group.all_joined:
            self.complete_join(group)

    def _pending_due(self, group: ClassicGroup, member_id: str) -> None:
        group.remove_pending(member_id)
        if group.state == PREPARING and group.all_joined:
            self.complete_join(group)
