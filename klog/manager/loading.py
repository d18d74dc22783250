"""Logs of a LogManager, loaded when they are asked for, each once, several at a time.

A load reads its topic's configuration first and takes long; a change meanwhile marks it, and is applied when the load
is through, so that no log is ever left with a configuration of before. load_all() asks for every log on a pool of
threads per directory, directories of an unclean stop first, and hears every one out before it raises. Kafka:
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
    """A log that is being loaded. stale: its configuration has changed since the load has read it."""

    thread: int
    stale: bool = False


class Loading:
    """What is loaded, what is being loaded. Any thread; `_condition` is the manager's lock."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = cast("LogManager", weakref.proxy(manager))  # a manager that is forgotten shall be missed
        self._condition = threading.Condition(manager._lock)  # type: ignore[arg-type]
        self._pending: dict[Partition, _Pending] = {}
        self.gauges: dict[str, dict[str, int]] = {}  # Kafka's, only while load_all() is at it
        self._threads: dict[str, list[int]] = {}  # those that load logs of a directory, by the order they began in

    def get(self, topic: str, partition: int) -> Log:
        """What LogManager.log documents."""
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
            directory = manager._locate(topic, partition)
            pending = self._pending[key] = _Pending(threading.get_ident())
        try:
            log = self._load(directory, topic, partition)
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

    def _load(self, directory: LogDirectory, topic: str, partition: int) -> Log:
        options = self._manager._options(directory, topic, partition)
        if self.gauges:
            options.segments_left = lambda left: self._segments_left(directory, left)
        path = directory.partition_path(topic, partition)
        checkpoint.check_topic_id(path, options.topic_id)
        log = Log(path, options)
        log._belong_to(directory, directory.flushed)
        return log

    def _segments_left(self, directory: LogDirectory, left: int) -> None:
        """A thread of load_all() has so many segments of its log to check still."""
        with self._manager._lock:
            threads = self._threads.setdefault(directory.path, [])
            if threading.get_ident() not in threads:
                threads.append(threading.get_ident())
            number = threads.index(threading.get_ident())
            self.gauges.setdefault("remainingSegmentsToRecover", {})[f"{directory.path} {number}"] = left

    def configuration_changed(self, topic: str | None) -> None:
        """A topic's configuration has changed; None: that of the directory, and so of every topic. Manager's lock held.

        Raises InvalidConfig where a log could not take it; those before have taken it.
        """
        manager = self._manager
        for (name, _), pending in self._pending.items():
            pending.stale = pending.stale or topic in (None, name)
        for (name, _), log in list(manager._logs.items()):
            if topic in (None, name) and not log.closed:
                log.update_config(manager._topic_config(name))

    def check(self, what: str) -> None:
        """ReentrantCall where this thread is loading something: to wait for that would be for ever."""
        for topic, partition in [key for key, each in self._pending.items() if each.thread == threading.get_ident()]:
            raise ReentrantCall(
                f"{self._manager.path}: {what} inside a load of {topic}-{partition}, which is under way in the same "
                "thread: a signal handler can only leave word of what is to be done behind it"
            )

    def wait_until_loaded(self, keys: set[Partition]) -> None:
        """No load of these is under way. Manager's lock held, and let go meanwhile."""
        while keys & set(self._pending):
            self.check("a deletion")
            self._condition.wait()

    # ---- all of them -----------------------------------------------------------------------------------------------

    def load_all(self, progress: Progress | None) -> None:
        """What LogManager.load_all documents."""
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
        """Load one log. An error of the disk takes the directory offline, if there are others that go on."""
        if directory.offline is not None:
            return
        try:
            self.get(*key)
        except OSError as error:
            if not is_final(error) or not self._manager._is_spare(directory):
                raise
            directory.fail(f"{key[0]}-{key[1]}: {error}")
        except StorageOffline as error:  # with such a cause somebody has told the directory already
            if not isinstance(error.__cause__, OSError) and directory.offline is None:
                raise
        except InconsistentTopicId as error:
            _log.warning("event=log_left_out reason=%s", error)  # log() says so to who asks for it


def _has_gone(log: Log) -> bool:
    """Has the writer in another process deleted or moved what this reader has open?"""
    if not log.read_only or os.path.isdir(log.path):
        return False
    log.close()
    return True


class _Count:
    """How many logs are loaded, told to a callback. Any thread."""

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
