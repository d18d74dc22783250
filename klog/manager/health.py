"""Collects what an examination needs of a manager and its logs. Kafka has no counterpart."""

from __future__ import annotations

import os

from klog.disk import holder_of, is_directory
from klog.errors import KlogError, UnknownTopicOrPartition
from klog.health import Engine, HealthReport, LogFacts, examine, read_machine
from klog.log.core import sampled_reads
from klog.log.log import Log
from klog.manager.catalog import TopicCatalog
from klog.manager.cleaner_threads import BackgroundCleaner
from klog.manager.directory_set import DirectorySet
from klog.manager.open_state import OpenState
from klog.manager.registry import LogRegistry
from klog.manager.traffic import ALL, Traffic

_NEWEST_SEGMENTS = 10  # are asked for their largest timestamp
_FLUSHES = "LogFlushRateAndTimeMs"


def report(
    state: OpenState,
    now_ms: int,
    directories: DirectorySet,
    catalog: TopicCatalog,
    registry: LogRegistry,
    cleaner: BackgroundCleaner,
    traffic: Traffic,
) -> HealthReport:
    """Return the findings; see LogManager.health."""
    if state.read_only:
        found = (_look(registry, topic, number) for topic, parts in catalog.topics().items() for number in parts)
        facts = [each for each in found if each is not None]
    else:
        facts = [_facts(log) for log in registry.open_logs()]
    logs = registry.open_logs()
    sampled = [sampled_reads(log._core) for log in logs]
    times = traffic.times(registry.all())[_FLUSHES] if registry.all() else None
    rate = traffic.rates(registry.all()).get(_FLUSHES)
    dead = cleaner.metrics([], []).get("DeadThreadCount")
    engine = Engine(
        read_only=state.read_only,
        now_ms=now_ms,
        offline=directories.offline,
        logs=facts,
        dead_threads=None if dead is None else int(dead[ALL]),
        flushes=times.count if times else 0,
        flush_mean_ms=times.total / times.count * 1000 if times and times.count else 0.0,
        flush_rate=rate[ALL].five_minutes if rate else 0.0,
        sampled_bytes=sum(read for read, _ in sampled),
        cached_bytes=sum(cached for _, cached in sampled),
    )
    return examine(read_machine(directories.paths, _writer(state, directories)), engine)


def _writer(state: OpenState, directories: DirectorySet) -> int | None:
    """The process that writes here, if it is known."""
    if not state.read_only:
        return os.getpid()
    return next((pid for path in directories.paths if (pid := holder_of(path)) is not None), None)


def _look(registry: LogRegistry, topic: str, partition: int) -> LogFacts | None:
    """The facts of a log that a reader opens for them. None if it was deleted meanwhile."""
    try:
        log = registry.get(topic, partition)
        found = _facts(log)
        return found if found.problem is None or is_directory(log.path) else None
    except UnknownTopicOrPartition:
        return None
    except (KlogError, OSError) as error:
        return LogFacts(f"{topic}-{partition}", problem=str(error))


def _facts(log: Log) -> LogFacts:
    try:
        segments = log.segments
        return LogFacts(
            log.name,
            len(segments),
            max((segment.max_timestamp for segment in segments[-_NEWEST_SEGMENTS:]), default=-1),
            None if log.read_only else log.unflushed_bytes,
            log._core.cleaning.uncleanable,
            log.offline,
            log.recovery.offsets_missing,
        )
    except (KlogError, OSError) as error:
        return LogFacts(log.name, problem=str(error))
