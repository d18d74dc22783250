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
        **_read_cache(log),
    }
    if meters is None:
        return gauges
    return {
        **gauges,
        "BytesInPerSec": meters.bytes_in,
        "MessagesInPerSec": meters.messages_in,
        "ReplicationBytesInPerSec": meters.replicated_bytes_in,
        **meters.refusals,
    }


def _read_cache(log: LogView) -> dict[str, int]:
    """Of a log that has one (klog.io.read.cache.bytes)."""
    if not log.config.io.read_cache_bytes:
        return {}
    counts = log._reading.counts()
    return {
        "ReadCacheHits": counts.hits,
        "ReadCacheMisses": counts.misses,
        "ReadCacheEvictions": counts.evictions,
        "ReadCacheExpirations": counts.expirations,
        "ReadCacheEntries": counts.entries,
        "ReadCacheBytes": counts.bytes,
    }
