"""The state of one producer id as users and snapshots see it. Kafka: ProducerStateEntry."""

from __future__ import annotations

from klog.values import dataclass


@dataclass(frozen=True, slots=True)
class ProducerState:
    """One producer. Unknown fields are -1; last_offset is that of its last data batch."""

    epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    current_txn_first_offset: int | None = None
