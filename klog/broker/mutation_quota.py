"""The quota of changes of topics: CreateTopics, DeleteTopics, CreatePartitions. Kafka: ControllerMutationQuotaManager.

From a version of its API on (KIP-599) a request beyond the quota is refused; before it, it is done, and the client
waits after it. A topic that a Metadata request creates counts, too; beyond the quota it is not created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.broker.error_responses import error_response
from klog.protocol import ApiKey, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker.context import RequestContext
    from klog.broker.protection import Protection
    from klog.protocol import Message
    from klog.security import Topics

    Handler = Callable[[RequestContext, Any], Message | None]

# The first version that is refused.
STRICT = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}


def limited(
    handle: Handler, protection: Protection, topics: Topics, api: ApiKey, default_partitions: Callable[[], int]
) -> Handler:
    """The handler of an API, within the quota of its client. default_partitions: of a new topic."""

    def handle_limited(context: RequestContext, request: Any) -> Message | None:
        strict = context.version >= STRICT[api]
        waits_ms = protection.throttle_changed(
            context, _mutations(topics, api, request, default_partitions), strict=strict
        )
        response: Any
        if waits_ms and strict:
            response = error_response(api, context.version, request, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        else:
            response = handle(context, request)
        if waits_ms and response is not None:
            response.throttle_time_ms = waits_ms
            context.respond(response, throttle_ms=waits_ms)
            return None
        return response  # type: ignore[no-any-return]

    return handle_limited


def _mutations(topics: Topics, api: ApiKey, request: Any, default_partitions: Callable[[], int]) -> int:
    """The number of partitions that a request creates or deletes."""
    if api is ApiKey.CREATE_TOPICS:
        return sum(
            len(each.assignments)
            or (default_partitions() if each.num_partitions == -1 else max(each.num_partitions, 1))
            for each in request.topics
        )
    if api is ApiKey.CREATE_PARTITIONS:
        return sum(max(0, each.count - (topics.partitions(each.name) or 0)) for each in request.topics)
    names = [*request.topic_names, *(each.name or topics.name_of(each.topic_id) or "" for each in request.topics)]
    return sum(topics.partitions(name) or 0 for name in names)
