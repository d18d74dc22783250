"""The records of __share_group_state: which records of a partition a share group has delivered.

    key    := type:i16 group_id:string topic_id:uuid partition:i32
    value  := version:i16 field* tags

Kafka: ShareSnapshotValue, ShareUpdateValue (4.3), KIP-932.
"""

from __future__ import annotations

from typing import Final

from klog.internal_topics.tables import keyed

TYPES: Final = keyed({0: "share_snapshot", 1: "share_update"})
