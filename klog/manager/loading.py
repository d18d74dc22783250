"""Loading every log of a LogManager: on a pool of threads per directory, directories of an unclean stop first.

Errors are raised after all logs were tried. Kafka: LogManager.loadLogs."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from klog.disk import is_final
from klog.errors import InconsistentTopicId, StorageOffline, UnknownTopicOrPartition
from klog.logger import logger_of
from klog.manager.directories import LogDirectory, is_ordinary
from klog.manager.pool import run_all
from klog.progress import Event, Progress
from klog.values import dataclass, field

if TYPE_CHECKING:
    from klog.log.directory.checkpoint import Partition
    from klog.manager.broker_config import BrokerConfig
    from klog.manager.directory_set import DirectorySet
    from klog.manager.open_state import OpenState
    from klog.manager.registry import LogRegistry

_log = logger_of("manager")


@dataclass(eq=False)
class Loading:
    """load_all() of one manager. Any thread."""

    _state: OpenState
    _broker: BrokerConfig
    _directories: DirectorySet
    _registry: LogRegistry
    _calls: int = field(default=0, init=False)  # that are not done; the last one clears the two below
    _gauges: dict[str, dict[str, float]] = field(default_factory=dict, init=False)
    _threads: dict[str, list[int]] = field(default_factory=dict, init=False)  # of a directory, in the order they began

    def gauges(self) -> dict[str, dict[str, float]]:
        """Return Kafka's gauges; empty except during load_all()."""
        with self._state.lock:
            return {name: dict(values) for name, values in self._gauges.items()}

    def load_all(self, progress: Progress | None) -> None:
        """Load every log that is not loaded; see LogManager.load_all."""
        jobs: dict[LogDirectory, list[Partition]] = {}
        for directory in sorted(self._directories.online(), key=lambda directory: directory.was_clean):
            waiting = [key for key in directory.entries().live if is_ordinary(key[0])]
            jobs[directory] = [key for key in waiting if not self._registry.is_open(key)]
        total = sum(map(len, jobs.values()))
        count = _Count(progress, total)
        with self._state.lock:
            self._calls += 1
            left = self._gauges.setdefault("remainingLogsToRecover", {})
            left.update({directory.path: left.get(directory.path, 0) + len(keys) for directory, keys in jobs.items()})
        try:
            failures = run_all([partial(self._load_directory, *job, count) for job in jobs.items()], len(jobs))
        finally:
            with self._state.lock:
                self._calls -= 1
                if not self._calls:
                    self._gauges, self._threads = {}, {}
        if failures:
            raise failures[0]

    def _load_directory(self, directory: LogDirectory, keys: list[Partition], count: _Count) -> None:
        threads = self._broker.current.num_recovery_threads_per_data_dir
        failures = run_all([partial(self._load, directory, key, count) for key in keys], threads)
        if failures:
            raise failures[0]

    def _load(self, directory: LogDirectory, key: Partition, count: _Count) -> None:
        try:
            self._try(directory, key)
        finally:
            with self._state.lock:
                self._gauges["remainingLogsToRecover"][directory.path] -= 1
            count.done(f"{key[0]}-{key[1]}")

    def _segments_left(self, directory: LogDirectory, left: int) -> None:
        """Set the gauge: the segments that this thread still has to check in its log."""
        with self._state.lock:
            threads = self._threads.setdefault(directory.path, [])
            if threading.get_ident() not in threads:
                threads.append(threading.get_ident())
            number = threads.index(threading.get_ident())
            self._gauges.setdefault("remainingSegmentsToRecover", {})[f"{directory.path} {number}"] = left

    def _try(self, directory: LogDirectory, key: Partition) -> None:
        """Load one log. A disk error takes the directory offline if another directory is online, else it is raised."""
        if directory.offline is not None:
            return
        try:
            self._registry.get(*key, partial(self._segments_left, directory))
        except OSError as error:
            if not is_final(error) or not self._directories.is_spare(directory):
                raise
            directory.fail(f"{key[0]}-{key[1]}: {error}")
        except StorageOffline as error:  # with an OSError as cause the directory is offline already
            if not isinstance(error.__cause__, OSError) and directory.offline is None:
                raise
        except UnknownTopicOrPartition:
            return  # deleted meanwhile
        except InconsistentTopicId as error:
            _log.warning("event=log_left_out reason=%s", error)  # log() raises it to the caller


class _Count:
    """Counts loaded logs and reports the count to a callback. Any thread."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._lock = threading.Lock()

    def done(self, name: str) -> None:
        with self._lock:
            self._done += 1
            if self._progress is not None:
                self._progress(Event("load", self._done, self._total, "logs", name))
