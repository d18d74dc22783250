"""The records of __cluster_metadata, of its snapshots and of bootstrap.checkpoint: what KRaft's controllers decide.

    key := null        value := frame_version:uvarint=1 type:uvarint version:uvarint field* tags

Kafka: MetadataRecordType and its records (4.3), MetadataRecordSerde. Control records of the same log: record/kraft.py.
"""

from __future__ import annotations

from typing import Final

from klog.internal_topics.schema import message
from klog.internal_topics.tables import FramedType

TOPIC: Final = "__cluster_metadata"
_ENDPOINTS: Final = "end_points:[{name:string host:string port:uint16 security_protocol:int16}]"
_FEATURES: Final = "features:[{name:string min_supported_version:int16 max_supported_version:int16}]"
_REPLICAS: Final = "removing_replicas:[int32] adding_replicas:[int32]"
_BROKER: Final = "id:int32 epoch:int64"
_ENTITY: Final = "entity:[{entity_type:string entity_name:string}]"

TYPES: Final[dict[int, FramedType]] = {
    0: FramedType(
        "register_broker_record",
        message(
            f"""broker_id:int32 is_migrating_zk_broker:bool@2+ incarnation_id:uuid broker_epoch:int64 {_ENDPOINTS}
            {_FEATURES} rack:string fenced:bool in_controlled_shutdown:bool@1+ log_dirs:[uuid]@3+#0
            cordoned_log_dirs:[uuid]@4+#1""",
            latest=4,
        ),
    ),
    1: FramedType("unregister_broker_record", message("broker_id:int32 broker_epoch:int64")),
    2: FramedType("topic_record", message("name:string topic_id:uuid")),
    3: FramedType(
        "partition_record",
        message(
            f"""partition_id:int32 topic_id:uuid replicas:[int32] isr:[int32] {_REPLICAS} leader:int32
            leader_epoch:int32 partition_epoch:int32 directories:[uuid]@1+ leader_recovery_state:int8#0
            eligible_leader_replicas:[int32]@2+#1 last_known_elr:[int32]@2+#2""",
            latest=2,
        ),
    ),
    4: FramedType("config_record", message("resource_type:int8 resource_name:string name:string value:string")),
    5: FramedType(
        "partition_change_record",
        message(
            """partition_id:int32 topic_id:uuid isr:[int32]#0 leader:int32#1 replicas:[int32]#2
            removing_replicas:[int32]#3 adding_replicas:[int32]#4 leader_recovery_state:int8#5
            eligible_leader_replicas:[int32]@2+#6 last_known_elr:[int32]@2+#7 directories:[uuid]@1+#8""",
            latest=2,
        ),
    ),
    7: FramedType("fence_broker_record", message(_BROKER)),
    8: FramedType("unfence_broker_record", message(_BROKER)),
    9: FramedType("remove_topic_record", message("topic_id:uuid")),
    10: FramedType(
        "delegation_token_record",
        message(
            """owner:string requester:string renewers:[string] issue_timestamp:int64 max_timestamp:int64
            expiration_timestamp:int64 token_id:string"""
        ),
    ),
    11: FramedType(
        "user_scram_credential_record",
        message("name:string mechanism:int8 salt:bytes stored_key:bytes server_key:bytes iterations:int32"),
    ),
    12: FramedType("feature_level_record", message("name:string feature_level:int16")),
    14: FramedType("client_quota_record", message(f"{_ENTITY} key:string value:float64 remove:bool")),
    15: FramedType("producer_ids_record", message("broker_id:int32 broker_epoch:int64 next_producer_id:int64")),
    17: FramedType(
        "broker_registration_change_record",
        message(
            """broker_id:int32 broker_epoch:int64 fenced:int8#0 in_controlled_shutdown:int8@1+#1 log_dirs:[uuid]@2+#2
            cordoned_log_dirs:[uuid]@3+#3""",
            latest=3,
        ),
    ),
    18: FramedType(
        "access_control_entry_record",
        message(
            """id:uuid resource_type:int8 resource_name:string pattern_type:int8 principal:string host:string
            operation:int8 permission_type:int8"""
        ),
    ),
    19: FramedType("remove_access_control_entry_record", message("id:uuid")),
    20: FramedType("no_op_record", message("")),
    21: FramedType("zk_migration_state_record", message("zk_migration_state:int8")),
    22: FramedType("remove_user_scram_credential_record", message("name:string mechanism:int8")),
    23: FramedType("begin_transaction_record", message("name:string#0")),
    24: FramedType("end_transaction_record", message("")),
    25: FramedType("abort_transaction_record", message("reason:string#0")),
    26: FramedType("remove_delegation_token_record", message("token_id:string")),
    27: FramedType(
        "register_controller_record",
        message(f"controller_id:int32 incarnation_id:uuid zk_migration_ready:bool {_ENDPOINTS} {_FEATURES}"),
    ),
    28: FramedType("clear_elr_record", message("topic_name:string")),
}
