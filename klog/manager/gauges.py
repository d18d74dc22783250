"""Gauges of a LogManager under Kafka's names, computed when they are read.

There is no registry, so no gauge is left of a deleted, moved or recreated log.
Kafka: LogManager's and UnifiedLog's metrics groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.log.state.histogram import Histogram

if TYPE_CHECKING:
    from klog.log.log import Log
    from klog.log.read.page_cache import LogPageCache
    from klog.manager.manager import LogManager

Gauges = dict[str, dict[str, float]]


def read(manager: LogManager) -> Gauges:
    """Return all gauges; see LogManager.metrics."""
    with manager._lock:
        logs = {log.name: log for log in manager._logs.values() if not log.closed}
        loading: Gauges = {name: dict(values.items()) for name, values in manager._loading.gauges.items()}
    offline: dict[str, float] = {
        directory.path: int(directory.offline is not None) for directory in manager._directories
    }
    return {
        "OfflineLogDirectoryCount": {"": sum(offline.values())},
        "LogDirectoryOffline": offline,
        **_of(logs),
        **_flush_times(logs, len(manager._flushes)),
        **loading,
        **manager._cleaner.metrics(list(logs.values()), [home.path for home in manager._directories]),
    }


def _of(logs: dict[str, Log]) -> Gauges:
    return {
        "NumLogSegments": {name: len(log.segments) for name, log in logs.items()},
        "LogStartOffset": {name: log.log_start_offset for name, log in logs.items()},
        "LogEndOffset": {name: log.log_end_offset for name, log in logs.items()},
        "Size": {name: log.size for name, log in logs.items()},
        "FetchBytesSendfile": {name: log._sends.sendfile for name, log in logs.items()},
        "FetchBytesSplice": {name: log._sends.splice for name, log in logs.items()},
        "FetchBytesCopied": {name: log._sends.copied for name, log in logs.items()},
    }


def _flush_times(logs: dict[str, Log], waiting: int) -> Gauges:
    """LogFlushRateAndTimeMs of each log, and of all logs under ""; the number of logs that wait to be flushed."""
    together = Histogram()
    gauges: Gauges = {"FlushQueueSize": {"": waiting}}
    for name, times in [(name, log._metrics.flush_times) for name, log in logs.items() if not log.read_only]:
        together.add(times)
        _put(gauges, name, times)
    _put(gauges, "", together)
    return gauges


def _put(gauges: Gauges, name: str, times: Histogram) -> None:
    for metric, value in times.metrics("LogFlushRateAndTimeMs").items():
        gauges.setdefault(metric, {})[name] = value


def page_cache(manager: LogManager, topic: str | None, cells: int) -> list[LogPageCache]:
    """Return the page cache use of each partition; see LogManager.page_cache."""
    from klog.log.read.page_cache import listed, look

    if topic is not None:
        manager._partitions(topic)
    found = []
    for directory in manager._online():
        for name, partition in directory.entries().live:
            if topic is None or name == topic:
                path = directory.partition_path(name, partition)
                found.append(look(manager._files, name, partition, path, listed(path), cells))
    return sorted(found, key=lambda log: (log.topic, log.partition))
