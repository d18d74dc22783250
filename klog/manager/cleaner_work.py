"""What a thread of the background cleaner does: clean one round of the dirtiest log. Imported once a log is compacted.

What happens after an error: after damage or an unexpected error the log is uncleanable, and is skipped until it is
opened again or compacted by hand. A final disk error takes the directory offline. After a full disk or lack of memory
the log is unchanged, and is tried again after the backoff.

Kafka: CleanerThread.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from klog.cleaner import (
    CleaningAborted,
    KeyMap,
    RoundStats,
    SplitFirst,
    clean_round,
    cleanable_now,
    read_first_dirty,
    write_first_dirty,
)
from klog.clock import Clock, ManualClock
from klog.disk import Files, is_final
from klog.errors import CorruptData, LogClosed, Overtaken, StorageOffline, UnknownTopicOrPartition
from klog.histogram import Histogram
from klog.log.log import Log
from klog.logger import logger_of
from klog.manager.cleaner_settings import CleanerSettings, is_compacted
from klog.manager.cleaner_worker import Worker
from klog.manager.cleaning import FirstTimestamps, correct_checkpoints, delete_old, survey
from klog.manager.throttle import Throttle

_log = logger_of("cleaner")
_GONE = (LogClosed, StorageOffline, UnknownTopicOrPartition)
# Above this number of logs, the result of a survey is used for this time: else surveys would be most of the work.
_MANY, _GOOD_MS = 200, 1000


class CleanerWork:
    """The work of all threads of one cleaner. Any thread.

    dirtiest: the greatest dirty ratio of the last survey. times: of all cleanings.
    """

    def __init__(self, clock: Clock, files: Files, throttle: Throttle) -> None:
        self.dirtiest = 0.0
        self.times = Histogram()
        self._clock = clock
        self._files = files
        self._throttle = throttle
        self._choosing = threading.Lock()
        self._stamps = FirstTimestamps()
        self._later: weakref.WeakKeyDictionary[Log, int] = weakref.WeakKeyDictionary()  # log: not before, in ms
        self._chosen: list[Log] = []  # eligible as of the last survey, the dirtiest last
        self._good_until_ms = 0

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

    def clean_dirtiest(self, logs: list[Log], worker: Worker, settings: CleanerSettings) -> bool:
        """Clean one round of the dirtiest of these compacted logs. Returns False if there was nothing to clean."""
        found = self._choose(logs, worker, settings)
        if found is None:
            return False
        try:
            self._clean(found, worker, settings)
        finally:
            found._core.cleaning.done()
        return True

    def delete_old(self, logs: list[Log]) -> None:
        """Apply retention to these compacted logs."""
        delete_old(logs, self._clock.wall_ms())

    def forget_chosen(self) -> None:
        """The next call surveys the logs."""
        self._chosen = []

    def _choose(self, logs: list[Log], worker: Worker, settings: CleanerSettings) -> Log | None:
        """Return the dirtiest log, with its cleaning begun."""
        with self._choosing:
            now_ms = self._now_ms()
            if now_ms < self._good_until_ms and (log := self._begin_chosen(now_ms)) is not None:
                return log
            free = [log for log in logs if self._is_free(log, now_ms)]
            found = survey(free, self._stamps, self._clock.wall_ms())
            for log, error in found.failures:
                self._failed(log, error, settings)
            correct_checkpoints(self._files, found.candidates)
            self.dirtiest = found.dirtiest
            worker.surveyed(found.delay_ms)
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

    def _clean(self, log: Log, worker: Worker, settings: CleanerSettings) -> None:
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
            worker.cleaned(stats, self._clock.monotonic() - started)
            self.times.note(worker.seconds)
            _log_stats(log, stats, worker.seconds)
        except Exception as error:
            self._failed(log, error, settings)

    def _tick(self, log: Log, worker: Worker) -> Callable[[str, int], None]:
        """Return what is called after each chunk: it throttles, and aborts the cleaning of a thread that must stop."""
        manual = isinstance(self._clock, ManualClock)

        def tick(stage: str, size: int) -> None:
            seconds, rate = self._throttle.count(size), self._throttle.rate
            if seconds > 0 and not manual:
                log._core.cleaning.wait(seconds, lambda: worker.stopping or self._throttle.rate != rate)
            if worker.stopping:
                raise CleaningAborted("the cleaner stops")

        return tick

    def _postpone(self, log: Log, settings: CleanerSettings) -> None:
        """Skip the log until the backoff has passed."""
        self._later[log] = self._now_ms() + settings.backoff_ms

    def _failed(self, log: Log, error: Exception, settings: CleanerSettings) -> None:
        """Decide what happens to a log whose cleaning raised this error."""
        if isinstance(error, Overtaken):
            _log.info("event=cleaning_ended log=%s reason=%s", log.name, error)
            if not isinstance(error, CleaningAborted | SplitFirst):
                self._postpone(log, settings)
        elif isinstance(error, _GONE) or log.closed or log.offline is not None or log._core.health.deleted:
            _log.info("event=cleaning_ended log=%s reason=%s", log.name, error)
        elif isinstance(error, OSError) and is_final(error):
            log._core.disk_failed(f"cleaning it failed: {error}")
        elif isinstance(error, OSError | MemoryError):
            _log.warning("event=cleaning_postponed log=%s reason=%s", log.name, error)
            self._postpone(log, settings)
        else:
            log._core.cleaning.set_uncleanable(str(error) if isinstance(error, CorruptData) else repr(error))
            unforeseen = not isinstance(error, CorruptData)
            _log.error("event=uncleanable log=%s reason=%s", log.name, error, exc_info=unforeseen)


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
