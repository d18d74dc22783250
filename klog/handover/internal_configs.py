"""The configuration of Kafka's own topics, which a broker sets when it creates one.

Without it their records would be deleted after a week, and groups and transactions with them. Kafka:
GroupCoordinatorService.groupMetadataTopicConfigs, TransactionCoordinator.transactionStateTopicConfigs,
ShareCoordinatorService.shareGroupStateTopicConfigs.
"""

from __future__ import annotations

from typing import Final

from klog.internal_topics.names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

_SEGMENT_BYTES: Final = str(100 << 20)
INTERNAL_CONFIGS: Final[dict[str, dict[str, str]]] = {
    CONSUMER_OFFSETS: {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": _SEGMENT_BYTES,
    },
    TRANSACTION_STATE: {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": _SEGMENT_BYTES,
        "unclean.leader.election.enable": "false",
    },
    SHARE_GROUP_STATE: {
        "cleanup.policy": "delete",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
        "segment.bytes": _SEGMENT_BYTES,
    },
}
