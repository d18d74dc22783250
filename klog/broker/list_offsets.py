"""ListOffsets: offsets by time. Kafka: KafkaApis.handleListOffsetRequest, Partition.fetchOffsetForTimestamp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.broker.partitions import code_of, find_log
from klog.errors import KlogError
from klog.protocol import ApiKey, ErrorCode, messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker.context import RequestContext
    from klog.log.read.isolation import Isolation
    from klog.protocol import Message
    from klog.security import Topics

_EPOCH_VERSION = 4
# Special timestamps, with the first version that has them.
_SPECIAL = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
_BOUNDS = (-1, -2, -4)  # those of the log end and the log start


class ListOffsets:
    """Any thread."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def handlers(self) -> dict[ApiKey, Callable[[RequestContext, Any], Message | None]]:
        """The APIs of this component."""
        return {ApiKey.LIST_OFFSETS: self.list_offsets}

    def list_offsets(self, context: RequestContext, request: Any) -> Message:
        """The offsets of all partitions of a request. A partition that it names twice is refused."""
        isolation: Isolation = "read_committed" if request.isolation_level == 1 else "high_watermark"
        Response = messages.ListOffsets.Response
        topics = []
        seen: set[tuple[str, int]] = set()
        twice: set[tuple[str, int]] = set()
        for topic in request.topics:
            for each in topic.partitions:
                key = topic.name, each.partition_index
                (twice if key in seen else seen).add(key)
        for topic in request.topics:
            allowed = context.authorized("DESCRIBE", "TOPIC", topic.name)
            partitions = []
            for each in topic.partitions:
                if not allowed:
                    found = _failed(each, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                elif (topic.name, each.partition_index) in twice:
                    found = _failed(each, ErrorCode.INVALID_REQUEST)
                else:
                    found = self._offset(context.version, topic.name, each, isolation)
                partitions.append(found)
            topics.append(Response.Topic(name=topic.name, partitions=partitions))
        return Response(topics=topics)

    def _offset(self, version: int, topic: str, asked: Any, isolation: Isolation) -> Any:
        timestamp = asked.timestamp
        if timestamp < 0 and version < _SPECIAL.get(timestamp, version + 1):
            return _failed(asked, ErrorCode.UNSUPPORTED_VERSION)
        log = find_log(self._topics, topic, asked.partition_index, asked.current_leader_epoch)
        if isinstance(log, ErrorCode):
            return _failed(asked, log)
        try:
            found = log.list_offset(timestamp, isolation=isolation)
        except (KlogError, OSError) as error:
            return _failed(asked, code_of(error))
        Partition = messages.ListOffsets.Response.Partition
        if found is None:
            return Partition(partition_index=asked.partition_index, error_code=0)
        epoch = found.leader_epoch
        if epoch < 0 and timestamp in _BOUNDS and not log.leader_epochs:  # they are not written yet
            epoch = log.leader_epoch
        return Partition(
            partition_index=asked.partition_index,
            error_code=0,
            timestamp=found.timestamp,
            offset=found.offset,
            leader_epoch=epoch if version >= _EPOCH_VERSION else -1,
        )


def _failed(asked: Any, code: ErrorCode) -> Any:
    return messages.ListOffsets.Response.Partition(partition_index=asked.partition_index, error_code=code)
