"""Leader hints: one of several brokers names the leader of a partition to a client that asked the wrong one (KIP-951).

    error of a partition    NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH
    current_leader          beside the error: id and leader epoch of the leader
    node_endpoints          at the end of the response: the addresses of these leaders

The client need not ask for the metadata first. Kafka: KafkaApis.getCurrentLeader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from klog.broker.partitions import find_log
from klog.protocol import ApiKey, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from klog.broker.context import RequestContext
    from klog.broker.nodes import Nodes
    from klog.protocol import Message
    from klog.security import Topics

    Handle = Callable[[RequestContext, Any], Message | None]

_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
# The first version with hints, the array of partitions, and the field with their number.
_HINTED: Final = {
    ApiKey.PRODUCE: (10, "partition_responses", "index"),
    ApiKey.FETCH: (16, "partitions", "partition_index"),
    ApiKey.SHARE_FETCH: (0, "partitions", "partition_index"),
    ApiKey.SHARE_ACKNOWLEDGE: (0, "partitions", "partition_index"),
}


class LeaderHints:
    """Any thread. topics: all of them. node_id: the broker whose responses get hints."""

    def __init__(self, topics: Topics, nodes: Nodes, node_id: int) -> None:
        self._topics = topics
        self._nodes = nodes
        self._node_id = node_id

    def handlers(self, handlers: Mapping[ApiKey, Handle]) -> dict[ApiKey, Handle]:
        """Those whose responses can have hints, with hints."""
        return {api: self._hinting(handlers[api], *_HINTED[api]) for api in _HINTED if api in handlers}

    def _hinting(self, handle: Handle, first_version: int, array: str, number: str) -> Handle:
        def handle_hinting(context: RequestContext, request: Any) -> Message | None:
            if context.version >= first_version:
                change, listener = context.before_response, context.listener

                def add(response: Message | None) -> Message | None:
                    if response is not None:
                        self._add(response, listener, array, number)
                    return response if change is None else change(response)

                context.before_response = add
            return handle(context, request)

        return handle_hinting

    def _add(self, response: Any, listener: str, array: str, number: str) -> None:
        Response = type(response)
        leaders = set()
        for topic in response.responses:
            for each in getattr(topic, array):
                if each.error_code in _ERRORS:
                    name = getattr(topic, "name", "") or self._topics.name_of(topic.topic_id) or ""
                    found = self._leader(name, getattr(each, number), each.error_code)
                    if found is not None:
                        each.current_leader = Response.Leader(leader_id=found[0], leader_epoch=found[1])
                        leaders.add(found[0])
        response.node_endpoints = [
            Response.Node(node_id=each.node_id, host=each.host, port=each.port)
            for each in self._nodes.of(listener)
            if each.node_id in leaders
        ]

    def _leader(self, topic: str, partition: int, error: int) -> tuple[int, int] | None:
        """Id and leader epoch of the leader. None for an unknown partition, and if this broker leads it although it is
        said not to: a test wants its client to look for another one."""
        log = find_log(self._topics, topic, partition)
        leader = self._nodes.placement(topic, partition).leader
        if isinstance(log, ErrorCode) or (leader == self._node_id and error == ErrorCode.NOT_LEADER_OR_FOLLOWER):
            return None
        return leader, log.leader_epoch
