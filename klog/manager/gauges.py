"""Gauges of a LogManager under Kafka's names, computed when they are read.

There is no registry, so no gauge is left of a deleted, moved or recreated log.
Kafka: LogManager's and UnifiedLog's metrics groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.disk import Files
from klog.log.log import Log
from klog.log.state.histogram import Histogram
from klog.manager.cleaner_threads import BackgroundCleaner
from klog.manager.directory_set import DirectorySet
from klog.manager.flush_queue import FlushQueue
from klog.manager.loading import Loading
from klog.manager.registry import LogRegistry

if TYPE_CHECKING:
    from klog.log.read.page_cache import LogPageCache

Gauges = dict[str, dict[str, float]]


def read(
    directories: DirectorySet, registry: LogRegistry, loading: Loading, flushes: FlushQueue, cleaner: BackgroundCleaner
) -> Gauges:
    """Return all gauges; see LogManager.metrics."""
    logs = {log.name: log for log in registry.open_logs()}
    offline: dict[str, float] = {directory.path: int(directory.offline is not None) for directory in directories}
    return {
        "OfflineLogDirectoryCount": {"": sum(offline.values())},
        "LogDirectoryOffline": offline,
        **_of(logs),
        **_flush_times(logs, len(flushes)),
        **loading.gauges(),
        **cleaner.metrics(list(logs.values()), list(directories.paths)),
    }


def _of(logs: dict[str, Log]) -> Gauges:
    return {
        "NumLogSegments": {name: len(log.segments) for name, log in logs.items()},
        "LogStartOffset": {name: log.log_start_offset for name, log in logs.items()},
        "LogEndOffset": {name: log.log_end_offset for name, log in logs.items()},
        "Size": {name: log.size for name, log in logs.items()},
        "FetchBytesSendfile": {name: log._core.sends.sendfile for name, log in logs.items()},
        "FetchBytesSplice": {name: log._core.sends.splice for name, log in logs.items()},
        "FetchBytesCopied": {name: log._core.sends.copied for name, log in logs.items()},
    }


def _flush_times(logs: dict[str, Log], waiting: int) -> Gauges:
    """LogFlushRateAndTimeMs of each log, and of all logs under ""; the number of logs that wait to be flushed."""
    together = Histogram()
    gauges: Gauges = {"FlushQueueSize": {"": waiting}}
    for name, times in [(name, log._core.counters.flush_times) for name, log in logs.items() if not log.read_only]:
        together.add(times)
        _put(gauges, name, times)
    _put(gauges, "", together)
    return gauges


def _put(gauges: Gauges, name: str, times: Histogram) -> None:
    for metric, value in times.metrics("LogFlushRateAndTimeMs").items():
        gauges.setdefault(metric, {})[name] = value


def page_cache(directories: DirectorySet, files: Files, topic: str | None, cells: int) -> list[LogPageCache]:
    """Return the page cache use of each partition; see LogManager.page_cache."""
    from klog.log.read.page_cache import listed, look

    found = []
    for directory in directories.online():
        for name, partition in directory.entries().live:
            if topic is None or name == topic:
                path = directory.partition_path(name, partition)
                found.append(look(files, name, partition, path, listed(path), cells))
    return sorted(found, key=lambda log: (log.topic, log.partition))
