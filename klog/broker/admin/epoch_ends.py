"""OffsetForLeaderEpoch: where leader epochs end, so that a reader notices a truncation.

Kafka: Partition.lastOffsetForLeaderEpoch, UnifiedLog.endOffsetForEpoch.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from klog.broker.admin.failures import Refused, outcome
from klog.broker.partitions import end_of_epoch, find_log
from klog.protocol import ApiKey, ErrorCode, messages
from klog.security.refusals import cluster_authorized

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.protocol import Message
    from klog.security import Context, Topics

_UNDEFINED: Final = -1


class EpochEnds:
    """Any thread."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def handlers(self) -> dict[ApiKey, Callable[[Context, Any], Message | None]]:
        """The APIs of this component."""
        return {ApiKey.OFFSET_FOR_LEADER_EPOCH: self.offset_for_leader_epoch}

    def offset_for_leader_epoch(self, context: Context, request: Any) -> Message:
        """The largest known epoch up to the one asked for, and the offset at which it ends; -1 and -1 if there is
        none."""
        Response = messages.OffsetForLeaderEpoch.Response
        topics = []
        of_broker = cluster_authorized(context.authorized, "CLUSTER_ACTION")
        for topic in request.topics:
            allowed = of_broker or context.authorized("DESCRIBE", "TOPIC", topic.topic)
            result = Response.Topic(topic=topic.topic, partitions=[])
            for asked in topic.partitions:
                found = Response.Partition(partition=asked.partition, leader_epoch=_UNDEFINED, end_offset=_UNDEFINED)
                work = partial(self._find, topic.topic, asked, found, allowed=allowed)
                found.error_code, _ = outcome(work, "OffsetForLeaderEpoch")
                result.partitions.append(found)
            topics.append(result)
        return Response(topics=topics)

    def _find(self, topic: str, asked: Any, found: Any, *, allowed: bool) -> None:
        if not allowed:
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        log = find_log(self._topics, topic, asked.partition, asked.current_leader_epoch)
        if isinstance(log, ErrorCode):
            raise Refused(log)
        if asked.leader_epoch >= 0:
            found.leader_epoch, found.end_offset = end_of_epoch(log, asked.leader_epoch)
