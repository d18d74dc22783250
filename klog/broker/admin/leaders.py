"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments.

This broker leads every partition and is its only replica, so nothing is ever elected or reassigned: the assignment that
a client asks for is either there already or impossible. Kafka: ReplicationControlManager.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from klog.broker.admin.failures import Refused, outcome
from klog.broker.admin.topic_rules import check_replicas
from klog.broker.partitions import find_log
from klog.protocol import ApiKey, ErrorCode, messages
from klog.security.refusals import cluster_authorized

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker.catalog import TopicCatalogView
    from klog.protocol import Message
    from klog.security import Context

_PREFERRED, _UNCLEAN = 0, 1


class Leaders:
    """Any thread."""

    def __init__(self, topics: TopicCatalogView, brokers: tuple[int, ...]) -> None:
        self._topics = topics
        self._brokers = brokers

    def handlers(self) -> dict[ApiKey, Callable[[Context, Any], Message | None]]:
        """The APIs of this component."""
        return {
            ApiKey.ELECT_LEADERS: self.elect_leaders,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self.alter_partition_reassignments,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self.list_partition_reassignments,
        }

    # ---- elections ---------------------------------------------------------------------------------------------------

    def elect_leaders(self, context: Context, request: Any) -> Message:
        """Each partition that is asked for has its leader; if all are asked for, those that have one are not listed."""
        Response = messages.ElectLeaders.Response
        code = ErrorCode.NONE
        if not cluster_authorized(context.authorized, "ALTER"):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        elif request.election_type not in (_PREFERRED, _UNCLEAN):
            code = ErrorCode.INVALID_REQUEST
        if request.topic_partitions is None:
            return Response(error_code=code, replica_election_results=self._offline() if code is ErrorCode.NONE else [])
        results = []
        for topic in request.topic_partitions:
            result = Response.Topic(topic=topic.topic, partition_result=[])
            for number in topic.partitions:
                found, text = outcome(partial(self._elect, topic.topic, number, code), "ElectLeaders")
                result.partition_result.append(
                    Response.Partition(partition_id=number, error_code=found, error_message=text)
                )
            results.append(result)
        return Response(error_code=code, replica_election_results=results)

    def _elect(self, topic: str, partition: int, code: ErrorCode = ErrorCode.NONE) -> None:
        if code is not ErrorCode.NONE:
            raise Refused(code)
        self._check_partition(topic, partition)
        if isinstance(find_log(self._topics, topic, partition), ErrorCode):
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} is offline")
        raise Refused(ErrorCode.ELECTION_NOT_NEEDED, f"{topic}-{partition} has its leader already")

    def _offline(self) -> list[messages.ElectLeaders.Response.Topic]:
        """The partitions without a leader."""
        Response = messages.ElectLeaders.Response
        results = []
        for info in self._topics.infos():
            found = []
            for number in range(info.partitions):
                code, text = outcome(partial(self._elect, info.name, number), "ElectLeaders")
                if code is not ErrorCode.ELECTION_NOT_NEEDED:
                    found.append(Response.Partition(partition_id=number, error_code=code, error_message=text))
            if found:
                results.append(Response.Topic(topic=info.name, partition_result=found))
        return results

    # ---- reassignments -----------------------------------------------------------------------------------------------

    def alter_partition_reassignments(self, context: Context, request: Any) -> Message:
        """An assignment to this broker is there already; there is no other broker, and nothing to cancel."""
        Response = messages.AlterPartitionReassignments.Response
        if not cluster_authorized(context.authorized, "ALTER"):
            return Response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="not allowed")
        topics = []
        for topic in request.topics:
            result = Response.Topic(name=topic.name, partitions=[])
            for each in topic.partitions:
                work = partial(self._reassign, topic.name, each.partition_index, each.replicas)
                code, text = outcome(work, "AlterPartitionReassignments")
                result.partitions.append(
                    Response.Partition(partition_index=each.partition_index, error_code=code, error_message=text)
                )
            topics.append(result)
        return Response(
            responses=topics,
            error_message=None,
            allow_replication_factor_change=request.allow_replication_factor_change,
        )

    def _reassign(self, topic: str, partition: int, replicas: list[int] | None) -> None:
        self._check_partition(topic, partition)
        if replicas is None:
            raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{topic}-{partition} is not being reassigned")
        check_replicas(replicas, self._brokers)

    def list_partition_reassignments(self, context: Context, request: Any) -> Message:
        """None."""
        Response = messages.ListPartitionReassignments.Response
        if not cluster_authorized(context.authorized, "DESCRIBE"):
            return Response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="not allowed")
        return Response(error_message=None)

    def _check_partition(self, topic: str, partition: int) -> None:
        count = self._topics.partitions(topic)
        if count is None or not 0 <= partition < count:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{partition}")
