"""What a topic must be like to be created or altered by a client: its replicas and configuration.

Kafka: ReplicationControlManager.validateManualPartitionAssignment, ControllerConfigurationValidator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.broker.admin.failures import Refused
from klog.config import TOPIC_KEYS, LogConfig, check_tiering
from klog.config.table import SEGMENT_BYTES_KAFKA
from klog.protocol import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from klog.config import ManagerConfig


def check_replicas(replicas: list[int], brokers: Collection[int]) -> None:
    """Raise Refused unless these can be the replicas of a partition: brokers that are there, each once."""
    if not replicas:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the assignment of a partition names no broker")
    if len(set(replicas)) != len(replicas):
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the assignment {replicas} names a broker twice")
    unknown = [replica for replica in replicas if replica not in brokers]
    if unknown:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the assignment {replicas} names brokers that do not exist: {unknown}",
        )


def check_assignments(assignments: Iterable[Any], brokers: Collection[int]) -> None:
    """Raise Refused unless these can be the replicas of new partitions of a topic: as many for each of them."""
    sizes = set()
    for each in assignments:
        check_replicas(each.broker_ids, brokers)
        sizes.add(len(each.broker_ids))
    if len(sizes) > 1:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the assignments of some partitions name {min(sizes)} brokers, those of others {max(sizes)}",
        )


def check_config(broker: ManagerConfig, own: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> None:
    """Raise Refused or InvalidConfig unless a topic may have these values of its own. before: what it has now."""
    for name, value in own.items():
        if name not in TOPIC_KEYS:
            raise Refused(ErrorCode.INVALID_CONFIG, f"unknown topic configuration {name!r}{_hint(name)}")
        if value is None:
            raise Refused(ErrorCode.INVALID_CONFIG, f"the topic configuration {name} has no value")
    parsed = LogConfig(own)
    size = parsed.given.get("segment.bytes")
    if size is not None and size < SEGMENT_BYTES_KAFKA and (before or {}).get("segment.bytes") != size:
        raise Refused(ErrorCode.INVALID_CONFIG, f"segment.bytes={size}: at least {SEGMENT_BYTES_KAFKA} expected")
    check_tiering(LogConfig(before) if before else None, broker.topic_config(parsed.given), broker)


def _hint(name: str) -> str:
    from klog.config.nearest import nearest

    near = nearest(name, TOPIC_KEYS)
    return f"; did you mean {near}?" if near else ""
