"""One round over one log: note the keys of its dirty part, then rewrite all segments below its end, group by group.

Only the swap of each group takes the log's lock; reads and appends go on. An error before a group's swap, such as a
full disk or a damaged batch, leaves the log as it is: finished groups stay cleaned, and the next round begins where
this one did. Kafka: Cleaner.doClean.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence

from klog.cleaner._clean import KeySurvey, Rewriter
from klog.cleaner._keymap import KeyMap
from klog.cleaner._waste import Waste
from klog.cleaner.footprint import Footprint
from klog.cleaner.overflow import Overflowed, SplitFirst, split_overflowed
from klog.cleaner.plan import SPAN_MAX, Dirt, cleaned_segments, dirty_segments, group
from klog.cleaner.rewriting import NullOutput, Source, index_for, swap_in, write_segment
from klog.cleaner.swap import cleaned_dir, write_cleaned
from klog.cleaner.transactions import CleanedTransactions
from klog.errors import CorruptData, Overtaken, ReadFailed
from klog.log.core import LogCore
from klog.log.read.aborted_transactions import aborted_of_met
from klog.log.read.isolation import last_stable_offset, producer_state
from klog.log.state.segments import number_of
from klog.logger import logger_of
from klog.segment import AbortedTransaction, IndexPair, Segment
from klog.values import dataclass, field

_log = logger_of("cleaner")
Tick = Callable[[str, int], None]
"""(stage, bytes): called after each chunk, may raise to end the cleaning. "index" and "clean": bytes read in the first
and in the second pass; "write": bytes written in the second."""


@dataclass(slots=True)
class RoundStats:
    """What a round has read and kept. Records include markers, unless stated otherwise."""

    first_dirty: int = 0
    rewritten: int = 0  # number of truncations before the round began: its knowledge of keys is valid until the next
    end: int = 0  # the log is clean below it
    keys: int = 0
    map_full: bool = False
    map_utilization: float = 0.0
    map_records_read: int = 0
    map_bytes_read: int = 0
    records_read: int = 0
    records_written: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_dropped: int = 0  # data records that were removed
    keyless: int = 0  # of these, the ones removed because they have no key
    records_left: int = 0  # data records that were kept, in all rewritten segments; in a dry run from the log start on
    segments_end: int = 0  # end of the last rewritten segment
    segments: list[tuple[tuple[int, ...], int]] = field(default_factory=list)  # (bases of the sources, bytes left)


def clean_round(
    log: LogCore,
    range_: Dirt,
    keys: KeyMap,
    now_ms: int,
    *,
    tick: Tick | None = None,
    dry_run: bool = False,
    segments: Sequence[Segment] | None = None,
    waste: Waste | None = None,
) -> RoundStats:
    """Clean [.., range_.first_uncleanable) of a log with an empty map; stats.end is where the next round begins.

    dry_run: only read; then segments may be other ones than the log's, and waste counts the records that would be
    dropped. Otherwise the caller holds the log's cleaning state. Raises CorruptBatch at a damaged batch, Overtaken if
    the log has changed meanwhile, SplitFirst if a segment had to be split, CleaningAborted if another caller waits for
    the cleaning to end, OSError, and what tick raises.
    """
    return Round(log, range_, keys, now_ms, tick, dry_run, waste).run(segments)


class Round:
    """The arguments of clean_round(), and what both passes share. One thread, one run."""

    def __init__(
        self,
        log: LogCore,
        range_: Dirt,
        keys: KeyMap,
        now_ms: int,
        tick: Tick | None,
        dry_run: bool,
        waste: Waste | None,
    ) -> None:
        self._log, self._range, self._keys, self._now_ms = log, range_, keys, now_ms
        self._tick, self._dry_run, self._waste = tick, dry_run, waste
        self._footprint = Footprint(log.config)
        self._transactions = CleanedTransactions()  # for the second pass
        self.stats = RoundStats(range_.first_dirty)

    def run(self, segments: Sequence[Segment] | None) -> RoundStats:
        """Run both passes, over these segments or the log's own."""
        log, stats, bound = self._log, self.stats, self._range.first_uncleanable
        with log.lock:
            self._check_usable()
            segments, generation, stats.rewritten = segments or log.segments, log.generation, log.rewritten
            if bound > max(last_stable_offset(log), segments[0].base_offset):
                raise Overtaken(f"{log.name} was truncated below {bound}, the end of the cleaning")
            at = number_of(segments, bound)
            if self._range.first_dirty < bound and (at == 0 or segments[at].base_offset != bound):
                raise Overtaken(f"{log.name} has no closed segment any more that ends at {bound}, as the cleaning does")
        try:
            with self._footprint:
                self.note_keys(segments)
                self._rewrite_groups(segments)
        except Overflowed as overflowed:
            split_overflowed(log, overflowed.segment)
            raise SplitFirst(f"{overflowed}, and was split") from None
        except ReadFailed as error:
            log.read_failed(error)
            raise
        except (CorruptData, FileNotFoundError) as error:
            if not self._dry_run:
                log.check_writable()  # raises if the log was deleted
            swaps = 0 if self._dry_run else len(stats.segments)
            if log.generation == generation + swaps and log.segments[0].base_offset == segments[0].base_offset:
                raise
            raise Overtaken(f"{log.name} was truncated, or lost segments, while it was cleaned") from error
        return stats

    def _check_usable(self) -> None:
        """Under the log's lock."""
        if self._dry_run:
            self._log.check_open()
        else:
            self._log.check_writable()

    # ---- pass 1 ------------------------------------------------------------------------------------------------------

    def note_keys(self, segments: Sequence[Segment]) -> None:
        """Put the keys into the map, until it is full."""
        log, range_ = self._log, self._range
        if range_.first_dirty >= range_.first_uncleanable:
            return
        transactions = CleanedTransactions()
        transactions.expect(
            functools.partial(aborted_of_met, log, log.segments, range_.first_dirty, range_.first_uncleanable)
        )
        survey = KeySurvey(self._keys, range_.first_dirty, transactions)
        dirty = dirty_segments(segments, range_)
        limits = [*(segment.base_offset for segment in dirty[1:]), range_.first_uncleanable]
        beat = self._beat("index")
        for segment, limit in zip(dirty, limits, strict=True):
            position = 0
            if segment.base_offset < range_.first_dirty:
                found = segment.locate(range_.first_dirty)
                position = segment.size if found is None else found.position
            note = functools.partial(survey.note, segment.file, position, segment.size, segment.base_offset, limit)
            if self._footprint.first(segment, note, beat):
                self.stats.map_full = True
                break
        self.stats.map_records_read, self.stats.map_bytes_read = survey.records_read, survey.bytes_read

    # ---- pass 2 ------------------------------------------------------------------------------------------------------

    def _rewrite_groups(self, segments: Sequence[Segment]) -> None:
        """Rewrite the segments, from the oldest on."""
        stats, keys, config = self.stats, self._keys, self._log.config
        stats.end = keys.latest_offset + 1
        stats.keys, stats.map_utilization = len(keys), keys.utilization
        chosen = cleaned_segments(segments, stats.end)
        limits = [segment.base_offset for segment in segments[1 : len(chosen) + 1]]
        sources = [Source.of(segment, limit) for segment, limit in zip(chosen, limits, strict=True)]
        horizon_ms = self._legacy_horizon(segments)
        for numbers in group(sources, config.segment_size, config.segment_index_bytes, self._range.first_uncleanable):
            self._clean_group([sources[number] for number in numbers], horizon_ms)

    def _legacy_horizon(self, segments: Sequence[Segment]) -> int:
        """Tombstones of the old formats have no delete horizon: return the time; segments last written by then drop
        them."""
        clean = [segment for segment in segments if segment.base_offset < self._range.first_dirty]
        return clean[-1].modified_ms - self._log.config.delete_retention_ms if clean else 0

    def _clean_group(self, sources: Sequence[Source], horizon_ms: int) -> None:
        """Rewrite the segments of one group into one."""
        log, rewriter, index = self._log, self._rewriter(), index_for(self._log, sources)
        if self._dry_run:
            output = NullOutput(log.log_start_offset)
            rewriter.begin(output, index)
            self._rewrite(sources, rewriter, horizon_ms)
            self._transactions.take_retained()
            self.stats.records_left -= output.records_below
        else:
            cleaned = Segment(cleaned_dir(log), sources[0].base_offset, self._now_ms)

            def write() -> None:
                self._write(cleaned, index, sources, rewriter, horizon_ms)
                swap_in(log, cleaned, sources, self.stats.rewritten, "a compaction")

            write_cleaned(log, [cleaned], write)
        self._count(sources, rewriter)

    def _rewriter(self) -> Rewriter:
        """Return the rewriter of one group, with the current producers."""
        log = self._log
        with log.lock:
            self._check_usable()
            last_offsets = producer_state(log).last_offsets
        return Rewriter(
            self._keys,
            self._now_ms,
            log.config.delete_retention_ms,
            self._range.first_uncleanable,
            self._transactions,
            last_offsets,
            waste=self._waste,
        )

    def _rewrite(self, sources: Sequence[Source], rewriter: Rewriter, horizon_ms: int) -> None:
        """Rewrite the sources into the segment that the rewriter has begun."""
        log, beat = self._log, self._beat_of(rewriter)
        for source in sources:
            self._transactions.expect(
                functools.partial(aborted_of_met, log, log.segments, source.base_offset, source.limit)
            )
            rewrite = functools.partial(
                rewriter.rewrite,
                source.segment.file,
                source.size,
                source.base_offset,
                source.limit,
                source.modified_ms > horizon_ms,
            )
            self._footprint.second(source.segment, rewrite, beat)

    def _write(
        self, cleaned: Segment, index: IndexPair, sources: Sequence[Source], rewriter: Rewriter, horizon_ms: int
    ) -> None:
        """Write the .cleaned files of a group."""

        def fill(out: object) -> Iterable[AbortedTransaction]:
            rewriter.begin(out, index)
            self._rewrite(sources, rewriter, horizon_ms)
            if rewriter.next_offset_out - 1 - cleaned.base_offset > SPAN_MAX:  # other segments of its group are empty
                raise Overflowed(sources[0].segment)
            return self._transactions.take_retained()

        cold = self._footprint.was_cold(sources[0].segment)
        write_segment(cleaned, index, fill, sources[-1].modified_ms, drop=cold)
        cleaned.filled(rewriter.size)

    # ---- progress and results ----------------------------------------------------------------------------------------

    def _beat(self, stage: str) -> Callable[[int], None]:
        """Return what a pass calls after each chunk."""
        cleaning, tick = self._log.cleaning, self._tick

        def beat(read: int) -> None:
            if cleaning.mine:  # not in a dry run
                cleaning.check()
            if tick is not None:
                tick(stage, read)

        return beat

    def _beat_of(self, rewriter: Rewriter) -> Callable[[int], None]:
        """The same for the second pass, which also writes."""
        beat, tick, reported = self._beat("clean"), self._tick, 0

        def both(read: int) -> None:
            nonlocal reported
            beat(read)
            if tick is not None and rewriter.size > reported:
                tick("write", rewriter.size - reported)
                reported = rewriter.size

        return both

    def _count(self, sources: Sequence[Source], rewriter: Rewriter) -> None:
        """Count a finished group."""
        stats, bases = self.stats, tuple(source.base_offset for source in sources)
        stats.records_read += rewriter.records_read
        stats.records_written += rewriter.records_kept
        stats.bytes_read += rewriter.bytes_read
        stats.bytes_written += rewriter.size
        stats.records_dropped += rewriter.records_dropped
        stats.keyless += rewriter.keyless
        stats.records_left += rewriter.records_kept - rewriter.markers_kept
        stats.segments_end = sources[-1].limit
        stats.segments.append((bases, rewriter.size))
        if not self._dry_run:
            _log.info(
                "event=cleaned log=%s bases=%s bytes=%d left=%d records=%d left=%d",
                self._log.name,
                ",".join(map(str, bases)),
                rewriter.bytes_read,
                rewriter.size,
                rewriter.records_read,
                rewriter.records_kept,
            )
