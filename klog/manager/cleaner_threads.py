"""The background cleaner of a LogManager: log.cleaner.threads threads, each cleaning one log at a time.

    choose the dirtiest log, clean one round   cleaner_work.py; aborted at the next chunk if a caller needs its segments
    delete old records in compacted logs       once every log.cleaner.backoff.ms, by the first thread that gets there
    nothing to clean: wait for log.cleaner.backoff.ms

What cleans is imported once a log is compacted: most brokers of tests have none.

With a ManualClock there are no threads: a task does the same every log.cleaner.backoff.ms, inside advance(), until
nothing is left to clean. There the throttle counts but does not wait, since no time passes inside a task.

Lock order, outermost first: _life (start, stop, reconfigure), that of a choice, a log's lock, a directory's lock, the
condition of the cleaning states. A thread that cleans takes no lock of the manager.
Kafka: LogCleaner, CleanerThread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from klog.clock import Clock, ManualClock
from klog.errors import InvalidConfig
from klog.histogram import Histogram
from klog.logger import logger_of
from klog.manager.cleaner_settings import CleanerSettings, is_compacted
from klog.manager.cleaner_worker import Worker
from klog.manager.throttle import Throttle
from klog.values import dataclass

if TYPE_CHECKING:
    from klog.config import ManagerConfig
    from klog.disk import Files
    from klog.log.log import Log
    from klog.manager.broker_config import BrokerConfig
    from klog.manager.cleaner_work import CleanerWork
    from klog.manager.open_state import OpenState
    from klog.manager.registry import LogRegistry
    from klog.scheduler import Scheduler, Task

_log = logger_of("cleaner")
_STOP_SECONDS = 60.0


@dataclass(eq=False)
class BackgroundCleaner:
    """The cleaner of one manager. Any thread.

    user: a weak reference to the manager. A thread keeps the manager alive while it cleans, and ends without it.
    """

    _state: OpenState
    _broker: BrokerConfig
    _registry: LogRegistry
    _scheduler: Scheduler
    _clock: Clock
    _files: Files
    _user: Callable[[], object]

    def __post_init__(self) -> None:
        self._life = threading.Lock()
        self._making = threading.Lock()
        self._settings: CleanerSettings | None = None  # None while it is not running
        self._workers: list[Worker] = []
        self._task: Task | None = None
        self._throttle = Throttle(float("inf"), self._clock.monotonic)
        self._work: CleanerWork | None = None
        self._delete_at_ms = 0
        self._last_run_ms = 0

    # ---- life ------------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

    def start(self) -> None:
        """Start by the manager's configuration. Raises InvalidConfig."""
        with self._life:
            if self._settings is None and not self._state.closed:
                self._begin(CleanerSettings.of(self._broker.current))

    def _begin(self, settings: CleanerSettings) -> None:
        if not settings.threads:
            return
        self._settings = settings
        self._last_run_ms = self._delete_at_ms = self._now_ms()
        if self._throttle.rate != settings.bytes_per_second:
            self._throttle.rate = settings.bytes_per_second
            self._log_rate()
        if isinstance(self._clock, ManualClock):
            worker = Worker()
            self._workers = [worker]
            self._task = self._scheduler.schedule(
                "kafka-log-cleaner", partial(self._until_clean, worker), settings.backoff_ms, settings.backoff_ms
            )
            return
        self._workers = [Worker() for _ in range(settings.threads)]
        for number, worker in enumerate(self._workers):
            try:
                worker.start(f"kafka-log-cleaner-thread-{number}", self._run)
            except RuntimeError:
                self._end()
                raise

    def _log_rate(self) -> None:
        if not self._throttle.rate:
            _log.warning("event=cleaner_paused log.cleaner.io.max.bytes.per.second=0 until=another rate")

    def stop(self) -> None:
        """End the threads and abort their cleanings at the next chunk. May be called again."""
        with self._life:
            self._end()

    def _end(self) -> None:
        workers, self._workers, self._settings = self._workers, [], None
        if self._work is not None:
            self._work.forget_chosen()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        with self._registry.cleanings:
            for worker in workers:
                worker.stop()
            self._registry.cleanings.notify_all()
        for worker in workers:
            if worker.thread is not None and worker.thread is not threading.current_thread():
                worker.thread.join(_STOP_SECONDS)

    def abandon(self) -> None:
        """Stop for a manager that was garbage-collected: none of its threads is at work, and none is waited for."""
        workers, self._workers, self._settings = self._workers, [], None
        for worker in workers:
            worker.stop()
        with self._registry.cleanings:
            self._registry.cleanings.notify_all()

    def check(self, config: ManagerConfig) -> None:
        """Raise InvalidConfig if the running cleaner cannot go on with this configuration."""
        if self._settings is not None and not CleanerSettings.of(config).threads:
            raise InvalidConfig("log.cleaner.threads=0: a running cleaner needs at least one thread")

    def reconfigure(self) -> None:
        """Take over the manager's configuration. A new rate applies at once; for any other change the threads are
        replaced. The caller holds no lock."""
        with self._life:
            before = self._settings
            if before is None or self._state.closed:
                return
            now = CleanerSettings.of(self._broker.current)
            if now.bytes_per_second != before.bytes_per_second:
                self._throttle.rate = now.bytes_per_second
                self._log_rate()
                with self._registry.cleanings:
                    self._registry.cleanings.notify_all()  # a thread may wait for a time computed from the old rate
            same = (now.threads, now.map_bytes, now.load_factor, now.backoff_ms)
            if same == (before.threads, before.map_bytes, before.load_factor, before.backoff_ms):
                self._settings = now
                return
            self._end()
            self._begin(now)

    def after_fork(self) -> None:
        """Reset in a forked child, where the threads do not exist."""
        self._life, self._making = threading.Lock(), threading.Lock()
        self._workers, self._settings, self._task, self._work = [], None, None, None

    # ---- the work of a thread ----------------------------------------------------------------------------------------

    def _run(self, worker: Worker) -> None:
        while not worker.stopping:
            try:
                busy = self.work(worker)
            except Exception:  # an error while choosing must not end the thread: no log would be cleaned any more
                _log.exception("event=cleaner_failed")
                busy = False
            settings = self._settings
            if not busy and settings is not None:
                with self._registry.cleanings:
                    self._registry.cleanings.wait_for(lambda: worker.stopping, settings.backoff_ms / 1000)

    def _until_clean(self, worker: Worker) -> None:
        while self.work(worker):
            pass

    def work(self, worker: Worker) -> bool:
        """Clean the dirtiest log, and apply retention if it is due. Returns False if there was nothing to clean."""
        user, settings = self._user(), self._settings
        if user is None or settings is None or self._state.closed:
            if worker.thread is not None:
                worker.stop()
            return False
        logs = [log for log in self._registry.open_logs() if is_compacted(log)]
        self._last_run_ms = self._now_ms()
        if not logs and self._work is None:
            return False
        work = self._made()
        found = work.clean_dirtiest(logs, worker, settings)
        if self._deletes_now(settings):
            work.delete_old(logs)
        return found

    def _made(self) -> CleanerWork:
        with self._making:
            if self._work is None:
                from klog.manager.cleaner_work import CleanerWork

                self._work = CleanerWork(self._clock, self._files, self._throttle)
            return self._work

    def _deletes_now(self, settings: CleanerSettings) -> bool:
        with self._making:
            due = self._now_ms() >= self._delete_at_ms
            if due:
                self._delete_at_ms = self._now_ms() + settings.backoff_ms
        return due

    # ---- metrics -----------------------------------------------------------------------------------------------------

    def metrics(self, logs: list[Log], directories: list[str]) -> dict[str, dict[str, float]]:
        """Return Kafka's gauges of a running cleaner; empty while it is not running."""
        if self._settings is None:
            return {}
        workers, work = list(self._workers), self._work
        last = [worker.stats for worker in workers if worker.stats is not None]
        read = sum(stats.bytes_read for stats in last)
        written = sum(stats.bytes_written for stats in last)
        times = Histogram() if work is None else work.times
        counts: dict[str, float] = dict.fromkeys(directories, 0)
        sizes: dict[str, float] = dict.fromkeys(directories, 0)
        for log in logs:
            home = getattr(log._core.directory.owner, "path", None)
            if log._core.cleaning.uncleanable is not None and home in counts:
                counts[home] += 1
                sizes[home] += _uncleanable_bytes(log)
        together = {
            "max-buffer-utilization-percent": 100 * max((stats.map_utilization for stats in last), default=0.0),
            "cleaner-recopy-percent": 100 * written / read if read else 0.0,
            "max-clean-time-secs": max((w.seconds for w in workers), default=0.0),
            "max-compaction-delay-secs": max((w.delay_ms for w in workers), default=0) / 1000,
            "DeadThreadCount": sum(worker.dead for worker in workers),
            "max-dirty-percent": 0.0 if work is None else 100 * work.dirtiest,
            "time-since-last-run-ms": self._now_ms() - self._last_run_ms,
        }
        return {
            **{name: {"": value} for name, value in (together | times.metrics("CleanTimeMs")).items()},
            "uncleanable-partitions-count": counts,
            "uncleanable-bytes": sizes,
        }


def _uncleanable_bytes(log: Log) -> float:
    """Return the cleanable bytes of an uncleanable log."""
    from klog.cleaner import cleanable_now, read_first_dirty

    try:
        return cleanable_now(log._core, read_first_dirty(log._core)).cleanable_bytes
    except Exception:  # the damage that makes it uncleanable may raise here too
        return log.size
