"""CreatePartitions. Kafka: ReplicationControlManager.createPartitions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from klog.broker.admin.failures import Refused, outcome, repeated
from klog.broker.admin.mutations import Mutations, unlimited
from klog.broker.admin.topic_rules import check_assignments
from klog.internal_topics.names import INTERNAL_TOPICS
from klog.manager.topic_life import PARTITIONS_MAX
from klog.protocol import ApiKey, ErrorCode, messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker.admin.mutations import Charge
    from klog.broker.catalog import TopicCatalogView
    from klog.protocol import Message
    from klog.security import Context


class CreatePartitions:
    """Any thread. brokers: the ids of all brokers, each of which has a replica of every partition. charge: counts the
    partitions."""

    def __init__(self, topics: TopicCatalogView, brokers: tuple[int, ...], charge: Charge = unlimited) -> None:
        self._topics = topics
        self._brokers = brokers
        self._charge = charge

    def handlers(self) -> dict[ApiKey, Callable[[Context, Any], Message | None]]:
        """The APIs of this component."""
        return {ApiKey.CREATE_PARTITIONS: self.create_partitions}

    def create_partitions(self, context: Context, request: Any) -> Message:
        """Add partitions to topics, or only check that they could be. May block on disks."""
        twice = repeated([topic.name for topic in request.topics])
        mutations = Mutations(self._charge, context)
        results: dict[str, messages.CreatePartitions.Response.Topic] = {}
        for topic in request.topics:
            if topic.name not in results:
                work = partial(self._extend, context, request, topic, twice, mutations)
                code, text = outcome(work, "CreatePartitions")
                results[topic.name] = messages.CreatePartitions.Response.Topic(
                    name=topic.name, error_code=code, error_message=text
                )
        return messages.CreatePartitions.Response(
            results=list(results.values()), throttle_time_ms=mutations.throttle_ms
        )

    def _extend(self, context: Context, request: Any, topic: Any, twice: set[str], mutations: Mutations) -> None:
        if topic.name in twice:
            raise Refused(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is in the request twice")
        if not context.authorized("ALTER", "TOPIC", topic.name):
            raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed to alter the topic")
        mutations.add(self._check(topic))
        if not request.validate_only:
            self._topics.add_partitions(topic.name, topic.count)

    def _check(self, topic: Any) -> int:
        """Check what is asked for. Returns the number of partitions to add."""
        present = self._topics.partitions(topic.name)
        if present is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name!r}")
        if topic.name in INTERNAL_TOPICS:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"{topic.name} is internal: with more partitions its state would not be found",
            )
        if topic.count <= present:
            raise Refused(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {topic.name!r} has {present} partitions; {topic.count} are not more than that",
            )
        if topic.count > PARTITIONS_MAX:
            raise Refused(ErrorCode.POLICY_VIOLATION, f"{topic.count} partitions: at most {PARTITIONS_MAX} are allowed")
        added: int = topic.count - present
        if topic.assignments is not None:
            if len(topic.assignments) != added:
                raise Refused(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{added} partitions are to be added, but {len(topic.assignments)} are assigned",
                )
            check_assignments(topic.assignments, self._brokers)
        return added
