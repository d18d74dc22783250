"""DescribeTopicPartitions: topics with their partitions, page by page. Kafka: DescribeTopicPartitionsRequestHandler.

A page ends after a number of partitions; its cursor names the first one of the next page. Topics are in the order of
their names, so a topic that is created or deleted between two pages moves no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from klog.broker.metadata import absent
from klog.broker.partitions import find_log
from klog.internal_topics.names import INTERNAL_TOPICS
from klog.protocol import ApiKey, ErrorCode, messages
from klog.security import authorized_operations

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker.catalog import TopicCatalogView, TopicInfo
    from klog.broker.metadata import Placement
    from klog.protocol import Message
    from klog.security import Context

PAGE_MAX: Final = 2000  # max.request.partition.size.limit
_NO_LEADER: Final = -1


class TopicPages:
    """Any thread. placement: of a partition by its number. page_max: partitions of a response."""

    def __init__(
        self, topics: TopicCatalogView, placement: Callable[[str, int], Placement], *, page_max: int = PAGE_MAX
    ) -> None:
        self._topics = topics
        self._placement = placement
        self._page_max = page_max

    def handlers(self) -> dict[ApiKey, Callable[[Any, Any], Message | None]]:
        """The APIs of this component."""
        return {ApiKey.DESCRIBE_TOPIC_PARTITIONS: self.describe_topic_partitions}

    def describe_topic_partitions(self, context: Any, request: Any) -> Message:
        """One page, from the cursor on."""
        Response = messages.DescribeTopicPartitions.Response
        asked, cursor = sorted({topic.name for topic in request.topics}), request.cursor
        if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
            return Response(topics=[Response.Topic(name=name, error_code=ErrorCode.INVALID_REQUEST) for name in asked])
        first, start = (cursor.topic_name, cursor.partition_index) if cursor is not None else ("", 0)
        left = max(1, min(request.response_partition_limit, self._page_max))
        response = Response(topics=[])
        refused = []
        for name in asked or self._topics.names():
            if name < first:
                continue
            if not context.authorized("DESCRIBE", "TOPIC", name):
                if asked:
                    refused.append(Response.Topic(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            if left == 0:
                response.next_cursor = Response.Cursor(topic_name=name, partition_index=0)
                break
            info = self._topics.get(name)
            if info is None:
                if asked:
                    response.topics.append(Response.Topic(name=name, error_code=absent(name)))
                continue
            begin = start if name == first else 0
            end = min(begin + left, info.partitions)
            response.topics.append(self._topic(context, info, range(begin, end)))
            left -= max(end - begin, 0)
            if end < info.partitions:
                response.next_cursor = Response.Cursor(topic_name=name, partition_index=end)
                break
        response.topics += refused
        return response

    def _topic(
        self, context: Context, info: TopicInfo, partitions: range
    ) -> messages.DescribeTopicPartitions.Response.Topic:
        return messages.DescribeTopicPartitions.Response.Topic(
            name=info.name,
            topic_id=info.topic_id,
            is_internal=info.name in INTERNAL_TOPICS,
            partitions=[self._partition(info.name, number) for number in partitions],
            topic_authorized_operations=authorized_operations(context.authorized, "TOPIC", info.name),
        )

    def _partition(self, topic: str, number: int) -> messages.DescribeTopicPartitions.Response.Partition:
        Partition = messages.DescribeTopicPartitions.Response.Partition
        log = find_log(self._topics, topic, number)
        place = self._placement(topic, number)
        if isinstance(log, ErrorCode) or log.offline is not None:
            return Partition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=number,
                leader_id=_NO_LEADER,
                replica_nodes=place.replicas,
                isr_nodes=place.in_sync,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=place.replicas,
            )
        return Partition(
            partition_index=number,
            leader_id=place.leader,
            leader_epoch=log.leader_epoch,
            replica_nodes=place.replicas,
            isr_nodes=place.in_sync,
            eligible_leader_replicas=[],
            last_known_elr=[],
            offline_replicas=[each for each in place.replicas if each not in place.in_sync],
        )
