"""Log.compact: cleaning by hand, in this thread, whatever the dirty ratio is. Kafka has no such call; the rules are
those of its cleaner."""

from __future__ import annotations

from collections.abc import Sequence

from klog.cleaner._keymap import KeyMap
from klog.cleaner._waste import Waste
from klog.cleaner.checkpoints import read_first_dirty, write_first_dirty
from klog.cleaner.forecast import OVERTAKEN_MAX, as_rolled_locked, foreseen, given_up, held, wasted
from klog.cleaner.overflow import SplitFirst
from klog.cleaner.plan import Dirt, cleanable, dirt
from klog.cleaner.round import RoundStats, clean_round
from klog.errors import ConfigUnknown, Overtaken, PolicyViolation
from klog.log.core import LogCore
from klog.log.read.isolation import last_stable_offset
from klog.log.read.lookup import count
from klog.log.read.steady import steadily
from klog.log.retain.cleaning_stats import CompactionStats
from klog.log.state.cleaning_state import cleaning_by_hand
from klog.log.write.roll import roll as roll_log
from klog.progress import Event, Progress
from klog.segment import Segment


def compact(
    log: LogCore, *, roll: bool, rounds: int | None, dry_run: bool, top: int, progress: Progress | None
) -> CompactionStats:
    """Compact a log; see Log.compact."""
    check_policy(log)
    if dry_run:
        return foreseen(log, "a forecast", lambda: _forecast(log, roll, Waste() if top > 0 else None, top, progress))
    return _compact(log, roll, rounds, progress)


def _compact(log: LogCore, roll: bool, rounds: int | None, progress: Progress | None) -> CompactionStats:
    started = log.clock.monotonic()
    if roll and log.segments[-1].size:
        roll_log(log, 0)
    size, records = log.size, _records_before(log)
    done = _clean(log, rounds, progress)
    segments, range_ = _range(log, read_first_dirty(log))
    log.cleaning.set_cleanable()  # any damage is gone, or the background cleaner finds it again
    log.options.scheduler.run_due()
    left = _records_left(log, done[-1]) if records is None and done else _count(log)
    return CompactionStats(
        range_.first_dirty,
        size,
        log.size,
        left + sum(stats.records_dropped for stats in done) if records is None else records,
        left,
        log.clock.monotonic() - started,
        len(done),
        sum(stats.keyless for stats in done),
        held(log, segments, range_),
    )


def _clean(log: LogCore, rounds: int | None, progress: Progress | None) -> list[RoundStats]:
    """Clean round after round, until nothing is left to clean. A round that another caller overtakes is repeated."""
    done: list[RoundStats] = []
    overtaken = 0
    while rounds is None or len(done) < rounds:
        try:
            with cleaning_by_hand(log):
                check_policy(log)  # a caller that aborted our last round may have changed it
                rewritten = log.rewritten
                _, range_ = _range(log, read_first_dirty(log))
                if range_.cleanable_bytes == 0:
                    break
                tick = _Report(log, range_, progress)
                stats = clean_round(log, range_, _key_map(log), log.clock.wall_ms(), tick=tick)
                if stats.end > range_.first_dirty:
                    write_first_dirty(log, stats.end, rewritten)
        except SplitFirst:
            continue  # happens at most once per segment
        except Overtaken as error:
            overtaken += 1
            if overtaken == OVERTAKEN_MAX:
                raise given_up(log, "while it was compacted") from error
            continue
        done.append(stats)
        if stats.end <= range_.first_dirty:
            break  # the map has no space for a single key
    return done


