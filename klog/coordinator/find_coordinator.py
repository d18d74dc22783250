"""FindCoordinator: which broker coordinates a group or a transactional id: the leader of its partition.

The internal topic is created when its coordinator is looked up for the first time. Kafka: KafkaApis.getCoordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.coordinator.coordinator_log import CoordinatorLog
from klog.errors import KlogError
from klog.internal_topics.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from klog.logger import logger_of
from klog.protocol import ApiKey, ErrorCode, messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.protocol import Message
    from klog.protocol.messages import FindCoordinator as Messages
    from klog.security.context import Context, Topics

    NodeAddress = tuple[int, str, int]

_KEYS_VERSION = 4
_TYPES = {
    0: ("GROUP", CONSUMER_OFFSETS, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    1: ("TRANSACTIONAL_ID", TRANSACTION_STATE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}
_NOWHERE = (-1, "", -1)
_log = logger_of("coordinator")


class FindCoordinator:
    """Any thread. advertised: (listener, internal topic, partition) -> node id, host and port of its leader as clients
    of that listener reach it."""

    def __init__(self, topics: Topics, advertised: Callable[[str, str, int], NodeAddress]) -> None:
        self._topics = topics
        self._advertised = advertised

    def handlers(self) -> dict[ApiKey, Callable[[Context, Any], Message | None]]:
        """The APIs of this component."""
        return {ApiKey.FIND_COORDINATOR: self.find}

    def find(self, context: Context, request: Messages.Request) -> Messages.Response:
        """The coordinator of one key, or of many from version 4 on."""
        Response = messages.FindCoordinator.Response
        if context.version < _KEYS_VERSION:
            code, (node_id, host, port) = self._find(context, request.key_type, request.key)
            # Kafka has a message here without an error, too; from version 4 on it has none.
            return Response(error_code=code, error_message=code.name, node_id=node_id, host=host, port=port)
        found = []
        for key in request.coordinator_keys:
            code, (node_id, host, port) = self._find(context, request.key_type, key)
            found.append(Response.Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=code))
        return Response(coordinators=found)

    def _find(self, context: Context, key_type: int, key: str) -> tuple[ErrorCode, NodeAddress]:
        if key_type not in _TYPES:
            return ErrorCode.INVALID_REQUEST, _NOWHERE
        resource, topic, refused = _TYPES[key_type]
        if not context.authorized("DESCRIBE", resource, key):
            return refused, _NOWHERE
        try:
            if self._topics.partitions(topic) is None:
                self._topics.ensure_internal(topic)
            partition = CoordinatorLog(self._topics, topic).partition_for(key)
        except (KlogError, OSError) as error:
            _log.warning("event=topic_not_created topic=%s error=%s", topic, error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, _NOWHERE
        return ErrorCode.NONE, self._advertised(context.listener, topic, partition)
