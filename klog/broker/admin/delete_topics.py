"""DeleteTopics, by name or by id. Kafka: ControllerApis.deleteTopics.

A client without DESCRIBE on a topic cannot see whether it exists: it gets the same answer in both cases.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from klog.broker.admin.failures import Refused, outcome, repeated
from klog.broker.admin.mutations import Mutations, unlimited
from klog.broker.partitions import NO_ID
from klog.internal_topics.names import INTERNAL_TOPICS
from klog.protocol import ApiKey, ErrorCode, messages
from klog.security.refusals import cluster_authorized

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from klog.broker.admin.mutations import Charge
    from klog.broker.catalog import TopicCatalogView, TopicInfo
    from klog.protocol import Message
    from klog.security import Context

_IDS_VERSION = 6
_DISABLED_VERSION = 3  # the first one whose clients know TOPIC_DELETION_DISABLED


class DeleteTopics:
    """Any thread. enabled: delete.topic.enable. charge: counts the partitions."""

    def __init__(self, topics: TopicCatalogView, *, enabled: bool = True, charge: Charge = unlimited) -> None:
        self._topics = topics
        self._enabled = enabled
        self._charge = charge

    def handlers(self) -> dict[ApiKey, Callable[[Context, Any], Message | None]]:
        """The APIs of this component."""
        return {ApiKey.DELETE_TOPICS: self.delete_topics}

    def delete_topics(self, context: Context, request: Any) -> Message:
        """Delete topics. May block on disks."""
        asked = [(name, NO_ID) for name in request.topic_names]
        if context.version >= _IDS_VERSION:
            asked = [(topic.name, topic.topic_id) for topic in request.topics]
        names_twice = repeated([name for name, _ in asked if name is not None])
        ids_twice = repeated([topic_id.hex for _, topic_id in asked if topic_id != NO_ID])
        by_name = {info.topic_id for name, _ in asked if name is not None and (info := self._topics.get(name))}
        twofold = by_name & {topic_id for name, topic_id in asked if name is None}
        may_delete_all = cluster_authorized(context.authorized, "DELETE")
        mutations, results = Mutations(self._charge, context), []
        for name, topic_id in dict.fromkeys(asked):
            result = messages.DeleteTopics.Response.Topic(name=name, topic_id=topic_id)
            is_twice = name in names_twice or topic_id.hex in ids_twice
            work = partial(
                self._delete, context, result, twofold, mutations, may_delete_all=may_delete_all, is_twice=is_twice
            )
            result.error_code, result.error_message = outcome(work, "DeleteTopics")
            results.append(result)
        return messages.DeleteTopics.Response(responses=results, throttle_time_ms=mutations.throttle_ms)

    def _delete(
        self,
        context: Context,
        result: Any,
        twofold: set[UUID],
        mutations: Mutations,
        *,
        may_delete_all: bool,
        is_twice: bool,
    ) -> None:
        """Delete the topic that a result names. twofold: topics that the request has by name and by id."""
        name, topic_id = result.name, result.topic_id
        if (name is None) == (topic_id == NO_ID):
            raise Refused(ErrorCode.INVALID_REQUEST, "either the name or the id of a topic is expected")
        if is_twice:
            raise Refused(ErrorCode.INVALID_REQUEST, "the topic is in the request twice")
        info = self._find(context, name, topic_id, result, may_delete_all=may_delete_all)
        if info.topic_id in twofold:
            raise Refused(ErrorCode.INVALID_REQUEST, "the topic is in the request twice, by name and by id")
        if not self._enabled:
            code = ErrorCode.TOPIC_DELETION_DISABLED
            if context.version < _DISABLED_VERSION:
                code = ErrorCode.INVALID_REQUEST
            raise Refused(code, "delete.topic.enable=false: topics cannot be deleted here")
        if info.name in INTERNAL_TOPICS:
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"{info.name} is internal: it has the state of groups or transactions"
            )
        mutations.add(info.partitions)
        self._topics.delete(info.name)

    def _find(
        self, context: Context, name: str | None, topic_id: UUID, result: Any, *, may_delete_all: bool
    ) -> TopicInfo:
        """The topic, if the client may delete it. Fills in the name or id that was not given, if the client may know
        it."""
        info = self._topics.by_id(topic_id) if name is None else self._topics.get(name)
        known = name if info is None else info.name
        may_see = may_delete_all or (known is not None and context.authorized("DESCRIBE", "TOPIC", known))
        if info is None and (name is None or may_see):
            if name is None:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        may_delete = may_delete_all or (known is not None and context.authorized("DELETE", "TOPIC", known))
        if may_see and info is not None and (may_delete or name is None):
            result.name = info.name
        if info is None or not may_delete:
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed to delete the topic")
        result.name, result.topic_id = info.name, info.topic_id
        return info
