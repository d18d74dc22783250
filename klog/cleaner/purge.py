"""Log.purge_key: removes the records of one key from the closed segments, for requests to delete data. Kafka has no
such call.

  U1  a record is removed if it has the key: tombstone or not, in any transaction, also an aborted one, in any codec,
      above or below the log start. Nothing else is removed: no record of another key or without one, no marker, and
      no delete horizon changes
  U2  a batch that loses all its records stays as its 61 header bytes. So no offset is missing between two batches, no
      producer loses a sequence wherever the log is truncated later, and a log that is not compacted has no gap.
      Compaction and retention remove empty batches
  U3  a segment is rewritten alone, into one with the same base and end, and only if it has the key
  U4  from the oldest segment on: whenever it stops, no value of the key is left whose later values are missing
  U5  the active segment, and every segment that reaches above the last stable offset, stays as it is; the key's records
      in it are counted. roll closes the active segment first, if it has the key and no undecided transaction
  U6  when it returns, the old segments are unlinked, or listed in `leftovers`, and the audit records it (audit A1 to
      A4)

Two passes, a search and a rewrite, both without the GIL, and klog.cleaner.swap for the replacement: a crash leaves each
segment unchanged or purged.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable

from klog.arguments import wrong_type
from klog.cleaner import audit
from klog.cleaner._clean import Rewriter
from klog.cleaner._find import KeySearch
from klog.cleaner._keymap import KeyMap
from klog.cleaner.forecast import OVERTAKEN_MAX, foreseen, given_up
from klog.cleaner.rewriting import NullOutput, Source, index_for, swap_in, write_segment
from klog.cleaner.swap import check_uncut, cleaned_dir, write_cleaned
from klog.cleaner.transactions import CleanedTransactions
from klog.errors import CorruptData, KlogError, Overtaken, ReadFailed
from klog.log.core import LogCore
from klog.log.read.aborted_transactions import aborted_in, may_need
from klog.log.read.isolation import last_stable_offset
from klog.log.retain.cleaning_stats import PurgeStats
from klog.log.state.cleaning_state import cleaning_by_hand
from klog.log.write.failures import guard
from klog.log.write.removal import unlink_now
from klog.log.write.roll import roll
from klog.logger import logger_of
from klog.progress import Event, Progress
from klog.segment import AbortedTransaction, Segment
from klog.values import dataclass, field

_log = logger_of("cleaner")


@dataclass(frozen=True, slots=True)
class _Found:
    """A segment as it was when it was searched, and its records of the key."""

    segment: Segment
    size: int
    limit: int  # all its offsets are below
    rewritten: int  # number of truncations so far: a segment survives one, perhaps with other bytes
    records: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class _Survey:
    """The segments that have the key: those that can be purged, and those that cannot."""

    purgeable: list[_Found] = field(default_factory=list)
    out_of_reach: list[_Found] = field(default_factory=list)
    active: _Found | None = None  # if it could be purged after a roll
    rewritten: int = 0  # as in _Found


@dataclass(slots=True)
class _Done:
    """What has been rewritten so far."""

    records: int = 0
    bytes: int = 0
    bases: list[int] = field(default_factory=list)
    first_offset: int = -1
    last_offset: int = -1


def purge_key(log: LogCore, key: bytes, *, roll: bool, dry_run: bool, progress: Progress | None) -> PurgeStats:
    """Purge a key from a log; see Log.purge_key."""
    if not isinstance(key, bytes):
        hint = ": use key.encode()" if isinstance(key, str) else ""
        raise wrong_type("key", key, "bytes", hint)
    if dry_run:
        log.check_open()
    else:
        log.check_writable()
        audit.check(os.path.dirname(log.path))
    return _Purge(log, key, roll, dry_run, progress).run()


class _Purge:
    """One call of purge_key()."""

    def __init__(self, log: LogCore, key: bytes, roll: bool, dry_run: bool, progress: Progress | None) -> None:
        self._log, self._key, self._roll, self._dry_run, self._progress = log, key, roll, dry_run, progress
        self._search = KeySearch(key)
        self._known: dict[Segment, _Found] = {}
        self._done = _Done()
        self._size = log.size
        self._begun = False  # the audit has a line `begun`
        self._directory = os.path.dirname(log.path)
        self._id = os.urandom(8).hex()

    def run(self) -> PurgeStats:
        log = self._log
        started = log.clock.monotonic()
        try:
            survey = self._attempts()
            leftovers = () if self._dry_run else unlink_now(log)
            stats = self._stats(survey, started, leftovers)
        except BaseException as error:
            if self._begun:
                with contextlib.suppress(OSError, KlogError):
                    self._note("failed", None, error=str(error) or type(error).__name__)
            raise
        if not self._dry_run:
            try:
                self._note("done", survey, stats)
            except (OSError, KlogError) as error:
                error.add_note(
                    f"{log.name}: {stats.records_removed} records in {stats.segments_rewritten} segments were purged; "
                    f"only the line in the audit is missing"
                )
                raise
        log.options.scheduler.run_due()
        return stats

    def _attempts(self) -> _Survey:
        """Run both passes; again, keeping the results so far, if the log has changed meanwhile or another caller has
        interrupted the cleaning."""
        log = self._log
        if self._dry_run:
            return foreseen(log, "the search for a key", self._dry_attempt)
        for _ in range(OVERTAKEN_MAX):
            moment = self._moment()
            try:
                with cleaning_by_hand(log):
                    return self._attempt()
            except Overtaken:
                continue
            except (CorruptData, FileNotFoundError):
                log.check_writable()  # raises if the log was deleted
                if self._moment() == moment:
                    raise
        raise given_up(log, "while a key was purged")

    def _moment(self) -> tuple[int, int, int]:
        """A value that a truncation or removal changes; this purge's own swaps do not."""
        log, swaps = self._log, len(self._done.bases)
        return log.generation - swaps, log.segments[0].base_offset, len(log.segments)

    def _dry_attempt(self) -> _Survey:
        self._done, self._size = _Done(), self._log.size
        return self._attempt()

    def _attempt(self) -> _Survey:
        try:
            return self._search_and_rewrite()
        except ReadFailed as error:
            self._log.read_failed(error)
            raise

    def _search_and_rewrite(self) -> _Survey:
        survey = self._survey(self._roll)
        if survey.active is not None:
            if self._dry_run:
                survey.purgeable.append(survey.active)
            else:
                roll(self._log, 0)
                survey = self._survey(False)
        if survey.purgeable and not self._dry_run and not self._begun:
            self._note("begun", survey)
            self._begun = True
        total, done = sum(found.size for found in survey.purgeable), 0
        for found in survey.purgeable:
            self._rewrite(found, self._beat("purge", done, total))
            done += found.size
        with self._log.lock:
            self._log.check_open()
            check_uncut(self._log, survey.rewritten)
        return survey

    # ---- pass 1 ----------------------------------------------------------------------------------------------------

    def _survey(self, roll: bool) -> _Survey:
        """Search the segments that were not searched yet. roll: the active segment is to be closed first if
        necessary."""
        log = self._log
        with log.lock:
            log.check_open()
            segments, stable, end = log.segments, last_stable_offset(log), log.log_end_offset
            if not segments:  # a reader's log that was never written to
                return _Survey(rewritten=log.rewritten)
            sizes = [segment.size for segment in segments]
            active_limit, rewritten = max(segments[-1].next_offset, end), log.rewritten
        limits = [*(segment.base_offset for segment in segments[1:]), active_limit]
        total, done, survey = sum(sizes), 0, _Survey(rewritten=rewritten)
        for number, (segment, size, limit) in enumerate(zip(segments, sizes, limits, strict=True)):
            found = self._known.get(segment)
            if found is None or (found.size, found.rewritten) != (size, rewritten):
                beat = self._beat("search", done, total)
                found = self._known[segment] = self._look(segment, size, limit, rewritten, beat)
            done += size
            if not found.records:
                continue
            is_active = number == len(segments) - 1
            if limit > stable or (is_active and not roll):
                survey.out_of_reach.append(found)
            elif is_active:
                survey.active = found
            else:
                survey.purgeable.append(found)
        return survey

    def _look(self, segment: Segment, size: int, limit: int, rewritten: int, beat: Callable[[int], None]) -> _Found:
        records, _, first, last = self._search.count(segment.file, size, segment.base_offset, limit, beat)
        return _Found(segment, size, limit, rewritten, records, first, last)

    # ---- pass 2 ----------------------------------------------------------------------------------------------------

    def _rewrite(self, found: _Found, beat: Callable[[int], None]) -> None:
        """Rewrite one segment (U3)."""
        log, done = self._log, self._done
        source = Source.of(found.segment, found.limit)
        rewriter = Rewriter(KeyMap(24), 0, 0, 0, CleanedTransactions(), {}, purged=self._key)
        index = index_for(log, [source])
        cleaned = Segment(cleaned_dir(log), source.base_offset, log.clock.wall_ms())

        def fill(out: object) -> Iterable[AbortedTransaction]:
            rewriter.begin(out, index)
            rewriter.rewrite(source.segment.file, found.size, source.base_offset, source.limit, True, beat)
            if self._dry_run or not may_need(log, source.segment, 0, found.size):
                return ()
            return aborted_in(log, source.segment)

        def replace() -> None:
            write_segment(cleaned, index, fill, source.modified_ms)
            cleaned.filled(rewriter.size)
            swap_in(log, cleaned, [source], found.rewritten, "a purge")

        if self._dry_run:
            fill(NullOutput())
        else:
            write_cleaned(log, [cleaned], replace)
            _log.info(
                "event=purged log=%s base=%d bytes=%d left=%d records=%d",
                log.name,
                source.base_offset,
                rewriter.bytes_read,
                rewriter.size,
                rewriter.records_dropped,
            )
        done.records += rewriter.records_dropped
        done.bytes += rewriter.bytes_read - rewriter.size
        done.bases.append(source.base_offset)
        done.first_offset = found.first_offset if done.first_offset < 0 else done.first_offset
        done.last_offset = max(done.last_offset, found.last_offset)
        self._known.pop(found.segment, None)

    # ---- results ---------------------------------------------------------------------------------------------------

    def _stats(self, survey: _Survey, started: float, leftovers: tuple[str, ...]) -> PurgeStats:
        log, done, left = self._log, self._done, survey.out_of_reach
        return PurgeStats(
            records_removed=done.records,
            records_left=sum(found.records for found in left),
            left_from=min((found.first_offset for found in left), default=-1),
            bytes_before=self._size,
            bytes_after=self._size - done.bytes if self._dry_run else log.size,
            segments_rewritten=len(done.bases),
            first_offset=done.first_offset,
            last_offset=done.last_offset,
            seconds=log.clock.monotonic() - started,
            leftovers=leftovers,
        )

    def _note(
        self, outcome: str, survey: _Survey | None, stats: PurgeStats | None = None, *, error: str | None = None
    ) -> None:
        """Write a line of the audit: what will be done, what was done, or what had been done when it failed."""
        import hashlib  # loads libcrypto, which takes 3.5 MB: few processes purge

        log, done = self._log, self._done
        topic_id = log.directory.topic_id(log.options)
        planned = [] if survey is None or stats is not None else survey.purgeable
        entry = {
            "time": _iso(log.clock.wall_ms()),
            "action": "purge_key",
            "outcome": outcome,
            "id": self._id,
            "topic": log.topic,
            "partition": log.partition,
            "topic_id": None if topic_id is None else str(topic_id),
            "key_sha256": hashlib.sha256(self._key).hexdigest(),
            "records": sum(found.records for found in planned) if planned else done.records,
            "segments": [found.segment.base_offset for found in planned] if planned else done.bases,
            "first_offset": planned[0].first_offset if planned else done.first_offset,
            "last_offset": planned[-1].last_offset if planned else done.last_offset,
        }
        if stats is not None:
            entry["records_left"], entry["left_from"] = stats.records_left, stats.left_from
            entry["leftovers"] = list(stats.leftovers)
        if error is not None:
            entry["error"] = error
        files, directory = log.options.files, self._directory
        # Missing permission for the audit, or a full disk, is not a failed disk.
        guard(log, lambda: audit.append(files, directory, entry), lambda error: error.errno != errno.EIO)

    def _beat(self, stage: str, before: int, total: int) -> Callable[[int], None]:
        """Return what a pass calls after each chunk of a segment; `before` bytes of the pass precede the segment."""
        log, progress, done = self._log, self._progress, before

        def beat(read: int) -> None:
            nonlocal done
            if not self._dry_run:
                log.cleaning.check()
            done += read
            if progress is not None:
                progress(Event(stage, done, max(total, done), "bytes", log.name))

        return beat


def _iso(ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
