"""What a log counts, under the names of Kafka's metrics, and what it says of itself when asked for them.

Counters count from the opening of the log; rates are for whoever looks at them twice. Kafka: BrokerTopicMetrics, the
gauges of UnifiedLog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.errors import KlogError, RecordTooLarge
from klog.log._append import Counters

if TYPE_CHECKING:
    from klog.log.view import LogView

_REFUSALS = (
    "BytesRejectedPerSec",
    "InvalidMagicNumberRecordsPerSec",
    "InvalidMessageCrcRecordsPerSec",
    "InvalidOffsetOrSequenceRecordsPerSec",
    "NoKeyCompactedTopicRecordsPerSec",
)


class Meters(Counters):
    """The counters of one log. Under its lock, but for refusals, which Python's own lock is enough for."""

    __slots__ = ("refusals",)

    def __init__(self) -> None:
        self.refusals = dict.fromkeys(_REFUSALS, 0)

    def refused(self, error: KlogError, size: int) -> None:
        """An append of size bytes was refused so."""
        if isinstance(error, RecordTooLarge):
            self.refusals["BytesRejectedPerSec"] += size
        for name, count in error.meters.items():
            self.refusals[name] = self.refusals.get(name, 0) + count


def metrics_of(log: LogView, meters: Meters | None) -> dict[str, int]:
    """What Log.metrics() documents."""
    gauges = {
        "NumLogSegments": len(log.segments),
        "LogStartOffset": log.log_start_offset,
        "LogEndOffset": log.log_end_offset,
        "Size": log.size,
        "LastStableOffsetLag": log.high_watermark - log.last_stable_offset,
        "ProducerIdCount": len(log.producers),
    }
    if meters is None:
        return gauges
    written = log.segments[-1].written
    return {
        **gauges,
        "WriteBehindBytes": written.written,
        "DropBehindBytes": written.dropped,
        "DirectWriteBytes": written.direct,
        "WriteFallbacks": written.fallbacks,
        "BytesInPerSec": meters.bytes_in,
        "MessagesInPerSec": meters.messages_in,
        "ReplicationBytesInPerSec": meters.replicated_bytes_in,
        **meters.refusals,
    }
