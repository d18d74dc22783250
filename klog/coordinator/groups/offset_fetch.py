"""OffsetFetch: the committed offsets of one or many groups. Any thread.

Topics that the client may not describe have an error in a request that names them, and are left out otherwise.
Kafka: KafkaApis.handleOffsetFetchRequest, OffsetMetadataManager.fetchOffsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.coordinator.groups.offset_records import NO_ID
from klog.protocol import ApiKey, ErrorCode, messages

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from klog.coordinator.groups.group import Handler
    from klog.coordinator.groups.offset_records import Committed
    from klog.coordinator.groups.table import GroupTable
    from klog.protocol.messages import OffsetFetch
    from klog.security.context import Context

    Partition = tuple[int, Committed | None, ErrorCode]
    Topic = tuple[str, UUID, list[Partition]]

_NONE = ErrorCode.NONE
_GROUP_ERROR_VERSION = 2
_GROUPS_VERSION = 8
_TOPIC_ID_VERSION = 10


class OffsetFetches:
    """The offsets of all groups of a table."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._topics = table.topics

    def handlers(self) -> dict[ApiKey, Handler]:
        return {ApiKey.OFFSET_FETCH: self.fetch}

    def fetch(self, context: Context, request: OffsetFetch.Request) -> OffsetFetch.Response:
        """The offsets that were asked for, or all."""
        Response = messages.OffsetFetch.Response
        stable = request.require_stable
        if context.version < _GROUPS_VERSION:
            code, topics = self._group(context, request.group_id, None, -1, request.topics, stable)
            if code is not _NONE:
                return self._refused(context, request, code)
            return Response(topics=[_topic(Response.Topic, Response.Partition, each) for each in topics])
        by_id = context.version >= _TOPIC_ID_VERSION
        groups = []
        for asked in {each.group_id: each for each in request.groups}.values():
            code, topics = self._group(
                context, asked.group_id, asked.member_id, asked.member_epoch, asked.topics, stable
            )  # fmt: skip
            listed = [_topic(Response.GroupTopic, Response.GroupPartition, each, by_id=by_id) for each in topics]
            groups.append(Response.Group(group_id=asked.group_id, topics=listed, error_code=code))
        return Response(groups=groups)

    def _refused(self, context: Context, request: OffsetFetch.Request, code: ErrorCode) -> OffsetFetch.Response:
        Response = messages.OffsetFetch.Response
        if context.version >= _GROUP_ERROR_VERSION:
            return Response(error_code=code)
        topics: list[Topic] = [
            (topic.name, NO_ID, [(number, None, code) for number in topic.partition_indexes])
            for topic in request.topics or ()
        ]
        return Response(topics=[_topic(Response.Topic, Response.Partition, each) for each in topics])

    def _group(
        self,
        context: Context,
        group_id: str,
        member_id: str | None,
        epoch: int,
        asked: Iterable[Any] | None,
        stable: bool,
    ) -> tuple[ErrorCode, list[Topic]]:
        """The offsets of one group. asked: None for all."""
        if not context.authorized("DESCRIBE", "GROUP", group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED, []
        by_id = context.version >= _TOPIC_ID_VERSION
        named = None if asked is None else [self._named(context, *each, by_id) for each in _each_once(asked)]
        with self._table.lock:
            code = self._table.unavailable
            if code is not _NONE:
                return code, []
            group = self._table.get(group_id)
            code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.validate_fetch(member_id, epoch)
            if code not in (_NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                return code, []
            if named is not None:
                return _NONE, [self._asked(group_id, *each, stable) for each in named]
            every = self._every(group_id, stable)
        return _NONE, self._visible(context, every, by_id)

    def _named(
        self, context: Context, name: str, topic_id: UUID, numbers: list[int], by_id: bool
    ) -> tuple[str, UUID, list[int], ErrorCode]:
        if by_id:
            found = self._topics.name_of(topic_id)
            if found is None:
                return "", topic_id, numbers, ErrorCode.UNKNOWN_TOPIC_ID
            name = found
        allowed = context.authorized("DESCRIBE", "TOPIC", name)
        return name, topic_id, numbers, _NONE if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def _asked(
        self, group_id: str, name: str, topic_id: UUID, numbers: list[int], code: ErrorCode, stable: bool
    ) -> Topic:
        if code is not _NONE:
            return name, topic_id, [(number, None, code) for number in numbers]
        offsets = self._table.offsets
        known = offsets.topics(group_id).get(name)
        check = stable and offsets.has_open(group_id)
        found: list[Partition] = []
        for number in numbers:
            if check and offsets.is_pending(group_id, name, number):
                found.append((number, None, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                continue
            committed = None if known is None else known.get(number)
            if committed is not None and topic_id.int and committed.topic_id.int not in (0, topic_id.int):
                committed = None  # of a topic of that name that was deleted
            found.append((number, committed, _NONE))
        return name, topic_id, found

    def _every(self, group_id: str, stable: bool) -> list[Topic]:
        offsets = self._table.offsets
        return [
            self._asked(group_id, name, NO_ID, list(known), _NONE, stable)
            for name, known in offsets.topics(group_id).items()
        ]

    def _visible(self, context: Context, topics: list[Topic], by_id: bool) -> list[Topic]:
        """The topics that the client may describe, with their ids if it asked by id; unknown ones have none."""
        found: list[Topic] = []
        for name, _, partitions in topics:
            topic_id = self._topics.topic_id(name) if by_id else NO_ID
            if topic_id is not None and context.authorized("DESCRIBE", "TOPIC", name):
                found.append((name, topic_id, partitions))
        return found


def _each_once(asked: Iterable[Any]) -> list[tuple[str, UUID, list[int]]]:
    """The topics and partitions that are asked for, without repetitions: each has 4 bytes in the request, and its
    metadata in the response."""
    found: dict[tuple[str, UUID], dict[int, None]] = {}
    for topic in asked:
        key = topic.name, getattr(topic, "topic_id", NO_ID)
        found.setdefault(key, {}).update(dict.fromkeys(topic.partition_indexes))
    return [(*key, list(numbers)) for key, numbers in found.items()]


def _topic(topic: Any, partition: Any, found: Topic, *, by_id: bool = False) -> Any:
    """A topic of the response, of these classes."""
    name, topic_id, offsets = found
    partitions = [
        partition(partition_index=number, committed_offset=-1, metadata="", error_code=code)
        if committed is None
        else partition(
            partition_index=number,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            error_code=code,
        )
        for number, committed, code in offsets
    ]
    return topic(topic_id=topic_id, partitions=partitions) if by_id else topic(name=name, partitions=partitions)
