"""CreateTopics. Each topic is created or refused on its own. Kafka: ReplicationControlManager.createTopics."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from klog.broker.admin.failures import Refused, outcome, repeated
from klog.broker.admin.mutations import Mutations, unlimited
from klog.broker.admin.topic_rules import check_assignments, check_config
from klog.config.values import format_value
from klog.internal_topics.names import CLUSTER_METADATA, INTERNAL_TOPICS
from klog.manager.topic_life import PARTITIONS_MAX
from klog.manager.topics import check_collision, check_topic_name
from klog.protocol import ApiKey, ErrorCode, messages
from klog.security.refusals import cluster_authorized

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.broker.admin.config_entries import ConfigView
    from klog.broker.admin.mutations import Charge
    from klog.broker.catalog import TopicCatalogView
    from klog.manager import LogManager
    from klog.protocol import Message
    from klog.security import Context

_DEFAULT: Final = -1


class CreateTopics:
    """Any thread. brokers: the ids of all brokers, each of which has a replica of every partition. charge: counts the
    partitions."""

    def __init__(
        self,
        logs: LogManager,
        topics: TopicCatalogView,
        view: ConfigView,
        brokers: tuple[int, ...],
        charge: Charge = unlimited,
    ) -> None:
        self._logs = logs
        self._topics = topics
        self._view = view
        self._brokers = brokers
        self._charge = charge

    def handlers(self) -> dict[ApiKey, Callable[[Context, Any], Message | None]]:
        """The APIs of this component."""
        return {ApiKey.CREATE_TOPICS: self.create_topics}

    def create_topics(self, context: Context, request: Any) -> Message:
        """Create topics, or only check that they could be. May block on disks."""
        twice = repeated([topic.name for topic in request.topics])
        may_create_all = cluster_authorized(context.authorized, "CREATE")
        total = sum(self._count(topic) for topic in request.topics)
        results: dict[str, messages.CreateTopics.Response.Topic] = {}
        mutations = Mutations(self._charge, context)
        planned: list[str] = []  # what validate_only would have created
        for topic in request.topics:
            if topic.name in results:
                continue
            result = results[topic.name] = messages.CreateTopics.Response.Topic(name=topic.name)
            refusal = None
            if topic.name in twice:
                refusal = Refused(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is in the request twice")
            elif not (may_create_all or context.authorized("CREATE", "TOPIC", topic.name)):
                refusal = Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed to create the topic")
            elif topic.name == CLUSTER_METADATA:
                refusal = Refused(ErrorCode.INVALID_REQUEST, f"{CLUSTER_METADATA} is not a topic of clients")
            elif total > PARTITIONS_MAX:
                refusal = Refused(
                    ErrorCode.POLICY_VIOLATION,
                    f"the request asks for {total} partitions; at most {PARTITIONS_MAX} are allowed",
                )
            if refusal is not None:
                result.error_code, result.error_message = refusal.code, refusal.message
                continue
            work = partial(
                self._create, context, topic, result, planned, mutations, validate_only=request.validate_only
            )
            result.error_code, result.error_message = outcome(work, "CreateTopics")
        return messages.CreateTopics.Response(topics=list(results.values()), throttle_time_ms=mutations.throttle_ms)

    def _count(self, topic: Any) -> int:
        if topic.assignments:
            return len(topic.assignments)
        return (
            self._default_partitions(topic.name) if topic.num_partitions == _DEFAULT else max(topic.num_partitions, 0)
        )

    def _default_partitions(self, name: str) -> int:
        if name in INTERNAL_TOPICS:
            return self._topics.internal_settings(name)[0]
        return int(self._logs.config.num_partitions)

    def _create(
        self,
        context: Context,
        topic: Any,
        result: Any,
        planned: list[str],
        mutations: Mutations,
        *,
        validate_only: bool,
    ) -> None:
        name = check_topic_name(topic.name)
        check_collision(name, [*self._topics.names(), *planned])
        if self._topics.get(name) is not None or name in planned:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
        config = self._config(topic)
        partitions = self._partitions(topic)
        mutations.add(partitions)
        if validate_only:
            planned.append(name)
        else:
            info = self._topics.create(name, partitions, config)
            result.topic_id, config = info.topic_id, dict(info.config)
        if not context.authorized("DESCRIBE_CONFIGS", "TOPIC", name):
            result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return
        result.num_partitions, result.replication_factor = partitions, len(self._brokers)
        result.configs = [
            messages.CreateTopics.Response.Config(
                name=entry.name,
                value=entry.value,
                config_source=int(entry.source),
                read_only=entry.read_only,
                is_sensitive=entry.is_sensitive,
            )
            for entry in self._view.of_topic(config)
        ]

    def _config(self, topic: Any) -> dict[str, Any]:
        """The topic's own configuration; an internal topic has the one that this broker needs it to have."""
        given = {each.name: each.value for each in topic.configs}
        check_config(self._logs.config, given)
        if topic.name not in INTERNAL_TOPICS:
            return given
        needed = self._topics.internal_settings(topic.name)[1]
        for name, value in given.items():
            if name in needed and format_value(needed[name]) != value:
                raise Refused(
                    ErrorCode.INVALID_CONFIG, f"{topic.name} is internal: its {name} is {needed[name]}, not {value}"
                )
        return {**given, **needed}

    def _partitions(self, topic: Any) -> int:
        """Check the partitions and replicas of a request. Returns the number of partitions."""
        count, factor = topic.num_partitions, topic.replication_factor
        if topic.assignments:
            if count != _DEFAULT or factor != _DEFAULT:
                raise Refused(
                    ErrorCode.INVALID_REQUEST,
                    "with assignments, num_partitions and replication_factor must be -1: the assignments decide",
                )
            numbers = sorted(each.partition_index for each in topic.assignments)
            if numbers != list(range(len(numbers))):
                raise Refused(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    "the assignments must name the partitions 0, 1, 2, ... once each",
                )
            check_assignments(topic.assignments, self._brokers)
            return len(numbers)
        if factor == _DEFAULT:
            factor = self._logs.config.default_replication_factor
        count_max = len(self._brokers)
        if not 1 <= factor <= count_max:
            there = "1 broker is there" if count_max == 1 else f"{count_max} brokers are there"
            brokers = there if factor > 1 else "at least 1 expected, or -1 for the default"
            raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {factor}: {brokers}")
        if count == _DEFAULT:
            return self._default_partitions(topic.name)
        if count < 1:
            raise Refused(
                ErrorCode.INVALID_PARTITIONS, f"{count} partitions: at least 1 expected, or -1 for the default"
            )
        return int(count)
