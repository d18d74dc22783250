"""The records of __transaction_state: the state of each transactional id.

    key    := type:i16=0 transactional_id:string
    value  := version:i16 field*    version 1 (KIP-890) is flexible; null: a tombstone

Kafka: TransactionLogKey, TransactionLogValue (4.3), TransactionState.
"""

from __future__ import annotations

from typing import Final

from klog.internal_topics.schema import message
from klog.internal_topics.tables import KeyedType

TOPIC: Final = "__transaction_state"

STATES: Final = {
    0: "Empty",
    1: "Ongoing",
    2: "PrepareCommit",
    3: "PrepareAbort",
    4: "CompleteCommit",
    5: "CompleteAbort",
    6: "Dead",
    7: "PrepareEpochFence",
}

TYPES: Final[dict[int, KeyedType]] = {
    0: KeyedType(
        "transaction",
        "transactional_id:string",
        message(
            """producer_id:int64 producer_epoch:int16 transaction_timeout_ms:int32 transaction_status:int8
            transaction_partitions:[{topic:string partition_ids:[int32]}] transaction_last_update_timestamp_ms:int64
            transaction_start_timestamp_ms:int64 previous_producer_id:int64@1+#0 next_producer_id:int64@1+#1
            client_transaction_version:int16@1+#2 next_producer_epoch:int16@1+#3""",
            latest=1,
            flexible=1,
        ),
    )
}
