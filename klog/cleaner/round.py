"""One round over one log: note the keys of its dirty part, rewrite what lies below the end of that, group by group.

Only the swap of each group takes the log's lock; readers and appenders go on. Whatever goes wrong before a group's
swap, a full disk or a damaged batch, leaves the log as it is: groups that are through stay cleaned, and the next round
begins where this one did. Kafka: Cleaner.doClean.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from klog.cleaner._clean import KeySurvey, Rewriter
from klog.cleaner._keymap import KeyMap
from klog.cleaner._waste import Waste
from klog.cleaner.footprint import Footprint, Written
from klog.cleaner.overflow import Overflowed, SplitFirst, split_overflowed
from klog.cleaner.plan import SPAN_MAX, Dirt, cleaned_segments, dirty_segments, group
from klog.cleaner.swap import check_uncut, hear, home_of_cleaned, replace_locked
from klog.cleaner.transactions import CleanedTransactions
from klog.errors import CorruptData, ReadFailed
from klog.log.cleaning_turn import Overtaken
from klog.segment import AbortedTransaction, Home, IndexPair, Segment

if TYPE_CHECKING:
    from klog.log import Log

_log = logging.getLogger("klog.cleaner")
_OFFSET_ENTRY, _TIME_ENTRY = 8, 12
Tick = Callable[[str, int], None]
"""(stage, bytes): called after each chunk, may raise to end the cleaning. "index" and "clean": bytes read in the first
and the second pass; "write": bytes written in the second."""


@dataclass(slots=True)
class RoundStats:
    """What a round has read and left. Records are all records, markers included."""

    first_dirty: int = 0
    rewritten: int = 0  # times that the log had been cut when it began: what it knows of keys is true until the next
    end: int = 0  # below it the log is clean
    keys: int = 0
    map_full: bool = False
    map_utilization: float = 0.0
    map_records_read: int = 0
    map_bytes_read: int = 0
    records_read: int = 0
    records_written: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_dropped: int = 0  # data records that are gone
    keyless: int = 0  # of these, those that went because they have no key
    records_left: int = 0  # data records that have stayed, of all segments that were rewritten
    segments_end: int = 0  # where the last of those ended
    segments: list[tuple[tuple[int, ...], int]] = field(default_factory=list)  # (bases of the sources, bytes left)


@dataclass(frozen=True, slots=True)
class Source:
    """A segment that is to be rewritten, with what it is now."""

    segment: Segment
    size: int
    limit: int  # where the next segment begins
    index_bytes: int
    time_index_bytes: int
    modified_ms: int

    @property
    def base_offset(self) -> int:
        return self.segment.base_offset

    @classmethod
    def of(cls, segment: Segment, limit: int) -> Source:
        index = segment.index
        size, modified = segment.size, segment.modified_ms
        return cls(segment, size, limit, index.entries * _OFFSET_ENTRY, index.time_entries * _TIME_ENTRY, modified)


class Nowhere:
    """Takes what a dry run would write."""

    def write(self, data: object, position: int) -> None:
        pass


def clean_round(
    log: Log,
    range_: Dirt,
    keys: KeyMap,
    now_ms: int,
    *,
    tick: Tick | None = None,
    dry_run: bool = False,
    segments: Sequence[Segment] | None = None,
    waste: Waste | None = None,
) -> RoundStats:
    """Clean [.., range_.first_uncleanable) of a log by an empty map; stats.end is where the next round begins.

    dry_run: only read; then segments may be other ones than the log's own, and waste hears which keys' records would
    go. Who calls has the turn at the log's segments, but for a dry run. Raises CorruptBatch at a damaged batch,
    Overtaken where the log has changed in between, SplitFirst where a segment had to be split, CleaningAborted where
    the turn is to end, OSError, and what tick does.
    """
    stats = RoundStats(range_.first_dirty)
    with log._lock:
        log._check_open() if dry_run else log._check_writable()
        segments, generation, stats.rewritten = segments or log._segments, log._generation, log._rewritten
        if range_.first_uncleanable > max(log.last_stable_offset, segments[0].base_offset):
            raise Overtaken(f"{log.name} was cut below {range_.first_uncleanable}, where a cleaning was to end")
    try:
        with Footprint(log.config) as footprint:
            _note_keys(log, segments, range_, keys, stats, tick, footprint)
            _rewrite_groups(log, segments, range_, keys, now_ms, stats, tick, dry_run, waste, footprint)
    except Overflowed as overflowed:
        split_overflowed(log, overflowed.segment)
        raise SplitFirst(f"{overflowed}, and was split") from None
    except ReadFailed as error:
        log._read_failed(error)
        raise
    except (CorruptData, FileNotFoundError) as error:
        if not dry_run:
            log._check_writable()  # deleted, maybe
        swaps = 0 if dry_run else len(stats.segments)
        if log._generation == generation + swaps and log._segments[0].base_offset == segments[0].base_offset:
            raise
        raise Overtaken(f"{log.name} was cut, or lost segments, while it was cleaned") from error
    return stats


def _rewrite_groups(
    log: Log,
    segments: Sequence[Segment],
    range_: Dirt,
    keys: KeyMap,
    now_ms: int,
    stats: RoundStats,
    tick: Tick | None,
    dry_run: bool,
    waste: Waste | None,
    footprint: Footprint,
) -> None:
    """Pass 2, from the oldest segment on."""
    stats.end = keys.latest_offset + 1
    stats.keys, stats.map_utilization = len(keys), keys.utilization
    chosen = cleaned_segments(segments, stats.end)
    limits = [segment.base_offset for segment in segments[1 : len(chosen) + 1]]
    sources = [Source.of(segment, limit) for segment, limit in zip(chosen, limits, strict=True)]
    horizon = _legacy_horizon(log, segments, range_.first_dirty)
    transactions = CleanedTransactions()
    for numbers in group(sources, log.config.segment_size, log.config.segment_index_bytes, range_.first_uncleanable):
        some = [sources[n] for n in numbers]
        _clean_group(log, some, range_, keys, now_ms, transactions, horizon, stats, tick, dry_run, waste, footprint)


def _note_keys(
    log: Log,
    segments: Sequence[Segment],
    range_: Dirt,
    keys: KeyMap,
    stats: RoundStats,
    tick: Tick | None,
    footprint: Footprint,
) -> None:
    """Pass 1."""
    if range_.first_dirty >= range_.first_uncleanable:
        return
    transactions = CleanedTransactions()
    transactions.add(log._aborted(log._segments, range_.first_dirty, range_.first_uncleanable, log._has_producers()))
    survey = KeySurvey(keys, range_.first_dirty, transactions)
    dirty = dirty_segments(segments, range_)
    limits = [*(segment.base_offset for segment in dirty[1:]), range_.first_uncleanable]
    beat = _beat(log, "index", tick)
    for segment, limit in zip(dirty, limits, strict=True):
        position = 0
        if segment.base_offset < range_.first_dirty:
            found = segment.locate(range_.first_dirty)
            position = segment.size if found is None else found.position
        note = functools.partial(survey.note, segment.file, position, segment.size, segment.base_offset, limit)
        if footprint.first(segment, note, beat):
            stats.map_full = True
            break
    stats.map_records_read, stats.map_bytes_read = survey.records_read, survey.bytes_read


def _beat(log: Log, stage: str, tick: Tick | None) -> Callable[[int], None]:
    """What a pass calls after each chunk."""

    def beat(read: int) -> None:
        if log._cleaning.mine:  # a dry run has no turn
            log._cleaning.check()
        if tick is not None:
            tick(stage, read)

    return beat


def _beat_of(log: Log, rewriter: Rewriter, tick: Tick | None) -> Callable[[int], None]:
    """The same for the second pass, which writes."""
    beat, told = _beat(log, "clean", tick), 0

    def both(read: int) -> None:
        nonlocal told
        beat(read)
        if tick is not None and rewriter.size > told:
            tick("write", rewriter.size - told)
            told = rewriter.size

    return both


def _legacy_horizon(log: Log, segments: Sequence[Segment], first_dirty: int) -> int:
    """Tombstones of the old formats, which have no room for a horizon, go from segments last written by then."""
    clean = [segment for segment in segments if segment.base_offset < first_dirty]
    return clean[-1].modified_ms - log.config.delete_retention_ms if clean else 0


def _clean_group(
    log: Log,
    sources: Sequence[Source],
    range_: Dirt,
    keys: KeyMap,
    now_ms: int,
    transactions: CleanedTransactions,
    legacy_horizon_ms: int,
    stats: RoundStats,
    tick: Tick | None,
    dry_run: bool,
    waste: Waste | None,
    footprint: Footprint,
) -> None:
    """Pass 2 over the segments that become one."""
    with log._lock:
        log._check_open() if dry_run else log._check_writable()
        last_offsets = log._producer_state().last_offsets
    rewriter = Rewriter(
        keys,
        now_ms,
        log.config.delete_retention_ms,
        range_.first_uncleanable,
        transactions,
        last_offsets,
        waste=waste,
    )
    beat = _beat_of(log, rewriter, tick)
    cleaned = Segment(home_of_cleaned(log), sources[0].base_offset, now_ms)
    index = index_for(log, sources)
    if dry_run:
        _rewrite(log, sources, rewriter, Nowhere(), index, transactions, legacy_horizon_ms, beat, footprint)
        transactions.take_retained()
    else:
        try:
            _write(log, cleaned, sources, rewriter, index, transactions, legacy_horizon_ms, beat, footprint)
            log._cleaning.check()
            with log._lock:
                log._check_idle("a compaction")
                check_uncut(log, stats.rewritten)
                replace_locked(log, cleaned, [s.segment for s in sources], [s.size for s in sources])
        except BaseException as error:
            hear(log, error)
            if log.offline is None:
                with contextlib.suppress(OSError):
                    cleaned.delete_files()
            raise
    stats.records_read += rewriter.records_read
    stats.records_written += rewriter.records_kept
    stats.bytes_read += rewriter.bytes_read
    stats.bytes_written += rewriter.size
    stats.records_dropped += rewriter.records_dropped
    stats.keyless += rewriter.keyless
    stats.records_left += rewriter.records_kept - rewriter.markers_kept
    stats.segments_end = sources[-1].limit
    bases = tuple(source.base_offset for source in sources)
    stats.segments.append((bases, rewriter.size))
    if not dry_run:
        _log.info(
            "event=cleaned log=%s bases=%s bytes=%d left=%d records=%d left=%d",
            log.name,
            ",".join(map(str, bases)),
            rewriter.bytes_read,
            rewriter.size,
            rewriter.records_read,
            rewriter.records_kept,
        )


def index_for(log: Log, sources: Sequence[Source]) -> IndexPair:
    """Room for the entries of a segment of these sources, in memory.

    Where sources meet, one entry more may be due than they had: each had none for its first batch. There is no more
    room than segment.index.bytes for all that: Kafka's cleaner fails at a larger index, now and in every later round.
    What has no room is left out, except the last timestamp, which has its own.
    """
    interval = log.config.index_interval_bytes
    largest = sum(source.size for source in sources)
    there = (max(source.index_bytes, source.time_index_bytes) for source in sources)  # under another configuration
    bound = max(log.config.segment_index_bytes, *there)
    room = (largest // max(interval, 61) + 2) * _TIME_ENTRY
    base = sources[0].base_offset
    return IndexPair("", "", base, writable=True, capacity=min(room, bound), interval=interval)


def _rewrite(
    log: Log,
    sources: Sequence[Source],
    rewriter: Rewriter,
    out: object,
    index: IndexPair,
    transactions: CleanedTransactions,
    legacy_horizon_ms: int,
    beat: Callable[[int], None],
    footprint: Footprint,
) -> None:
    rewriter.begin(out, index)
    for source in sources:
        transactions.add(log._aborted(log._segments, source.base_offset, source.limit, log._has_producers()))
        rewrite = functools.partial(
            rewriter.rewrite,
            source.segment.file,
            source.size,
            source.base_offset,
            source.limit,
            source.modified_ms > legacy_horizon_ms,
        )
        footprint.second(source.segment, rewrite, beat)


def _write(
    log: Log,
    cleaned: Segment,
    sources: Sequence[Source],
    rewriter: Rewriter,
    index: IndexPair,
    transactions: CleanedTransactions,
    legacy_horizon_ms: int,
    beat: Callable[[int], None],
    footprint: Footprint,
) -> None:
    """The .cleaned files of a group."""

    def fill(out: object) -> Iterable[AbortedTransaction]:
        _rewrite(log, sources, rewriter, out, index, transactions, legacy_horizon_ms, beat, footprint)
        if rewriter.next_offset_out - 1 - cleaned.base_offset > SPAN_MAX:  # the others of its group are empty
            raise Overflowed(sources[0].segment)
        return transactions.take_retained()

    cold = footprint.was_cold(sources[0].segment)
    write_segment(cleaned, index, fill, sources[-1].modified_ms, drop=cold)
    cleaned.size = rewriter.size


def write_segment(
    cleaned: Segment,
    index: IndexPair,
    fill: Callable[[object], Iterable[AbortedTransaction]],
    modified_ms: int,
    *,
    drop: bool = False,
) -> None:
    """The .cleaned files, synced, as old as the last of their sources. fill writes the .log and notes it in index; the
    entries of the transaction index. drop: nothing of the .log stays in memory."""
    home: Home = cleaned.home
    cleaned.delete_files()  # of a cleaning that was stopped
    _, offsets_path, times_path, _ = cleaned.paths
    out = home.files.open(cleaned.path, write=True, create=True)
    try:
        written = Written(out, drop=drop)
        aborted = fill(written)
        home.files.fsync(out)
        written.synced()
    finally:
        out.close()
    index.close_entries()
    index.store(offsets_path, times_path, home.files.table)
    for path in (offsets_path, times_path):
        file = home.files.open(path, write=True)
        try:
            home.files.fsync(file)
        finally:
            file.close()
    for entry in aborted:
        cleaned.txn_index.append(entry)
    cleaned.txn_index.sync()
    modified = modified_ms * 1_000_000
    os.utime(cleaned.path, ns=(modified, modified))
