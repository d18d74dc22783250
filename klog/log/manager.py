"""LogManager: every log of one log.dir, its lock, its checkpoints, its topics.

Order of a start: lock, read the clean-shutdown marker and remove it, then load logs as they are asked for. Order of a
stop: close every log (flush, trim, snapshot), write the checkpoints, write the marker, unlock. A crash anywhere in
between leaves no marker, and the next start recovers.

A log that is never asked for is never loaded: its clean state is passed on, or the marker stays away.
Kafka: LogManager.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from klog.clock import Clock, SystemClock
from klog.config import LogConfig, ManagerConfig, check_tiering
from klog.disk import DirectoryLock, Files, HandleCache, RealFiles
from klog.errors import (
    CorruptCheckpoint,
    ForkedHandle,
    InvalidConfig,
    LogClosed,
    ReadOnly,
    TopicExists,
    UnknownTopicOrPartition,
)
from klog.log import checkpoint, forks
from klog.log._append import AppendInfo
from klog.log.fetching import Isolation
from klog.log.load import Policy
from klog.log.log import Log
from klog.log.reader import LogReader
from klog.log.terms import Compression, Durability, Options, Records, check_records
from klog.log.times import Position
from klog.log.topic_append import append_to_topic
from klog.log.topics import TopicEntry, TopicFile, check_topic_name, parse_directory_name
from klog.scheduler import Scheduler
from klog.segment import names

_log = logging.getLogger("klog.log")
_ROOT_FILES = (checkpoint.RECOVERY_POINT, checkpoint.LOG_START, checkpoint.HIGH_WATERMARK)


def open_directory(
    path: str | os.PathLike[str],
    *,
    create: bool = False,
    read_only: bool = False,
    config: ManagerConfig | Mapping[str, Any] | None = None,
    recovery: Policy = "strict",
    durability: Durability = "os",
    clock: Clock | None = None,
    files: Files | None = None,
) -> LogManager:
    """Open a log.dir: one of klog's, or one that a Kafka broker has left.

    create: make the directory if it is not there. read_only: take no lock and change nothing; a writer may be at work.
    config: broker-level keys, defaults of topics among them. recovery: "strict" refuses (CorruptLog) when good batches
    follow a bad one, "kafka" cuts there as a broker would. durability: "os" (Kafka's default: appends survive the death
    of the process) or "sync" (append returns once the records are on disk).

    Raises AlreadyLocked, FileNotFoundError, InvalidConfig.
    """
    if isinstance(path, list | tuple):
        raise TypeError("one log.dir at a time: open each directory by itself")
    return LogManager(
        os.path.abspath(os.fsdecode(path)),
        create=create,
        read_only=read_only,
        config=config if isinstance(config, ManagerConfig) else ManagerConfig(config),
        recovery=recovery,
        durability=durability,
        clock=clock or SystemClock(),
        files=files or RealFiles(),
    )


class LogManager:
    """The logs of one log.dir. Any thread. Use it in a `with` statement, or call close()."""

    def __init__(
        self,
        path: str,
        *,
        create: bool,
        read_only: bool,
        config: ManagerConfig,
        recovery: Policy,
        durability: Durability,
        clock: Clock,
        files: Files,
    ) -> None:
        self._closed = True
        if recovery not in ("strict", "kafka"):
            raise ValueError(f"recovery={recovery!r}: choose 'strict' or 'kafka'")
        if durability not in ("os", "sync"):
            raise ValueError(f"durability={durability!r}: choose 'os' or 'sync'")
        if not os.path.isdir(path):
            if os.path.lexists(path):
                raise NotADirectoryError(f"{path} is a file; a log.dir is a directory")
            if not create or read_only:
                raise FileNotFoundError(f"{path} is not there: klog.open(..., create=True) makes a new log.dir")
            os.makedirs(path, 0o750)
            files.fsync_dir(os.path.dirname(path))
        self._path = path
        self._pid = os.getpid()
        self._read_only = read_only
        self._config = self._static_config = config
        self._changes: dict[str, Any] = {}  # what alter_config was told
        self._recovery = recovery
        self._durability = durability
        self._clock = clock
        self._files = files
        self._handles = HandleCache()
        self._scheduler = Scheduler(clock)
        self._lock = threading.RLock()
        self._logs: dict[tuple[str, int], Log] = {}
        self._sticky: dict[str, int] = {}
        self._topic_file = TopicFile(path, files)
        self._directory_lock = None if read_only else DirectoryLock(path)
        try:
            self._topic_file.load()
            self._start()
        except BaseException:
            if self._directory_lock is not None:
                self._directory_lock.release()
            raise
        self._forked = False
        self._closed = False
        forks.know(self)

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
        self._forked = not self._read_only

    def _start(self) -> None:
        """Read what a stop has left beside the partitions. A broken checkpoint counts as none."""
        self._points = self._read(checkpoint.RECOVERY_POINT)
        self._starts = self._read(checkpoint.LOG_START)
        self._marks = self._read(checkpoint.HIGH_WATERMARK)
        marker = checkpoint.clean_shutdown_path(self._path)
        self._was_clean = os.path.exists(marker)
        self._marker_text = checkpoint.clean_shutdown_text(marker)
        self._marks_were_there = bool(self._marks)
        if self._read_only:
            return
        if self._was_clean:
            self._files.unlink(marker)
        # What a crashed Log.open has laid aside; nobody writes here but this manager.
        self._files.unlink(os.path.join(self._path, checkpoint.CLEAN_SHUTDOWN_ASIDE))
        # A single copy's high watermark is its log end. The number of the last stop would hide newer records from
        # readers while we write; without the file they see everything, and a broker starts from the log start.
        self._files.unlink(os.path.join(self._path, checkpoint.HIGH_WATERMARK))
        self._files.fsync_dir(self._path)

    def _read(self, name: str) -> dict[checkpoint.Partition, int]:
        path = os.path.join(self._path, name)
        try:
            return checkpoint.read_offsets(path)
        except CorruptCheckpoint as error:
            _log.warning("event=checkpoint_unreadable reason=%s", error)
            return {}

    # ---- topics ------------------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The log.dir."""
        return self._path

    @property
    def config(self) -> ManagerConfig:
        """Its broker-level configuration."""
        return self._config

    @property
    def read_only(self) -> bool:
        """Was it opened only to read?"""
        return self._read_only

    @property
    def clean_shutdown(self) -> bool:
        """Did the last stop leave its marker?"""
        return self._was_clean

    def __repr__(self) -> str:
        return f"<LogManager {self._path} {len(self.topics()) if not self._closed else 'closed'}>"

    def topics(self) -> dict[str, list[int]]:
        """{topic: [partition, ...]} of the partition directories, sorted."""
        self._check_open()
        return self._list()

    def _list(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        with os.scandir(self._path) as entries:
            for entry in entries:
                parsed = parse_directory_name(entry.name)
                if parsed is not None and entry.is_dir(follow_symlinks=False):
                    found.setdefault(parsed[0], []).append(parsed[1])
        return {topic: sorted(partitions) for topic, partitions in sorted(found.items())}

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: LogConfig | Mapping[str, Any] | None = None,
        topic_id: uuid.UUID | str | None = None,
    ) -> None:
        """Create a topic's partition directories and note its configuration in klog-topics.json.

        Raises InvalidTopic, InvalidConfig, TopicExists.
        """
        self._check_writable()
        check_topic_name(name)
        if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
            raise ValueError(f"partitions={partitions!r}: at least 1")
        chosen = config if isinstance(config, LogConfig) else LogConfig(config)
        given = dict(chosen.given)
        check_tiering(None, self._config.topic_config(given), self._config)
        with self._lock:
            if name in self.topics():
                raise TopicExists(f"topic {name!r} is there already; logs.log({name!r}, 0) opens it")
            given_id = checkpoint.as_uuid(topic_id) or uuid.uuid4()
            for partition in range(partitions):
                directory = os.path.join(self._path, f"{name}-{partition}")
                os.mkdir(directory, 0o750)
                self._files.replace(os.path.join(directory, names.METADATA), checkpoint.format_metadata(given_id))
            self._files.fsync_dir(self._path)
            self._topic_file.put(name, TopicEntry(given_id, partitions, _plain(given)))

    def topic_config(self, name: str) -> LogConfig:
        """The configuration that a topic's logs are opened with."""
        entry = self._topic_file.entries.get(name)
        try:
            return self._config.topic_config(entry.config if entry else {})
        except InvalidConfig as error:
            raise InvalidConfig(f"{self._topic_file.path}: topic {name}: {error}") from None

    def alter_topic(self, name: str, config: Mapping[str, Any]) -> LogConfig:
        """Set keys of a topic's configuration; None takes one back to its default. Open logs take it over when they are
        opened next. For a broker's topic this is how klog learns its configuration.

        Raises UnknownTopicOrPartition, InvalidConfig.
        """
        self._check_writable()
        with self._lock:
            partitions = self.topics().get(name)
            if partitions is None:
                raise self._unknown(name)
            entry = self._topic_file.entries.get(name)
            before = LogConfig(entry.config) if entry else None
            altered = (before or LogConfig()).replace(config)
            check_tiering(before, self._config.topic_config(altered.given), self._config)
            if entry is None:
                directory = os.path.join(self._path, f"{name}-{partitions[0]}")
                topic_id = checkpoint.read_topic_id(directory) or uuid.uuid4()
                entry = TopicEntry(topic_id, max(partitions) + 1)
            self._topic_file.put(name, TopicEntry(entry.topic_id, entry.partitions, _plain(altered.given)))
            return self.topic_config(name)

    def alter_config(self, config: Mapping[str, Any]) -> ManagerConfig:
        """Set broker-level keys while the directory is open; None takes one back to what it was opened with.

        Raises InvalidConfig, also for a key that is read only at a start. Kafka: the dynamic broker configuration.
        """
        self._check_writable()
        with self._lock:
            merged = {**self._changes, **config}
            self._config.altered(config, self._config)
            self._config = self._static_config.altered(merged)
            self._changes = {name: value for name, value in merged.items() if value is not None}
            return self._config

    def _unknown(self, topic: str, partition: int | None = None) -> UnknownTopicOrPartition:
        topics = self.topics()
        if topic in topics:
            return UnknownTopicOrPartition(
                f"topic {topic!r} has no partition {partition}; it has {', '.join(map(str, topics[topic]))}"
            )
        known = ", ".join(topics) or "none yet: logs.create_topic(name) makes one"
        return UnknownTopicOrPartition(f"no topic {topic!r} in {self._path}; topics there: {known}")

    # ---- logs --------------------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int = 0) -> Log:
        """The log of one partition, loaded when first asked for.

        Raises UnknownTopicOrPartition, InconsistentTopicId (the directory is of another topic than klog-topics.json
        knows by this name), CorruptLog, OSError.
        """
        self._check_open()
        with self._lock:
            self._check_open()
            log = self._logs.get((topic, partition))
            if log is not None and not log.closed:
                return log
            directory = os.path.join(self._path, f"{topic}-{partition}")
            if parse_directory_name(os.path.basename(directory)) != (topic, partition) or not os.path.isdir(directory):
                raise self._unknown(topic, partition)
            options = self._options(topic, partition)
            checkpoint.check_topic_id(directory, options.topic_id)
            log = Log(directory, options)
            log._owner = self
            log._on_flush = self._flushed
            self._logs[topic, partition] = log
            return log

    def _options(self, topic: str, partition: int) -> Options:
        entry = self._topic_file.entries.get(topic)
        key = topic, partition
        reopened = key in self._logs
        return Options(
            topic=topic,
            partition=partition,
            config=self.topic_config(topic),
            read_only=self._read_only,
            recovery=self._recovery,
            durability=self._durability,
            clean_shutdown=self._was_clean or reopened,
            recovery_point=self._points.get(key, 0),
            log_start_offset=max(self._starts.get(key, 0), 0),
            high_watermark=self._marks.get(key) if self._read_only else None,
            topic_id=entry.topic_id if entry else None,
            clock=self._clock,
            files=self._files,
            handles=self._handles,
            scheduler=self._scheduler,
            producer_expiration_ms=self._config.producer_id_expiration_ms,
            producer_expiration_check_ms=self._config.producer_id_expiration_check_interval_ms,
            config_known=entry is not None,
            high_watermark_path=os.path.join(self._path, checkpoint.HIGH_WATERMARK) if self._read_only else None,
        )

    def _flushed(self, log: Log) -> None:
        """A log's recovery point has moved: what a crash must check has become less."""
        with self._lock:
            self._points[log.topic, log.partition] = log.recovery_point
            checkpoint.write_offsets(self._files, os.path.join(self._path, checkpoint.RECOVERY_POINT), self._points)

    def lower(self, log: Log, recovery_point: int, log_start_offset: int) -> None:
        """A log is about to be cut: what its checkpoints promise beyond that is taken back first."""
        with self._lock:
            key = log.topic, log.partition
            for name, offsets, bound in (
                (checkpoint.RECOVERY_POINT, self._points, recovery_point),
                (checkpoint.LOG_START, self._starts, log_start_offset),
            ):
                if offsets.get(key, 0) > bound:
                    offsets[key] = bound
                    checkpoint.write_offsets(self._files, os.path.join(self._path, name), offsets)

    def forget(self, log: Log) -> None:
        """A log has been deleted: a new one of its name begins at 0."""
        with self._lock:
            key = log.topic, log.partition
            self._logs.pop(key, None)
            for name, offsets in zip(_ROOT_FILES, (self._points, self._starts, self._marks), strict=True):
                if offsets.pop(key, None) is not None:
                    checkpoint.write_offsets(self._files, os.path.join(self._path, name), offsets)

    def release(self, log: Log, clean: bool) -> None:
        """A log was closed by itself. Called by Log.close."""
        with self._lock:
            if clean and not self._read_only:
                self._points[log.topic, log.partition] = log.recovery_point
            elif not self._read_only:
                self._was_clean = False
                self._logs.pop((log.topic, log.partition), None)

    def logs(self) -> Iterator[Log]:
        """Every log of the directory, loading those that are not open."""
        for topic, partitions in self.topics().items():
            for partition in partitions:
                yield self.log(topic, partition)

    # ---- whole topics ------------------------------------------------------------------------------------------------

    def append(self, topic: str, records: Records, *, compression: Compression = None) -> dict[int, AppendInfo]:
        """Append to a topic by Kafka's default partitioner: {partition: AppendInfo} of what went where.

        The murmur2 hash of the key picks the partition; records without a key stay together, 10,000 at a time. Each
        partition's records keep their order. Nothing of a list is written before all of it is encoded: one bad record
        keeps the whole list out. An iterator is consumed in bounded memory, and each 10,000 records go in or stay out.
        Arrow columns go in as in Log.append: a single array as a list, a stream, which a table is, as an iterator.
        Where a disk fails between two partitions, a note on the error says what went in.

        Raises UnknownTopicOrPartition, and what Log.append raises; records are numbered as the caller gave them.
        """
        self._check_writable()
        partitions = self.topics().get(topic)
        if partitions is None:
            raise self._unknown(topic)
        check_records(records)
        chosen = [self.log(topic, partition) for partition in partitions]

        def next_sticky() -> int:
            sticky = self._sticky.get(topic, 0) % len(chosen)
            self._sticky[topic] = sticky + 1
            return sticky

        return append_to_topic(chosen, records, compression, next_sticky)

    def read(
        self,
        topic: str,
        start: Position | None = None,
        stop: Position | None = None,
        *,
        partition: int | None = None,
        isolation: Isolation = "high_watermark",
        include_control: bool = False,
    ) -> LogReader:
        """The records of a topic, partition after partition, as Log.read gives them."""
        self._check_open()
        partitions = self.topics().get(topic)
        if partitions is None:
            raise self._unknown(topic)
        chosen: Iterable[int] = partitions if partition is None else (partition,)
        parts = [
            part for number in chosen for part in self.log(topic, number).read(start, stop, isolation=isolation).parts
        ]
        return LogReader(parts, isolation, include_control)

    # ---- end ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every log, write the checkpoints and the clean-shutdown marker, let go of the lock; twice is no error.

        The marker is written only if every log was closed cleanly and nothing unchecked is left behind.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        # Without the manager's lock from here on: an append that rolls holds its log's lock and wants the manager's.
        try:
            if self._read_only:
                for log in self._logs.values():
                    log.close()
            elif os.getpid() == self._pid:
                self._stop()
        finally:
            if self._directory_lock is not None:
                self._directory_lock.release()

    def _stop(self) -> None:
        failures: list[BaseException] = []
        opened = dict(self._logs)
        for log in opened.values():
            if log.offline is not None:
                self._was_clean = False
                failures.append(OSError(f"{log.name}: {log.offline}"))
            try:
                log.close()
            except BaseException as error:  # the others are closed all the same, before the lock goes
                failures.append(error)
        untouched = {
            (topic, partition)
            for topic, partitions in self._list().items()
            for partition in partitions
            if (topic, partition) not in opened
        }
        for key, log in opened.items():
            self._points[key] = log.recovery_point
            self._marks[key] = log.high_watermark
            self._starts.pop(key, None)
            if log.segments and log.log_start_offset > log.segments[0].base_offset:
                self._starts[key] = log.log_start_offset
        for name, offsets in zip(_ROOT_FILES, (self._points, self._starts, self._marks), strict=True):
            checkpoint.write_offsets(self._files, os.path.join(self._path, name), offsets)
        if not failures and (self._was_clean or not untouched or self._all_new(untouched)):
            self._files.replace(checkpoint.clean_shutdown_path(self._path), self._marker_text)
        if failures:
            raise failures[0]

    def _all_new(self, partitions: set[tuple[str, int]]) -> bool:
        """Do these directories hold no segment yet, so that there is nothing to recover in them?"""
        return not any(
            name.endswith(names.LOG)
            for topic, partition in partitions
            for name in os.listdir(os.path.join(self._path, f"{topic}-{partition}"))
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self, _warn: Any = warnings.warn) -> None:
        if not getattr(self, "_closed", True) and os.getpid() == self._pid:
            _warn(f"log.dir {self._path} was never closed: use `with`, or call close()", ResourceWarning, source=self)
            self._closed = True
            for log in self._logs.values():
                log._owner = None
                log._abandon()
            if self._directory_lock is not None:
                self._directory_lock.release()

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed(f"{self._path} is closed: open it again")
        if self._forked:
            raise ForkedHandle(f"{self._path} belongs to process {self._pid}: open it again in this one")

    def _check_writable(self) -> None:
        self._check_open()
        if self._read_only:
            raise ReadOnly(f"{self._path} was opened with read_only=True: open it for writing")
        if os.getpid() != self._pid:
            raise ForkedHandle(f"{self._path} belongs to process {self._pid}: open it again in this one")


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as JSON keeps it: lists as Kafka's comma-separated text."""
    return {name: ",".join(value) if isinstance(value, tuple) else value for name, value in config.items()}
