"""What a cleaning may touch, and how segments are grouped: decisions over numbers, without files, locks or clock.

    [log start .. first dirty)              clean: each key once, as of the last round
    [first dirty .. first uncleanable)      dirty: its keys go into the map, which is used for both parts
    [first uncleanable .. log end)          not read

first_uncleanable is where a segment begins: at most the last stable offset, the active segment, and the first segment
that is younger than min.compaction.lag.ms.

Kafka: LogCleanerManager (cleanableOffsets, calculateCleanableBytes, maxCompactionDelay), Cleaner.groupSegmentsBySize.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Protocol

from klog.log.state.segments import Sizes, beginning_below, between, closed_from, number_of
from klog.segment import Segment
from klog.values import dataclass

SPAN_MAX = 2**31 - 1  # offsets of a segment count from its base, in 32 bits


@dataclass(frozen=True, slots=True)
class Cleanable:
    """Where cleaning would begin and must stop. reset: the checkpoint is not an offset of this log, and must be
    corrected even if nothing is cleaned."""

    first_dirty: int
    first_uncleanable: int
    reset: bool = False


@dataclass(frozen=True, slots=True)
class Dirt:
    """How much there is to clean. first_uncleanable is moved down to the beginning of its segment."""

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int

    @property
    def ratio(self) -> float:
        """Dirty bytes as a share of all that a cleaning would read."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


def newest_ms(segment: Segment) -> int:
    """The largest timestamp of a segment, or the time when its file was last written."""
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.modified_ms


def cleanable(
    segments: Sequence[Segment],
    checkpoint: int | None,
    log_start: int,
    log_end: int,
    last_stable: int,
    min_lag_ms: int,
    now_ms: int,
) -> Cleanable:
    """Return the range of a log to clean. The last of the segments is the active one."""
    first, reset = log_start if checkpoint is None else checkpoint, False
    if not log_start <= first <= log_end:
        first, reset = log_start, True
    bounds = [last_stable, segments[-1].base_offset]
    if min_lag_ms > 0:
        young = (s for s in closed_from(segments, first) if newest_ms(s) > now_ms - min_lag_ms)
        bounds += [segment.base_offset for segment in itertools.islice(young, 1)]
    return Cleanable(first, max(first, min(bounds)), reset)


def dirt(segments: Sequence[Segment], range_: Cleanable, sizes: Sizes | None = None) -> Dirt:
    """Return how much of the range is dirty. A segment with an undecided transaction is not touched at all, so the
    bound moves down. sizes: of the segments, if known."""
    held = closed_from(segments, range_.first_uncleanable)
    bound = held[0].base_offset if held else segments[-1].base_offset
    first = min(range_.first_dirty, bound)
    sums = Sizes(segments) if sizes is None else sizes
    clean = sums.before(beginning_below(segments, range_.first_dirty))
    dirty = sums.before(beginning_below(segments, bound)) - sums.before(number_of(segments, first))
    return Dirt(range_.first_dirty, bound, clean, dirty if first < bound else 0)


def compaction_delay(first_timestamps: Iterable[int], max_lag_ms: int, now_ms: int) -> int:
    """Return for how many ms a dirty record has waited beyond max.compaction.lag.ms; 0 for none. first_timestamps: of
    the first batch of each closed dirty segment; values of 0 and below are ignored."""
    earliest = min((stamp for stamp in first_timestamps if 0 < stamp < 2**63 - 1), default=None)
    return 0 if earliest is None else max(0, now_ms - max_lag_ms - earliest)


class Sized(Protocol):
    """What grouping needs of a segment."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def index_bytes(self) -> int: ...
    @property
    def time_index_bytes(self) -> int: ...


def group(segments: Sequence[Sized], segment_bytes: int, index_bytes: int, first_uncleanable: int) -> list[range]:
    """Return which segments become one: ranges of adjacent numbers, from the oldest on, as large as the current sizes
    and the reach of a relative offset allow. An empty segment joins a group whatever its offsets are; else empty
    segments would never be removed."""
    groups: list[range] = []
    first = 0
    while first < len(segments):
        base, log, index, times = segments[first].base_offset, 0, 0, 0
        for stop in range(first, len(segments)):
            segment = segments[stop]
            log, index, times = log + segment.size, index + segment.index_bytes, times + segment.time_index_bytes
            end = segments[stop + 1].base_offset if stop + 1 < len(segments) else first_uncleanable
            spans = segment.size > 0 and end - 1 - base > SPAN_MAX
            if stop > first and (log > segment_bytes or index > index_bytes or times > index_bytes or spans):
                break
        else:
            stop = len(segments)
        groups.append(range(first, stop))
        first = stop
    return groups


def dirty_segments(segments: Sequence[Segment], range_: Dirt) -> Sequence[Segment]:
    """Return the segments whose keys are to be noted."""
    return between(segments, min(range_.first_dirty, range_.first_uncleanable), range_.first_uncleanable)


def cleaned_segments(segments: Sequence[Segment], end: int) -> Sequence[Segment]:
    """Return the segments to rewrite if the map holds all keys below `end`."""
    return segments[: 0 if end <= segments[0].base_offset else number_of(segments, end - 1) + 1]
