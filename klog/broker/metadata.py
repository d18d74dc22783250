"""Metadata: the brokers, the topics, and the leaders of their partitions. Kafka:
KafkaApis.handleTopicMetadataRequest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog import security
from klog.broker.partitions import NO_ID, code_of
from klog.errors import InvalidTopic, KlogError, TopicExists
from klog.internal_topics.names import INTERNAL_TOPICS
from klog.manager.topics import check_topic_name
from klog.protocol import ApiKey, ErrorCode, messages
from klog.security.refusals import CLUSTER_NAME, cluster_authorized
from klog.values import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from klog.broker.context import RequestContext
    from klog.protocol import Message
    from klog.security import Topics

NOT_ASKED = -(2**31)  # in the place of authorized operations
_IDS_VERSION = 12


def absent(name: str) -> ErrorCode:
    """Why there is no topic of this name."""
    try:
        check_topic_name(name)
    except InvalidTopic:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def cluster_operations(authorized: Callable[[str, str, str], bool]) -> int:
    """What a client may do to the cluster, as the bits of a response; 0 if it may not describe it."""
    may_see = cluster_authorized(authorized, "DESCRIBE")
    return security.authorized_operations(authorized, "CLUSTER", CLUSTER_NAME) if may_see else 0


class Node(NamedTuple):
    """A broker as clients reach it."""

    node_id: int
    host: str
    port: int


class Placement(NamedTuple):
    """Where a partition is: the ids of its leader, -1 for none, of all its replicas, and of those that run."""

    leader: int
    replicas: list[int]
    in_sync: list[int]


class Metadata:
    """Any thread. nodes: the brokers as the clients of a listener see them. placement: of a partition by its number;
    None: the first broker has all. create: creates a topic that is not there, or returns false if the client's quota is
    used up; None where that is not allowed."""

    def __init__(
        self,
        topics: Topics,
        nodes: Callable[[str], list[Node]],
        cluster_id: str,
        create: Callable[[RequestContext, str], bool] | None = None,
        placement: Callable[[str, int], Placement] | None = None,
    ) -> None:
        self._topics = topics
        self._nodes = nodes
        self._cluster_id = cluster_id
        self._create = create
        self._placement = placement

    def handlers(self) -> dict[ApiKey, Callable[[RequestContext, Any], Message | None]]:
        """The APIs of this component."""
        return {ApiKey.METADATA: self.metadata}

    def metadata(self, context: RequestContext, request: Any) -> Message:
        """The topics that are asked for; all if none are named."""
        nodes = self._nodes(context.listener)
        Response = messages.Metadata.Response
        asked = request.topics
        if asked is None or (context.version == 0 and not asked):
            topics = [
                self._topic(context, request, name, nodes)
                for name in self._topics.names()
                if context.authorized("DESCRIBE", "TOPIC", name)
            ]
        else:
            topics = self._asked(context, request, nodes)
        return Response(
            brokers=[Response.Broker(node_id=each.node_id, host=each.host, port=each.port) for each in nodes],
            cluster_id=self._cluster_id,
            controller_id=nodes[0].node_id,
            topics=topics,
            cluster_authorized_operations=cluster_operations(context.authorized)
            if request.include_cluster_authorized_operations
            else NOT_ASKED,
        )

    def _asked(self, context: RequestContext, request: Any, nodes: list[Node]) -> list[Any]:
        """The topics that a request names, each once. If it has ids, names do not count, as in Kafka: a topic of the
        same name may be another one."""
        Topic = messages.Metadata.Response.Topic
        ids = dict.fromkeys(each.topic_id for each in request.topics if each.topic_id != NO_ID)
        names = dict.fromkeys(each.name for each in request.topics)
        if (ids and context.version < _IDS_VERSION) or (not ids and None in names):
            return [Topic(error_code=ErrorCode.INVALID_REQUEST, name=name or "") for name in names]
        if ids:
            return [self._of_id(context, request, topic_id, nodes) for topic_id in ids]
        return [self._of_name(context, request, name, nodes) for name in names]

    def _of_id(self, context: RequestContext, request: Any, topic_id: UUID, nodes: list[Node]) -> Any:
        Topic = messages.Metadata.Response.Topic
        name = self._topics.name_of(topic_id)
        if name is None:
            return Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        if not context.authorized("DESCRIBE", "TOPIC", name):  # as in Kafka: an id is public, a name is not
            return Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic_id)
        return self._topic(context, request, name, nodes)

    def _of_name(self, context: RequestContext, request: Any, name: str, nodes: list[Node]) -> Any:
        Response = messages.Metadata.Response
        if not context.authorized("DESCRIBE", "TOPIC", name):
            return Response.Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        if self._topics.partitions(name) is None:
            code = self._create_topic(context, request, name)
            if code is not None:
                return Response.Topic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)
        return self._topic(context, request, name, nodes)

    def _create_topic(self, context: RequestContext, request: Any, name: str) -> ErrorCode | None:
        """Create a topic that a client asks for. Returns None if the topic exists afterwards."""
        # Versions before 4 have no field for it, and mean true.
        wanted = request.allow_auto_topic_creation or context.version < 4
        if self._create is None or not wanted:
            return absent(name)
        if not (cluster_authorized(context.authorized, "CREATE") or context.authorized("CREATE", "TOPIC", name)):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        try:
            if name in INTERNAL_TOPICS:
                self._topics.ensure_internal(name)
            elif not self._create(context, name):
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # as in Kafka: the client asks again
        except TopicExists:  # by another request, meanwhile
            return None
        except InvalidTopic:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        except (KlogError, OSError) as error:
            return code_of(error)
        return None

    def _topic(self, context: RequestContext, request: Any, name: str, nodes: list[Node]) -> Any:
        Response = messages.Metadata.Response
        count = self._topics.partitions(name)
        if count is None:  # deleted meanwhile
            return Response.Topic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
        return Response.Topic(
            error_code=0,
            name=name,
            topic_id=self._topics.topic_id(name) or NO_ID,
            is_internal=name in INTERNAL_TOPICS,
            partitions=[self._partition(name, number, nodes) for number in range(count)],
            topic_authorized_operations=security.authorized_operations(context.authorized, "TOPIC", name)
            if request.include_topic_authorized_operations
            else NOT_ASKED,
        )

    def _partition(self, topic: str, number: int, nodes: list[Node]) -> Any:
        first = [nodes[0].node_id]
        place = Placement(first[0], first, first) if self._placement is None else self._placement(topic, number)
        found = messages.Metadata.Response.Partition(
            error_code=0,
            partition_index=number,
            leader_id=place.leader,
            leader_epoch=0,
            replica_nodes=place.replicas,
            isr_nodes=place.in_sync,
            offline_replicas=[each for each in place.replicas if each not in place.in_sync],
        )
        try:
            log = self._topics.log(topic, number)
        except (KlogError, OSError):
            log = None
        if log is None or log.offline:
            found.error_code, found.leader_id = ErrorCode.LEADER_NOT_AVAILABLE, -1
            found.isr_nodes, found.offline_replicas = [], place.replicas
        else:
            found.leader_epoch = log.leader_epoch
        return found
