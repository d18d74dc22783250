"""The records of __cluster_metadata, of its snapshots and of bootstrap.checkpoint: the decisions of KRaft's
controllers.

    key := null        value := frame_version:uvarint=1 type:uvarint version:uvarint field* tags

Kafka: MetadataRecordType and its records (4.3), MetadataRecordSerde. Control records of the same log: record/kraft.py.
"""

from __future__ import annotations

from typing import Final

from klog.internal_topics.tables import framed

TYPES: Final = framed(
    {
        0: "register_broker_record",
        1: "unregister_broker_record",
        2: "topic_record",
        3: "partition_record",
        4: "config_record",
        5: "partition_change_record",
        7: "fence_broker_record",
        8: "unfence_broker_record",
        9: "remove_topic_record",
        10: "delegation_token_record",
        11: "user_scram_credential_record",
        12: "feature_level_record",
        14: "client_quota_record",
        15: "producer_ids_record",
        17: "broker_registration_change_record",
        18: "access_control_entry_record",
        19: "remove_access_control_entry_record",
        20: "no_op_record",
        21: "zk_migration_state_record",
        22: "remove_user_scram_credential_record",
        23: "begin_transaction_record",
        24: "end_transaction_record",
        25: "abort_transaction_record",
        26: "remove_delegation_token_record",
        27: "register_controller_record",
        28: "clear_elr_record",
    }
)
