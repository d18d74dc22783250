"""The periodic tasks of a LogManager, run by its scheduler.

    kafka-log-retention                 log.retention.check.interval.ms                logs that are not compacted
    kafka-log-flusher                   log.flush.scheduler.interval.ms                logs whose flush is due
    kafka-recovery-point-checkpoint     log.flush.offset.checkpoint.interval.ms        every directory
    kafka-log-start-offset-checkpoint   log.flush.start.offset.checkpoint.interval.ms  every directory
    highwatermark-checkpoint            replica.high.watermark.checkpoint.interval.ms  every directory

The first run comes after log.initial.task.delay.ms; that of the high watermark checkpoint after one period. An error of
one log is logged and stays with that log. A disk error takes the log's directory offline. Deletions (kafka-delete-logs,
delete-file) are separate tasks. The cleaner handles compacted logs, including those with delete and compact.

The high watermark checkpoint holds only logs whose high watermark is managed, not single copies. For a log that it does
not hold, a reader uses the log end, which is a single copy's high watermark; a value five seconds old would hide
records. A stop writes the high watermarks of all logs. Kafka: LogManager.startupWithConfigOverrides,
ReplicaManager.checkpointHighWatermarks.
"""

from __future__ import annotations

import logging
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from klog.errors import KlogError
from klog.log.options import INTERVAL_MS
from klog.log.read import warm_ranges
from klog.log.retain import retention
from klog.log.write.flush import is_due
from klog.manager.cleaner_settings import CleanerSettings
from klog.manager.directories import LogDirectory
from klog.progress import Progress

if TYPE_CHECKING:
    from klog.log.log import Log
    from klog.manager.manager import LogManager

_log = logging.getLogger("klog.manager")
POINTS_MS = 1000
_NEVER_MS = 10 * 365 * 86_400_000  # a period of ten years or more means never


def start(manager: LogManager, progress: Progress | None) -> None:
    """Load all logs and start the tasks; see LogManager.start."""
    with manager._lock:
        if manager._started:
            return
        manager._started = True
    try:
        CleanerSettings.of(manager.config)  # raises before the work, not after it
        manager.load_all(progress)
        warm_ranges.at_open(_open_logs(manager), progress)
    except BaseException:
        manager._started = False
        raise
    config = manager.config
    delay_ms = config.log_initial_task_delay_ms

    high_watermark_ms = config.replica_high_watermark_checkpoint_interval_ms
    for name, action, period_ms, first_ms in (
        ("kafka-log-retention", apply_retention, config.log_retention_check_interval_ms, delay_ms),
        ("kafka-log-flusher", flush_due, config.log_flush_scheduler_interval_ms, delay_ms),
        (
            "kafka-recovery-point-checkpoint",
            checkpoint_recovery_points,
            config.log_flush_offset_checkpoint_interval_ms,
            delay_ms,
        ),
        (
            "kafka-log-start-offset-checkpoint",
            checkpoint_log_starts,
            config.log_flush_start_offset_checkpoint_interval_ms,
            delay_ms,
        ),
        ("highwatermark-checkpoint", checkpoint_high_watermarks, high_watermark_ms, high_watermark_ms),
    ):
        if period_ms < _NEVER_MS:
            _every(manager, name, action, first_ms, max(period_ms, 1))
    manager._scheduler.start()
    manager._cleaner.start()


def _every(
    manager: LogManager, name: str, action: Callable[[LogManager], object], first_ms: int, period_ms: int
) -> None:
    """Schedule an action by a weak reference, so that the task does not keep the manager alive."""
    known = weakref.ref(manager)

    def run() -> None:
        still = known()
        if still is not None:
            action(still)

    manager._scheduler.schedule(name, run, first_ms, period_ms)


