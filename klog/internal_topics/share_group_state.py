"""The records of __share_group_state: what share groups have delivered of each partition.

    key    := type:i16 group_id:string topic_id:uuid partition:i32
    value  := version:i16 field* tags

Kafka: ShareSnapshotValue, ShareUpdateValue (4.3), KIP-932.
"""

from __future__ import annotations

from typing import Final

from klog.internal_topics.schema import message
from klog.internal_topics.tables import KeyedType

TOPIC: Final = "__share_group_state"
_KEY: Final = "group_id:string topic_id:uuid partition:int32"
_BATCHES: Final = """state_batches:[{first_offset:int64 last_offset:int64 delivery_state:int8 delivery_count:int16}]
    delivery_complete_count:int32#0"""

TYPES: Final[dict[int, KeyedType]] = {
    0: KeyedType(
        "share_snapshot",
        _KEY,
        message(
            f"""snapshot_epoch:int32 state_epoch:int32 leader_epoch:int32 start_offset:int64 create_timestamp:int64
            write_timestamp:int64 {_BATCHES}"""
        ),
    ),
    1: KeyedType(
        "share_update",
        _KEY,
        message(f"snapshot_epoch:int32 leader_epoch:int32 start_offset:int64 {_BATCHES}"),
    ),
}
