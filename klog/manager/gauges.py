"""Gauges of a LogManager under Kafka's names, computed when they are read.

There is no registry, so no gauge is left of a deleted, moved or recreated log.
Kafka: LogManager's and UnifiedLog's metrics groups.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from klog.errors import LogClosed, UnknownTopicOrPartition
from klog.log import core
from klog.manager.traffic import ALL, Rates, Traffic, counts

if TYPE_CHECKING:
    from klog.disk import Files
    from klog.histogram import Histogram
    from klog.log.log import Log
    from klog.log.read.page_cache import LogPageCache
    from klog.manager.cleaner_threads import BackgroundCleaner
    from klog.manager.directory_set import DirectorySet
    from klog.manager.flush_queue import FlushQueue
    from klog.manager.loading import Loading
    from klog.manager.registry import LogRegistry

Gauges = dict[str, dict[str, float]]


def read(
    directories: DirectorySet,
    registry: LogRegistry,
    loading: Loading,
    flushes: FlushQueue,
    cleaner: BackgroundCleaner,
    traffic: Traffic,
    page_cache: bool,
) -> Gauges:
    """Return all gauges; see LogManager.metrics."""
    logs = {log.name: log for log in registry.open_logs()}
    offline: dict[str, float] = {directory.path: int(directory.offline is not None) for directory in directories}
    return {
        "OfflineLogDirectoryCount": {"": sum(offline.values())},
        "LogDirectoryOffline": offline,
        "LogDirectorySize": _sizes(directories, logs.values()),
        **_of(logs),
        **_of_writers({name: log for name, log in logs.items() if not log.read_only}),
        **(_cached(logs) if page_cache else {}),
        **_counted(logs, traffic.rates(registry.all())),
        **_times(logs, traffic.times(registry.all())),
        "FlushQueueSize": {"": len(flushes)},
        **loading.gauges(),
        **cleaner.metrics(list(logs.values()), list(directories.paths)),
    }


def _of(logs: dict[str, Log]) -> Gauges:
    sampled = {name: core.sampled_reads(log._core) for name, log in logs.items()}
    return {
        "NumLogSegments": {name: len(log.segments) for name, log in logs.items()},
        "LogStartOffset": {name: log.log_start_offset for name, log in logs.items()},
        "LogEndOffset": {name: log.log_end_offset for name, log in logs.items()},
        "Size": {name: log.size for name, log in logs.items()},
        "ActiveSegmentSize": {name: sum(each.size for each in log.segments[-1:]) for name, log in logs.items()},
        "PageCacheSampledReadBytes": {name: read for name, (read, _) in sampled.items()},
        "PageCacheHitReadBytes": {name: cached for name, (_, cached) in sampled.items()},
        "FetchBytesSendfile": {name: log._core.sends.sendfile for name, log in logs.items()},
        "FetchBytesSplice": {name: log._core.sends.splice for name, log in logs.items()},
        "FetchBytesCopied": {name: log._core.sends.copied for name, log in logs.items()},
    }


def _sizes(directories: DirectorySet, logs: Iterable[Log]) -> dict[str, float]:
    sizes: dict[str, float] = dict.fromkeys(directories.paths, 0)
    for log in logs:
        log_dir = os.path.dirname(log.path)
        if log_dir in sizes:
            sizes[log_dir] += log.size
    return sizes


def _of_writers(logs: dict[str, Log]) -> Gauges:
    """Gauges that a reader beside a writer could only get by a replay of all batches, or not at all."""
    return {
        "LastStableOffsetLag": {name: core.last_stable_lag(log._core) for name, log in logs.items()},
        "ProducerIdCount": {name: len(log._core.producers.entries) for name, log in logs.items()},
        "UnflushedBytes": {name: log.unflushed_bytes for name, log in logs.items()},
    }


def _cached(logs: dict[str, Log]) -> Gauges:
    """What of each log is in the page cache, as far as the kernel reports it."""
    gauges: Gauges = {}
    for name, log in logs.items():
        with contextlib.suppress(PermissionError, LogClosed, UnknownTopicOrPartition):  # deleted meanwhile
            present = log.page_cache().residency
            for metric, value in (
                ("PageCacheBytes", present.cached_bytes),
                ("PageCacheDirtyBytes", present.dirty_bytes),
                ("PageCacheWritebackBytes", present.writeback_bytes),
            ):
                if value is not None:
                    gauges.setdefault(metric, {})[name] = value
    return gauges


def _counted(logs: dict[str, Log], rates: Rates) -> Gauges:
    """The counters of each log, and of all logs under ""."""
    of_logs = {name: counts(log) for name, log in logs.items()}
    return {
        metric: {
            **{name: counted[metric] for name, counted in of_logs.items() if metric in counted},
            ALL: by_topic[ALL].count,
        }
        for metric, by_topic in rates.items()
        if metric.endswith("PerSec")
    }


def _times(logs: dict[str, Log], together: dict[str, Histogram]) -> Gauges:
    """The histograms of each log, and of all logs under ""."""
    gauges: Gauges = {}
    of_logs = {name: log._core.counters.times() for name, log in logs.items()}
    for name, times in [*of_logs.items(), (ALL, together)]:
        for metric, histogram in times.items():
            for attribute, value in histogram.metrics(metric).items():
                gauges.setdefault(attribute, {})[name] = value
    return gauges


def page_cache(directories: DirectorySet, files: Files, topic: str | None, cells: int) -> list[LogPageCache]:
    """Return the page cache use of each partition; see LogManager.page_cache."""
    from klog.log.read.page_cache import listed, measure

    found = []
    for directory in directories.online():
        for name, partition in directory.entries().live:
            if topic is None or name == topic:
                path = directory.partition_path(name, partition)
                with contextlib.suppress(FileNotFoundError):  # a topic that is deleted meanwhile
                    found.append(measure(files, name, partition, path, listed(path), cells))
    return sorted(found, key=lambda log: (log.topic, log.partition))
