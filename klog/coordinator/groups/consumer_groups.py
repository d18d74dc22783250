"""ConsumerGroups: the requests, records and timers of the groups of KIP-848.

A request is answered at once: its changes are computed, appended and applied (consumer_group.py G1). A member's timers:

    session     it sends no heartbeat for group.consumer.session.timeout.ms
    rebalance   it does not give up partitions within its max.poll.interval.ms
    join, sync  a member with the classic protocol does not join again, or does not ask for its assignment, in that time

A member whose timer ends is removed. Kafka: GroupMetadataManager, GroupCoordinatorService.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from klog.coordinator.groups.classic_group import ClassicGroup
from klog.coordinator.groups.consumer_config import ConsumerGroupConfig
from klog.coordinator.groups.consumer_group import ConsumerGroup
from klog.coordinator.groups.consumer_heartbeat import Client, Outcome, check_heartbeat, fence, heartbeat, leave
from klog.coordinator.groups.consumer_member import JOIN_EPOCH, MemberState
from klog.coordinator.groups.consumer_records import EPOCH, encode_changes
from klog.coordinator.groups.describing import describe_groups
from klog.coordinator.groups.group_conversion import can_become_classic, classic_members, to_classic, to_consumer
from klog.coordinator.groups.refusal import Refused
from klog.coordinator.groups.table import AppendFailed, GroupTable
from klog.errors import CorruptData
from klog.internal_topics.names import CONSUMER_OFFSETS
from klog.logger import logger_of
from klog.protocol import ErrorCode, messages

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from klog.coordinator.groups.consumer_heartbeat import Timer
    from klog.coordinator.groups.deadlines import Deadline
    from klog.coordinator.groups.group import Records
    from klog.coordinator.groups.rebalances import Rebalances
    from klog.record import Record
    from klog.security.context import Context

_log = logger_of("coordinator")


class ConsumerGroups:
    """The consumer groups of a broker: what consumer_kind.py loads. own: the configurations of single groups."""

    def __init__(
        self,
        table: GroupTable,
        rebalances: Rebalances,
        config: ConsumerGroupConfig | None = None,
        own: Mapping[str, ConsumerGroupConfig] | None = None,
    ) -> None:
        self._table = table
        self._rebalances = rebalances
        self._config = config or ConsumerGroupConfig()
        self._own = {} if own is None else own
        self._timers: dict[str, dict[tuple[Timer, str], Deadline]] = {}

    # ---- life: under the lock --------------------------------------------------------------------------------------

    def replay(self, record: Record) -> None:
        """Apply a record while the coordinator loads. Raises CorruptData."""
        from klog.internal_topics import decode  # reads schemas

        found = decode(record, CONSUMER_OFFSETS)
        if found is None or found.key is None:
            return
        group_id = found.key["group_id"]
        group = self._table.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if found.value is None:
                return  # a tombstone of a group that is gone
            group = self._new(group_id)
            self._table.put(group)
        try:
            group.apply([(found.type, found.key, found.value)])
        except ValueError as error:
            raise CorruptData(f"a member of {group_id} cannot be decoded: {error}", offset=record.offset) from None
        if found.type == EPOCH and found.value is None:
            self._table.remove(group_id)

    def loaded(self) -> None:
        """All records have been replayed: start the timers."""
        for group in self._groups():
            for member in group.members.values():
                outcome = Outcome()
                session = group.config.session_timeout_ms
                if member.classic is not None:
                    session = member.classic.session_timeout_ms
                elif member.state is MemberState.UNREVOKED_PARTITIONS:
                    outcome.timers["rebalance", member.member_id] = member.rebalance_timeout_ms
                outcome.timers["session", member.member_id] = session
                self._set_timers(group.group_id, outcome)

    def topics_changed(self) -> None:
        """Topics were created, deleted, or have more partitions: the next heartbeats check them. Takes the lock."""
        with self._table.lock:
            for group in self._groups():
                group.request_refresh()

    def _groups(self) -> list[ConsumerGroup]:
        return [group for group in self._table.groups() if isinstance(group, ConsumerGroup)]

    def _new(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._table.topics, self._config_of(group_id))

    def _config_of(self, group_id: str) -> ConsumerGroupConfig:
        return self._own.get(group_id, self._config)

    def configured(self, group_id: str) -> None:
        """The configuration of a group has changed. Its timers follow with the next heartbeats."""
        group = self._table.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.configure(self._config_of(group_id))

    # ---- ConsumerGroupHeartbeat ------------------------------------------------------------------------------------

    def heartbeat(
        self, context: Context, request: messages.ConsumerGroupHeartbeat.Request
    ) -> messages.ConsumerGroupHeartbeat.Response:
        """Handle a heartbeat, which also joins and leaves."""
        try:
            if not context.authorized("READ", "GROUP", request.group_id):
                raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED.name)
            if not all(context.authorized("DESCRIBE", "TOPIC", name) for name in request.subscribed_topic_names or ()):
                raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED.name)
            check_heartbeat(request, context.version, self._config.assignors)
            with self._table.lock:
                self._check_available()
                return self._heartbeat(context, request)
        except Refused as refused:
            return messages.ConsumerGroupHeartbeat.Response(error_code=refused.code, error_message=str(refused))
        except AppendFailed as failed:
            return messages.ConsumerGroupHeartbeat.Response(error_code=failed.code)

    def _heartbeat(
        self, context: Context, request: messages.ConsumerGroupHeartbeat.Request
    ) -> messages.ConsumerGroupHeartbeat.Response:
        group, before = self._find(request.group_id, create=request.member_epoch == JOIN_EPOCH)
        client = self.client(context)
        if request.member_epoch >= 0:
            response, outcome = heartbeat(group, request, client)
        else:
            response, outcome = leave(group, request, client)
            if outcome.left and self._downgrade(group, outcome.left):
                return response
        replaced = self._table.get(request.group_id)
        self.commit(group, outcome, before=before)
        if isinstance(replaced, ClassicGroup):
            self._upgraded(replaced, group)
        return response

    def _find(self, group_id: str, *, create: bool) -> tuple[ConsumerGroup, Records]:
        """A group, and records to append before those of a request. A new group is in the table after that only. Raises
        Refused."""
        found = self._table.get(group_id)
        if isinstance(found, ConsumerGroup):
            return found, []
        if not create:
            what = "is not a consumer group" if found is not None else "not found"
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        if found is None:
            return self._new(group_id), []
        made = self._new(group_id)
        if found.is_empty and found.kind != "share":
            return made, found.tombstones()
        changes = None
        if isinstance(found, ClassicGroup) and self._config.may_upgrade:
            changes = to_consumer(found, made)
        if changes is None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        made.apply(changes)
        return made, [*found.tombstones(), *encode_changes(changes)]

    def _upgraded(self, old: ClassicGroup, group: ConsumerGroup) -> None:
        """A classic group was replaced: its members that wait join again, and have timers here now."""
        old.close(ErrorCode.REBALANCE_IN_PROGRESS, self._table.clock.wall_ms())
        for member in group.classic_members:
            assert member.classic is not None
            key: tuple[Timer, str] = ("session", member.member_id)
            self._set_timers(group.group_id, Outcome(timers={key: member.classic.session_timeout_ms}))
        _log.info("event=group_upgraded group=%r members=%d", group.group_id, len(group.members))

    def downgrade_for(self, group: ConsumerGroup, instance_id: str | None) -> bool:
        """A static member comes back with the classic protocol. Was it the last one with the new one? Then it is
        removed, and the others are a classic group; without others, the group is empty. Raises AppendFailed."""
        member = None if instance_id is None else group.static_member(instance_id)
        if member is None or member.classic is not None or not self._config.may_downgrade:
            return False
        if len(group.members) == 1:
            self.remove_members(group, [member.member_id])
            return True
        return self._downgrade(group, [member.member_id])

    def _downgrade(self, group: ConsumerGroup, without: Collection[str]) -> bool:
        """Make it a classic group without these members, if only classic ones are left. Raises AppendFailed."""
        if not can_become_classic(group, without, size_max=self._table.config.max_size):
            return False
        group_id, members = group.group_id, classic_members(group, without)
        made = self._rebalances.new_group(group_id)
        self._table.append(group_id, to_classic(group, made, self._rebalances.new_group(group_id), members))
        self._table.put(made)
        for member in group.members:
            self._end_timers(group_id, member)
        for classic in members:
            self._rebalances.watch(made, classic)
            classic.alive()
        self._rebalances.prepare(made, "the group is a classic one again")
        return True

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._table.clock.wall_ms()

    def client(self, context: Context) -> Client:
        """Who sends a request, and when."""
        return Client(
            context.client_id,
            context.client_host,
            self.now_ms(),
            self._table.deadlines.now_ms(),
            partial(context.authorized, "DESCRIBE", "TOPIC"),
        )

    def _check_available(self) -> None:
        code = self._table.unavailable
        if code is not ErrorCode.NONE:
            raise Refused(code, code.name)

    def commit(self, group: ConsumerGroup, outcome: Outcome, *, before: Records | None = None) -> None:
        """Append the changes and apply them, then set the timers. Raises AppendFailed; then nothing has changed."""
        if outcome.changes or before:
            try:
                self._table.append(group.group_id, [*(before or ()), *encode_changes(outcome.changes)])
            except AppendFailed:
                group.request_refresh()
                raise
            group.apply(outcome.changes)
            if self._table.get(group.group_id) is not group:
                self._table.put(group)
        self._set_timers(group.group_id, outcome)

    # ---- timers ----------------------------------------------------------------------------------------------------

    def _set_timers(self, group_id: str, outcome: Outcome) -> None:
        timers = self._timers.setdefault(group_id, {})
        for key, delay_ms in outcome.timers.items():
            if delay_ms is None:
                if (timer := timers.pop(key, None)) is not None:
                    timer.cancel()
                continue
            if key not in timers:
                action = partial(self._expired, group_id, *key)
                timers[key] = self._table.deadlines.make(f"{key[0]}-{group_id}-{key[1]}", action)
            timers[key].set(delay_ms)
        for member_id in outcome.left:
            self._end_timers(group_id, member_id)
        if not timers:
            self._timers.pop(group_id, None)

    def remove_members(self, group: ConsumerGroup, member_ids: Sequence[str]) -> None:
        """Members have left. Raises AppendFailed."""
        if not self._downgrade(group, member_ids):
            self.commit(group, fence(group, member_ids, self.now_ms()))

    def set_timer_if_absent(self, group: ConsumerGroup, timer: Timer, member_id: str, delay_ms: int) -> None:
        """Set a timer of a member that does not run."""
        if (timer, member_id) not in self._timers.get(group.group_id, {}):
            self._set_timers(group.group_id, Outcome(timers={(timer, member_id): delay_ms}))

    def _end_timers(self, group_id: str, member_id: str) -> None:
        timers = self._timers.get(group_id, {})
        for key in [key for key in timers if key[1] == member_id]:
            timers.pop(key).cancel()

    def _expired(self, group_id: str, timer: Timer, member_id: str) -> None:
        """A timer of a member has ended. Under the lock."""
        group = self._table.get(group_id)
        if not isinstance(group, ConsumerGroup) or member_id not in group.members:
            self._end_timers(group_id, member_id)
            return
        _log.info("event=member_fenced group=%r member=%r timer=%s", group_id, member_id, timer)
        try:
            self.remove_members(group, [member_id])
        except AppendFailed:
            # The member stays; its time begins again.
            self._set_timers(group_id, Outcome(timers={(timer, member_id): group.config.session_timeout_ms}))

    # ---- ConsumerGroupDescribe -------------------------------------------------------------------------------------

    def describe(
        self, context: Context, request: messages.ConsumerGroupDescribe.Request
    ) -> messages.ConsumerGroupDescribe.Response:
        """Describe groups, each once, in the order of the request."""

        def described(group_id: str) -> messages.ConsumerGroupDescribe.Response.Group:
            with self._table.lock:
                self._check_available()
                return self._find(group_id, create=False)[0].describe()

        response: messages.ConsumerGroupDescribe.Response = describe_groups(
            context, request, messages.ConsumerGroupDescribe.Response, described
        )
        return response
