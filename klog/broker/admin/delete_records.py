"""DeleteRecords: the log starts of partitions move up. Kafka: ReplicaManager.deleteRecordsOnLocalLog."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from klog.broker.admin.failures import Refused, outcome
from klog.broker.partitions import find_log
from klog.internal_topics.names import INTERNAL_TOPICS
from klog.log.log import begin_deletion, store_log_starts
from klog.protocol import ApiKey, ErrorCode, messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.log import Log
    from klog.protocol import Message
    from klog.security import Context, Topics

_NONE: Final = -1


class DeleteRecords:
    """Any thread."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def handlers(self) -> dict[ApiKey, Callable[[Context, Any], Message | None]]:
        """The APIs of this component."""
        return {ApiKey.DELETE_RECORDS: self.delete_records}

    def delete_records(self, context: Context, request: Any) -> Message:
        """Delete the records below an offset of each partition; -1: below the high watermark. May block on disks."""
        Response = messages.DeleteRecords.Response
        topics = []
        begun: list[tuple[Any, Log]] = []
        for topic in request.topics:
            allowed = context.authorized("DELETE", "TOPIC", topic.name)
            partitions = []
            for each in topic.partitions:
                result = Response.Partition(partition_index=each.partition_index, low_watermark=_NONE)
                work = partial(self._delete, topic.name, each.offset, result, begun, allowed=allowed)
                result.error_code, _ = outcome(work, "DeleteRecords")
                partitions.append(result)
            topics.append(Response.Topic(name=topic.name, partitions=partitions))
        code, _ = outcome(lambda: store_log_starts(log for _, log in begun), "DeleteRecords")
        if code is not ErrorCode.NONE:  # the client asks again, also for those in another log.dir
            for result, _ in begun:
                result.error_code, result.low_watermark = code, _NONE
        return Response(topics=topics)

    def _delete(self, topic: str, offset: int, result: Any, begun: list[tuple[Any, Log]], *, allowed: bool) -> None:
        """begun: gets the result with its log, whose start has yet to be stored."""
        if not allowed:
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if topic in INTERNAL_TOPICS:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
        log = find_log(self._topics, topic, result.partition_index)
        if isinstance(log, ErrorCode):
            raise Refused(log)
        result.low_watermark = begin_deletion(log, offset)
        begun.append((result, log))
