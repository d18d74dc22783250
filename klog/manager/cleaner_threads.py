"""The background cleaner of a LogManager: log.cleaner.threads threads, each cleaning one log at a time.

    choose the dirtiest log                    cleaning.py
    clean it, one round                        klog.cleaner; aborted at the next chunk if a caller needs its segments
    delete old records in compacted logs       once every log.cleaner.backoff.ms, by the first thread that gets there
    nothing to clean: wait for log.cleaner.backoff.ms

With a ManualClock there are no threads: a task does the same every log.cleaner.backoff.ms, inside advance(), until
nothing is left to clean. There the throttle counts but does not wait, since no time passes inside a task.

What happens after an error: after damage or an unexpected error the log is uncleanable, and is skipped until it is
opened again or compacted by hand. A final disk error takes the directory offline. After a full disk or lack of memory
the log is unchanged, and is tried again after the backoff.

Lock order, outermost first: _life (start, stop, reconfigure), _choosing, a log's lock, a directory's lock, the
condition of the cleaning states. A thread that cleans takes no lock of the manager.
Kafka: LogCleaner, CleanerThread.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial

from klog.cleaner import (
    CleaningAborted,
    KeyMap,
    Overtaken,
    RoundStats,
    SplitFirst,
    Throttle,
    clean_round,
    cleanable_now,
    read_first_dirty,
    write_first_dirty,
)
from klog.clock import Clock, ManualClock
from klog.config import ManagerConfig
from klog.disk import Files, is_final
from klog.errors import CorruptData, InvalidConfig, LogClosed, StorageOffline, UnknownTopicOrPartition
from klog.histogram import Histogram
from klog.log.log import Log
from klog.logger import logger_of
from klog.manager.broker_config import BrokerConfig
from klog.manager.cleaner_settings import CleanerSettings
from klog.manager.cleaning import FirstTimestamps, correct_checkpoints, delete_old, is_compacted, survey
from klog.manager.open_state import OpenState
from klog.manager.registry import LogRegistry
from klog.scheduler import Scheduler, Task
from klog.values import dataclass, field

_log = logger_of("cleaner")
_GONE = (LogClosed, StorageOffline, UnknownTopicOrPartition)
_STOP_SECONDS = 60.0
# Above this number of logs, the result of a survey is used for this time: else surveys would be most of the work.
_MANY, _GOOD_MS = 200, 1000


@dataclass(eq=False)
class _Worker:
    """State of one thread, or of the task with a ManualClock. stats and seconds are of its last cleaning."""

    thread: threading.Thread | None = None
    stopping: bool = False
    stats: RoundStats = field(default_factory=RoundStats)
    seconds: float = 0.0
    delay_ms: int = 0

    @property
    def dead(self) -> bool:
        """True if its thread ended unexpectedly."""
        return self.thread is not None and not self.stopping and not self.thread.is_alive()


@dataclass(eq=False)
class BackgroundCleaner:
    """The cleaner of one manager. Any thread. condition: that of the cleaning states.

    user: a weak reference to the manager. A thread keeps the manager alive while it cleans, and ends without it.
    """

    _state: OpenState
    _broker: BrokerConfig
    _registry: LogRegistry
    _scheduler: Scheduler
    _clock: Clock
    _files: Files
    _condition: threading.Condition
    _user: Callable[[], object]

    def __post_init__(self) -> None:
        self._life = threading.Lock()
        self._choosing = threading.Lock()
        self._settings: CleanerSettings | None = None  # None while it is not running
        self._workers: list[_Worker] = []
        self._task: Task | None = None
        self._throttle = Throttle(float("inf"), self._clock.monotonic)
        self._stamps = FirstTimestamps()
        self._later: weakref.WeakKeyDictionary[Log, int] = weakref.WeakKeyDictionary()  # log: not before, in ms
        self._delete_at_ms = 0
        self._last_run_ms = 0
        self._dirtiest = 0.0
        self._times = Histogram()  # of all cleanings
        self._chosen: list[Log] = []  # eligible as of the last survey, the dirtiest last
        self._good_until_ms = 0

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
            worker = _Worker()
            self._workers = [worker]
            self._task = self._scheduler.schedule(
                "kafka-log-cleaner", partial(self._until_clean, worker), settings.backoff_ms, settings.backoff_ms
            )
            return
        self._workers = [_Worker() for _ in range(settings.threads)]
        for number, worker in enumerate(self._workers):
            worker.thread = threading.Thread(
                target=self._run, args=(worker,), name=f"kafka-log-cleaner-thread-{number}", daemon=True
            )
            worker.thread.start()

    def _log_rate(self) -> None:
        if not self._throttle.rate:
            _log.warning("event=cleaner_paused log.cleaner.io.max.bytes.per.second=0 until=another rate")

    def stop(self) -> None:
        """End the threads and abort their cleanings at the next chunk. May be called again."""
        with self._life:
            self._end()

    def _end(self) -> None:
        workers, self._workers, self._settings, self._chosen = self._workers, [], None, []
        if self._task is not None:
            self._task.cancel()
            self._task = None
        with self._condition:
            for worker in workers:
                worker.stopping = True
            self._condition.notify_all()
        for worker in workers:
            if worker.thread is not None and worker.thread is not threading.current_thread():
                worker.thread.join(_STOP_SECONDS)

    def abandon(self) -> None:
        """Stop for a manager that was garbage-collected: none of its threads is at work, and none is waited for."""
        workers, self._workers, self._settings = self._workers, [], None
        for worker in workers:
            worker.stopping = True
        with self._condition:
            self._condition.notify_all()

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
                with self._condition:
                    self._condition.notify_all()  # a thread may wait for a time computed from the old rate
            same = (now.threads, now.map_bytes, now.load_factor, now.backoff_ms)
            if same == (before.threads, before.map_bytes, before.load_factor, before.backoff_ms):
                self._settings = now
                return
            self._end()
            self._begin(now)

    def after_fork(self) -> None:
        """Reset in a forked child, where the threads do not exist."""
        self._life, self._choosing, self._condition = threading.Lock(), threading.Lock(), threading.Condition()
        self._workers, self._settings, self._task = [], None, None

    # ---- the work of a thread ----------------------------------------------------------------------------------------

    def _run(self, worker: _Worker) -> None:
        while not worker.stopping:
            try:
                busy = self.work(worker)
            except Exception:  # an error while choosing must not end the thread: no log would be cleaned any more
                _log.exception("event=cleaner_failed")
                busy = False
            settings = self._settings
            if not busy and settings is not None:
                with self._condition:
                    self._condition.wait_for(lambda: worker.stopping, settings.backoff_ms / 1000)

    def _until_clean(self, worker: _Worker) -> None:
        while self.work(worker):
            pass

    def work(self, worker: _Worker) -> bool:
        """Clean the dirtiest log, and apply retention if it is due. Returns False if there was nothing to clean."""
        user, settings = self._user(), self._settings
        if user is None or settings is None or self._state.closed:
            worker.stopping = worker.thread is not None
            return False
        logs = [log for log in self._registry.open_logs() if is_compacted(log)]
        found = self._choose(logs, worker)
        if found is not None:
            try:
                self._clean(found, worker, settings)
            finally:
                found._core.cleaning.done()
        with self._choosing:
            due = self._now_ms() >= self._delete_at_ms
            if due:
                self._delete_at_ms = self._now_ms() + settings.backoff_ms
        if due:
            delete_old(logs, self._clock.wall_ms())
        return found is not None

    def _choose(self, logs: list[Log], worker: _Worker) -> Log | None:
        """Return the dirtiest log, with its cleaning begun."""
        with self._choosing:
            now_ms = self._last_run_ms = self._now_ms()
            if now_ms < self._good_until_ms and (log := self._begin_chosen(now_ms)) is not None:
                return log
            free = [log for log in logs if self._is_free(log, now_ms)]
            found = survey(free, self._stamps, self._clock.wall_ms())
            for log, error in found.failures:
                self._failed(log, error)
            correct_checkpoints(self._files, found.candidates)
            self._dirtiest, worker.delay_ms = found.dirtiest, found.delay_ms
            self._chosen = [candidate.log for candidate in found.chosen()][::-1]
            self._good_until_ms = now_ms + _GOOD_MS if len(free) > _MANY else 0
            chosen = self._begin_chosen(now_ms)
            if not self._good_until_ms:
                self._chosen = []
            return chosen

    def _is_free(self, log: Log, now_ms: int) -> bool:
        cleaning = log._core.cleaning
        return cleaning.uncleanable is None and cleaning.state == "none" and self._later.get(log, now_ms) <= now_ms

    def _begin_chosen(self, now_ms: int) -> Log | None:
        """Return the next chosen log whose cleaning could be begun."""
        while self._chosen:
            log = self._chosen.pop()
            if is_compacted(log) and self._is_free(log, now_ms) and log._core.cleaning.try_begin():
                return log
        return None

    def _clean(self, log: Log, worker: _Worker, settings: CleanerSettings) -> None:
        """Clean one round of a log whose cleaning has begun."""
        try:
            if not is_compacted(log):
                return
            rewritten = log._core.rewritten
            range_ = cleanable_now(log._core, read_first_dirty(log._core))
            if not range_.cleanable_bytes:
                return
            started = self._clock.monotonic()
            keys = KeyMap(settings.map_bytes, settings.load_factor)
            stats = clean_round(log._core, range_, keys, self._clock.wall_ms(), tick=self._tick(log, worker))
            if stats.end > range_.first_dirty:
                write_first_dirty(log._core, stats.end, rewritten)
            else:
                self._postpone(log, settings)
            worker.stats, worker.seconds = stats, self._clock.monotonic() - started
            self._times.note(worker.seconds)
            _log_stats(log, stats, worker.seconds)
        except Exception as error:
            self._failed(log, error)

    def _tick(self, log: Log, worker: _Worker) -> Callable[[str, int], None]:
        """Return what is called after each chunk: it throttles, and aborts the cleaning of a thread that must stop."""
        manual = isinstance(self._clock, ManualClock)

        def tick(stage: str, size: int) -> None:
            seconds, rate = self._throttle.count(size), self._throttle.rate
            if seconds > 0 and not manual:
                log._core.cleaning.wait(seconds, lambda: worker.stopping or self._throttle.rate != rate)
            if worker.stopping:
                raise CleaningAborted("the cleaner stops")

        return tick

    def _postpone(self, log: Log, settings: CleanerSettings | None) -> None:
        """Skip the log until the backoff has passed."""
        if settings is not None:
            self._later[log] = self._now_ms() + settings.backoff_ms

    def _failed(self, log: Log, error: Exception) -> None:
        """Decide what happens to a log whose cleaning raised this error."""
        if isinstance(error, Overtaken):
            _log.info("event=cleaning_ended log=%s reason=%s", log.name, error)
            if not isinstance(error, CleaningAborted | SplitFirst):
                self._postpone(log, self._settings)
        elif isinstance(error, _GONE) or log.closed or log.offline is not None or log._core.health.deleted:
            _log.info("event=cleaning_ended log=%s reason=%s", log.name, error)
        elif isinstance(error, OSError) and is_final(error):
            log._core.disk_failed(f"cleaning it failed: {error}")
        elif isinstance(error, OSError | MemoryError):
            _log.warning("event=cleaning_postponed log=%s reason=%s", log.name, error)
            self._postpone(log, self._settings)
        else:
            log._core.cleaning.set_uncleanable(str(error) if isinstance(error, CorruptData) else repr(error))
            unforeseen = not isinstance(error, CorruptData)
            _log.error("event=uncleanable log=%s reason=%s", log.name, error, exc_info=unforeseen)

    # ---- metrics -----------------------------------------------------------------------------------------------------

    def metrics(self, logs: list[Log], directories: list[str]) -> dict[str, dict[str, float]]:
        """Return Kafka's gauges of a running cleaner; empty while it is not running."""
        if self._settings is None:
            return {}
        workers = list(self._workers)
        read = sum(worker.stats.bytes_read for worker in workers)
        written = sum(worker.stats.bytes_written for worker in workers)
        counts: dict[str, float] = dict.fromkeys(directories, 0)
        sizes: dict[str, float] = dict.fromkeys(directories, 0)
        for log in logs:
            home = getattr(log._core.directory.owner, "path", None)
            if log._core.cleaning.uncleanable is not None and home in counts:
                counts[home] += 1
                sizes[home] += _uncleanable_bytes(log)
        together = {
            "max-buffer-utilization-percent": 100 * max((w.stats.map_utilization for w in workers), default=0.0),
            "cleaner-recopy-percent": 100 * written / read if read else 0.0,
            "max-clean-time-secs": max((w.seconds for w in workers), default=0.0),
            "max-compaction-delay-secs": max((w.delay_ms for w in workers), default=0) / 1000,
            "DeadThreadCount": sum(worker.dead for worker in workers),
            "max-dirty-percent": 100 * self._dirtiest,
            "time-since-last-run-ms": self._now_ms() - self._last_run_ms,
        }
        return {
            **{name: {"": value} for name, value in (together | self._times.metrics("CleanTimeMs")).items()},
            "uncleanable-partitions-count": counts,
            "uncleanable-bytes": sizes,
        }


def _uncleanable_bytes(log: Log) -> float:
    """Return the cleanable bytes of an uncleanable log."""
    try:
        return cleanable_now(log._core, read_first_dirty(log._core)).cleanable_bytes
    except Exception:  # the damage that makes it uncleanable may raise here too
        return log.size


def _log_stats(log: Log, stats: RoundStats, seconds: float) -> None:
    """Log one line for each cleaning."""
    read = stats.map_bytes_read + stats.bytes_read
    _log.info(
        "event=log_cleaned log=%s first_dirty=%d end=%d seconds=%.3f keys=%d map_full=%s map_utilization=%.3f "
        "indexed_bytes=%d indexed_records=%d bytes=%d left=%d records=%d records_left=%d keyless=%d segments=%d "
        "bytes_per_second=%.0f",
        log.name,
        stats.first_dirty,
        stats.end,
        seconds,
        stats.keys,
        stats.map_full,
        stats.map_utilization,
        stats.map_bytes_read,
        stats.map_records_read,
        stats.bytes_read,
        stats.bytes_written,
        stats.records_read,
        stats.records_written,
        stats.keyless,
        len(stats.segments),
        read / seconds if seconds > 0 else 0,
    )
