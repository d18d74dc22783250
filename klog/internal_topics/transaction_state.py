"""The records of __transaction_state: the state of each transactional id.

    key    := type:i16=0 transactional_id:string
    value  := version:i16 field*    version 1 (KIP-890) is flexible; null: a tombstone

Kafka: TransactionLogKey, TransactionLogValue (4.3), TransactionState.
"""

from __future__ import annotations

from typing import Final

from klog.internal_topics.tables import KeyedType

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

TYPES: Final = {0: KeyedType(0, "transaction", "TransactionLog")}
