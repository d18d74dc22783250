"""For dry runs: repeats one if a writer changes the log meanwhile. For a dry run of a compaction also: what cannot be
cleaned and why, which keys waste most, and what the log would look like if the active segment were rolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from klog.cleaner._waste import Waste
from klog.cleaner.plan import Dirt, newest_ms
from klog.errors import CorruptData, OffsetOutOfRange, Overtaken
from klog.log.core import LogCore
from klog.log.read.isolation import last_stable_offset
from klog.log.read.reader import LogReader
from klog.log.read.steady import overtaken, steady
from klog.log.retain.cleaning_stats import Held, WastedKey
from klog.log.state.segments import closed_from
from klog.segment import Segment
from klog.values import dataclass

ACTIVE = "the active segment"
OPEN_TRANSACTION = "an open transaction"
HIGH_WATERMARK = "records above the high watermark"
YOUNG = "min.compaction.lag.ms"
OVERTAKEN_MAX = 10

T = TypeVar("T")


def foreseen(log: LogCore, what: str, look: Callable[[], T]) -> T:
    """Return what look() returns, for a dry run. A writer, also in another process, may truncate, compact or delete
    what it reads: then look() is repeated, at most OVERTAKEN_MAX times. Damage counts only if the log has not
    changed."""
    for number in range(1, OVERTAKEN_MAX + 1):
        moment = log.moment
        try:
            found = look()
            if steady(log, moment):
                return found
        except (CorruptData, FileNotFoundError, OffsetOutOfRange, Overtaken):
            log.check_open()
            if not overtaken(log, moment) or number == OVERTAKEN_MAX:
                raise
    raise given_up(log, f"during {what}")


def given_up(log: LogCore, when: str) -> Overtaken:
    """The error after the last of OVERTAKEN_MAX attempts."""
    return Overtaken(f"{log.name} was changed {OVERTAKEN_MAX} times {when}: try again")


class _Rolled:
    """The active segment with its current size, whatever is appended meanwhile."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self.base_offset = segment.base_offset
        self.size = segment.size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._segment, name)


@dataclass(frozen=True, slots=True)
class _Empty:
    """The active segment that a roll would create."""

    base_offset: int
    size: int = 0


def as_rolled_locked(log: LogCore) -> Sequence[Segment]:
    """Return the segments as they would be after a roll. For reading. Under the log's lock."""
    segments = log.segments
    if not segments or not segments[-1].size:
        return segments
    end = max(segments[-1].next_offset, log.log_end_offset)
    return cast("Sequence[Segment]", (*segments[:-1], _Rolled(segments[-1]), _Empty(end)))


def held(log: LogCore, segments: Sequence[Segment], range_: Dirt) -> tuple[Held, ...]:
    """Return what a cleaning of range_ leaves out, and why: the first bound, and the active segment."""
    bound, found = range_.first_uncleanable, []
    closed = closed_from(segments, bound)
    if closed and closed[0].size:
        stable = last_stable_offset(log)
        following = closed[1].base_offset if len(closed) > 1 else segments[-1].base_offset
        reason = YOUNG
        if stable < following and not _is_young(log, closed[0]):
            reason = OPEN_TRANSACTION if stable < log.high_watermark else HIGH_WATERMARK
        found.append(Held(reason, closed[0].base_offset, sum(segment.size for segment in closed)))
    if segments[-1].size:
        found.append(Held(ACTIVE, segments[-1].base_offset, segments[-1].size))
    return tuple(found)


def _is_young(log: LogCore, segment: Segment) -> bool:
    """True if it is younger than min.compaction.lag.ms."""
    lag: int = log.config.min_compaction_lag_ms
    return lag > 0 and newest_ms(segment) > log.clock.wall_ms() - lag


def wasted(log: LogCore, waste: Waste, count: int) -> tuple[WastedKey, ...]:
    """Return the keys whose dropped records take most bytes; each key is read from one of its records."""
    found = []
    for size, records, offset in waste.top(count):
        for record in LogReader([(log, max(offset, log.log_start_offset), offset + 1)], "log_end", False):
            if record.offset == offset and record.key is not None:
                found.append(WastedKey(record.key, records, size))
    return tuple(found)
