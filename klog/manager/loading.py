"""Logs of a LogManager, loaded on first use, each once, several at a time.

A load reads its topic's configuration first and may take long. A configuration change meanwhile marks the load as
stale, and is applied when the load ends, so that no log keeps an old configuration. load_all() loads every log on a
pool of threads per directory, directories of an unclean stop first, and waits for all before it raises. Kafka:
LogManager.loadLogs, initializingLog, topicConfigUpdated, finishedInitializingLog."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from klog.disk import is_final
from klog.errors import InconsistentTopicId, LogClosed, ReentrantCall, StorageOffline
from klog.log.directory import checkpoint
from klog.log.directory.checkpoint import Partition
from klog.log.log import Log
from klog.manager.directories import LogDirectory, is_ordinary
from klog.manager.pool import run_all
from klog.progress import Event, Progress

if TYPE_CHECKING:
    from klog.manager.manager import LogManager

_log = logging.getLogger("klog.manager")


@dataclass(slots=True)
class _Pending:
    """A log that is being loaded. stale: its configuration has changed since the load read it."""

    thread: int
    stale: bool = False


class Loading:
    """The logs that are loaded or being loaded. Any thread; `_condition` is the manager's lock."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = cast("LogManager", weakref.proxy(manager))  # does not keep the manager alive
        self._condition = threading.Condition(manager._lock)  # type: ignore[arg-type]
        self._pending: dict[Partition, _Pending] = {}
        self.gauges: dict[str, dict[str, int]] = {}  # Kafka's, only during load_all()
        self._threads: dict[str, list[int]] = {}  # those that load logs of a directory, in the order they began

    def get(self, topic: str, partition: int) -> Log:
        """Return a log, loading it if necessary; see LogManager.log."""
        manager, key = self._manager, (topic, partition)
        with self._condition:
            while True:
                manager._check_open()
                log = manager._logs.get(key)
                if log is not None and not log.closed and not _has_gone(log):
                    return log
                if log is not None:
                    log._await_close()
                if key not in self._pending:
                    break
                self.check(f"a load of {topic}-{partition}")
                self._condition.wait()
            directory, identity = manager._locate(topic, partition)
            pending = self._pending[key] = _Pending(threading.get_ident())
        try:
            log = self._load(directory, topic, partition, identity)
            with self._condition:
                if manager._closed:
                    raise LogClosed(f"{manager.path} was closed meanwhile: open it again")
                if pending.stale:
                    log.update_config(manager._topic_config(topic))
                manager._logs[key] = log
        except BaseException:
            if log is not None and not log.closed:
                log._abandon()
            raise
        finally:
            with self._condition:
                del self._pending[key]
                self._condition.notify_all()
        return log

    def _load(self, directory: LogDirectory, topic: str, partition: int, identity: tuple[int, int]) -> Log:
        options = self._manager._options(directory, topic, partition)
        options.identity = identity
        if self.gauges:
            options.segments_left = lambda left: self._segments_left(directory, left)
        path = directory.partition_path(topic, partition)
        options.topic_id_stored = checkpoint.check_topic_id(path, options.topic_id)
        log = Log(path, options)
        log._belong_to(directory, directory.flushed)
        return log

    def _segments_left(self, directory: LogDirectory, left: int) -> None:
        """Set the gauge: the segments that this thread of load_all() still has to check in its log."""
        with self._manager._lock:
            threads = self._threads.setdefault(directory.path, [])
            if threading.get_ident() not in threads:
                threads.append(threading.get_ident())
            number = threads.index(threading.get_ident())
            self.gauges.setdefault("remainingSegmentsToRecover", {})[f"{directory.path} {number}"] = left

    def configuration_changed(self, topic: str | None) -> None:
        """Apply a changed configuration of a topic, or of the directory and so of every topic (None). Manager's lock
        held.

        Raises InvalidConfig if a log cannot take it; logs before that one have taken it.
        """
        manager = self._manager
        for (name, _), pending in self._pending.items():
            pending.stale = pending.stale or topic in (None, name)
        for (name, _), log in list(manager._logs.items()):
            if topic in (None, name) and not log.closed:
                log.update_config(manager._topic_config(name))

    def check(self, what: str) -> None:
        """Raise ReentrantCall if this thread is loading a log: waiting for that load would never end."""
        for topic, partition in [key for key, each in self._pending.items() if each.thread == threading.get_ident()]:
            raise ReentrantCall(
                f"{self._manager.path}: {what} inside a load of {topic}-{partition} by the same thread; "
                "a signal handler must not do this; set a flag and do it after the handler returns"
            )

    def wait_until_loaded(self, keys: set[Partition]) -> None:
        """Wait until no load of these is under way. Manager's lock held, and released while waiting."""
        while keys & set(self._pending):
            self.check("a deletion")
            self._condition.wait()

    # ---- load all --------------------------------------------------------------------------------------------------

    def load_all(self, progress: Progress | None) -> None:
        """Load every log that is not loaded; see LogManager.load_all."""
        manager = self._manager
        jobs: dict[LogDirectory, list[Partition]] = {}
        for directory in sorted(manager._online(), key=lambda directory: directory.was_clean):
            waiting = [key for key in directory.entries().live if is_ordinary(key[0])]
            jobs[directory] = [key for key in waiting if (log := manager._logs.get(key)) is None or log.closed]
        total = sum(map(len, jobs.values()))
        count = _Count(progress, total)
        with manager._lock:
            self.gauges = {"remainingLogsToRecover": {directory.path: len(keys) for directory, keys in jobs.items()}}
        try:
            failures = run_all(
                [self._directory_job(directory, keys, count) for directory, keys in jobs.items()], len(jobs)
            )
        finally:
            with manager._lock:
                self.gauges, self._threads = {}, {}
        if failures:
            raise failures[0]

    def _directory_job(self, directory: LogDirectory, keys: list[Partition], count: _Count) -> Callable[[], None]:
        threads = self._manager.config.num_recovery_threads_per_data_dir

        def load(key: Partition) -> None:
            try:
                self._try(directory, key)
            finally:
                with self._manager._lock:
                    self.gauges["remainingLogsToRecover"][directory.path] -= 1
                count.done(f"{key[0]}-{key[1]}")

        def job() -> None:
            failures = run_all([lambda key=key: load(key) for key in keys], threads)  # type: ignore[misc]
            if failures:
                raise failures[0]

        return job

    def _try(self, directory: LogDirectory, key: Partition) -> None:
        """Load one log. A disk error takes the directory offline if another directory is online, else it is raised."""
        if directory.offline is not None:
            return
        try:
            self.get(*key)
        except OSError as error:
            if not is_final(error) or not self._manager._is_spare(directory):
                raise
            directory.fail(f"{key[0]}-{key[1]}: {error}")
        except StorageOffline as error:  # with an OSError as cause the directory is offline already
            if not isinstance(error.__cause__, OSError) and directory.offline is None:
                raise
        except InconsistentTopicId as error:
            _log.warning("event=log_left_out reason=%s", error)  # log() raises it to the caller


def _has_gone(log: Log) -> bool:
    """True if the writer, another process, has deleted or moved the directory that this reader has open; closes it."""
    if not log.read_only or os.path.isdir(log.path):
        return False
    log.close()
    return True


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
