"""DescribeConfigs and ListConfigResources. Kafka: ConfigHelper, KafkaApis.handleListConfigResources."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from klog.broker.admin import loggers
from klog.broker.admin.config_entries import Entry, Source
from klog.broker.admin.failures import Refused, outcome
from klog.broker.admin.resources import ResourceType, check_allowed, check_broker, check_group, resource_type
from klog.manager.topics import check_topic_name
from klog.protocol import ApiKey, ErrorCode, messages
from klog.security.refusals import cluster_authorized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from klog.broker.admin.config_entries import ConfigView
    from klog.broker.admin.group_configs import GroupConfigs
    from klog.broker.catalog import TopicCatalogView
    from klog.protocol import Message
    from klog.security import Context

_CLIENT_METRICS = 16  # ListConfigResources: a type of Kafka of which this broker has no resources
_ALL_TYPES = (*ResourceType, _CLIENT_METRICS)


class DescribeConfigs:
    """Any thread."""

    def __init__(
        self, topics: TopicCatalogView, view: ConfigView, groups: GroupConfigs, brokers: tuple[int, ...]
    ) -> None:
        self._topics = topics
        self._view = view
        self._groups = groups
        self._brokers = brokers

    def handlers(self) -> dict[ApiKey, Callable[[Context, Any], Message | None]]:
        """The APIs of this component."""
        return {
            ApiKey.DESCRIBE_CONFIGS: self.describe_configs,
            ApiKey.LIST_CONFIG_RESOURCES: self.list_config_resources,
        }

    def describe_configs(self, context: Context, request: Any) -> Message:
        """The configurations of topics, of groups, of this broker and of its loggers. A resource that is repeated is
        described once: else a request of a few bytes could get thousands of entries for each."""
        results = []
        for resource in {(each.resource_type, each.resource_name): each for each in request.resources}.values():
            result = messages.DescribeConfigs.Response.Result(
                resource_type=resource.resource_type, resource_name=resource.resource_name
            )
            work = partial(self._describe, context, request, resource, result)
            result.error_code, result.error_message = outcome(work, "DescribeConfigs")
            results.append(result)
        return messages.DescribeConfigs.Response(results=results)

    def _describe(self, context: Context, request: Any, resource: Any, result: Any) -> None:
        kind, wanted = resource_type(resource.resource_type), resource.configuration_keys
        check_allowed(context, "DESCRIBE_CONFIGS", kind, resource.resource_name)
        result.configs = [
            _config(entry, synonyms=request.include_synonyms, documentation=request.include_documentation)
            for entry in self._entries(kind, resource.resource_name)
            if not wanted or entry.name in wanted
        ]

    def _entries(self, kind: ResourceType, name: str) -> Iterable[Entry]:
        if kind is ResourceType.TOPIC:
            info = self._topics.get(check_topic_name(name))
            if info is None:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
            return self._view.of_topic(info.config)
        if kind is ResourceType.GROUP:
            check_group(name)
            return self._groups.entries(name)
        check_broker(name, self._brokers, may_be_all=kind is ResourceType.BROKER)
        if kind is ResourceType.BROKER_LOGGER:
            return [Entry(logger, level, Source.BROKER_LOGGER) for logger, level in loggers.levels().items()]
        return self._view.of_broker(int(name)) if name else self._view.of_all_brokers()

    def list_config_resources(self, context: Context, request: Any) -> Message:
        """The resources of the types that are asked for; of all types if none are."""
        Response = messages.ListConfigResources.Response
        if not cluster_authorized(context.authorized, "DESCRIBE_CONFIGS"):
            return Response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        types = set(request.resource_types or _ALL_TYPES) if context.version else {_CLIENT_METRICS}
        if not types <= set(_ALL_TYPES):
            return Response(error_code=ErrorCode.UNSUPPORTED_VERSION)
        found = []
        if ResourceType.TOPIC in types:
            found += [(ResourceType.TOPIC, name) for name in self._topics.names()]
        if ResourceType.GROUP in types:
            found += [(ResourceType.GROUP, name) for name in self._groups.names()]
        for kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
            if kind in types:
                found += [(kind, str(node_id)) for node_id in self._brokers]
        return Response(
            config_resources=[Response.ConfigResource(resource_type=kind, resource_name=name) for kind, name in found]
        )


def _config(entry: Entry, *, synonyms: bool, documentation: bool) -> messages.DescribeConfigs.Response.Config:
    Response = messages.DescribeConfigs.Response
    return Response.Config(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=int(entry.source),
        is_sensitive=entry.is_sensitive,
        synonyms=[
            Response.Synonym(name=name, value=value, source=int(source)) for name, value, source in entry.synonyms
        ]
        if synonyms
        else [],
        config_type=entry.type,
        documentation=entry.documentation if documentation else None,
    )
