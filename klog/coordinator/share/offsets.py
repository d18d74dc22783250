"""DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets: the start offsets of share groups.

Kafka: KafkaApis, GroupCoordinatorService.describeShareGroupOffsets, alterShareGroupOffsets, deleteShareGroupOffsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.coordinator.groups.refusal import Refused
from klog.coordinator.groups.table import AppendFailed, GroupTable
from klog.coordinator.share.share_group import EPOCH, ShareGroup
from klog.coordinator.share.state_log import ShareKey
from klog.errors import KlogError
from klog.protocol import ErrorCode, messages
from klog.values import NamedTuple

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Sequence

    from klog.coordinator.share.partitions import SharePartitions
    from klog.coordinator.share.share_groups import ShareGroups
    from klog.protocol.messages import AlterShareGroupOffsets, DeleteShareGroupOffsets, DescribeShareGroupOffsets
    from klog.security.context import Context

_NONE = ErrorCode.NONE
_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class _Start(NamedTuple):
    """A partition whose start offset is set. result: its part of the response."""

    name: str
    topic_id: uuid.UUID
    offset: int
    result: AlterShareGroupOffsets.Response.Partition


class ShareOffsets:
    """The start offsets of the share groups of a broker. Any thread."""

    def __init__(self, table: GroupTable, groups: ShareGroups, partitions: SharePartitions) -> None:
        self._table = table
        self._topics = table.topics
        self._groups = groups
        self._partitions = partitions

    # ---- describe --------------------------------------------------------------------------------------------------

    def describe(
        self, context: Context, request: DescribeShareGroupOffsets.Request
    ) -> DescribeShareGroupOffsets.Response:
        """The start offsets of groups, of the topics that are asked for or of all. What is requested several times is
        in the response once, also below; the last request for it counts."""
        Response = messages.DescribeShareGroupOffsets.Response
        found = []
        for asked in {each.group_id: each for each in request.groups}.values():
            try:
                _authorize(context, "DESCRIBE", asked.group_id)
                with self._table.lock:
                    group = self._groups.find(asked.group_id)
                    topics = self._described(context, group, asked.topics)
                found.append(Response.Group(group_id=asked.group_id, topics=topics))
            except Refused as refused:
                found.append(
                    Response.Group(group_id=asked.group_id, error_code=refused.code, error_message=str(refused))
                )
        return Response(groups=found)

    def _described(
        self,
        context: Context,
        group: ShareGroup,
        asked: Sequence[DescribeShareGroupOffsets.Request.Topic] | None,
    ) -> list[DescribeShareGroupOffsets.Response.Topic]:
        Response = messages.DescribeShareGroupOffsets.Response
        if asked is None:
            places = [
                (name, topic_id, sorted(numbers))
                for topic_id, numbers in group.initialized.items()
                if (name := self._topics.name_of(topic_id)) is not None
                and context.authorized("DESCRIBE", "TOPIC", name)
            ]
            return [
                Response.Topic(
                    topic_name=name,
                    topic_id=topic_id,
                    partitions=[self._partition(group, name, topic_id, number) for number in numbers],
                )
                for name, topic_id, numbers in sorted(places, key=lambda place: place[0])
            ]
        topics = []
        for each in {each.topic_name: each for each in asked}.values():
            topic_id = self._topics.topic_id(each.topic_name)
            code = _UNKNOWN if topic_id is None else _NONE
            if not context.authorized("DESCRIBE", "TOPIC", each.topic_name):
                code, topic_id = ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
            partitions = [
                Response.Partition(
                    partition_index=number, start_offset=-1, error_code=code, error_message=code.name if code else None
                )
                if topic_id is None
                else self._partition(group, each.topic_name, topic_id, number)
                for number in dict.fromkeys(each.partitions)
            ]
            topic = Response.Topic(topic_name=each.topic_name, partitions=partitions)
            if topic_id is not None:
                topic.topic_id = topic_id
            topics.append(topic)
        return topics

    def _partition(
        self, group: ShareGroup, name: str, topic_id: uuid.UUID, number: int
    ) -> DescribeShareGroupOffsets.Response.Partition:
        Partition = messages.DescribeShareGroupOffsets.Response.Partition
        with self._partitions.lock:
            shared = self._partitions.find(ShareKey(group.group_id, topic_id, number))
            if shared is None:
                return Partition(partition_index=number, start_offset=-1)
            start, done, epoch = shared.partition.start_offset, shared.partition.done_count, shared.leader_epoch
        return Partition(
            partition_index=number,
            start_offset=start,
            leader_epoch=max(epoch, 0),
            lag=-1 if start < 0 else self._lag(name, number, start + done),
        )

    def _lag(self, name: str, number: int, offset: int) -> int:
        try:
            log = self._topics.log(name, number)
        except (KlogError, OSError):
            log = None
        return -1 if log is None else max(0, log.high_watermark - offset)

    # ---- alter -----------------------------------------------------------------------------------------------------

    def alter(self, context: Context, request: AlterShareGroupOffsets.Request) -> AlterShareGroupOffsets.Response:
        """Set start offsets of a group without members; a group that does not exist is made."""
        Response = messages.AlterShareGroupOffsets.Response
        try:
            _check_id(request.group_id)
            _authorize(context, "READ", request.group_id)
            with self._table.lock:
                group = self._groups.find(request.group_id, create=True)
                _check_empty(group)
                topics = self._altered(context, group, request)
            return Response(responses=topics)
        except Refused as refused:
            return Response(error_code=refused.code, error_message=str(refused))
        except AppendFailed as failed:
            return Response(error_code=failed.code, error_message=str(failed))

    def _altered(
        self, context: Context, group: ShareGroup, request: AlterShareGroupOffsets.Request
    ) -> list[AlterShareGroupOffsets.Response.Topic]:
        """An error of one partition leaves the others as they are. Raises AppendFailed; then nothing has changed: the
        group's record is written before the partitions that it has begin anew."""
        Response = messages.AlterShareGroupOffsets.Response
        topics: list[AlterShareGroupOffsets.Response.Topic] = []
        new: list[_Start] = []
        known: list[_Start] = []
        for asked in {each.topic_name: each for each in request.topics}.values():
            name, topic_id = asked.topic_name, self._topics.topic_id(asked.topic_name)
            count = (self._topics.partitions(name) or 0) if topic_id is not None else 0
            allowed = context.authorized("READ", "TOPIC", name)
            partitions = []
            for each in {each.partition_index: each for each in asked.partitions}.values():
                code = _NONE
                if not allowed:
                    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif not 0 <= each.partition_index < count:
                    code = _UNKNOWN
                elif each.start_offset < -1:  # where the configuration says
                    code = ErrorCode.INVALID_REQUEST
                result = Response.Partition(
                    partition_index=each.partition_index,
                    error_code=code,
                    error_message=code.name if code else None,
                )
                partitions.append(result)
                if code is _NONE and topic_id is not None:
                    has_it = each.partition_index in group.initialized.get(topic_id, ())
                    (known if has_it else new).append(_Start(name, topic_id, each.start_offset, result))
            topic = Response.Topic(topic_name=name, partitions=partitions)
            if topic_id is not None and allowed:
                topic.topic_id = topic_id
            topics.append(topic)
        begun = self._begun(group, new)
        if begun:
            self._join(group, begun)
        self._begun(group, known)
        return topics

    def _join(self, group: ShareGroup, begun: Sequence[_Start]) -> None:
        """Write that the group has these partitions, too. Raises AppendFailed; then they have no state any more."""
        initialized = dict(group.initialized)
        for start in begun:
            numbers = initialized.get(start.topic_id, frozenset())
            initialized[start.topic_id] = numbers | {start.result.partition_index}
        changes = [group.state_change(initialized, {start.topic_id: start.name for start in begun})]
        if group.epoch == 0:
            changes.insert(0, (EPOCH, {"group_id": group.group_id}, {"epoch": 1, "metadata_hash": 0}))
        try:
            self._groups.commit(group, changes)
        except AppendFailed:
            self._partitions.delete(
                ShareKey(group.group_id, start.topic_id, start.result.partition_index) for start in begun
            )
            raise

    def _begun(self, group: ShareGroup, starts: Iterable[_Start]) -> list[_Start]:
        """Begin partitions; returns those that have begun. The results of the others get the error."""
        begun = []
        for start in starts:
            place = [(start.topic_id, start.result.partition_index)]
            try:
                self._partitions.initialize(group.group_id, group.epoch, place, start.offset)
            except Refused as refused:
                start.result.error_code, start.result.error_message = refused.code, str(refused)
            else:
                begun.append(start)
        return begun

    # ---- delete ----------------------------------------------------------------------------------------------------

    def delete(self, context: Context, request: DeleteShareGroupOffsets.Request) -> DeleteShareGroupOffsets.Response:
        """Remove the states of topics from a group without members: it starts them again when a member reads them."""
        Response = messages.DeleteShareGroupOffsets.Response
        try:
            _check_id(request.group_id)
            _authorize(context, "DELETE", request.group_id)
            with self._table.lock:
                group = self._groups.find(request.group_id)
                _check_empty(group)
                topics, gone = [], []
                for asked in {each.topic_name: each for each in request.topics}.values():
                    topic = Response.Topic(topic_name=asked.topic_name)
                    topic_id = self._topics.topic_id(asked.topic_name)
                    if not context.authorized("READ", "TOPIC", asked.topic_name):
                        topic.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                        topic.error_message = ErrorCode.TOPIC_AUTHORIZATION_FAILED.name
                    elif topic_id is None:
                        topic.error_code, topic.error_message = _UNKNOWN, _UNKNOWN.name
                    else:
                        topic.topic_id = topic_id
                        if topic_id in group.initialized:
                            gone.append(topic_id)
                        else:
                            topic.error_code = _UNKNOWN
                            topic.error_message = "There is no offset information to delete."
                    topics.append(topic)
                if gone:
                    self._groups.forget_topics(group, gone)
            return Response(responses=topics)
        except Refused as refused:
            return Response(error_code=refused.code, error_message=str(refused))
        except AppendFailed as failed:
            return Response(error_code=failed.code, error_message=str(failed))


def _check_id(group_id: str) -> None:
    if not group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")


def _authorize(context: Context, operation: str, group_id: str) -> None:
    if not context.authorized(operation, "GROUP", group_id):
        raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED.name)


def _check_empty(group: ShareGroup) -> None:
    if not group.is_empty:
        raise Refused(ErrorCode.NON_EMPTY_GROUP, f"The share group {group.group_id} has members.")
