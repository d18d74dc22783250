"""Releases of Kafka that a TestBroker can pass for, each with the newest version of each API that its brokers had.

From the schemas in kafka-clients 2.8.2, 3.0.2, 3.9.1, 4.0.0, 4.1.0 and 4.3.1 (validVersions; without versions that the
release had marked as unstable). Versions below klog's oldest are missing in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from klog import arguments
from klog.broker.api_versions import Release
from klog.protocol import ApiKey
from klog.testing.watching import api_of

_SHARE: Final = (
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
)
# From the newest release to the oldest one: what is different from the release above; None: it had no such API.
_CHANGES: Final[dict[str, dict[ApiKey, int | None]]] = {
    "4.3": {},
    "4.1": {
        ApiKey.LIST_OFFSETS: 10,
        ApiKey.OFFSET_COMMIT: 9,
        ApiKey.OFFSET_FETCH: 9,
        ApiKey.WRITE_TXN_MARKERS: 1,
        ApiKey.DESCRIBE_LOG_DIRS: 4,
        ApiKey.SHARE_FETCH: 1,
        ApiKey.SHARE_ACKNOWLEDGE: 1,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: 0,
    },
    "4.0": {
        ApiKey.PRODUCE: 12,
        ApiKey.FETCH: 17,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
        ApiKey.LIST_TRANSACTIONS: 1,
        ApiKey.LIST_CONFIG_RESOURCES: 0,
        **dict.fromkeys(_SHARE),  # those of 4.0 had other versions
    },
    "3.9": {
        ApiKey.PRODUCE: 11,
        ApiKey.LIST_OFFSETS: 9,
        ApiKey.METADATA: 12,
        ApiKey.DESCRIBE_GROUPS: 5,
        ApiKey.END_TXN: 4,
        ApiKey.TXN_OFFSET_COMMIT: 4,
        ApiKey.UPDATE_FEATURES: 1,
        ApiKey.DESCRIBE_CLUSTER: 1,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: 0,
        ApiKey.CONSUMER_GROUP_DESCRIBE: 0,
    },
    "3.0": {
        ApiKey.PRODUCE: 9,
        ApiKey.FETCH: 12,
        ApiKey.LIST_OFFSETS: 7,
        ApiKey.METADATA: 11,
        ApiKey.OFFSET_COMMIT: 8,
        ApiKey.OFFSET_FETCH: 8,
        ApiKey.FIND_COORDINATOR: 4,
        ApiKey.JOIN_GROUP: 7,
        ApiKey.LEAVE_GROUP: 4,
        ApiKey.LIST_GROUPS: 4,
        ApiKey.API_VERSIONS: 3,
        ApiKey.INIT_PRODUCER_ID: 4,
        ApiKey.ADD_PARTITIONS_TO_TXN: 3,
        ApiKey.ADD_OFFSETS_TO_TXN: 3,
        ApiKey.END_TXN: 3,
        ApiKey.TXN_OFFSET_COMMIT: 3,
        ApiKey.DESCRIBE_ACLS: 2,
        ApiKey.CREATE_ACLS: 2,
        ApiKey.DELETE_ACLS: 2,
        ApiKey.DESCRIBE_LOG_DIRS: 2,
        ApiKey.DESCRIBE_QUORUM: 0,
        ApiKey.UPDATE_FEATURES: 0,
        ApiKey.DESCRIBE_CLUSTER: 0,
        ApiKey.LIST_TRANSACTIONS: 0,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: None,
        ApiKey.CONSUMER_GROUP_DESCRIBE: None,
        ApiKey.LIST_CONFIG_RESOURCES: None,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: None,
    },
    "2.8": {
        ApiKey.LIST_OFFSETS: 6,
        ApiKey.OFFSET_FETCH: 7,
        ApiKey.FIND_COORDINATOR: 3,
        ApiKey.DESCRIBE_TRANSACTIONS: None,
        ApiKey.LIST_TRANSACTIONS: None,
    },
}
_WITHOUT_FEATURES = ("2.8", "3.0", "3.9")  # group.version and transaction.version came with 4.0
RELEASES: Final = tuple(sorted(_CHANGES))


def release(version: str | None, versions: Mapping[str, int | None] | None = None) -> Release:
    """The release of a version such as "3.9", None for klog itself. versions: the newest one of an API instead of that
    of the release, None for an API that is missing. Raises ValueError, TypeError."""
    found = _newest(RELEASES[-1] if version is None else version)
    for name, high in (versions or {}).items():
        api = api_of(name)
        if high is None:
            found.pop(api, None)
        else:
            found[api] = arguments.whole(f"api_versions: {name}", high, api.low, api.high)
    return Release(found, has_features=version not in _WITHOUT_FEATURES)


def _newest(version: str) -> dict[ApiKey, int]:
    arguments.chosen("as_version", version, RELEASES)
    newest: dict[ApiKey, int] = {api: api.high for api in ApiKey}
    for name, changes in _CHANGES.items():
        for api, high in changes.items():
            if high is None:
                del newest[api]
            else:
                newest[api] = high
        if name == version:
            break
    return newest
