"""The names of Kafka's internal topics."""

from __future__ import annotations

from typing import Final

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
CLUSTER_METADATA: Final = "__cluster_metadata"  # the log of a KRaft node, which its controller writes
REMOTE_LOG_METADATA: Final = "__remote_log_metadata"
INTERNAL_TOPICS: Final = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE))  # Kafka: Topic.isInternal
