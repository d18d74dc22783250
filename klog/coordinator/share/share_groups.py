"""ShareGroups: the membership of the share groups of a broker: requests, records and sessions of members.

A request is answered at once: its changes are computed, appended and applied. A member without a heartbeat for
group.share.session.timeout.ms is removed, and what it has acquired is available again. Kafka: GroupMetadataManager,
GroupCoordinatorService.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from klog.coordinator.groups.consumer_heartbeat import Client
from klog.coordinator.groups.consumer_member import JOIN_EPOCH, LEAVE_EPOCH
from klog.coordinator.groups.consumer_records import Change, encode_changes
from klog.coordinator.groups.describing import describe_groups
from klog.coordinator.groups.refusal import Refused
from klog.coordinator.groups.table import AppendFailed, GroupTable
from klog.coordinator.share.heartbeat import check_heartbeat, heartbeat, leave
from klog.coordinator.share.share_group import EPOCH, ShareGroup
from klog.coordinator.share.state_log import ShareKey
from klog.internal_topics.names import CONSUMER_OFFSETS
from klog.logger import logger_of
from klog.protocol import ErrorCode, messages

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from klog.coordinator.groups.deadlines import Deadline
    from klog.coordinator.share.config import ShareGroupConfig
    from klog.coordinator.share.partitions import SharePartitions
    from klog.record import Record
    from klog.security.context import Context

_log = logger_of("coordinator")


class ShareGroups:
    """What share_kind.py loads. config: of a group by its id. left: called with the group and the id of a member that
    has left, under the lock of the table."""

    def __init__(
        self,
        table: GroupTable,
        partitions: SharePartitions,
        config: Callable[[str], ShareGroupConfig],
        left: Callable[[str, str], object],
    ) -> None:
        self._table = table
        self._partitions = partitions
        self._config = config
        self._left = left
        self._sessions: dict[tuple[str, str], Deadline] = {}

    # ---- life: under the lock of the table -------------------------------------------------------------------------

    def replay(self, record: Record) -> None:
        """Apply a record while the coordinator loads."""
        from klog.internal_topics import decode  # reads schemas

        found = decode(record, CONSUMER_OFFSETS)
        if found is None or found.key is None:
            return
        group_id = found.key["group_id"]
        group = self._table.get(group_id)
        if not isinstance(group, ShareGroup):
            if found.value is None:
                return  # a tombstone of a group that is gone
            group = self._new(group_id)
            self._table.put(group)
        group.apply([(found.type, found.key, found.value)])
        if found.type == EPOCH and found.value is None:
            self._table.remove(group_id)

    def loaded(self) -> None:
        """All records have been replayed: read the states of the partitions, and start the sessions."""
        groups = {group.group_id: group for group in self.groups()}
        self._partitions.load(
            lambda key: (
                key.group_id in groups and key.partition in groups[key.group_id].initialized.get(key.topic_id, ())
            )
        )
        for group in groups.values():
            # A partition that lacks its state gets a new one, with the next heartbeat.
            found = {
                topic_id: frozenset(each for each in numbers if self._has_state(group.group_id, topic_id, each))
                for topic_id, numbers in group.initialized.items()
            }
            if found != group.initialized:
                group.apply([group.state_change(found, {})])
            for member_id in group.members:
                self._alive(group, member_id)

    def _has_state(self, group_id: str, topic_id: uuid.UUID, partition: int) -> bool:
        return self._partitions.find(ShareKey(group_id, topic_id, partition)) is not None

    def groups(self) -> list[ShareGroup]:
        """All share groups, as of now."""
        return [group for group in self._table.groups() if isinstance(group, ShareGroup)]

    def _new(self, group_id: str) -> ShareGroup:
        return ShareGroup(group_id, self._table.topics, self._config(group_id), self._deleted)

    def _deleted(self, group: ShareGroup) -> None:
        self._partitions.delete(_keys(group.group_id, group.initialized))

    def configured(self, group_id: str) -> None:
        """The configuration of a group has changed. Its sessions follow with the next heartbeats."""
        group = self._table.get(group_id)
        if isinstance(group, ShareGroup):
            group.configure(self._config(group_id))

    def topics_changed(self) -> None:
        """Topics were created, deleted, or have more partitions: states of deleted ones go, and the next heartbeats
        look at the others. Takes the lock."""
        with self._table.lock:
            for group in self.groups():
                group.request_refresh()
                gone = [topic_id for topic_id in group.initialized if self._table.topics.name_of(topic_id) is None]
                if gone:
                    try:
                        self.forget_topics(group, gone)
                    except AppendFailed:
                        continue  # logged; the next change of topics tries again

    # ---- for requests about offsets: under the lock ----------------------------------------------------------------

    def find(self, group_id: str, *, create: bool = False) -> ShareGroup:
        """A share group; a new one is in the table once commit() was called. Raises Refused."""
        if self._table.unavailable is not ErrorCode.NONE:
            raise Refused(self._table.unavailable, self._table.unavailable.name)
        found = self._table.get(group_id)
        if isinstance(found, ShareGroup):
            return found
        if found is not None:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        if not create:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return self._new(group_id)

    def forget_topics(self, group: ShareGroup, topic_ids: Iterable[uuid.UUID]) -> None:
        """Let a group have no states of topics any more. Raises AppendFailed."""
        gone = set(topic_ids)
        kept = {topic_id: some for topic_id, some in group.initialized.items() if topic_id not in gone}
        keys = _keys(
            group.group_id, {topic_id: group.initialized[topic_id] for topic_id in group.initialized.keys() & gone}
        )
        self.commit(group, [group.state_change(kept, {})])
        self._partitions.delete(keys)

    def commit(self, group: ShareGroup, changes: Sequence[Change]) -> None:
        """Append changes and apply them. Raises AppendFailed; then nothing has changed."""
        if changes:
            try:
                self._table.append(group.group_id, encode_changes(changes))
            except AppendFailed:
                group.request_refresh()
                raise
            group.apply(changes)
        if self._table.get(group.group_id) is not group:
            self._table.put(group)

    # ---- ShareGroupHeartbeat ---------------------------------------------------------------------------------------

    def heartbeat(
        self, context: Context, request: messages.ShareGroupHeartbeat.Request
    ) -> messages.ShareGroupHeartbeat.Response:
        """Handle a heartbeat, which also joins and leaves."""
        try:
            if not context.authorized("READ", "GROUP", request.group_id):
                raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED.name)
            if not all(context.authorized("DESCRIBE", "TOPIC", name) for name in request.subscribed_topic_names or ()):
                raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED.name)
            check_heartbeat(request)
            with self._table.lock:
                return self._heartbeat(context, request)
        except Refused as refused:
            return messages.ShareGroupHeartbeat.Response(error_code=refused.code, error_message=str(refused))
        except AppendFailed as failed:
            return messages.ShareGroupHeartbeat.Response(error_code=failed.code)

    def _heartbeat(
        self, context: Context, request: messages.ShareGroupHeartbeat.Request
    ) -> messages.ShareGroupHeartbeat.Response:
        group = self.find(request.group_id, create=request.member_epoch == JOIN_EPOCH)
        member_id = request.member_id
        if request.member_epoch == LEAVE_EPOCH:
            group.member(member_id)
            self.remove_members(group, [member_id])
            return messages.ShareGroupHeartbeat.Response(member_id=member_id, member_epoch=LEAVE_EPOCH)
        client = Client(
            context.client_id,
            context.client_host,
            self._table.clock.wall_ms(),
            self._table.deadlines.now_ms(),
            partial(context.authorized, "DESCRIBE", "TOPIC"),
        )
        begun: list[tuple[uuid.UUID, int]] = []

        def initialize(epoch: int, places: list[tuple[uuid.UUID, int]]) -> None:
            begun.extend(places)
            self._partitions.initialize(group.group_id, epoch, places)

        try:
            response, changes = heartbeat(group, request, client, initialize)
            self.commit(group, changes)
        except (Refused, AppendFailed):
            group.request_refresh()
            self._partitions.delete(ShareKey(group.group_id, *place) for place in begun)  # the group has none of them
            raise
        self._alive(group, member_id)
        return response

    def remove_members(self, group: ShareGroup, member_ids: Sequence[str]) -> None:
        """Members have left. Raises AppendFailed."""
        self.commit(group, leave(group, member_ids))
        for member_id in member_ids:
            session = self._sessions.pop((group.group_id, member_id), None)
            if session is not None:
                session.cancel()
            self._left(group.group_id, member_id)
            self._partitions.release(group.group_id, member_id)

    def _alive(self, group: ShareGroup, member_id: str) -> None:
        key = group.group_id, member_id
        session = self._sessions.get(key)
        if session is None:
            session = self._table.deadlines.make(f"share session {member_id}", partial(self._expired, *key))
            self._sessions[key] = session
        session.set(group.config.session_timeout_ms)

    def _expired(self, group_id: str, member_id: str) -> None:
        """A session has ended. Under the lock."""
        group = self._table.get(group_id)
        if not isinstance(group, ShareGroup) or member_id not in group.members:
            self._sessions.pop((group_id, member_id), None)
            return
        _log.info("event=member_fenced group=%r member=%r timer=session", group_id, member_id)
        try:
            self.remove_members(group, [member_id])
        except AppendFailed:
            self._alive(group, member_id)  # the member stays; its time begins again

    # ---- ShareGroupDescribe ----------------------------------------------------------------------------------------

    def describe(
        self, context: Context, request: messages.ShareGroupDescribe.Request
    ) -> messages.ShareGroupDescribe.Response:
        """Describe groups, each once, in the order of the request."""

        def described(group_id: str) -> messages.ShareGroupDescribe.Response.Group:
            with self._table.lock:
                return self.find(group_id).describe()

        response: messages.ShareGroupDescribe.Response = describe_groups(
            context, request, messages.ShareGroupDescribe.Response, described
        )
        return response


def _keys(group_id: str, topics: Mapping[uuid.UUID, Iterable[int]]) -> list[ShareKey]:
    return [ShareKey(group_id, topic_id, number) for topic_id, numbers in topics.items() for number in numbers]
