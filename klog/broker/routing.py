"""Requests at the wrong one of several brokers: they are refused as Kafka does, so that clients look for the right one.

    of partitions                       NOT_LEADER_OR_FOLLOWER for each one that another broker leads
    of one group or transactional id    NOT_COORDINATOR
    of several                          NOT_COORDINATOR for those of other brokers
    ListGroups, ListTransactions        those of this broker only

One broker alone needs none of this, and does not import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.broker.error_responses import error_response
from klog.broker.partitions import NotLeader
from klog.coordinator.coordinator_log import CoordinatorLog
from klog.internal_topics.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from klog.protocol import ApiKey, ErrorCode

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Mapping

    from klog.broker.context import RequestContext
    from klog.broker.nodes import Nodes
    from klog.log import Log
    from klog.protocol import Message
    from klog.security import Topics

    Handle = Callable[[RequestContext, Any], Message | None]

_GROUP = dict.fromkeys(
    (
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_DELETE,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ),
    (CONSUMER_OFFSETS, "group_id"),
)
_TRANSACTION = dict.fromkeys(
    (ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN), (TRANSACTION_STATE, "transactional_id")
)
_ONE = {
    **_GROUP,
    **_TRANSACTION,
    ApiKey.ADD_PARTITIONS_TO_TXN: (TRANSACTION_STATE, "v3_and_below_transactional_id"),
    ApiKey.OFFSET_FETCH: (CONSUMER_OFFSETS, "group_id"),
}
# topic, array of the request, array of the response
_SEVERAL = {
    ApiKey.DESCRIBE_GROUPS: (CONSUMER_OFFSETS, "groups", "groups"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (CONSUMER_OFFSETS, "group_ids", "groups"),
    ApiKey.SHARE_GROUP_DESCRIBE: (CONSUMER_OFFSETS, "group_ids", "groups"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (CONSUMER_OFFSETS, "groups", "groups"),
    ApiKey.DELETE_GROUPS: (CONSUMER_OFFSETS, "groups_names", "results"),
    ApiKey.DESCRIBE_TRANSACTIONS: (TRANSACTION_STATE, "transactional_ids", "transaction_states"),
}
_OFFSET_FETCHES = (CONSUMER_OFFSETS, "groups", "groups")
_OFFSET_FETCH_SEVERAL = 8  # the first version of OffsetFetch for several groups
_ADD_PARTITIONS_SEVERAL = 4  # the first version of AddPartitionsToTxn for other brokers
_LISTED = {
    ApiKey.LIST_GROUPS: (CONSUMER_OFFSETS, "groups", "group_id"),
    ApiKey.LIST_TRANSACTIONS: (TRANSACTION_STATE, "transaction_states", "transactional_id"),
}


class LedTopics:
    """The topics as one of several brokers has them: only the logs that it leads. klog.security.Topics."""

    def __init__(self, topics: Topics, nodes: Nodes, node_id: int) -> None:
        self._topics = topics
        self._nodes = nodes
        self._node_id = node_id

    def log(self, topic: str, partition: int) -> Log | None:
        """The log of a partition; None for an unknown one. Raises NotLeader, and what Topics.log raises."""
        found = self._topics.log(topic, partition)
        if found is not None and not self._nodes.leads(self._node_id, topic, partition):
            raise NotLeader(found)
        return found

    def partitions(self, topic: str) -> int | None:
        """The number of partitions; None for an unknown topic."""
        return self._topics.partitions(topic)

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """The id of a topic; None for an unknown one."""
        return self._topics.topic_id(topic)

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic with an id; None for an unknown one."""
        return self._topics.name_of(topic_id)

    def names(self) -> list[str]:
        """All topics, sorted."""
        return self._topics.names()

    def ensure_internal(self, topic: str) -> None:
        """Create an internal topic unless it exists."""
        self._topics.ensure_internal(topic)


class Coordinated:
    """The handlers of coordinators, as one of several brokers has them. Any thread."""

    def __init__(self, topics: Topics, nodes: Nodes, node_id: int) -> None:
        self._logs = {topic: CoordinatorLog(topics, topic) for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE)}
        self._nodes = nodes
        self._node_id = node_id

    def handlers(self, handlers: Mapping[ApiKey, Handle]) -> dict[ApiKey, Handle]:
        """Those of groups and transactions, with the check before them."""
        found = {api: self._of_one(handlers[api], *_ONE[api]) for api in _ONE if api in handlers}
        found |= {api: self._of_several(handlers[api], *_SEVERAL[api]) for api in _SEVERAL if api in handlers}
        found |= {api: self._listed(handlers[api], *_LISTED[api]) for api in _LISTED if api in handlers}
        return found

    def is_here(self, topic: str, key: str) -> bool:
        """Does this broker coordinate a group or transactional id? topic: the internal one."""
        return self._nodes.leads(self._node_id, topic, self._logs[topic].partition_for(key))

    def _of_one(self, handle: Handle, topic: str, field: str) -> Handle:
        several = self._of_several(handle, *_OFFSET_FETCHES)

        def handle_one(context: RequestContext, request: Any) -> Message | None:
            if context.api is ApiKey.OFFSET_FETCH and context.version >= _OFFSET_FETCH_SEVERAL:
                return several(context, request)
            is_of_brokers = context.api is ApiKey.ADD_PARTITIONS_TO_TXN and context.version >= _ADD_PARTITIONS_SEVERAL
            key = getattr(request, field)
            if is_of_brokers or key is None or self.is_here(topic, key):
                return handle(context, request)
            return error_response(context.api, context.version, request, ErrorCode.NOT_COORDINATOR)

        return handle_one

    def _of_several(self, handle: Handle, topic: str, array: str, results: str) -> Handle:
        def handle_several(context: RequestContext, request: Any) -> Message | None:
            asked = getattr(request, array)
            here = [each for each in asked if self.is_here(topic, getattr(each, "group_id", each))]
            if len(here) == len(asked):
                return handle(context, request)
            setattr(request, array, [each for each in asked if each not in here])
            response = error_response(context.api, context.version, request, ErrorCode.NOT_COORDINATOR)
            if here:
                setattr(request, array, here)
                handled = handle(context, request)
                if handled is None:
                    return None
                setattr(response, results, [*getattr(response, results), *getattr(handled, results)])
            return response

        return handle_several

    def _listed(self, handle: Handle, topic: str, array: str, field: str) -> Handle:
        def handle_list(context: RequestContext, request: Any) -> Message | None:
            response = handle(context, request)
            if response is not None:
                found = getattr(response, array)
                setattr(response, array, [each for each in found if self.is_here(topic, getattr(each, field))])
            return response

        return handle_list
