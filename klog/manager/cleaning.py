"""Which log is cleaned next: the dirtiest compacted log that is not in use by another operation.

  E1  a log is eligible if it has cleanable bytes and has waited longer than max.compaction.lag.ms, or if its dirty
      ratio is above min.cleanable.dirty.ratio; the log with the greatest ratio comes first
  E2  a checkpoint that is not an offset of its log (the log was truncated, or its start has moved) is corrected in
      every survey, also if the log is not dirty or not chosen
  E3  a survey takes no lock of a log, so its result may be stale. The cleaner checks again after it has begun the
      cleaning
  E4  a log whose content makes the survey fail is uncleanable; a log that changed meanwhile is surveyed again next time

Kafka: LogCleanerManager.grabFilthiestCompactedLog, deletableLogs.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator

from klog.cleaner import Dirt, cleanable, compaction_delay, dirt
from klog.disk import Files
from klog.errors import KlogError
from klog.log.directory import cleaner_offsets
from klog.log.directory.checkpoint import Partition
from klog.log.log import Log
from klog.log.retain import retention
from klog.log.state.segments import closed_from
from klog.logger import logger_of
from klog.manager.cleaner_settings import is_compacted
from klog.manager.directories import LogDirectory
from klog.segment import Segment
from klog.values import dataclass, field

_log = logger_of("cleaner")
_NO_LAG_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A log, its dirt, its delay beyond max.compaction.lag.ms, and whether its checkpoint must become the log start."""

    log: Log
    dirt: Dirt
    delay_ms: int
    reset: bool

    @property
    def eligible(self) -> bool:
        """True if the log may be cleaned now (E1)."""
        if self.delay_ms > 0 and self.dirt.cleanable_bytes > 0:
            return True
        least: float = self.log.config.min_cleanable_dirty_ratio
        return self.dirt.ratio > least


@dataclass(slots=True)
class Survey:
    """The result of a survey. failures: (log, error of its evaluation)."""

    candidates: list[Candidate] = field(default_factory=list)
    failures: list[tuple[Log, Exception]] = field(default_factory=list)

    @property
    def dirtiest(self) -> float:
        """The greatest dirty ratio."""
        return max((candidate.dirt.ratio for candidate in self.candidates), default=0.0)

    @property
    def delay_ms(self) -> int:
        """The greatest delay beyond max.compaction.lag.ms."""
        return max((candidate.delay_ms for candidate in self.candidates), default=0)

    def chosen(self) -> Iterator[Candidate]:
        """The eligible ones, the dirtiest first."""
        yield from sorted(
            (candidate for candidate in self.candidates if candidate.eligible),
            key=lambda candidate: candidate.dirt.ratio,
            reverse=True,
        )


class FirstTimestamps:
    """Timestamps of the first batches of closed segments, each read once. One thread at a time per log."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Log, dict[int, tuple[Segment, int, int]]] = weakref.WeakKeyDictionary()

    def of(self, log: Log, segments: Iterable[Segment]) -> list[int]:
        """Return one timestamp for each segment."""
        before, now, stamps = self._known.get(log, {}), {}, []
        for segment in segments:
            known = before.get(segment.base_offset)
            # A truncation may keep a segment that then gets other batches.
            if known is None or known[0] is not segment or known[1] != log._core.rewritten:
                known = segment, log._core.rewritten, segment.first_batch_timestamp
            now[segment.base_offset] = known
            stamps.append(known[2])
        self._known[log] = now
        return stamps


def survey(logs: Iterable[Log], stamps: FirstTimestamps, now_ms: int) -> Survey:
    """Evaluate logs that are not in use by another operation (E3)."""
    found = Survey()
    checkpoints: dict[str, dict[Partition, int] | OSError] = {}
    for log in logs:
        path, segments = log.path, log._core.segments
        home = os.path.dirname(path)
        if home not in checkpoints:
            checkpoints[home] = _offsets(home)
        offsets = checkpoints[home]
        if isinstance(offsets, OSError):
            if log.path == path and is_compacted(log):
                found.failures.append((log, offsets))
            continue
        try:
            found.candidates.append(_look(log, segments, offsets.get((log.topic, log.partition)), stamps, now_ms))
        except Exception as error:
            same = log._core.segments is segments and log.path == path and log._core.cleaning.state == "none"
            if same and is_compacted(log):  # E4
                found.failures.append((log, error))
    return found


def _offsets(home: str) -> dict[Partition, int] | OSError:
    """Return the cleaner offsets of a log.dir, or the OSError of reading them, which concerns only its own logs."""
    try:
        return cleaner_offsets.read(home)
    except OSError as error:
        return error


def _look(
    log: Log, segments: tuple[Segment, ...], checkpoint: int | None, stamps: FirstTimestamps, now_ms: int
) -> Candidate:
    config = log.config
    range_ = cleanable(
        segments,
        checkpoint,
        log.log_start_offset,
        log.log_end_offset,
        log.last_stable_offset,
        config.min_compaction_lag_ms,
        now_ms,
    )
    delay_ms = 0
    if config.max_compaction_lag_ms < _NO_LAG_MS:
        first = stamps.of(log, closed_from(segments, range_.first_dirty))
        delay_ms = compaction_delay(first, config.max_compaction_lag_ms, now_ms)
    return Candidate(
        log,
        dirt(segments, range_, log._core.segment_list.sizes_of(segments)),
        delay_ms,
        range_.reset,
    )


def correct_checkpoints(files: Files, candidates: Iterable[Candidate]) -> None:
    """Write corrected checkpoints, one write per directory (E2), and before them the log starts that they depend on.

    A log in use by another operation is left for the next survey: its checkpoint may be about to move with it or be
    removed. A truncation since the survey may have moved the log start down: what was appended since then is not clean.
    A disk error is the directory's.
    """
    wanted: dict[LogDirectory, dict[Log, int]] = {}
    held: list[Log] = []
    try:
        for candidate in candidates:
            log = candidate.log
            if not candidate.reset or not log._core.cleaning.try_begin():
                continue
            held.append(log)
            owner = log._core.directory.owner
            if is_compacted(log) and isinstance(owner, LogDirectory):
                wanted.setdefault(owner, {})[log] = log.log_start_offset
        for directory, offsets in wanted.items():
            try:
                with directory.guarded():
                    directory.store_starts([log._core for log in offsets])
                    cleaned = {(log.topic, log.partition): offset for log, offset in offsets.items()}
                    cleaner_offsets.update(files, directory.path, cleaned)
            except OSError as error:
                _log.error("event=checkpoint_failed path=%s reason=%s", directory.path, error)
    finally:
        for log in held:
            log._core.cleaning.done()


def delete_old(logs: Iterable[Log], now_ms: int) -> None:
    """Apply retention to compacted logs: expired segments if the policy has delete, too, and segments below the log
    start. An error of one log does not stop the others."""
    for log in logs:
        if log._core.cleaning.uncleanable is not None or not retention.is_due(log._core, now_ms):
            continue
        if not log._core.cleaning.try_begin():
            continue
        try:
            if is_compacted(log):
                log.apply_retention()
        except (OSError, KlogError) as error:
            if not log.closed:
                _log.error("event=retention_failed log=%s reason=%s", log.name, error)
        finally:
            log._core.cleaning.done()
