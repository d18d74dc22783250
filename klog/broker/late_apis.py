"""The APIs of the components that are imported with the first request of one of them: klog.broker.late."""

from __future__ import annotations

from typing import Final

from klog.protocol import ApiKey

GROUPS: Final = frozenset(
    (
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.OFFSET_COMMIT,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.OFFSET_DELETE,
        ApiKey.OFFSET_FETCH,
        ApiKey.LIST_GROUPS,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DELETE_GROUPS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    )
)
SHARE_FETCHES: Final = frozenset((ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE))
TRANSACTIONS: Final = frozenset(
    (
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.DESCRIBE_PRODUCERS,
    )
)
# Those that change topics, with the first version that is refused beyond the quota (KIP-599).
TOPIC_CHANGES: Final = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
# Those of the admin package that may wait for disks, and so must not be handled in a network thread.
ADMIN_SLOW: Final = frozenset(
    (
        *TOPIC_CHANGES,
        ApiKey.DELETE_RECORDS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        # These wait for no disk, but take milliseconds of a processor.
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    )
)
ADMIN: Final = ADMIN_SLOW | {
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ELECT_LEADERS,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.UPDATE_FEATURES,
}
