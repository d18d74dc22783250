"""LogManager: the logs of one log.dir, or of several: their locks, their topics, their background work.

Order of a start: lock, read the clean-shutdown markers and remove them, finish or undo operations that a crash
interrupted (commits of staged files, too); logs are then loaded on first use. Order of a stop: close every log (flush,
trim, snapshot), write the checkpoints, write the markers, unlock. A crash in between leaves no marker, and the next
start recovers.

A log that is never used is never loaded: a clean state is kept for the next start; without one the marker is not
written. A directory that fails goes offline with its logs; the others go on. The logs of the last directory take no
more appends but can still be read. Lock order, outermost first: the background cleaner's locks, the manager's, a log's,
a directory's, the condition of the cleaning states. Kafka: LogManager."""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from klog import arguments
from klog.arguments import flag, text, whole
from klog.clock import Clock, SystemClock
from klog.codec import load_libraries
from klog.config import LogConfig, ManagerConfig, config_values
from klog.disk import Files, HandleCache, RealFiles, is_directory
from klog.errors import KlogError, ReentrantCall
from klog.log import core
from klog.log.options import Compression, Durability, Options, Policy, check_choices, check_tools
from klog.log.read import warm_ranges
from klog.log.read.in_thread import in_thread
from klog.log.read.optional_decoding import optional_decoding
from klog.log.read.positions import checked_position
from klog.log.state import forks
from klog.manager import gauges
from klog.manager.background import BackgroundTasks
from klog.manager.broker_config import BrokerConfig
from klog.manager.catalog import TopicCatalog
from klog.manager.cleaner_threads import BackgroundCleaner
from klog.manager.commits import Commits
from klog.manager.deletions import LogDeletions
from klog.manager.directories import is_ordinary
from klog.manager.directory_set import DirectorySet, Paths, as_paths
from klog.manager.loading import Loading
from klog.manager.moving import MoveProgress, Moves
from klog.manager.open_state import OpenState
from klog.manager.pool import run_all
from klog.manager.readers import Readers
from klog.manager.registry import LogRegistry
from klog.manager.topic_append import append_to_topic
from klog.manager.topic_life import TopicLife, checked_partitions
from klog.manager.topic_positions import TopicPosition, check_positions, of_partition
from klog.manager.traffic import Rates, Traffic
from klog.record import Record, Records, column_names
from klog.scheduler import Scheduler

if TYPE_CHECKING:
    from klog.decode import Decode
    from klog.disk.warm_up import WarmedUp
    from klog.health import HealthReport
    from klog.log import AppendInfo
    from klog.log.log import Log
    from klog.log.read.decoding import DeadLetter, OnBad
    from klog.log.read.isolation import Isolation
    from klog.log.read.latest import LatestByKey
    from klog.log.read.page_cache import LogPageCache
    from klog.log.read.reader import LogReader
    from klog.log.write.shaping import ColumnNames, Shape, Unserialized
    from klog.manager.named_reader import NamedReader
    from klog.manager.topic_cursor import Missing
    from klog.manager.topic_source import MissingTopic
    from klog.manager.topic_tail import TopicTail
    from klog.manager.topics import TopicEntry
    from klog.progress import Progress


def open_directory(
    path: Paths,
    *,
    create: bool = False,
    read_only: bool = False,
    config: ManagerConfig | Mapping[str, Any] | None = None,
    recovery: Policy = "strict",
    durability: Durability = "os",
    clock: Clock | None = None,
    files: Files | None = None,
) -> LogManager:
    """Open a log.dir, or a list of them: klog's own, or one that a Kafka broker has written.

    create: create a directory that does not exist. read_only: take no lock and change nothing; a writer may be at work.
    config: broker-level keys, including defaults of topics. recovery: "strict" raises CorruptLog if good batches follow
    a bad one, "kafka" truncates there as a broker would, and "skip", with read_only=True, opens the log with the
    batches after it; readers raise CorruptBatch at the bad one, and can go on at its next_offset. durability: "os"
    (Kafka's default: appends survive the death of the process), "interval" (records are on disk within about a second:
    flush.ms=1000, unless the configuration sets flush.ms or flush.messages) or "sync" (append returns once the records
    are on disk). clock: the source of time, such as a klog.clock.ManualClock. files: the disk, for tests of klog.

    Raises AlreadyLocked, FileNotFoundError, NotALogDirectory, InvalidConfig, ValueError (directories of different
    clusters). Of several directories, those that cannot be used are only offline, unless none is left: StorageOffline.
    """
    paths = as_paths(path)
    create, read_only = arguments.flag("create", create), arguments.flag("read_only", read_only)
    if create and read_only:
        missing = [path for path in paths if not is_directory(path)]
        if missing:
            raise ValueError(
                f"create=True, read_only=True: {missing[0]} does not exist, and a reader creates nothing; "
                "leave out one of the two"
            )
    check_choices(recovery, durability, read_only=read_only)
    check_tools(clock, files)
    load_libraries()
    return LogManager(
        paths,
        create=create,
        read_only=read_only,
        config=config if isinstance(config, ManagerConfig) else ManagerConfig(config_values("config", config)),
        recovery=recovery,
        durability=durability,
        clock=clock or SystemClock(),
        files=files or RealFiles(),
    )


