"""The records of __remote_log_metadata: the segments in tiered storage.

    key := null        value := frame_version:uvarint=1 type:uvarint version:uvarint field* tags

Kafka: RemoteLogMetadataSerde (4.3), KIP-405.
"""

from __future__ import annotations

from typing import Final

from klog.internal_topics.schema import message
from klog.internal_topics.tables import FramedType

TOPIC: Final = "__remote_log_metadata"
_PARTITION: Final = "topic_id_partition:{name:string id:uuid partition:int32}"
_SEGMENT: Final = f"remote_log_segment_id:{{{_PARTITION} id:uuid}}"
_CONTENT: Final = """start_offset:int64 end_offset:int64 broker_id:int32 max_timestamp_ms:int64 event_timestamp_ms:int64
    segment_leader_epochs:[{leader_epoch:int32 offset:int64}] segment_size_in_bytes:int32 custom_metadata:bytes
    remote_log_segment_state:int8 txn_index_empty:bool#0"""

TYPES: Final[dict[int, FramedType]] = {
    0: FramedType("remote_log_segment_metadata_record", message(f"{_SEGMENT} {_CONTENT}")),
    1: FramedType(
        "remote_log_segment_metadata_update_record",
        message(
            f"{_SEGMENT} broker_id:int32 event_timestamp_ms:int64 custom_metadata:bytes remote_log_segment_state:int8"
        ),
    ),
    2: FramedType(
        "remote_partition_delete_metadata_record",
        message(f"{_PARTITION} broker_id:int32 event_timestamp_ms:int64 remote_partition_delete_state:int8"),
    ),
    3: FramedType("remote_log_segment_metadata_snapshot_record", message(f"segment_id:uuid {_CONTENT}")),
}
