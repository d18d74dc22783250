"""The counters and gauges of a log, under the names of Kafka's metrics.

Counters start at 0 when the log is opened. The reader computes rates from two samples. Kafka: BrokerTopicMetrics, the
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
    """The counters of one log. Under the log's lock, except for refusals: for those the GIL is enough."""

    __slots__ = ("flush_times", "refusals")

    def __init__(self) -> None:
        self.flush_times = Histogram()
        self.refusals = dict.fromkeys(_REFUSALS, 0)

    @property
    def appended_bytes(self) -> int:
        """Bytes appended by clients and by replication."""
        return self.bytes_in + self.replicated_bytes_in

    def refused(self, error: KlogError, size: int) -> None:
        """Count a refused append of size bytes."""
        if isinstance(error, RecordTooLarge):
            self.refusals["BytesRejectedPerSec"] += size
        for name, count in error.meters.items():
            self.refusals[name] = self.refusals.get(name, 0) + count


def _of_commits(commits: CommitQueue | None) -> dict[str, float]:
    """Metrics of durability="sync": how many appends shared an fdatasync."""
    if commits is None:
        return {}
    return {
        "CommitGroupSizeCount": commits.groups,
        "CommitGroupSizeMean": commits.appends / commits.groups if commits.groups else 0.0,
        "CommitGroupSizeMax": commits.largest,
        "CommitQueueSize": len(commits),
    }


def metrics_of(log: LogView, metrics: LogMetrics | None, page_cache: bool = False) -> dict[str, float]:
    """All metrics of a log. metrics: its counters, None for a read-only log. page_cache: also what is cached now."""
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
    if metrics is None:
        return gauges
    written = log.segments[-1].written
    return {
        **gauges,
        "WriteBehindBytes": written.written,
        "DropBehindBytes": written.dropped,
        "DirectWriteBytes": written.direct,
        "WriteFallbacks": written.fallbacks,
        "BytesInPerSec": metrics.bytes_in,
        "MessagesInPerSec": metrics.messages_in,
        "ReplicationBytesInPerSec": metrics.replicated_bytes_in,
        **metrics.refusals,
        **metrics.flush_times.metrics("LogFlushRateAndTimeMs"),
        **_of_commits(log._commits),
    }


def _read_cache(log: LogView) -> dict[str, int]:
    """Metrics of the read cache, if the log has one (klog.io.read.cache.bytes)."""
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
    """Metrics of reads from the page cache. look: also its current content, as far as the kernel reports it."""
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
