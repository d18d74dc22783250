"""ClusterMetadata: the content of a cluster's metadata log as values; and the records of that content."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

from klog.handover.records import MetadataRecord
from klog.values import dataclass, field

RESOURCES: Final = {2: "topic", 4: "broker", 8: "broker_logger", 16: "client_metrics", 32: "group"}
RESOURCE_NUMBERS: Final = {name: number for number, name in RESOURCES.items()}
_PARTITION_TAGS: Final = ("leader_recovery_state", "eligible_leader_replicas", "last_known_elr")
Entity = tuple[tuple[str, str | None], ...]
"""The entity of a quota: ("user", name), ("client-id", name) or both; the name None is the default."""


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition as the controller knows it. leader: -1 if there is none. directories: one for each replica."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int = 0
    directories: tuple[uuid.UUID, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic: its id, its partitions by number, and its own configuration as text."""

    topic_id: uuid.UUID
    partitions: Mapping[int, PartitionMetadata]
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The state of a cluster after the records of its metadata log.

    offset: the end of what was read; None for a directory on which no controller has run. features: name → level.
    next_producer_id: no producer has this id or a higher one. configs: {(type of resource, name): configuration} of
    resources that are not topics: "broker" (its name is "" for the default of all), "client_metrics", "group". acls: by
    id; scram: by user and mechanism (1: SHA-256, 2: SHA-512); quotas: {entity: {key: value}}; tokens: delegation tokens
    by id; brokers, controllers: registrations by node id. The values of acls, scram, tokens, brokers and
    controllers are the fields of the records.
    """

    offset: int | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    configs: Mapping[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    acls: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    scram: Mapping[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict)
    quotas: Mapping[Entity, Mapping[str, float]] = field(default_factory=dict)
    tokens: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    brokers: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    controllers: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    def topic_records(self, partition_record: int) -> Iterator[MetadataRecord]:
        """Yield the records of the topics, their partitions and their configurations. partition_record: its version."""
        for name, topic in sorted(self.topics.items()):
            yield MetadataRecord("topic_record", 0, {"name": name, "topic_id": topic.topic_id})
            for number, partition in sorted(topic.partitions.items()):
                yield _partition_record(topic.topic_id, number, partition, partition_record)
            yield from config_records("topic", name, topic.config)

    def security_records(self) -> Iterator[MetadataRecord]:
        """Yield the records of ACLs, SCRAM users, quotas and delegation tokens: the `extra` of another handover."""
        for acl in self.acls.values():
            yield MetadataRecord("access_control_entry_record", 0, acl)
        for credential in self.scram.values():
            yield MetadataRecord("user_scram_credential_record", 0, credential)
        for entity, quota in self.quotas.items():
            named = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
            for key, value in quota.items():
                fields = {"entity": named, "key": key, "value": value, "remove": False}
                yield MetadataRecord("client_quota_record", 0, fields)
        for token in self.tokens.values():
            yield MetadataRecord("delegation_token_record", 0, token)

    def config_records(self) -> Iterator[MetadataRecord]:
        """Yield the records of the configurations of resources that are not topics."""
        for (kind, name), config in sorted(self.configs.items()):
            yield from config_records(kind, name, config)


def _partition_record(topic_id: uuid.UUID, number: int, partition: PartitionMetadata, version: int) -> MetadataRecord:
    fields: dict[str, Any] = {"partition_id": number, "topic_id": topic_id}
    for name in PartitionMetadata.__slots__:
        value = getattr(partition, name)
        if (name not in _PARTITION_TAGS or value) and (name != "directories" or version >= 1):
            fields[name] = list(value) if isinstance(value, tuple) else value
    return MetadataRecord("partition_record", version, fields)


def config_records(kind: str, name: str, config: Mapping[str, str]) -> Iterator[MetadataRecord]:
    """Yield the records of the configuration of a resource."""
    for key, value in sorted(config.items()):
        fields = {"resource_type": RESOURCE_NUMBERS[kind], "resource_name": name, "name": key, "value": value}
        yield MetadataRecord("config_record", 0, fields)
