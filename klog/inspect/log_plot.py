"""The plot of Log.plot(): the segments of a partition over time, by matplotlib (extra [plot]).

    x               from the timestamp of a segment's first batch to its largest timestamp
    y               its size; the lower part in the colour of tombstones is their share of its records
    colour          clean or dirty for the cleaner, active, or grey if cleanup.policy is not `compact`
    strip below     the share of the file that is in the page cache

A segment without timestamps is at the time when its file was last written. The share of tombstones is that of a sample:
the first records of each segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from klog import extras
from klog.cleaner.checkpoints import read_first_dirty
from klog.errors import CorruptData
from klog.log.core import LogCore
from klog.log.read.chunks import chunks
from klog.log.read.page_cache import LogPageCache
from klog.segment import Segment
from klog.shown import size
from klog.values import dataclass

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEGMENTS_MAX = 1000
SAMPLES_BYTES = 64 << 20  # read for the tombstones of all segments; 64 KiB to 1 MiB of each
_DAY_MS = 86_400_000  # matplotlib counts days since 1970
_TIME_MAX = 253_402_300_799_999  # the end of the year 9999, where its calendar ends
_COLOURS = {"clean": "#2a7f62", "dirty": "#d98e32", "active": "#5b7db1", "not compacted": "#8d99ae"}
_TOMBSTONES, _CACHED = "#3b2f4a", "#c8553d"


@dataclass(frozen=True, slots=True)
class Bar:
    """One segment. first_ms, last_ms: its time span; tombstones: share of the sampled records; cached: share of the
    file, None if the kernel does not report it."""

    base_offset: int
    size: int
    first_ms: int
    last_ms: int
    state: str
    tombstones: float
    cached: float | None


def bars(log: LogCore, cached: LogPageCache | None) -> list[Bar]:
    """Return the bars of the newest segments. Raises LogClosed, OSError.

    cached: the state of the page cache before this call, which reads samples; None if it is not known.
    """
    log.check_open()
    present = log.segments
    segments = [segment for segment in present if segment.size][-SEGMENTS_MAX:]
    compacted = "compact" in log.config.cleanup_policy
    checkpoint = read_first_dirty(log) if compacted else None
    first_dirty = log.log_start_offset if checkpoint is None else checkpoint
    sample = min(max(SAMPLES_BYTES // max(len(segments), 1), 64 << 10), 1 << 20)
    shares = {} if cached is None else {each.base_offset: each.residency.share for each in cached.segments}
    return [
        Bar(
            segment.base_offset,
            segment.size,
            *_span(segment),
            _state(segment, present[-1], first_dirty, compacted),
            _tombstones(log, segment, sample) if compacted else 0.0,
            shares.get(segment.base_offset),
        )
        for segment in segments
    ]


def _span(segment: Segment) -> tuple[int, int]:
    last = segment.max_timestamp
    if not 0 <= last <= _TIME_MAX:
        written = segment.modified_ms
        return written, written
    first = segment.first_batch_timestamp
    return (first if 0 <= first <= last else last), last


def _state(segment: Segment, active: Segment, first_dirty: int, compacted: bool) -> str:
    if not compacted:
        return "not compacted"
    if segment is active:
        return "active"
    return "clean" if segment.next_offset <= first_dirty else "dirty"


def _tombstones(log: LogCore, segment: Segment, sample: int) -> float:
    """Return the share of records without a value in the first bytes of a segment; 0 if they cannot be read."""
    start, stop = max(segment.base_offset, log.log_start_offset), min(segment.next_offset, log.log_end_offset)
    try:
        for chunk in chunks(log, start, stop, "log_end", sample, False):
            empty = [value is None for _, value in chunk.pairs()]
            return sum(empty) / len(empty) if empty else 0.0
    except CorruptData:
        pass  # `klog verify` reports damage; the other numbers of this segment are valid
    return 0.0


def draw(title: str, found: Sequence[Bar], ax: Axes | None) -> Axes:
    """Draw the bars into ax, or into a new figure, and return the axes. Raises ImportError without matplotlib."""
    try:
        from matplotlib import pyplot
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
        from matplotlib.patches import Patch
    except ImportError as error:
        raise extras.missing("plot()", "matplotlib", "plot", error) from error
    if ax is None:
        ax = pyplot.subplots(figsize=(10, 4), layout="constrained")[1]
    locator = AutoDateLocator()
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    unit, divisor = _unit(found)
    tallest = max((bar.size for bar in found), default=1) / divisor
    whole = max((bar.last_ms for bar in found), default=1) - min((bar.first_ms for bar in found), default=0)
    narrowest = max(whole * 0.004, 1.0)
    left = [bar.first_ms / _DAY_MS for bar in found]
    width = [max(bar.last_ms - bar.first_ms, narrowest) / _DAY_MS for bar in found]
    style: dict[str, Any] = {"align": "edge", "edgecolor": "white", "linewidth": 0.5 if len(found) <= 200 else 0}
    ax.bar(left, [bar.size / divisor for bar in found], width, color=[_COLOURS[bar.state] for bar in found], **style)
    ax.bar(left, [bar.size * bar.tombstones / divisor for bar in found], width, color=_TOMBSTONES, **style)
    strip = [(_CACHED, bar.cached or 0.0) for bar in found]
    ax.bar(left, [-0.05 * tallest] * len(found), width, bottom=-0.03 * tallest, color=strip, **style)
    states = [state for state in _COLOURS if any(bar.state == state for bar in found)]
    handles = [Patch(color=_COLOURS[state], label=state) for state in states]
    if any(bar.tombstones for bar in found):
        handles.append(Patch(color=_TOMBSTONES, label="tombstones"))
    if any(bar.cached is not None for bar in found):
        handles.append(Patch(color=_CACHED, label="in the page cache"))
    if handles:
        location = {"loc": "lower right", "bbox_to_anchor": (1, 1), "borderaxespad": 0.3}
        ax.legend(handles=handles, ncols=len(handles), frameon=False, **location)
    else:
        ax.set_xticks([])
    ax.set_ylim(-0.1 * tallest, 1.08 * tallest)
    ax.set_yticks([tick for tick in ax.get_yticks() if 0 <= tick <= 1.08 * tallest and found])
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_ylabel(f"{unit} of each segment")
    count = "1 segment" if len(found) == 1 else f"{len(found):,} segments"
    ax.set_title(f"{title}: {count}, {size(sum(bar.size for bar in found))}", loc="left")
    return ax


def _unit(found: Sequence[Bar]) -> tuple[str, int]:
    """Return the unit of the largest segment, and its bytes."""
    largest = max((bar.size for bar in found), default=0)
    units = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
    return next(((name, count) for name, count in units if largest >= count), ("bytes", 1))


def plot(log: LogCore, cached: LogPageCache | None, ax: Axes | None) -> Axes:
    """Draw a log into ax, or into a new figure, and return the axes. Raises LogClosed, OSError, ImportError."""
    return draw(log.name, bars(log, cached), ax)