class LogManager:
    """The logs of a log.dir, or of several. Any thread. Use it in a `with` statement, or call close()."""

    def __init__(
        self,
        paths: list[str],
        *,
        create: bool,
        read_only: bool,
        config: ManagerConfig,
        recovery: Policy,
        durability: Durability,
        clock: Clock,
        files: Files,
    ) -> None:
        self._state = OpenState(paths[0], read_only=read_only)
        self._closing: int | None = None  # the thread that closes
        self._clock, self._files, self._recovery = clock, files, recovery
        self._broker = BrokerConfig(config)
        self._scheduler = Scheduler(clock)
        self._directories = DirectorySet(paths, files, create=create, read_only=read_only)
        try:
            self._make_logs(durability)
            self._make_work()
            if not read_only:
                self._take_over()
        except BaseException:
            self._directories.unlock()
            raise
        self._state.opened()
        if not read_only:
            self._begin(durability)
        forks.register(self)

    def _make_logs(self, durability: Durability) -> None:
        """Make the owners of the topics, of the logs, and of what reads them."""
        state, directories, broker = self._state, self._directories, self._broker
        files, clock = self._files, self._clock
        options = partial(
            Options,
            recovery=self._recovery,
            durability=durability,
            clock=clock,
            files=files,
            handles=HandleCache(),
            scheduler=self._scheduler,
        )
        self._catalog = catalog = TopicCatalog(directories, broker, files, durability, read_only=state.read_only)
        self._traffic = Traffic(clock)
        self._registry = registry = LogRegistry(state, directories, catalog, broker, options, self._traffic)
        self._readers = Readers(state, directories, catalog, registry, files, clock)
        self._loading = Loading(state, broker, directories, registry)

    def _make_work(self) -> None:
        """Make the owners of changes and of background work."""
        state, directories, broker = self._state, self._directories, self._broker
        files, clock = self._files, self._clock
        catalog, registry, scheduler, user = self._catalog, self._registry, self._scheduler, weakref.ref(self)
        self._deletions = deletions = LogDeletions(registry, scheduler, files)
        self._moves = moves = Moves(state, directories, catalog, registry, deletions, files)
        self._topic_life = TopicLife(state, broker, directories, catalog, registry, deletions, moves, files)
        self._commits = Commits(directories, catalog, registry, files, clock)
        self._cleaner = cleaner = BackgroundCleaner(state, broker, registry, scheduler, clock, files, user)
        self._tasks = BackgroundTasks(
            state, broker, directories, registry, self._loading, cleaner, scheduler, clock, user
        )

    def _take_over(self) -> None:
        """Take the directories over. If that is refused, their state is still that of the last stop: no log has been
        loaded."""
        try:
            self._topic_life.take_over()
        except Exception:
            for directory in self._directories:
                with contextlib.suppress(KlogError, OSError):
                    directory.stop((), clean=True)
            raise

    def _begin(self, durability: Durability) -> None:
        """Finish interrupted commits, and start the thread that durability="interval" needs. If that fails, this stays
        closed."""
        try:
            self._commits.settle()
            if durability == "interval":
                self._tasks.start_flusher()
        except BaseException as error:
            if isinstance(error, Exception):
                with contextlib.suppress(KlogError, OSError):
                    self.close()
            if not self._state.closed:
                self.abandon()
            raise

    def _after_fork(self) -> None:
        self._state.after_fork()
        self._registry.after_fork()
        self._catalog.shown.renew()
        self._traffic.after_fork()
        self._cleaner.after_fork()
        self._directories.after_fork()

    # ---- directories -----------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The log.dir, or the first of several."""
        return self._directories.paths[0]

    @property
    def paths(self) -> tuple[str, ...]:
        """Every log.dir."""
        return self._directories.paths

    @property
    def offline_directories(self) -> dict[str, str]:
        """{log.dir: reason} of the directories that are offline."""
        return self._directories.offline

    # ---- properties ------------------------------------------------------------------------------------------------

    @property
    def config(self) -> ManagerConfig:
        """The broker-level configuration."""
        return self._broker.current

    @property
    def read_only(self) -> bool:
        """True if it was opened read-only."""
        return self._state.read_only

    @property
    def clock(self) -> Clock:
        """The source of time."""
        return self._clock

    @property
    def clean_shutdown(self) -> bool:
        """True if the last stop left its marker in every directory."""
        return all(directory.was_clean for directory in self._directories)

    @property
    def broker_epoch(self) -> int | None:
        """The broker epoch in the markers of the last stop; None if one is missing, has no epoch, or they differ."""
        epochs = {directory.broker_epoch for directory in self._directories}
        return epochs.pop() if len(epochs) == 1 else None

    def __reduce__(self) -> Any:
        if not self.read_only:
            raise TypeError(f"{self!r} belongs to its process: send its paths, and open them there with read_only=True")
        return partial(open_directory, read_only=True, config=self.config, recovery=self._recovery), (list(self.paths),)

    def __repr__(self) -> str:
        state = "closed" if self._state.closed else "read-only" if self.read_only else "open"
        return f"<LogManager {', '.join(self.paths)} {state}>"

    def _repr_html_(self) -> str:
        from klog.manager.summary import manager_html

        logs = [log for log in self._registry.all() if not log.closed]
        return manager_html(repr(self), self._state, self._directories, logs)

    def metrics(self, *, page_cache: bool = False) -> dict[str, dict[str, float]]:
        """Gauges under Kafka's names: {name: {directory or log: value}}.

        LogDirectoryOffline (0 or 1), LogDirectorySize, OfflineLogDirectoryCount; NumLogSegments, LogStartOffset,
        LogEndOffset, Size, ActiveSegmentSize, PageCacheSampledReadBytes and PageCacheHitReadBytes of each loaded log,
        for writing also LastStableOffsetLag, ProducerIdCount and UnflushedBytes.

        The counters of Log.metrics() whose names end with PerSec, of each log and, under "", of all that were open;
        LogFlushRateAndTimeMs, LogRollRateAndTimeMs, LogAppendTimeMs and LogFetchTimeMs, with the suffix Count, Mean,
        50thPercentile, 99thPercentile or Max, likewise. FlushQueueSize, logs that wait for a background flush; during
        load_all() also remainingLogsToRecover and remainingSegmentsToRecover.

        While the cleaner runs: max-dirty-percent of its last survey, time-since-last-run-ms; the largest value among
        the last cleanings of all threads of max-buffer-utilization-percent, max-clean-time-secs and
        max-compaction-delay-secs; cleaner-recopy-percent over these cleanings; DeadThreadCount; CleanTimeMs, with the
        suffixes of the other times, of all cleanings; for each directory
        uncleanable-partitions-count and uncleanable-bytes.

        page_cache: also PageCacheBytes, PageCacheDirtyBytes and PageCacheWritebackBytes of each loaded log, which need
        system calls for each segment.
        """
        return gauges.read(
            self._directories,
            self._registry,
            self._loading,
            self._tasks.flushes,
            self._cleaner,
            self._traffic,
            page_cache=flag("page_cache", page_cache),
        )

    def rates(self) -> Rates:
        """Counters of what went in and out since this was opened, and their rates per second: {name: {topic: Rate}},
        under Kafka's names, with the sum of all topics under "". LogFlushRateAndTimeMs, LogRollRateAndTimeMs: flushes
        and rolls of all logs.

        A Rate has count, mean since the opening, and the moving averages one_minute, five_minutes and fifteen_minutes.
        These move in steps of 5 seconds; between two calls events count as evenly spread.
        """
        return self._traffic.rates(self._registry.all())

    def health(self) -> HealthReport:
        """Examine the log.dirs, the loaded logs, this process and the machine: findings with severity, measured value,
        threshold and next step, the worst first; docs/metrics.md lists the checks. Changes nothing.

        Opened read-only, it loads every log, examines the process that writes if its id is in `.lock`, and leaves out
        what only that process knows: see HealthReport.unknown. Raises LogClosed.
        """
        from klog.manager.health import report  # few processes call it

        self._state.check_open()
        now_ms = self._clock.wall_ms()
        return report(
            self._state, now_ms, self._directories, self._catalog, self._registry, self._cleaner, self._traffic
        )

    @property
    def uncleanable(self) -> dict[str, str]:
        """{log: reason} of logs that the background cleaner skips, for example after damage: until they are opened
        again or Log.compact() succeeds."""
        logs = self._registry.open_logs()
        return {log.name: reason for log in logs if (reason := log._core.cleaning.uncleanable) is not None}

    def page_cache(self, topic: str | None = None, *, cells: int = 0) -> list[LogPageCache]:
        """The page cache use of each partition, as Log.page_cache() reports it, sorted by topic and partition. Loads no
        log and reads no data.

        Raises UnknownTopicOrPartition, PermissionError.
        """
        self._state.check_open()
        topic, cells = None if topic is None else text("topic", topic), whole("cells", cells, 0, arguments.INT_MAX)
        if topic is not None:
            self._catalog.partitions(topic)
        return gauges.page_cache(self._directories, self._files, topic, cells)

    # ---- topics ------------------------------------------------------------------------------------------------------

    def topics(self) -> dict[str, list[int]]:
        """{topic: [partition, ...]} of the partition directories, sorted. While a directory is offline, also the
        partitions that klog-topics.json names."""
        self._state.check_open()
        return self._catalog.topics()

    @property
    def topics_generation(self) -> int:
        """A number that differs after each change of the topics or of their configuration, also by another thread."""
        return self._catalog.generation

    def topic_entries(self) -> dict[str, TopicEntry]:
        """{topic: its id, number of partitions and own configuration, as in klog-topics.json}. Topics of a broker's
        directory that klog has not changed are missing. `state` is not empty while an operation is under way."""
        self._state.check_open()
        return dict(self._catalog.file.entries)

    def topic_id(self, name: str) -> uuid.UUID | None:
        """Return a topic's id, of klog-topics.json or else of its directories; None if neither has one.

        Raises UnknownTopicOrPartition.
        """
        self._state.check_open()
        name = text("name", name)
        return self._catalog.topic_id(name, self._catalog.partitions(name))

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: LogConfig | Mapping[str, Any] | None = None,
        topic_id: uuid.UUID | str | None = None,
        *,
        directory: str | os.PathLike[str] | uuid.UUID | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Create a topic's partition directories and store its configuration in klog-topics.json: all of it or nothing,
        also if the process dies meanwhile.

        With several log directories, each partition goes into the one with the fewest logs, or into `directory` (a
        path, or a directory id of meta.properties; Kafka's reserved ids mean no choice). If one fails, the next is
        tried.

        exist_ok: accept a topic that is there already, if it has as many partitions and, where they are given, this
        config and topic_id; nothing is changed.

        Raises InvalidTopic (also for a name that differs from that of another topic only by `.` and `_`, as in Kafka,
        or only by case on a file system that ignores it), InvalidPartitions, InvalidConfig, TopicExists (also with
        exist_ok, if it differs), StorageOffline (every directory has failed), OSError.
        """
        self._check_usable()
        exist_ok = arguments.flag("exist_ok", exist_ok)
        self._topic_life.create(name, partitions, config, topic_id, directory, exist_ok=exist_ok)

    def add_partitions(self, topic: str, total: int) -> None:
        """Add partitions to a topic, so that it has `total`: all of them or none, also if the process dies meanwhile.

        Most keys belong to another partition from then on (klog.partition_for); their earlier records stay where they
        are, so the order of one key's records over the change is lost. Partitions are never removed.

        Raises UnknownTopicOrPartition, InvalidPartitions (total is not above the present number, or above
        10,000), StorageOffline, OSError.
        """
        self._check_usable()
        topic, total = text("topic", topic), checked_partitions("total", total)
        self._topic_life.add_partitions(topic, total)

    def delete_topic(self, name: str) -> None:
        """Delete a topic: its partition directories are renamed `-delete`, and removed after file.delete.delay.ms by
        the scheduler. Those that are left at close() are removed by a later start.

        Raises UnknownTopicOrPartition, StorageOffline.
        """
        self._check_usable()
        self._topic_life.delete(text("name", name))

    def move(
        self, topic: str, partition: int, directory: str | os.PathLike[str], *, progress: Progress | None = None
    ) -> None:
        """Move a partition to another log directory while it is being written. It is copied into a `-future` directory
        there, which then replaces the old one; the old one is removed like a deleted topic. Appends wait only for the
        last bytes. Log objects in use go on in the new place. A crash leaves the partition in one place, old or new.

        Raises UnknownTopicOrPartition, ValueError (not one of `paths`), StorageOffline, OSError.
        """
        self._check_usable()
        topic, partition = text("topic", topic), whole("partition", partition)
        arguments.function("progress", progress)
        self._moves.move(topic, partition, os.path.abspath(arguments.path("directory", directory)), progress)

    def moves(self) -> list[MoveProgress]:
        """How far the moves are that other threads have begun, sorted by topic and partition."""
        self._state.check_open()
        return self._moves.under_way()

    def topic_config(self, name: str) -> LogConfig:
        """Return the configuration of a topic's logs. Raises UnknownTopicOrPartition."""
        self._state.check_open()
        name = text("name", name)
        self._catalog.partitions(name)
        return self._catalog.config(name)

    def alter_topic(self, name: str, config: Mapping[str, Any]) -> LogConfig:
        """Set keys of a topic's configuration; None resets one to its default. Open logs take it over at once. This
        also gives klog the configuration of a broker's topic, which the directory does not hold.

        Raises UnknownTopicOrPartition, InvalidConfig, StorageOffline.
        """
        self._check_usable()
        name, config = text("name", name), config_values("config", config, optional=False)
        with self._state.lock:
            self._state.begins("a change of configuration")
            self._catalog.alter(name, config)
            self._registry.configuration_changed(name)
            altered = self._catalog.config(name)
        self._registry.end_cleanings()
        return altered

    def alter_config(self, config: Mapping[str, Any]) -> ManagerConfig:
        """Set broker-level keys while the directory is open; None resets one to the value it was opened with.

        Raises InvalidConfig, also for a key that is read only at start, and for a default of topics that excludes what
        a topic has set. Nothing has changed then. Kafka: the dynamic broker configuration.
        """
        self._state.check_writable()
        config = config_values("config", config, optional=False)
        with self._state.lock:
            self._state.begins("a change of configuration")
            altered = self._broker.alter(config, self._check_config)
            self._registry.configuration_changed(None)
        self._cleaner.reconfigure()
        self._registry.end_cleanings()
        return altered

    def _check_config(self, config: ManagerConfig) -> None:
        """Raise InvalidConfig if the cleaner or a topic cannot go on with this configuration of the directory."""
        self._cleaner.check(config)
        self._catalog.check(config)

    # ---- logs --------------------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int = 0) -> Log:
        """Return the log of one partition, loaded on first use.

        Raises UnknownTopicOrPartition, InconsistentTopicId (the topic id of the directory is not the one in
        klog-topics.json), DuplicateLog, StorageOffline, CorruptLog, OSError.
        """
        if type(topic) is not str or type(partition) is not int:
            topic, partition = text("topic", topic), whole("partition", partition)
        return self._registry.get(topic, partition)

    def load_all(self, progress: Progress | None = None) -> None:
        """Load every log that is not loaded yet, on num.recovery.threads.per.data.dir threads per directory,
        directories of an unclean stop first. Without this call, each log is loaded on first use.

        A disk error takes its directory offline if others are online. Any other error is raised after all other logs
        are loaded.
        """
        self._state.check_open()
        arguments.function("progress", progress)
        self._loading.load_all(progress)

    def start(self, progress: Progress | None = None) -> None:
        """Load every log, warm up those with klog.io.warm.up.bytes, and start the background work: retention, flushes,
        checkpoints, deletions and expiry of producers in one thread, at the configured periods; the cleaner of
        compacted logs in log.cleaner.threads threads. With a ManualClock all of it runs inside advance(). May be called
        again; close() ends it. Raises InvalidConfig if a cleaner thread's memory has no space for two keys.
        """
        self._state.check_writable()
        arguments.function("progress", progress)
        self._tasks.start(progress)

    def warm_up(
        self,
        topics: Iterable[str] | None = None,
        *,
        bytes: int | None = None,
        timeout: float | None = None,
        progress: Progress | None = None,
        cancel: threading.Event | None = None,
    ) -> WarmedUp:
        """Read the newest `bytes` of each partition (None: all of it) into the page cache, of these topics or of all,
        on a few threads, for at most `timeout` seconds. Returns how much was read. cancel: set it to stop. A file that
        cannot be read is logged and left out.

        Raises UnknownTopicOrPartition.
        """
        self._state.check_open()
        known = self._catalog.topics()
        chosen = list(known) if topics is None else arguments.texts("topics", topics)
        bytes, timeout = warm_ranges.checked(bytes, timeout, progress, cancel)
        for topic in chosen:
            if topic not in known:
                raise self._catalog.unknown(topic, 0)
        logs = [self.log(topic, partition) for topic in chosen for partition in known[topic]]
        return warm_ranges.newest_of([(log._core, bytes) for log in logs], timeout, progress, cancel)

    def logs(self) -> Iterator[Log]:
        """Every log of the directory, loading those that are not open."""
        for topic, partitions in self.topics().items():
            for partition in partitions if self._state.read_only or is_ordinary(topic) else ():
                yield self._registry.get(topic, partition)

    # ---- whole topics ------------------------------------------------------------------------------------------------

    @overload
    def append(
        self, topic: str, records: Records, *, compression: Compression = None, **shape: Unpack[ColumnNames]
    ) -> dict[int, AppendInfo]: ...
    @overload
    def append(
        self, topic: str, records: Unserialized, *, compression: Compression = None, **shape: Unpack[Shape]
    ) -> dict[int, AppendInfo]: ...
    def append(
        self, topic: str, records: Any, *, compression: Compression = None, **shape: Any
    ) -> dict[int, AppendInfo]:
        """Append to a topic with Kafka's default partitioner. Returns {partition: AppendInfo}.

        The murmur2 hash of the key picks the partition; records without a key stay together, 10,000 at a time. Each
        partition's records keep their order. A list is encoded as a whole before anything is written: one bad record
        rejects the whole list. An iterator is consumed in bounded memory; each 10,000 records are appended or rejected
        as a whole. Arrow columns are handled as in Log.append: an array as a list; a stream, such as a table, as an
        iterator. If a disk fails between two partitions, a note on the error lists what was appended. Serializers and
        names of columns are those of Log.append; keys are hashed after they are serialized.

        Raises UnknownTopicOrPartition, also for a topic of which the directory of a partition is missing; the errors of
        Log.append, which number records as the caller gave them.
        """
        logs, next_sticky = self._logs_to_append(topic, records)
        if shape:
            from klog.log.write.shaping import shaped

            with shaped(records, **shape) as ready:
                return append_to_topic(logs, ready, compression, next_sticky)
        return append_to_topic(logs, records, compression, next_sticky)

    @overload
    async def append_async(
        self, topic: str, records: Records, *, compression: Compression = None, **shape: Unpack[ColumnNames]
    ) -> dict[int, AppendInfo]: ...
    @overload
    async def append_async(
        self, topic: str, records: Unserialized, *, compression: Compression = None, **shape: Unpack[Shape]
    ) -> dict[int, AppendInfo]: ...
    async def append_async(
        self, topic: str, records: Any, *, compression: Compression = None, **shape: Any
    ) -> dict[int, AppendInfo]:
        """append() for asyncio: the same arguments, partitions and result. With durability="sync" other tasks run
        during the fdatasyncs, and tasks that append meanwhile share them; see Log.append_async. A log that was not used
        before is loaded in the loop's thread.

        If a task is cancelled, the shares of partitions whose commits had not begun are not appended; those of others
        are.
        """
        from klog.manager.topic_append_async import append_to_topic_async  # asyncio: a fifth of `import klog`

        logs, next_sticky = self._logs_to_append(topic, records)
        if shape:
            from klog.log.write.shaping import shaped

            with shaped(records, **shape) as ready:
                return await append_to_topic_async(logs, ready, compression, next_sticky)
        return await append_to_topic_async(logs, records, compression, next_sticky)

    def _logs_to_append(self, topic: str, records: Any) -> tuple[list[Log], Callable[[], int]]:
        """Check the arguments of an append to a topic. Returns the logs of its partitions, and a function that returns
        the index of the one for the next keyless records."""
        self._state.check_writable()
        if type(topic) is not str:
            topic = text("topic", topic)
        partitions = self._catalog.partitions(topic)
        if self._catalog.missing(topic, partitions):
            with self._state.lock:  # not while partitions are being added
                partitions = self._catalog.partitions(topic)
                if missing := self._catalog.missing(topic, partitions):
                    raise self._catalog.incomplete(topic, missing)
        core.check_records(records)
        logs = [self._registry.get(topic, partition) for partition in partitions]
        return logs, lambda: self._catalog.next_sticky(topic, len(logs))

    def read(
        self,
        topic: str,
        start: TopicPosition | None = None,
        stop: TopicPosition | None = None,
        *,
        partition: int | None = None,
        isolation: Isolation = "high_watermark",
        include_control: bool = False,
        columns: Iterable[str] | None = None,
        decode: Decode | None = None,
        on_bad: OnBad = "raise",
        dead_letter: DeadLetter | None = None,
    ) -> LogReader:
        """Return the records of a topic, partition after partition, as Log.read does, with the same arguments.

        start, stop: one position for each partition, or {partition: position}; partitions that it leaves out are read
        from their first record, or to their end. Raises UnknownTopicOrPartition for a partition that does not exist,
        and OffsetOutOfRange, which names the partition, for an offset outside one.

        Over several partitions, Arrow also has the columns topic and partition, after the others, unless `columns`
        names the columns.
        """
        readers = [
            self.log(topic, number).read(of_partition(start, number), of_partition(stop, number), isolation=isolation)
            for number in self._positioned(topic, start, stop, partition)
        ]
        names = None if columns is None else column_names(columns)
        include_control = arguments.flag("include_control", include_control)
        decoding = optional_decoding(topic, decode, on_bad, dead_letter, include_control)
        return core.in_turn(readers, isolation, include_control, names, decoding)

    def count(
        self,
        topic: str,
        start: TopicPosition | None = None,
        stop: TopicPosition | None = None,
        *,
        partition: int | None = None,
    ) -> int:
        """The number of records of a topic, or of one partition of it, from batch headers, as Log.count does. start,
        stop: as in read(). Raises UnknownTopicOrPartition, ValueError.
        """
        numbers = self._positioned(topic, start, stop, partition)
        return sum(self.log(topic, each).count(of_partition(start, each), of_partition(stop, each)) for each in numbers)

    def _positioned(
        self, topic: str, start: TopicPosition | None, stop: TopicPosition | None, partition: int | None
    ) -> Iterable[int]:
        """Check the arguments of read() and count(). Returns the partitions."""
        self._state.check_open()
        if type(topic) is not str or type(partition) is not int:
            topic, partition = text("topic", topic), arguments.optional_whole("partition", partition)
        partitions = self._catalog.partitions(topic)
        check_positions("start", start, topic, partitions)
        check_positions("stop", stop, topic, partitions)
        return partitions if partition is None else (partition,)

    def latest_by_key(
        self,
        topic: str,
        *,
        isolation: Isolation = "high_watermark",
        decode: Decode | None = None,
        on_bad: OnBad = "raise",
    ) -> LatestByKey:
        """Return the latest record of each key of a topic, as Log.latest_by_key does for one partition.

        If several partitions have a key, which the default partitioner avoids, the record with the newest timestamp
        counts, of equal ones that of the higher partition; a tombstone counts only in its own partition.
        """
        self._state.check_open()
        logs = [self.log(topic, number) for number in self._catalog.partitions(text("topic", topic))]
        decoding = optional_decoding(topic, decode, on_bad, None)
        from klog.log.read.latest import LatestByKey, LatestOfLog

        return LatestByKey([LatestOfLog(log._core.now, isolation) for log in logs], decoding)

    def tail(
        self,
        topic: str,
        start: TopicPosition = "latest",
        *,
        partition: int | None = None,
        timeout: float | None = None,
        isolation: Isolation = "high_watermark",
        include_control: bool = False,
        missing_topic: MissingTopic = "error",
        decode: Decode | None = None,
        on_bad: OnBad = "raise",
        dead_letter: DeadLetter | None = None,
    ) -> TopicTail[Record]:
        """Records of a topic from start on, as they arrive, for `for` or `async for`; of all partitions, or of one.
        Each partition's records are in order. Ends after `timeout` seconds without any.

        start: one position for each partition, or {partition: position}. Partitions that it leaves out, or that are
        added later, are read from their first record. missing_topic: "wait" waits for a topic that does not exist yet.
        include_control, as in read(). decode, on_bad, dead_letter: of decoded(), as there. Sleeps until a writer in
        this or another process appends. Raises UnknownTopicOrPartition, OffsetOutOfRange, also if the next record was
        deleted before it was read, and LogTruncated if the log was truncated below it.
        """
        from klog.manager.topic_tail import tail_of

        timeout = arguments.seconds("timeout", timeout)
        arguments.chosen("isolation", isolation, core.ISOLATIONS)
        if not isinstance(start, Mapping):
            start = checked_position("start", start)
        source = self._readers.source(topic, partition, missing_topic)
        include_control = arguments.flag("include_control", include_control)
        decoding = optional_decoding(source.topic, decode, on_bad, dead_letter, include_control)
        return tail_of(source, start, isolation, include_control, timeout, decoding)

    def reader(
        self,
        topic: str,
        name: str,
        *,
        group: str | None = None,
        partition: int | None = None,
        start: TopicPosition = "earliest",
        missing: Missing = "error",
        missing_topic: MissingTopic = "error",
        isolation: Isolation = "high_watermark",
        commit_every: int | None = None,
        decode: Decode | None = None,
        on_bad: OnBad = "raise",
        dead_letter: DeadLetter | None = None,
    ) -> NamedReader:
        """Return a reader that goes on at the last commit under this name, or at `start` if there is none. Partitions
        that appear later are read from their first record.

        One reader at a time may have a name in a topic, or in one `partition` of it. group: share the topic's
        partitions with the other readers of this group, in any process; the positions are then the group's, and `name`
        only names the member. start: a position, or {partition: position}; partitions that it leaves out begin at
        "earliest". commit_every: commit after this many records, when the next one is asked for, and at the
        end of an iteration. missing: what to do if the records at its position were deleted or truncated: "error"
        raises OffsetOutOfRange or LogTruncated while reading, "earliest" and "latest" go on there. In a partition that
        it has committed a truncation instead lowers its position, to the new log end, from its next iteration or commit
        on. missing_topic: "wait" accepts a topic that does not exist yet: there are no records until it does. decode,
        on_bad, dead_letter: of decoded() and of the reader's tables, as in read(). It also works while another process
        writes. Commits go to files of the reader's own, so they work with a read_only manager.

        Raises AlreadyLocked (the name is in use), UnknownTopicOrPartition, CorruptCheckpoint, NewerFormat, ValueError.
        """
        return self._readers.open(
            topic,
            name,
            group=group,
            partition=partition,
            start=start,
            missing=missing,
            missing_topic=missing_topic,
            isolation=isolation,
            commit_every=commit_every,
            decode=decode,
            on_bad=on_bad,
            dead_letter=dead_letter,
        )

    def readers(self) -> dict[str, dict[str, dict[int, int]]]:
        """{reader name: {topic: {partition: committed offset}}} of all readers that have committed here."""
        return self._readers.committed()

    # ---- close -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every log, write the checkpoints and the clean-shutdown markers, release the locks. May be called
        again.

        A directory's marker is written only if all its logs were closed cleanly and no other log there needs recovery.
        Raises ReentrantCall, and everything stays open, in a signal handler that interrupts a call to one of its logs
        in the same thread: let the handler raise, or set a flag, and close afterwards.

        After Ctrl-C in a close, the next open recovers the logs that were not closed yet. While another thread still
        writes (it loads, moves or appends), the locks are kept: until close() is called again, or the process ends.
        """
        self._check_outside("a close")
        try:
            with self._state.lock:
                if self._state.closed:
                    if self._closing is None:  # an interrupted close may have left locks
                        if self._is_writer:
                            self._wait_for_writers()
                            self._registry.wait_for_calls()
                        self._let_go()
                    return
                self._closing = threading.get_ident()
                self._state.end()
            self._close()
        finally:
            if self._closing == threading.get_ident():
                self._closing = None

    def _check_outside(self, what: str) -> None:
        """Raise ReentrantCall if this thread is inside another call here, which happens only in a signal handler."""
        if self._closing == threading.get_ident():
            raise ReentrantCall(f"{self.path}: {what} inside a close by the same thread")
        self._directories.check(what)
        if self._state.lock._is_owned() or self._tasks.flushes.is_inside() or self._scheduler.is_inside():
            raise ReentrantCall(
                f"{self.path}: {what} inside another call of the same thread; "
                "a signal handler must not do this; set a flag and do it after the handler returns"
            )
        self._registry.check(what)
        self._moves.check(what)
        for log in self._registry.all():
            log._core.lock.check(log, what)

    def _close(self) -> None:
        are_waited_for = False
        try:
            # Without the manager's lock: threads that still run may need it.
            self._cleaner.stop()
            self._scheduler.stop()
            self._deletions.abandon()
            if self._state.read_only:
                self._registry.close_readers()
            elif self._is_writer:
                with self._state.lock:  # other threads still write in the directories
                    self._wait_for_writers()
                are_waited_for = True
                self._stop()
        finally:
            if are_waited_for or not self._has_writers():
                self._let_go()

    @property
    def _is_writer(self) -> bool:
        return self._state.of_this_process and not self._state.read_only

    def _wait_for_writers(self) -> None:
        """Wait for loads and moves in other threads. Manager's lock held, and released while waiting."""
        self._moves.end()
        self._registry.wait_until_loaded("a close")

    def _has_writers(self) -> bool:
        """Does another thread write in the directories, which an interrupted close has not waited for?"""
        return self._is_writer and (
            self._state.lock.is_taken_elsewhere() or self._registry.is_loading() or self._moves.any_under_way()
        )

    def _let_go(self) -> None:
        """Release the readers' names, and the directories' locks after every log has stopped writing, even if its close
        was interrupted. While another thread is in a call of a log the locks are kept: until the next close(), or the
        end of the process."""
        self._readers.close()
        have_ended = [core.end_interrupted_close(log._core) for log in self._registry.all()]
        if all(have_ended):
            self._directories.unlock()

    def _stop(self) -> None:
        failures: list[BaseException] = []
        threads = self.config.num_recovery_threads_per_data_dir
        for directory in self._directories:
            logs = self._registry.of_directory(directory)
            if directory.failed_at_work:
                failures.append(OSError(f"{directory.path}: {directory.offline}"))
            failed: list[BaseException] = []
            try:
                with directory.deferring():
                    failed += run_all([log.close for log in logs], threads)
                directory.stop([log._core for log in logs], clean=not failed)
            except BaseException as error:  # the other directories are still stopped before the locks are released
                failed.append(error)
            failures += failed
        if failures:
            raise failures[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await in_thread(self.close)  # the flushes may take long

    def __del__(self, _warn: Any = warnings.warn) -> None:
        state = getattr(self, "_state", None)
        if state is not None and not state.closed and state.of_this_process:
            _warn(f"log.dir {self.path} was never closed: use `with`, or call close()", ResourceWarning, source=self)
            self.abandon()

    def abandon(self) -> None:
        """Release everything as the death of the process would: nothing is flushed, no checkpoint and no marker is
        written, so that the next start recovers the logs. For tests of that."""
        self._state.end()
        self._cleaner.abandon()
        self._scheduler.stop()
        self._deletions.abandon()
        self._readers.close()
        for log in self._registry.all():
            core.disown(log._core)
            if not log.closed:
                core.abandon(log._core)
        self._directories.unlock()

    def _check_usable(self) -> None:
        """Raise unless topics can be changed: that needs an online directory."""
        self._state.check_writable()
        self._directories.check_online()
