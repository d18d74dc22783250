"""Decides the metadata of a handed-over directory: the state after a clean stop of a cluster of one node.

The node is registered already, fenced, with the broker epoch of the clean-shutdown marker. For a node without a
registration the controller would assume lost data, empty every ISR, and elect the leaders uncleanly. At its start the
node becomes the leader of every partition, in a clean election, with the leader epoch after the log's. Kafka:
ClusterControlManager.registerBroker, ReplicationControlManager, KIP-966.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from klog.config import LogConfig
from klog.config.table import SEGMENT_BYTES_KAFKA
from klog.config.values import format_value
from klog.handover.cluster import ClusterMetadata, PartitionMetadata, TopicMetadata
from klog.handover.internal_configs import INTERNAL_CONFIGS
from klog.handover.records import MetadataRecord
from klog.handover.releases import Release
from klog.handover.survey import FoundTopic, Survey
from klog.shown import iso
from klog.values import dataclass

NO_LEADER: Final = -1
PRODUCER_ID_BLOCK: Final = 1000  # ids that a broker reserves at once: it may have assigned ids that no log has
_NOT_KAFKAS: Final = ("klog.", "internal.")


@dataclass(frozen=True, slots=True)
class Plan:
    """cluster: its state. records: all of them, in order. new_ids: topics that had no id. warnings: texts for the
    user."""

    cluster: ClusterMetadata
    records: tuple[MetadataRecord, ...]
    new_ids: frozenset[str]
    broker_epoch: int
    warnings: tuple[str, ...]


def make_plan(
    found: Survey,
    release: Release,
    *,
    node_id: int,
    directory_ids: Mapping[str, uuid.UUID],
    least_producer_id: int,
    extra: Sequence[MetadataRecord],
    now_ms: int,
) -> Plan:
    """Return the plan. directory_ids: by log.dir. Raises InvalidConfig for a configuration that klog cannot read."""
    warnings: list[str] = []
    topics, new_ids = {}, set()
    for name, topic in found.topics.items():
        config = _config(name, topic, warnings)
        _warn_of_retention(name, topic, config, now_ms, warnings)
        if topic.topic_id is None:
            new_ids.add(name)
        partitions = {
            number: _partition(node_id, partition.leader_epoch, directory_ids[partition.log_dir], release)
            for number, partition in topic.partitions.items()
        }
        topics[name] = TopicMetadata(topic.topic_id or uuid.uuid4(), partitions, config)
    cluster = ClusterMetadata(
        features=release.features,
        topics=topics,
        next_producer_id=_next_block(max(found.producer_id + 1, least_producer_id)),
    )
    broker_epoch = 0 if found.broker_epoch is None else found.broker_epoch
    records = (
        *_feature_records(release),
        _registration(node_id, broker_epoch, list(directory_ids.values()), release),
        *cluster.topic_records(release.partition_record),
        *_producer_ids(node_id, broker_epoch, cluster.next_producer_id),
        *extra,
    )
    return Plan(cluster, records, frozenset(new_ids), broker_epoch, tuple(warnings))


def _partition(node_id: int, leader_epoch: int, directory: uuid.UUID, release: Release) -> PartitionMetadata:
    """Return the partition as a controlled shutdown leaves the only replica. It has no leader: with one, the broker
    would begin to load groups and transactions at its start, and lose the leadership while it registers."""
    node = (node_id,)
    shrinks = release.shrinks_isr
    return PartitionMetadata(
        replicas=node,
        isr=() if shrinks else node,
        leader=NO_LEADER,
        leader_epoch=leader_epoch,
        directories=(directory,),
        eligible_leader_replicas=node if shrinks else (),
        last_known_elr=node if shrinks else (),
    )


def _feature_records(release: Release) -> Iterator[MetadataRecord]:
    for name, level in release.features.items():
        yield MetadataRecord("feature_level_record", 0, {"name": name, "feature_level": level})


def _registration(node_id: int, epoch: int, directories: list[uuid.UUID], release: Release) -> MetadataRecord:
    fields: dict[str, Any] = {
        "broker_id": node_id,
        "is_migrating_zk_broker": False,
        "incarnation_id": directories[0],  # no broker will start with this id; a repeated handover uses it again
        "broker_epoch": epoch,
        "end_points": [],
        "features": [],
        "rack": None,
        "fenced": True,
        "in_controlled_shutdown": False,
        "log_dirs": directories,
    }
    return MetadataRecord("register_broker_record", release.register_broker_record, fields)


def _producer_ids(node_id: int, broker_epoch: int, next_producer_id: int) -> Iterator[MetadataRecord]:
    if next_producer_id:
        fields = {"broker_id": node_id, "broker_epoch": broker_epoch, "next_producer_id": next_producer_id}
        yield MetadataRecord("producer_ids_record", 0, fields)


def _next_block(producer_id: int) -> int:
    return -(-producer_id // PRODUCER_ID_BLOCK) * PRODUCER_ID_BLOCK


def _config(name: str, topic: FoundTopic, warnings: list[str]) -> dict[str, str]:
    """Return the configuration as Kafka's text, without keys that only klog has."""
    given = LogConfig(topic.config).given
    config = {**INTERNAL_CONFIGS.get(name, {}), **{key: format_value(value) for key, value in given.items()}}
    left_out = [key for key in config if key.startswith(_NOT_KAFKAS)]
    for key in left_out:
        warnings.append(f"topic {name}: {key}={config.pop(key)} is left out: only klog has it")
    size = config.get("segment.bytes")
    if size is not None and int(size) < SEGMENT_BYTES_KAFKA:
        config["segment.bytes"] = str(SEGMENT_BYTES_KAFKA)
        warnings.append(f"topic {name}: segment.bytes={size} becomes {SEGMENT_BYTES_KAFKA}, the minimum of Kafka")
    return config


def _warn_of_retention(
    name: str, topic: FoundTopic, config: Mapping[str, str], now_ms: int, warnings: list[str]
) -> None:
    """Warn if the broker will delete records soon after its start."""
    effective = LogConfig(config)
    if not effective.deletes or effective.retention_ms < 0:
        return
    oldest = min(
        (each.first_segment_ms for each in topic.partitions.values() if each.first_segment_ms >= 0), default=None
    )
    if oldest is not None and now_ms - oldest > effective.retention_ms:
        warnings.append(
            f"topic {name}: a running broker deletes its records up to {iso(oldest)} within minutes, because of "
            f"retention.ms={effective.retention_ms}; raise it before the handover, or set it to -1"
        )
