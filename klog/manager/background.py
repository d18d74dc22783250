"""BackgroundTasks: the periodic tasks of a LogManager, run by its scheduler.

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

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from klog.errors import KlogError
from klog.log import core
from klog.log.options import INTERVAL_MS
from klog.log.read import warm_ranges
from klog.logger import logger_of
from klog.manager.cleaner_settings import CleanerSettings
from klog.manager.directories import LogDirectory
from klog.manager.flush_queue import FlushQueue
from klog.values import dataclass, field

if TYPE_CHECKING:
    from klog.clock import Clock
    from klog.log.core import LogCore
    from klog.manager.broker_config import BrokerConfig
    from klog.manager.cleaner_threads import BackgroundCleaner
    from klog.manager.directory_set import DirectorySet
    from klog.manager.loading import Loading
    from klog.manager.open_state import OpenState
    from klog.manager.registry import LogRegistry
    from klog.progress import Progress
    from klog.scheduler import Scheduler

_log = logger_of("manager")
POINTS_MS = 1000
_NEVER_MS = 10 * 365 * 86_400_000  # a period of ten years or more means never


@dataclass(eq=False)
class BackgroundTasks:
    """The tasks of one manager, its flush queue and its cleaner. Any thread.

    user: a weak reference to the manager. A task that runs keeps the manager alive, and none begins without it.
    """

    _state: OpenState
    _broker: BrokerConfig
    _directories: DirectorySet
    _registry: LogRegistry
    _loading: Loading
    _cleaner: BackgroundCleaner
    _scheduler: Scheduler
    _clock: Clock
    _user: Callable[[], object]
    _started: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.flushes = FlushQueue(self._scheduler, lambda logs: self._while_used(lambda: self.flush_all(logs)))
        for directory in self._directories:
            directory.work_in_background(self.flushes.add, self.write_points_soon)

    def _while_used(self, action: Callable[[], object]) -> None:
        user = self._user()
        if user is not None:
            action()

    def start(self, progress: Progress | None) -> None:
        """Load all logs and start the tasks; see LogManager.start."""
        with self._state.lock:
            again, self._started = self._started, True
        if again:
            self._cleaner.start()  # which may have found no thread for a changed configuration
            return
        try:
            CleanerSettings.of(self._broker.current)  # raises before the work, not after it
            self._loading.load_all(progress)
            warm_ranges.at_open(self._online_logs(), progress)
            self._cleaner.start()  # before the tasks: without a thread for it the call can be repeated
            with self._state.lock:  # a close ends what has been started before it
                self._state.check_open()
                self._scheduler.start()
                self._schedule()
        except BaseException:
            self._started = False
            raise

    def _schedule(self) -> None:
        """Schedule the tasks. Manager's lock held."""
        config = self._broker.current
        delay_ms = config.log_initial_task_delay_ms
        points_ms = config.log_flush_offset_checkpoint_interval_ms
        starts_ms = config.log_flush_start_offset_checkpoint_interval_ms
        watermarks_ms = config.replica_high_watermark_checkpoint_interval_ms
        for name, action, period_ms, first_ms in (
            ("kafka-log-retention", self.apply_retention, config.log_retention_check_interval_ms, delay_ms),
            ("kafka-log-flusher", self.flush_due, config.log_flush_scheduler_interval_ms, delay_ms),
            ("kafka-recovery-point-checkpoint", self.checkpoint_recovery_points, points_ms, delay_ms),
            ("kafka-log-start-offset-checkpoint", self.checkpoint_log_starts, starts_ms, delay_ms),
            ("highwatermark-checkpoint", self.checkpoint_high_watermarks, watermarks_ms, watermarks_ms),
        ):
            if period_ms < _NEVER_MS:
                self._every(name, action, first_ms, max(period_ms, 1))

    def _every(self, name: str, action: Callable[[], object], first_ms: int, period_ms: int) -> None:
        self._scheduler.schedule(name, lambda: self._while_used(action), first_ms, period_ms)

    def start_flusher(self) -> None:
        """Start the thread that flushes for durability="interval", also while no caller appends."""
        self._scheduler.start()
        self._every("klog-interval-flusher", self.flush_due, INTERVAL_MS // 2, INTERVAL_MS // 2)

    def _online_logs(self) -> list[LogCore]:
        return [log._core for log in self._registry.open_logs() if log.offline is None]

    def apply_retention(self) -> None:
        """Delete what is too old, too large or below the log start, in logs whose configuration is known."""
        now_ms = self._clock.wall_ms()
        mine = (log for log in self._online_logs() if not log.config.compacts)
        due = [log for log in mine if core.retention.is_due(log, now_ms)]
        self._in_each_directory("retention", due, _apply_retention)

    def flush_due(self) -> None:
        """Flush logs whose flush.ms has passed since their last flush, or that have klog.flush.bytes to flush."""
        self.flush_all([log for log in self._online_logs() if _is_dirty(log) and core.is_due(log)])

    def flush_all(self, logs: Iterable[LogCore]) -> None:
        """Flush those of these logs that have anything to flush."""
        dirty = [log for log in logs if _is_dirty(log) and not log.closed and log.health.offline is None]
        self._in_each_directory("flush", dirty, lambda log: core.flush(log, None))

    def _in_each_directory(self, what: str, logs: list[LogCore], action: Callable[[LogCore], object]) -> None:
        """Call an action that moves recovery points, directory by directory, with one checkpoint after each."""

        def act(directory: LogDirectory, mine: list[LogCore]) -> None:
            with directory.deferring():
                _for_each(what, mine, action)

        if logs:
            self._for_each_directory(act, logs)

    def _for_each_directory(
        self, action: Callable[[LogDirectory, list[LogCore]], object], chosen: list[LogCore] | None = None
    ) -> None:
        """Call action with each online directory and its open logs, or only its chosen logs if any are chosen."""
        logs: dict[LogDirectory, list[LogCore]] = defaultdict(list)
        for log in self._online_logs() if chosen is None else chosen:
            if isinstance(log.directory.owner, LogDirectory):  # else it was deleted meanwhile
                logs[log.directory.owner].append(log)
        for directory in self._directories.online():
            if chosen is None or directory in logs:
                _guarded(directory, partial(action, directory, logs.get(directory, [])))

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery points of every directory."""
        self._for_each_directory(lambda directory, logs: directory.write_points(logs))

    def write_points_soon(self, directory: LogDirectory) -> bool:
        """Write a directory's recovery points within POINTS_MS. Returns False if no thread can do it. Takes no lock."""
        if not self._scheduler.running:
            return False
        write = partial(_guarded, directory, directory.write_points)
        self._scheduler.schedule("klog-recovery-points", write, POINTS_MS)
        return True

    def checkpoint_log_starts(self) -> None:
        """Write the log start offsets of logs that start inside their first segment."""
        self._for_each_directory(lambda directory, logs: directory.write_starts(logs))

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks that are managed."""

        self._for_each_directory(
            lambda directory, logs: directory.write_high_watermarks([log for log in logs if log.is_managed])
        )


def _for_each(what: str, logs: Iterable[LogCore], action: Callable[[LogCore], object]) -> None:
    """Call action for every log; an error of one log does not stop the others."""
    for log in logs:
        try:
            action(log)
        except (OSError, KlogError) as error:
            if not log.closed:
                _log.error("event=%s_failed log=%s reason=%s", what, log.name, error)


def _apply_retention(log: LogCore) -> None:
    """Pause cleaning meanwhile: the cleanup policy may have changed since the logs were chosen."""
    if log.cleaning.try_pause():
        try:
            core.retention.apply(log)
        finally:
            log.cleaning.resume()


def _is_dirty(log: LogCore) -> bool:
    return log.recovery_point < log.log_end_offset


def _guarded(directory: LogDirectory, action: Callable[[], object]) -> None:
    """Call an action on a directory; an error is logged, and a final one takes the directory offline."""
    try:
        with directory.guarded():
            action()
    except OSError as error:
        _log.error("event=checkpoint_failed path=%s reason=%s", directory.path, error)
