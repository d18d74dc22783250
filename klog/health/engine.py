"""Facts that a manager reports about itself, for an examination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klog.values import dataclass


@dataclass(frozen=True, slots=True)
class LogFacts:
    """One log. problem: why it cannot be read; the numbers are 0 then. uncleanable: why the cleaner skips it.
    max_timestamp: of its newest segments, in ms; -1 without one. unflushed_bytes: None for a reader. offsets_missing:
    below the recovery point, when it was opened."""

    name: str
    segments: int = 0
    max_timestamp: int = -1
    unflushed_bytes: int | None = None
    uncleanable: str | None = None
    problem: str | None = None
    offsets_missing: int = 0


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine in this process. offline: {log.dir: reason}. dead_threads: None while no cleaner runs. flushes: of all
    logs since the manager was opened. flush_rate: per second. sampled_bytes: of sampled reads; cached_bytes: those of
    them that were in memory."""

    read_only: bool
    now_ms: int
    offline: Mapping[str, str]
    logs: Sequence[LogFacts]
    dead_threads: int | None
    flushes: int
    flush_mean_ms: float
    flush_rate: float
    sampled_bytes: int
    cached_bytes: int
