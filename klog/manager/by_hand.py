"""Compaction and key purges of a whole log.dir, partition after partition: what `klog compact` runs.

H1  an error (damage, a full disk) ends only its own partition; the others go on, and the outcome holds the error
H2  a topic whose policy is unknown or without compact is compacted only if `config` states the policy, for this call
H3  a dry run opens the directory read-only: no lock, no change; a broker may use it meanwhile
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from klog.cleaner import CompactionStats, PurgeStats
from klog.clock import Clock
from klog.config import LogConfig
from klog.disk import Files, exists
from klog.errors import ConfigUnknown, KlogError, PolicyViolation, UnknownTopicOrPartition
from klog.log import Log
from klog.log.directory.partition_names import parse_directory_name
from klog.log.write.removal import unlink_now
from klog.manager.manager import open_directory
from klog.progress import Event, Progress
from klog.values import dataclass

Stats = TypeVar("Stats", CompactionStats, PurgeStats)
Config = Mapping[str, Any]
_STATES = "--config cleanup.policy=compact"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome for one partition. stats is None if the work failed; error gives the reason."""

    topic: str
    partition: int
    path: str
    stats: Any  # CompactionStats or PurgeStats
    error: KlogError | OSError | None = None


def compact_directory(
    path: str | os.PathLike[str],
    *,
    topic: str | None = None,
    config: Config | None = None,
    roll: bool = True,
    dry_run: bool = False,
    top: int = 10,
    progress: Progress | None = None,
    clock: Clock | None = None,
    files: Files | None = None,
) -> list[Outcome]:
    """Run Log.compact for every partition of a topic or of all compacted topics, in a log.dir or a partition directory.

    roll closes active segments first, so that they are cleaned too.
    Raises UnknownTopicOrPartition, ConfigUnknown, PolicyViolation (H2), AlreadyLocked, InvalidConfig.
    """
    with _opened(path, topic, config, dry_run, clock, files, wants_policy=True) as logs:

        def compact(log: Log, overall: Progress | None) -> CompactionStats:
            stats = log.compact(roll=roll, dry_run=dry_run, top=top, progress=overall)
            if not dry_run and stats.rounds:
                unlink_now(log._core)  # the purpose is free space; a reader that has the files open keeps them
            return stats

        return _each(logs, "compact", compact, progress)


def purge_directory(
    path: str | os.PathLike[str],
    key: bytes,
    *,
    topic: str | None = None,
    roll: bool = True,
    dry_run: bool = False,
    progress: Progress | None = None,
    clock: Clock | None = None,
    files: Files | None = None,
) -> list[Outcome]:
    """Run Log.purge_key for every partition of a topic, or of all topics, whatever their policy.

    Raises UnknownTopicOrPartition, AlreadyLocked, CorruptAudit.
    """
    with _opened(path, topic, None, dry_run, clock, files, wants_policy=False) as logs:
        return _each(
            logs,
            "purge",
            lambda log, overall: log.purge_key(key, roll=roll, dry_run=dry_run, progress=overall),
            progress,
        )


Opener = Callable[[], Log]


