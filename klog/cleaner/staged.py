"""A cleaning by two processes: one reads the log and builds the cleaned segments in a directory of its own, the holder
of the log's lock puts them in place. So the work can be done elsewhere, by several processes at the same time.

    holder     plan_cleaning     what to clean, as of now
    builder    build             <directory>/<base offset>.log ...      synced; the log is only read, no lock is taken
    holder     adopt             <base offset>.log.cleaned ...          renamed; then the swap of any cleaning

  A1  a builder changes nothing of the log. One that was lost, or runs twice, leaves only its directory
  A2  adopt compares the sources with the log: Overtaken, if they are not as the builder has read them
  A3  a crash leaves each group of segments old or new, as that of any cleaning: klog.cleaner.swap
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

from klog.cleaner._keymap import KeyMap
from klog.cleaner.checkpoints import read_first_dirty, write_first_dirty
from klog.cleaner.compaction import check_policy, cleanable_now
from klog.cleaner.overflow import Overflowed
from klog.cleaner.plan import Dirt
from klog.cleaner.rewriting import Source, index_for, swap_in
from klog.cleaner.round import Round, RoundStats
from klog.cleaner.swap import cleaned_dir, write_cleaned
from klog.disk import HandleCache, exists
from klog.errors import KlogError, Overtaken
from klog.log.core import LogCore
from klog.log.state.cleaning_state import cleaning_by_hand
from klog.segment import Segment, SegmentDir, names
from klog.values import dataclass, field


class SplitNeeded(KlogError):
    """A segment must be split before its log can be cleaned, which only the holder of the lock can do: Log.compact."""


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """What to clean of a log, and how. rewritten: number of its truncations when it was planned."""

    range: Dirt
    now_ms: int
    rewritten: int
    map_bytes: int
    map_load_factor: float

    @property
    def bytes(self) -> int:
        """The size of the segments to read."""
        return self.range.clean_bytes + self.range.cleanable_bytes


@dataclass(frozen=True, slots=True)
class BuiltSegment:
    """One cleaned segment: the names and sizes of its files, and the base offsets and sizes of its sources."""

    base_offset: int
    files: tuple[tuple[str, int], ...]
    sources: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """The size of its .log."""
        return next(size for name, size in self.files if name.endswith(names.LOG))


@dataclass(slots=True)
class Built:
    """The result of one round, in the order of the segments."""

    stats: RoundStats
    segments: list[BuiltSegment] = field(default_factory=list)


def plan_cleaning(log: LogCore) -> CleaningPlan | None:
    """What there is to clean; None: nothing. Raises ConfigUnknown and PolicyViolation as Log.compact does."""
    check_policy(log)
    rewritten = log.rewritten  # first: then a truncation of what the range counts is noticed
    range_ = cleanable_now(log, read_first_dirty(log))
    if range_.cleanable_bytes == 0:
        return None
    size, load = log.options.broker.log_cleaner_dedupe_buffer_size, log.options.broker.log_cleaner_io_buffer_load_factor
    return CleaningPlan(range_, log.clock.wall_ms(), rewritten, size, load)


def build(log: LogCore, plan: CleaningPlan, directory: str) -> Built:
    """Write the cleaned segments of one round into a directory, synced. log: opened read-only.

    Raises CorruptBatch, Overtaken, SplitNeeded, OSError.
    """
    building = _Building(log, plan, directory)
    built = Built(building.run(None), building.built)
    log.options.files.fsync_dir(directory)
    return built


class _Building(Round):
    """A round that writes beside the log. One thread, one run."""

    def __init__(self, log: LogCore, plan: CleaningPlan, directory: str) -> None:
        keys = KeyMap(plan.map_bytes, plan.map_load_factor)
        super().__init__(log, plan.range, keys, plan.now_ms, None, dry_run=True, waste=None)
        self._segment_dir = SegmentDir(directory, log.config, log.options.files, HandleCache(), writable=True)
        self.built: list[BuiltSegment] = []

    def _clean_group(self, sources: Sequence[Source], horizon_ms: int) -> None:
        rewriter, index = self._rewriter(), index_for(self._log, sources)
        cleaned = Segment(self._segment_dir, sources[0].base_offset, self._now_ms)
        try:
            self._write(cleaned, index, sources, rewriter, horizon_ms)
        except Overflowed as overflowed:
            raise SplitNeeded(str(overflowed)) from None
        files = [(os.path.basename(path), os.stat(path).st_size) for path in cleaned.paths if exists(path)]
        cleaned.close()
        bases = tuple((source.base_offset, source.size) for source in sources)
        self.built.append(BuiltSegment(cleaned.base_offset, tuple(files), bases))
        self._count(sources, rewriter)


def adopt(log: LogCore, plan: CleaningPlan, built: Built, directory: str) -> None:
    """Put the segments in place of their sources, one after the other, and note how far the log is clean.

    The directory must be on the file system of the log. Raises Overtaken if the log, or a built file, is not as it was:
    the segments adopted before that stay. OSError as Log.compact.
    """
    with cleaning_by_hand(log):
        check_policy(log)
        for made in built.segments:
            _adopt(log, plan, made, directory)
        if built.stats.end > plan.range.first_dirty:
            write_first_dirty(log, built.stats.end, plan.rewritten)
    log.cleaning.set_cleanable()


def _adopt(log: LogCore, plan: CleaningPlan, made: BuiltSegment, directory: str) -> None:
    files = log.options.files
    for name, size in made.files:
        found = os.stat(os.path.join(directory, name)).st_size
        if found != size:
            raise Overtaken(f"{os.path.join(directory, name)} has {found} bytes, not {size}: compact {log.name} again")
    sources = _sources(log, made)
    cleaned = Segment(cleaned_dir(log), made.base_offset, plan.now_ms, made.size)

    def write() -> None:
        cleaned.delete_files()  # left by an interrupted cleaning
        for name, _ in made.files:
            files.rename(os.path.join(directory, name), os.path.join(log.path, name + names.CLEANED))
        swap_in(log, cleaned, sources, plan.rewritten, "a compaction")

    write_cleaned(log, [cleaned], write)


def _sources(log: LogCore, made: BuiltSegment) -> list[Source]:
    """The segments of the log that were read."""
    segments = log.segments
    found = [
        Source(segment, segment.size, after.base_offset, 0, 0, 0)
        for segment, after in itertools.pairwise(segments)
        if made.sources[0][0] <= segment.base_offset <= made.sources[-1][0]
    ]
    if tuple((source.base_offset, source.size) for source in found) != made.sources:
        raise Overtaken(f"{log.name} has changed since its segments from {made.base_offset} on were cleaned")
    return found
