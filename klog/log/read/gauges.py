"""All metrics of a log: its counters, and gauges of its current state, under the names of Kafka's metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.log.read.isolation import last_stable_offset, producer_state
from klog.log.state._log_core import LogCore

if TYPE_CHECKING:
    from klog.log.read.page_cache import LogPageCache


def metrics_of(log: LogCore, page_cache: bool) -> dict[str, float]:
    """All metrics of a log. page_cache: also what is cached now."""
    gauges: dict[str, float] = {
        "NumLogSegments": len(log.segments),
        "LogStartOffset": log.log_start_offset,
        "LogEndOffset": log.log_end_offset,
        "Size": log.size,
        "LastStableOffsetLag": last_stable_lag(log),
        "ProducerIdCount": len(producer_state(log).entries),
        **_read_cache(log),
        "FetchBytesSendfile": log.sends.sendfile,
        "FetchBytesSplice": log.sends.splice,
        "FetchBytesCopied": log.sends.copied,
        **_page_cache(log, page_cache),
    }
    metrics = log.counters
    if log.read_only:
        return {**gauges, **metrics.reads(), **metrics.fetch_times.metrics("LogFetchTimeMs")}
    written = log.segments[-1].written
    return {
        **gauges,
        "WriteBehindBytes": written.written,
        "DropBehindBytes": written.dropped,
        "DirectWriteBytes": written.direct,
        "WriteFallbacks": written.fallbacks,
        **metrics.writes(),
        **metrics.reads(),
        **{key: value for name, times in metrics.times().items() for key, value in times.metrics(name).items()},
        **({} if log.commits is None else log.commits.metrics()),
    }


def last_stable_lag(log: LogCore) -> int:
    """How far the last stable offset is below the high watermark."""
    return max(log.high_watermark - last_stable_offset(log), 0)  # both rise meanwhile


def sampled_reads(log: LogCore) -> tuple[int, int]:
    """Return the bytes of sampled reads, and how many of them were in the page cache."""
    segment_dir = log.directory.segment_dir
    return (segment_dir.sampler.sampled_bytes, segment_dir.sampler.cached_bytes) if segment_dir is not None else (0, 0)


def _read_cache(log: LogCore) -> dict[str, int]:
    """Metrics of the read cache, if the log has one (klog.io.read.cache.bytes)."""
    if not log.config.io.read_cache_bytes:
        return {}
    counts = log.reading.counts(log)
    return {
        "ReadCacheHits": counts.hits,
        "ReadCacheMisses": counts.misses,
        "ReadCacheEvictions": counts.evictions,
        "ReadCacheExpirations": counts.expirations,
        "ReadCacheEntries": counts.entries,
        "ReadCacheBytes": counts.bytes,
    }


def _page_cache(log: LogCore, look_now: bool) -> dict[str, int]:
    """Metrics of reads from the page cache. look_now: also its current content, as far as the kernel reports it."""
    sampled, cached = sampled_reads(log)
    found = {"PageCacheSampledReadBytes": sampled, "PageCacheHitReadBytes": cached}
    if look_now:
        present = page_cache_of(log, 0).residency
        seen = {
            "PageCacheBytes": present.cached_bytes,
            "PageCacheDirtyBytes": present.dirty_bytes,
            "PageCacheWritebackBytes": present.writeback_bytes,
            "PageCacheEvictedBytes": present.evicted_bytes,
        }
        found.update((name, value) for name, value in seen.items() if value is not None)
    return found


def page_cache_of(log: LogCore, cells: int) -> LogPageCache:
    """How much of each segment is in the page cache. See Log.page_cache."""
    from klog.log.read.page_cache import measure  # few processes use it

    log.check_open()
    segments = [(segment.base_offset, segment.path) for segment in log.segments]
    return measure(log.options.files, log.topic, log.partition, log.directory.path, segments, cells)