@contextmanager
def _opened(
    path: str | os.PathLike[str],
    topic: str | None,
    config: Config | None,
    read_only: bool,
    clock: Clock | None,
    files: Files | None,
    *,
    wants_policy: bool,
) -> Iterator[list[tuple[str, int, str, Opener]]]:
    """(topic, partition, path, function that loads it) of the chosen partitions."""
    where = os.path.abspath(os.fspath(path))
    if config is not None:
        LogConfig().replace(config)  # raises InvalidConfig before anything is opened
    only = parse_directory_name(os.path.basename(where))
    parent = os.path.dirname(where)
    if only is not None and not _is_log_dir(where) and not _is_log_dir(parent):
        if topic not in (None, only[0]):
            raise UnknownTopicOrPartition(f"{where} is a partition of {only[0]}, not of {topic}")
        log = Log.open(where, config=config, read_only=read_only, clock=clock, files=files)
        with closing(log):
            if wants_policy:
                _check_policy(only[0], log.config.compacts if config is not None else None)
            yield [(*only, where, lambda: log)]
        return
    if only is None and not _is_log_dir(where) and not any(map(parse_directory_name, os.listdir(where))):
        raise UnknownTopicOrPartition(f"{where} is not a log directory: it has no partition directories")
    single = only if only is not None and not _is_log_dir(where) else None
    with open_directory(parent if single else where, read_only=read_only, clock=clock, files=files) as logs:
        there = logs.topics()
        topic = single[0] if single and topic is None else topic
        if topic is not None and (topic not in there or (single and topic != single[0])):
            raise UnknownTopicOrPartition(f"no topic {topic!r} in {where}; it has {', '.join(there) or 'none'}")
        chosen = [topic] if topic is not None else list(there)
        if wants_policy and config is None:
            known = {name: logs.topic_config(name).compacts if logs._catalog.entry(name) else None for name in chosen}
            if topic is not None:
                _check_policy(topic, known[topic])
            chosen = [name for name in chosen if known[name]]
            if not chosen and None in known.values():
                raise ConfigUnknown(
                    f"unknown which topics of {where} are compacted: a broker's directory does not store the cleanup "
                    f"policy. Name a topic and state its policy with --topic T {_STATES}"
                )

        def opener(name: str, partition: int) -> Opener:
            def load() -> Log:
                log = logs.log(name, partition)
                if config is not None:
                    log.update_config(log.config.replace(config))
                    if wants_policy:
                        _check_policy(name, log.config.compacts)
                return log

            return load

        yield [
            (name, partition, os.path.join(parent if single else where, f"{name}-{partition}"), opener(name, partition))
            for name in chosen
            for partition in there[name]
            if single is None or partition == single[1]
        ]


def _is_log_dir(path: str) -> bool:
    """True if the directory has a file that a start or a stop writes into a log.dir."""
    names = ("meta.properties", "klog-topics.json", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown")
    return any(exists(os.path.join(path, name)) for name in names)


def _check_policy(topic: str, compacts: bool | None) -> None:
    if compacts is None:
        raise ConfigUnknown(
            f"the cleanup policy of {topic} is unknown: a broker's directory does not store it. State it with {_STATES}"
        )
    if not compacts:
        raise PolicyViolation(
            f"the cleanup.policy of {topic} has no compact: compaction would delete every record but the last one of "
            f"each key, and all without a key. If you want that, state it with {_STATES}"
        )


def _each(
    logs: list[tuple[str, int, str, Opener]],
    stage: str,
    work: Callable[[Log, Progress | None], Stats],
    progress: Progress | None,
) -> list[Outcome]:
    """Load and process each partition (H1)."""
    outcomes: list[Outcome] = []
    loaded: list[Log | None] = []
    for topic, partition, path, load in logs:
        try:
            loaded.append(load())
        except PolicyViolation:
            raise
        except (KlogError, OSError) as error:
            loaded.append(None)
            outcomes.append(Outcome(topic, partition, path, None, error))
    overall = None if progress is None else _Overall(stage, sum(log.size for log in loaded if log), progress)
    for (topic, partition, path, _), log in zip(logs, loaded, strict=True):
        if log is None:
            continue
        if overall is not None:
            overall.begin(log)
        try:
            outcomes.append(Outcome(topic, partition, path, work(log, overall)))
        except (KlogError, OSError) as error:
            outcomes.append(Outcome(topic, partition, path, None, error))
    if overall is not None:
        overall.end()
    return sorted(outcomes, key=lambda outcome: (outcome.topic, outcome.partition))


class _Overall:
    """One progress from 0 to the bytes of all partitions. The first stage of each partition counts for half of it."""

    def __init__(self, stage: str, total: int, progress: Progress) -> None:
        self._stage, self._total, self._progress = stage, total, progress
        self._before = self._size = self._reported = 0
        self._first: str | None = None
        self._name = ""

    def begin(self, log: Log) -> None:
        """Start with the next partition."""
        self._before += self._size
        self._size, self._first, self._name = log.size, None, log.name
        self._report(self._before)

    def __call__(self, event: Event) -> None:
        self._first = self._first or event.stage
        share = event.done / event.total / 2 if event.total else 0.0
        self._report(self._before + int(self._size * (share if event.stage == self._first else 0.5 + share)))

    def end(self) -> None:
        """Report that all partitions are done."""
        self._report(self._total)

    def _report(self, done: int) -> None:
        self._reported = min(max(self._reported, done), self._total)
        self._progress(Event(self._stage, self._reported, self._total, "bytes", self._name))