def start_flusher(manager: LogManager) -> None:
    """Start the thread that flushes for durability="interval", also while no caller appends."""
    _every(manager, "klog-interval-flusher", flush_due, INTERVAL_MS // 2, INTERVAL_MS // 2)
    manager._scheduler.start()


def _open_logs(manager: LogManager) -> list[Log]:
    with manager._lock:
        return [log for log in manager._logs.values() if not log.closed and log.offline is None]


def _for_each(what: str, logs: Iterable[Log], action: Callable[[Log], object]) -> None:
    """Call action for every log; an error of one log does not stop the others."""
    for log in logs:
        try:
            action(log)
        except (OSError, KlogError) as error:
            if not log.closed:
                _log.error("event=%s_failed log=%s reason=%s", what, log.name, error)


def apply_retention(manager: LogManager) -> None:
    """Delete what is too old, too large or below the log start, in logs whose configuration is known."""
    now_ms = manager._clock.wall_ms()
    mine = (log for log in _open_logs(manager) if not log.config.compacts)
    due = [log for log in mine if retention.is_due(log, now_ms)]
    _in_each_directory(manager, "retention", due, _apply_retention)


def _apply_retention(log: Log) -> None:
    """Pause cleaning meanwhile: the cleanup policy may have changed since the logs were chosen."""
    if log._cleaning.try_pause():
        try:
            log.apply_retention()
        finally:
            log._cleaning.resume()


def flush_due(manager: LogManager) -> None:
    """Flush logs whose flush.ms has passed since their last flush, or that have klog.flush.bytes to flush."""
    now_ms = manager._clock.wall_ms()
    flush_all(manager, [log for log in _open_logs(manager) if _is_dirty(log) and is_due(log, now_ms)])


def _is_dirty(log: Log) -> bool:
    return log.recovery_point < log.log_end_offset


def flush_all(manager: LogManager, logs: Iterable[Log]) -> None:
    """Flush those of these logs that have anything to flush."""
    dirty = [log for log in logs if _is_dirty(log) and not log.closed and log.offline is None]
    _in_each_directory(manager, "flush", dirty, lambda log: log.flush())


def _in_each_directory(manager: LogManager, what: str, logs: list[Log], action: Callable[[Log], object]) -> None:
    """Call an action that moves recovery points, directory by directory, with one checkpoint after each."""

    def act(directory: LogDirectory, mine: list[Log]) -> None:
        with directory.deferring():
            _for_each(what, mine, action)

    if logs:
        _for_each_directory(manager, act, logs)


def _for_each_directory(
    manager: LogManager, action: Callable[[LogDirectory, list[Log]], object], chosen: list[Log] | None = None
) -> None:
    """Call action with each online directory and its open logs, or only its chosen logs if any are chosen."""
    logs: dict[LogDirectory, list[Log]] = defaultdict(list)
    for log in _open_logs(manager) if chosen is None else chosen:
        logs[log._owner].append(log)
    for directory in manager._online():
        if chosen is not None and directory not in logs:
            continue
        try:
            with directory.guarded():
                action(directory, logs.get(directory, []))
        except OSError as error:
            _log.error("event=checkpoint_failed path=%s reason=%s", directory.path, error)


def checkpoint_recovery_points(manager: LogManager) -> None:
    """Write the recovery points of every directory."""
    _for_each_directory(manager, lambda directory, logs: directory.write_points(logs))


def write_points_soon(manager: LogManager, directory: LogDirectory) -> bool:
    """Write one directory's recovery points within POINTS_MS. Returns False if no thread can do it. Takes no lock."""
    if not manager._scheduler.running:
        return False
    manager._scheduler.schedule("klog-recovery-points", lambda: _write_points(directory), POINTS_MS)
    return True


def _write_points(directory: LogDirectory) -> None:
    try:
        with directory.guarded():
            directory.write_points()
    except OSError as error:
        _log.error("event=checkpoint_failed path=%s reason=%s", directory.path, error)


def checkpoint_log_starts(manager: LogManager) -> None:
    """Write the log start offsets of logs that start inside their first segment."""
    _for_each_directory(manager, lambda directory, logs: directory.write_starts(logs))


def checkpoint_high_watermarks(manager: LogManager) -> None:
    """Write the high watermarks that are managed."""

    def write(directory: LogDirectory, logs: list[Log]) -> None:
        managed = [log for log in logs if log.is_managed]
        directory.write_high_watermarks({(log.topic, log.partition): log.high_watermark for log in managed})

    _for_each_directory(manager, write)
