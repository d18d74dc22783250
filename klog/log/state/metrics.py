"""What a log counts, under the names of Kafka's metrics, and what it says of itself when asked for them.

Counters count from the opening of the log; rates are for whoever looks at them twice. Kafka: BrokerTopicMetrics, the
gauges of UnifiedLog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.errors import KlogError, RecordTooLarge
from klog.log._core import Counters
from klog.log.state.histogram import Histogram
from klog.log.write._commit import CommitQueue

if TYPE_CHECKING:
    from klog.log.view import LogView

_REFUSALS = (
    "BytesRejectedPerSec",
    "InvalidMagicNumberRecordsPerSec",
    "InvalidMessageCrcRecordsPerSec",
    "InvalidOffsetOrSequenceRecordsPerSec",
    "NoKeyCompactedTopicRecordsPerSec",
)


class LogMetrics(Counters):
    """The counters of one log. Under its lock, but for refusals, which Python's own lock is enough for."""

    __slots__ = ("flush_times", "flushed_bytes", "refusals")

    def __init__(self) -> None:
        self.flush_times = Histogram()
        self.flushed_bytes = 0  # of appended_bytes, at the last flush
        self.refusals = dict.fromkeys(_REFUSALS, 0)

    @property
    def appended_bytes(self) -> int:
        """Whoever they came from."""
        return self.bytes_in + self.replicated_bytes_in

    def refused(self, error: KlogError, size: int) -> None:
        """An append of size bytes was refused so."""
        if isinstance(error, RecordTooLarge):
            self.refusals["BytesRejectedPerSec"] += size
        for name, count in error.meters.items():
            self.refusals[name] = self.refusals.get(name, 0) + count


def _of_commits(commits: CommitQueue | None) -> dict[str, float]:
    """Of durability="sync": appends that shared an fdatasync."""
    if commits is None:
        return {}
    return {
        "CommitGroupSizeCount": commits.groups,
        "CommitGroupSizeMean": commits.appends / commits.groups if commits.groups else 0.0,
        "CommitGroupSizeMax": commits.largest,
        "CommitQueueSize": len(commits),
    }


def metrics_of(log: LogView, meters: LogMetrics | None, page_cache: bool = False) -> dict[str, float]:
    """What Log.metrics() documents."""
    gauges: dict[str, float] = {
        "NumLogSegments": len(log.segments),
        "LogStartOffset": log.log_start_offset,
        "LogEndOffset": log.log_end_offset,
        "Size": log.size,
        "LastStableOffsetLag": log.high_watermark - log.last_stable_offset,
        "ProducerIdCount": len(log.producers),
        **_read_cache(log),
        "FetchBytesSendfile": log._sends.sendfile,
        "FetchBytesSplice": log._sends.splice,
        "FetchBytesCopied": log._sends.copied,
        **_page_cache(log, page_cache),
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
        **meters.flush_times.metrics("LogFlushRateAndTimeMs"),
        **_of_commits(log._commits),
    }


def _read_cache(log: LogView) -> dict[str, int]:
    """Of a log that has one (klog.io.read.cache.bytes)."""
    if not log.config.io.read_cache_bytes:
        return {}
    counts = log._reading.counts(log)
    return {
        "ReadCacheHits": counts.hits,
        "ReadCacheMisses": counts.misses,
        "ReadCacheEvictions": counts.evictions,
        "ReadCacheExpirations": counts.expirations,
        "ReadCacheEntries": counts.entries,
        "ReadCacheBytes": counts.bytes,
    }


def _page_cache(log: LogView, look: bool) -> dict[str, int]:
    """What came from memory; look: also what is there now, as far as this kernel tells."""
    sampler = log._home.sampler if log._home is not None else None
    found = {
        "PageCacheSampledReadBytes": sampler.sampled_bytes if sampler else 0,
        "PageCacheHitReadBytes": sampler.cached_bytes if sampler else 0,
    }
    if look:
        now = log.page_cache().residency
        seen = {
            "PageCacheBytes": now.cached_bytes,
            "PageCacheDirtyBytes": now.dirty_bytes,
            "PageCacheWritebackBytes": now.writeback_bytes,
            "PageCacheEvictedBytes": now.evicted_bytes,
        }
        found.update((name, value) for name, value in seen.items() if value is not None)
    return found