def _forecast(log: LogCore, roll: bool, waste: Waste | None, top: int, progress: Progress | None) -> CompactionStats:
    """What one round would do: the next one would need its result."""
    if not log.segments:  # never written to
        return CompactionStats(log.log_start_offset, 0, 0, 0, 0, 0.0)
    started, size, records = log.clock.monotonic(), log.size, _records_before(log)
    check_policy(log)
    segments, range_ = _range(log, read_first_dirty(log), as_rolled=roll)
    stats, first_dirty, dropped = None, range_.first_dirty, 0
    if range_.cleanable_bytes:
        tick = _Report(log, range_, progress)
        now = log.clock.wall_ms()
        stats = clean_round(log, range_, _key_map(log), now, tick=tick, dry_run=True, segments=segments, waste=waste)
        size_after, dropped = size - stats.bytes_read + stats.bytes_written, stats.records_dropped
        first_dirty = max(stats.end, range_.first_dirty)
    left = _count(log) if stats is None else _records_left(log, stats)
    return CompactionStats(
        first_dirty,
        size,
        size if stats is None else size_after,
        left + dropped if records is None else records,
        left,
        log.clock.monotonic() - started,
        0 if stats is None else 1,
        0 if stats is None else stats.keyless,
        held(log, segments, range_),
        () if waste is None else wasted(log, waste, top),
        0 if waste is None else waste.reduced_by,
    )


def _records_before(log: LogCore) -> int | None:
    """The number of records; None if the rounds count them: nothing lies below the log start. It reads every header."""
    return _count(log) if log.log_start_offset > log.segments[0].base_offset else None


def _records_left(log: LogCore, stats: RoundStats) -> int:
    """The number of records after a round, which has counted those of the segments that it has cleaned."""
    return stats.records_left + _count(log, min(stats.segments_end, log.log_end_offset))


def check_policy(log: LogCore) -> None:
    """Raise unless the log's current configuration compacts it."""
    if not log.options.config_known:
        raise ConfigUnknown(
            f"the cleanup policy of {log.name} is unknown, because a broker's directory does not store it: give it a "
            f"configuration first, logs.alter_topic({log.topic!r}, {{...}}) or Log.open(path, config={{...}})"
        )
    if not log.config.compacts:
        raise PolicyViolation(
            f"{log.name} has cleanup.policy={','.join(log.config.cleanup_policy)}, without compact: compaction would "
            f"delete every record but the last one of each key, and all without a key; if that is wanted, set the "
            f"policy by logs.alter_topic or Log.open(path, config={{...}})"
        )


def cleanable_now(log: LogCore, first_dirty: int | None) -> Dirt:
    """Return what can be cleaned now, of a log that is clean below first_dirty. The caller holds the cleaning state."""
    return _range(log, first_dirty)[1]


def _range(log: LogCore, first_dirty: int | None, *, as_rolled: bool = False) -> tuple[Sequence[Segment], Dirt]:
    """Return the segments, and what can be cleaned of them now."""
    with log.lock:
        log.check_open()
        segments = as_rolled_locked(log) if as_rolled else log.segments
        range_ = cleanable(
            segments,
            first_dirty,
            log.log_start_offset,
            log.log_end_offset,
            last_stable_offset(log),
            log.config.min_compaction_lag_ms,
            log.clock.wall_ms(),
        )
        return segments, dirt(segments, range_)


def _key_map(log: LogCore) -> KeyMap:
    """Return a new map, with its own secret."""
    broker = log.options.broker
    return KeyMap(broker.log_cleaner_dedupe_buffer_size, broker.log_cleaner_io_buffer_load_factor)


class _Report:
    """Reports the progress of a round to the caller, in bytes of both passes. It also ends the round if the log must
    not be compacted any more: its own thread may have changed that, and cannot wait for its own cleaning to end."""

    def __init__(self, log: LogCore, range_: Dirt, progress: Progress | None) -> None:
        self._log, self._progress = log, progress
        self._done = {"index": 0, "clean": 0}
        self._totals = {"index": range_.cleanable_bytes, "clean": range_.clean_bytes + range_.cleanable_bytes}

    def __call__(self, stage: str, size: int) -> None:
        if self._progress is not None and stage in self._done:
            self._done[stage] += size
            total = max(self._totals[stage], self._done[stage])
            self._progress(Event(stage, self._done[stage], total, "bytes", self._log.name))
        check_policy(self._log)


def _count(log: LogCore, start: int | None = None) -> int:
    """The number of records from an offset on."""
    log.check_open()
    return steadily(log, lambda: count(log, start, None))
