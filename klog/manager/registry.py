"""LogRegistry: the logs of a LogManager that are in use, loaded on first use, each once, several at a time.

A load reads its topic's configuration first and may take long. A configuration change meanwhile marks the load as
stale, and is applied when the load ends, so that no log keeps an old configuration. Kafka: LogManager.currentLogs,
loadLog, initializingLog, topicConfigUpdated, finishedInitializingLog, handleLogDirFailure."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from klog.disk import is_directory
from klog.errors import InconsistentTopicId, KlogError, LogClosed, ReentrantCall
from klog.log import core
from klog.log.directory import checkpoint
from klog.log.directory.reader_positions import PositionFile, lower_positions, reader_names
from klog.log.staged.layout import holds_only_staging
from klog.logger import logger_of
from klog.values import dataclass, field

if TYPE_CHECKING:
    from klog.log.core import Log, LogCore
    from klog.log.directory.checkpoint import Partition
    from klog.log.options import Options
    from klog.manager.broker_config import BrokerConfig
    from klog.manager.catalog import TopicCatalog
    from klog.manager.directories import LogDirectory
    from klog.manager.directory_set import DirectorySet
    from klog.manager.open_state import OpenState
    from klog.manager.traffic import Traffic

_log = logger_of("manager")


@dataclass(eq=False)
class LogRegistry:
    """Any thread. new_options: makes Options, given what differs between logs."""

    _state: OpenState
    _directories: DirectorySet
    _catalog: TopicCatalog
    _broker: BrokerConfig
    _new_options: Callable[..., Options]
    _traffic: Traffic
    _logs: dict[Partition, Log] = field(default_factory=dict, init=False)
    _left: weakref.WeakSet[LogCore] = field(default_factory=weakref.WeakSet, init=False)  # readers' logs; see _leave()
    _readers: dict[str, PositionFile] | None = field(default=None, init=False)  # before this start, once listed

    def __post_init__(self) -> None:
        self.after_fork()
        for directory in self._directories:
            directory.report_to(self._directory_failed, partial(self._lower_positions, directory))

    def after_fork(self) -> None:
        """Reset in a forked child, where no thread is loading or cleaning a log."""
        self.cleanings = threading.Condition()  # cleanings of all logs wait here, and callers that wait for their end
        self._pending: dict[Partition, int] = {}  # of each log that is being loaded: the thread that loads it
        self._stale: set[Partition] = set()  # those whose configuration has changed since the load read it

    # ---- logs in use -------------------------------------------------------------------------------------------------

    def all(self) -> list[Log]:
        """Every log that was loaded, also those that are closed. Takes no lock."""
        return list(self._logs.values())

    def close_readers(self) -> None:
        """Close the logs of a read-only manager, also those whose directories have gone."""
        for log in self.all():
            log.close()
        for left in list(self._left):
            core.close(left)

    def open_logs(self) -> list[Log]:
        """Every log that is not closed."""
        with self._state.lock:
            return [log for log in self._logs.values() if not log.closed]

    def of_topic(self, topic: str) -> list[Log]:
        """The logs of a topic. Takes no lock."""
        return [log for log in self.all() if log.topic == topic]

    def of_directory(self, directory: LogDirectory) -> list[Log]:
        """The logs of a log.dir. Takes no lock."""
        return [log for log in self.all() if os.path.dirname(log.path) == directory.path]

    def is_open(self, key: Partition) -> bool:
        """True if the log is loaded and not closed."""
        log = self._logs.get(key)
        return log is not None and not log.closed

    def remove(self, key: Partition) -> Log | None:
        """Remove a log that is being deleted; return it if it is open. Waits for a close of it. Manager's lock held."""
        log = self._logs.pop(key, None)
        if log is None:
            return None
        self._traffic.retire(log, deleted=True)
        if not log.closed:
            return log
        _await_close(log)  # it writes in the directory
        return None

    def _directory_failed(self, directory: LogDirectory, reason: str) -> None:
        """Handle a directory that went offline. May be called under a log's lock, so it takes no lock.

        Its logs take no more appends. They can be read only if no other directory is online.
        """
        self._catalog.file.leave_out(directory.path)
        for log in self.of_directory(directory):
            self._fail(log, directory, reason)

    def _fail(self, log: Log, directory: LogDirectory, reason: str) -> None:
        if not log.closed:
            log._core.health.fail(f"{directory.path}: {reason}", readable=not self._directories.online())

    def has_come(self, log: Log) -> None:
        """Take a log offline that was loaded from, or moved to, a log.dir which has failed meanwhile. Called once the
        log is among those of that directory."""
        for directory in self._directories:
            if directory.offline is not None and directory.path == os.path.dirname(log.path):
                self._fail(log, directory, directory.offline)

    # ---- load --------------------------------------------------------------------------------------------------------

    def get(self, topic: str, partition: int, segments_left: Callable[[int], None] | None = None) -> Log:
        """Return a log, loading it if necessary; see LogManager.log. segments_left: see Options."""
        state, key = self._state, (topic, partition)
        with state.lock:
            while True:
                state.check_open()
                log = self._logs.get(key)
                if log is not None and not log.closed:
                    if not has_gone(log):
                        return log
                    self._leave(key, log)
                elif log is not None:
                    _await_close(log)
                if key not in self._pending:
                    break
                self.check(f"a load of {topic}-{partition}")
                state.wait()
            directory, identity = self._catalog.locate(topic, partition)
            self._pending[key] = threading.get_ident()
        log = None
        try:
            load = self._load_for_reader if state.read_only else self._load
            log = load(directory, key, identity, segments_left)
            with state.lock:
                if state.closed:
                    raise LogClosed(f"{state.path} was closed meanwhile: open it again")
                if key in self._stale:
                    self._reconfigure(log)
                replaced = self._logs.get(key)
                if replaced is not None:
                    self._traffic.retire(replaced)
                self._logs[key] = log
                if directory.offline is not None:
                    self.has_come(log)
        except BaseException as error:
            if log is not None and isinstance(error, LogClosed) and directory.locked:  # that close waits for this one
                with contextlib.suppress(KlogError, OSError):
                    log.close()
            if log is not None and not log.closed:
                core.abandon(log._core)
            raise
        finally:
            with state.lock:
                del self._pending[key]
                self._stale.discard(key)
                if state.waiting:
                    state.notify()
        return log

    def _leave(self, key: Partition, log: Log) -> None:
        """Leave a log whose directory has gone to those that read it: other threads may. Manager's lock held."""
        del self._logs[key]
        self._traffic.retire(log)
        self._left.add(core.of_a_reader(log._core))

    def _load_for_reader(
        self,
        directory: LogDirectory,
        key: Partition,
        identity: tuple[int, int],
        segments_left: Callable[[int], None] | None,
    ) -> Log:
        """Load a log. Look for it again if the writer, another process, has deleted, moved or created it again
        meanwhile."""
        while True:
            changes = self._catalog.file.changes
            try:
                return self._load(directory, key, identity, segments_left)
            except (FileNotFoundError, InconsistentTopicId):
                before = directory, identity, changes
                directory, identity = self._catalog.locate(*key)
                if (directory, identity, self._catalog.file.changes) == before:
                    raise

    def _load(
        self,
        directory: LogDirectory,
        key: Partition,
        identity: tuple[int, int],
        segments_left: Callable[[int], None] | None,
    ) -> Log:
        directory.check_place()
        path = directory.partition_path(*key)
        options = self.options(directory, key, path, identity, segments_left)
        if not options.topic_id_stored and holds_only_staging(path):
            raise self._catalog.unknown(*key)
        if self._state.read_only:
            options.hold_back(partial(directory.reader_bounds, key))
        log = core.Log(path, options)
        core.belong_to(log._core, directory, directory.flushed)
        return log

    def _lower_positions(self, directory: LogDirectory, log: LogCore, log_end: int, truncated: bool) -> None:
        """Lower the positions of named readers, which are in the first log.dir. If that one has failed, the logs of the
        others are opened, and truncated, all the same."""
        first = next(iter(self._directories))
        try:
            known = self._readers
            if known is None or (log.topic, log.partition) not in self._pending:  # not a load: newer readers count, too
                before = known or {}
                known = self._readers = {
                    name: before.get(name) or PositionFile(first.path, name, log.options.files)
                    for name in reader_names(first.path)
                }
            lower_positions(known.values(), log.topic, log.partition, log_end, truncated=truncated)
        except OSError as error:
            if directory is first:
                raise
            _log.warning("event=positions_kept log=%s reason=%s", log.name, error)

    def options(
        self,
        directory: LogDirectory,
        key: Partition,
        path: str,
        identity: tuple[int, int] | None = None,
        segments_left: Callable[[int], None] | None = None,
    ) -> Options:
        """Return how to open the directory `path` of a partition, in this log.dir; see Options. Raises
        InconsistentTopicId."""
        entry, read_only = self._catalog.entry(key[0]), self._state.read_only
        topic_id = entry.topic_id if entry else None
        if read_only:
            directory.follow()
        return self._new_options(
            topic=key[0],
            partition=key[1],
            config=self._catalog.config(key[0]),
            read_only=read_only,
            clean_shutdown=directory.was_clean or key in directory.closed_well,
            recovery_point=directory.points.get(key, 0),
            log_start_offset=max(directory.starts.get(key, 0), 0),
            high_watermark=directory.high_watermarks.get(key) if read_only else None,
            topic_id=topic_id,
            topic_id_stored=checkpoint.check_topic_id(path, topic_id),
            broker=self._broker.current,
            cleanings=self.cleanings,
            config_known=entry is not None and entry.known,
            segments_left=segments_left,
            cleaned_to=directory.cleaned_to(key),
            identity=identity,
            high_watermark_path=os.path.join(directory.path, checkpoint.HIGH_WATERMARK) if read_only else None,
        )

    def check(self, what: str) -> None:
        """Raise ReentrantCall if this thread is loading a log: waiting for that load would never end."""
        for topic, partition in [key for key, thread in self._pending.items() if thread == threading.get_ident()]:
            raise ReentrantCall(
                f"{self._state.path}: {what} inside a load of {topic}-{partition} by the same thread; "
                "a signal handler must not do this; set a flag and do it after the handler returns"
            )

    def wait_for_calls(self) -> None:
        """Wait until no other thread is in a call of a log that changes it."""
        for log in self.all():
            _await_close(log)

    def is_loading(self) -> bool:
        """Is a load under way? Takes no lock."""
        return bool(self._pending)

    def wait_until_loaded(self, what: str, topic: str | None = None) -> None:
        """Wait until no load of the topic's logs (None: of any) is under way. Manager's lock held, and released while
        waiting. what: the call that waits, for errors."""
        while any(topic in (None, name) for name, _ in self._pending):
            self.check(what)
            self._state.wait()

    # ---- configuration -----------------------------------------------------------------------------------------------

    def configuration_changed(self, topic: str | None) -> None:
        """Apply a changed configuration of a topic, or of the directory and so of every topic (None). Manager's lock
        held."""
        self._stale.update(key for key in self._pending if topic in (None, key[0]))
        for (name, _), log in list(self._logs.items()):
            if topic in (None, name) and not log.closed:
                self._reconfigure(log)

    def _reconfigure(self, log: Log) -> None:
        """Let a log use the current configuration. Manager's lock held."""
        config = self._catalog.config(log.topic)
        if self._catalog.knows_config(log.topic):
            log.update_config(config)
        else:
            core.configure(log._core, config, known=False)
        log._core.options.configure_broker(self._broker.current)

    def end_cleanings(self) -> None:
        """End the cleanings of logs that are not compacted any more. The caller holds no lock."""
        for log in self.all():
            if not log.config.compacts and log._core.cleaning.state in ("in progress", "aborted"):
                _end_cleaning(log)


def has_gone(log: Log) -> bool:
    """True if the writer, another process, has deleted or moved the directory that this reader has open."""
    return log.read_only and not is_directory(log.path)


def _await_close(log: Log) -> None:
    """Wait for a close in another thread, so that the directory can be loaded again, or renamed. The caller holds no
    lock of a log."""
    with log._core.lock:
        pass


def _end_cleaning(log: Log) -> None:
    """Abort a running cleaning. The next one uses the current state of the log."""
    with core.without_cleaning(log._core):
        pass
