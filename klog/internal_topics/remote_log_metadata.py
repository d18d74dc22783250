"""The records of __remote_log_metadata: the segments in tiered storage.

    key := null        value := frame_version:uvarint=1 type:uvarint version:uvarint field* tags

Kafka: RemoteLogMetadataSerde (4.3), KIP-405.
"""

from __future__ import annotations

from typing import Final

from klog.internal_topics.tables import framed

TYPES: Final = framed(
    {
        0: "remote_log_segment_metadata_record",
        1: "remote_log_segment_metadata_update_record",
        2: "remote_partition_delete_metadata_record",
        3: "remote_log_segment_metadata_snapshot_record",
    }
)
