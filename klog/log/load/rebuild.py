"""Rebuilds the state derived from the records: leader epochs, producers, aborted transactions.

  B1  after a crash each batch from the recovery point on is read once, in order: DerivedState follows the recovery
  B2  snapshots above the first recovered segment are not used; they are rewritten, one at each base offset passed, or
      removed
  B3  after a clean shutdown the newest snapshot is used, and only the batches after it are replayed
  B4  missing or damaged files are rebuilt from the batches, never skipped: without a transaction index read_committed
      would return aborted records
  B5  producer state that ends at or below the log start is dropped: snapshots, and what recovery has learned from the
      segments below it
  B6  epochs are taken from the batches only by the rules of batch_epochs

Kafka: LogLoader, UnifiedLog.rebuildProducerState, LogSegment.recover.
"""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Sequence

from klog.errors import CorruptData, CorruptIndex, CorruptSnapshot
from klog.log.directory._listing import Listing
from klog.log.load.batch_epochs import learn_epochs, mend_epochs
from klog.log.load.damage import contradicted, notable_headers
from klog.log.load.inputs import Findings, Inputs
from klog.log.load.replay import is_commit, replay
from klog.log.state.leader_epochs import LeaderEpochCache
from klog.log.state.producers import Producers
from klog.log.state.snapshots import Snapshots, is_snapshot_size, read_snapshot
from klog.logger import logger_of
from klog.record import DELETE_HORIZON
from klog.segment import AbortedTransaction, Header, Scan, Segment, names

_log = logger_of("log")
_NONE = 2**63
_base_of = operator.attrgetter("base_offset")


class DerivedState:
    """The leader epochs and producers of a log during a writable load. One thread."""

    def __init__(self, inputs: Inputs, listing: Listing) -> None:
        self.epochs = LeaderEpochCache(inputs.directory, inputs.files)
        self.epochs.load()
        self.producers: Producers | None = None  # the state up to where recovery is
        self._lost = not self.epochs.entries
        self._inputs = inputs
        self._snapshots = Snapshots(inputs.directory, inputs.files, listing.snapshots)

    def begin(self, segments: Sequence[Segment], number: int, log_start: int) -> None:
        """Recovery begins with segments[number]."""
        before, base = segments[:number], segments[number].base_offset
        if self._lost:
            learn_epochs(self.epochs, before)
        self.producers = producers_at(
            self._inputs,
            before,
            log_start,
            base,
            high_watermark=self._inputs.high_watermark,
            snapshots=self._snapshots,
            snapshots_from=_last_but_one(segments),
        )

    def apply(self, segment: Segment, scan: Scan) -> None:
        """Apply the next segment that recovery has checked."""
        producers = self.producers
        assert producers is not None
        if producers.end_offset <= self._inputs.log_start_offset:
            producers.clear(self._inputs.log_start_offset)  # B5
        producers.skip_to(segment.base_offset)
        producers.take_snapshot()  # of the state before this segment; writes nothing if it was loaded from a snapshot
        epochs = self.epochs if self._lost else None  # B6
        aborted = replay(scan.notable, segment.file, producers, epochs, segment.base_offset)
        segment.txn_index.write(aborted)
        segment.txn_index.note_checked()
        producers.skip_to(segment.next_offset)

    def finish(
        self, segments: Sequence[Segment], log_start: int, log_end: int, last_epoch: int | None = None
    ) -> Producers:
        """Finish after the last segment: the producers at the log end. last_epoch: that of the last batch, if known."""
        self._finish_epochs(segments, log_start, log_end, last_epoch)
        producers, inputs = self.producers, self._inputs
        self._remove_snapshots(segments, log_start, log_end, newest_is_read=producers is None)
        if producers is None:
            producers = producers_at(
                inputs,
                segments,
                log_start,
                log_end,
                high_watermark=inputs.high_watermark,
                snapshots=self._snapshots,
                snapshots_from=_last_but_one(segments),
            )
        elif log_end <= log_start:
            producers.clear(log_start)  # B5
        if producers.entries:
            producers.expire(inputs.clock.wall_ms(), inputs.producer_expiration_ms)
        producers.take_snapshot()
        return producers

    def _finish_epochs(self, segments: Sequence[Segment], log_start: int, log_end: int, last_epoch: int | None) -> None:
        """Add missing epochs, and drop those outside the log, first at its end, then at its start.

        If all records of a log are deleted, its last epoch begins and ends at the log end.
        """
        epochs, start = self.epochs, self._inputs.log_start_offset
        if self._lost and self.producers is None:
            learn_epochs(epochs, segments)  # else recovery has learned them
        # The epoch of a leader without a record, or of records that a crash has lost, stays that of the leader.
        epochs.truncate_from_end(log_end + 1 if 0 < log_start == log_end else log_end)
        if not epochs.entries and not self._lost:
            # The log start has passed every batch, or had passed them before a crash reset it.
            learn_epochs(epochs, segments)
        entries = epochs.entries
        mend_epochs(epochs, segments, log_end, last_epoch)
        if epochs.entries != entries:
            _log.warning("event=epochs_mended path=%s", epochs.path)
        epochs.begin_at(epochs.current, log_end)  # the epoch of a leader must not decrease
        if start:
            epochs.truncate_from_start(start)
        epochs.flush()

    def _remove_snapshots(
        self, segments: Sequence[Segment], log_start: int, log_end: int, *, newest_is_read: bool
    ) -> None:
        """Remove snapshots outside the log, truncated ones, and those where no segment begins, except the last.

        newest_is_read: producers_at() reads the newest one next, and removes it if it is damaged. Durably: after a
        power cut, a reader would believe one that comes back below a new log end.
        """
        snapshots, bases = self._snapshots, set(map(_base_of, segments))
        if not self._inputs.clean_shutdown:
            snapshots.relist()  # recovery may have renamed some, with their segments
        if self.producers is not None:
            bases.add(log_end)  # B2: none stays between the base offset of a recovered segment and its end
        known = snapshots.offsets
        snapshots.remove_strays(bases)
        for offset in snapshots.offsets:
            if not log_start < offset <= log_end:
                snapshots.delete(offset)
        for offset in snapshots.offsets[: -1 if newest_is_read else None]:
            path = names.file_path(self._inputs.directory, offset, names.SNAPSHOT)
            if not is_snapshot_size(os.stat(path, follow_symlinks=False).st_size):
                _log.warning("event=snapshot_unusable reason=truncated (%s)", path)  # also if it is not read below
                snapshots.delete(offset)
        if snapshots.offsets != known:
            self._inputs.files.fsync_dir(self._inputs.directory)


# ---- producers -----------------------------------------------------------------------------------------------------


def _last_but_one(segments: Sequence[Segment]) -> int:
    """Base offset of the last segment but one; of the only one, if there is only one."""
    return segments[-2:][0].base_offset


def producers_at(
    inputs: Inputs,
    segments: Sequence[Segment],
    log_start: int,
    end: int,
    snapshot_max: int = _NONE,
    high_watermark: int | None = None,
    snapshots: Snapshots | None = None,
    snapshots_from: int = _NONE,
) -> Producers:
    """The producer state below offset `end`: from the newest usable snapshot and a replay of the batches after it.

    snapshot_max: use no snapshot above this offset. high_watermark: a snapshot above it lacks the transactions whose
    markers lie between the two, and which are not stable yet. They alone are found from an earlier snapshot on: batches
    of other producers may have been deleted since.

    snapshots: where the state writes snapshots, at those base offsets from snapshots_from on that the replay passes;
    None for a state that is only read.
    """
    kept = snapshots is not None
    files = Snapshots(inputs.directory, inputs.files) if snapshots is None else snapshots
    producers = Producers(snapshots)
    for offset in reversed(files.offsets):
        if log_start < offset <= min(end, snapshot_max):
            try:
                producers.load(files.read(offset), offset)
                if producers.entries:
                    producers.expire(inputs.clock.wall_ms(), inputs.producer_expiration_ms)
                break
            except (CorruptSnapshot, FileNotFoundError) as error:
                _log.warning("event=snapshot_unusable reason=%s", error)
                if kept:
                    files.delete(offset)
    else:
        producers.clear(log_start)
    loaded = producers.end_offset
    replay_up_to(producers, segments, end, snapshots_from)
    if high_watermark is not None and loaded > max(high_watermark, log_start):
        producers.take_unreplicated(producers_at(inputs, segments, log_start, end, min(high_watermark, snapshot_max)))
    return producers


def replay_up_to(producers: Producers, segments: Sequence[Segment], end: int, snapshots_from: int = _NONE) -> None:
    """Apply the batches of [producers.end_offset, end). snapshots_from: see producers_at()."""
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end
        if segment.base_offset >= end or following <= producers.end_offset:
            continue
        if segment.base_offset >= snapshots_from:
            producers.skip_to(segment.base_offset)
            producers.take_snapshot()
        if not segment.size:
            continue
        unreadable: list[Header] = []
        position = _position_of(segment, producers.end_offset)
        headers = [header for header in notable_headers(segment, position)[0] if header.last_offset < end]
        aborted = replay(headers, segment.file, producers, None, producers.end_offset, unreadable)
        for header in unreadable:
            _log.warning("event=marker_unreadable path=%s position=%d", segment.path, header.position)
            producers.note_unreadable()
        _add_missing(segment, aborted)
    producers.end_at(end)


def _position_of(segment: Segment, offset: int) -> int:
    """Position of the first batch that reaches an offset; 0 if damage may hide it."""
    header = None
    if offset > segment.base_offset:
        with contextlib.suppress(CorruptData):
            header = segment.locate(offset)
    return 0 if header is None else header.position


def _add_missing(segment: Segment, aborted: Sequence[AbortedTransaction]) -> None:
    """Add transactions that the replay of a segment found and its transaction index does not have."""
    known: Sequence[AbortedTransaction] = ()
    with contextlib.suppress(CorruptIndex):  # of a read-only log: the first lookup rebuilds it
        known = segment.txn_index.entries
    ends = {entry.last_offset for entry in known}
    missing = [entry for entry in aborted if entry.last_offset not in ends]
    if missing:
        segment.txn_index.correct(sorted((*known, *missing), key=lambda entry: entry.last_offset))


# ---- transaction indexes -------------------------------------------------------------------------------------------


def rebuild_txn_index(inputs: Inputs, segments: Sequence[Segment], segment: Segment) -> None:
    """Correct the transaction index of a segment by its markers. The file has no checksum."""
    index = segment.txn_index
    if not segment.size:
        return  # no batch can contradict it
    known: dict[int, AbortedTransaction] = {}
    with contextlib.suppress(CorruptIndex):
        known = {entry.last_offset: entry for entry in index.entries}
    headers, whole = notable_headers(segment)
    markers = {header.last_offset: header for header in headers if header.is_control and header.producer_id >= 0}
    start = max(inputs.log_start_offset, segments[0].base_offset)
    entries: list[AbortedTransaction] = []
    if markers:
        producers = _producers_before(inputs, segments, segment, start)
        unreadable: list[Header] = []
        for entry in replay(headers, segment.file, producers, None, segment.base_offset, unreadable):
            stored = known.pop(entry.last_offset, None)
            if stored is not None:
                entries.append(_agreed(stored, entry, start, whole=whole and not unreadable))
            elif not markers[entry.last_offset].attributes & DELETE_HORIZON:
                entries.append(entry)  # else the cleaner has removed its records, and the entry with them
    # Some transactions may be in the file only: those whose records the cleaner or retention has removed, and those
    # whose markers are damaged. Entries that no intact batch contradicts stay.
    entries += [
        known.pop(offset)
        for offset, marker in markers.items()
        if offset in known and marker.producer_id == known[offset].producer_id and not is_commit(marker, segment.file)
    ]
    wrong = contradicted(segment, known)
    entries += [entry for offset, entry in known.items() if offset not in wrong]
    index.correct(sorted(entries, key=lambda entry: entry.last_offset))


def _agreed(stored: AbortedTransaction, found: AbortedTransaction, start: int, *, whole: bool) -> AbortedTransaction:
    """One entry from that of the file and that found in the batches.

    The batches lack what is before the log start, what the cleaner has removed and, if they are damaged (not whole),
    the first offset. The lower last stable offset is safe: it only makes a reader look further.
    """
    if stored.producer_id != found.producer_id:
        return found
    from_file = not whole or 0 <= stored.first_offset < start
    first = stored.first_offset if from_file else found.first_offset
    stable = min(stored.last_stable_offset, found.last_stable_offset)
    return AbortedTransaction(found.producer_id, first, found.last_offset, stable)


def mend_txn_indexes(inputs: Inputs, listing: Listing, segments: Sequence[Segment], found: Findings) -> None:
    """Rebuild transaction indexes with an invalid format, after a crash or a clean shutdown."""
    present = set(listing.txn_indexes)
    for segment in [each for each in segments if each.base_offset in present]:
        try:
            segment.txn_index.check()
        except CorruptIndex as error:
            found.note(f"transaction index rebuilt: {error}")
            rebuild_txn_index(inputs, segments, segment)


def _producers_before(inputs: Inputs, segments: Sequence[Segment], segment: Segment, start: int) -> Producers:
    """The producer state at the base offset of a segment. Mostly there is a snapshot of it."""
    if segment.base_offset > start:
        try:
            producers = Producers()
            producers.load(read_snapshot(inputs.directory, segment.base_offset), segment.base_offset)
            return producers
        except (CorruptSnapshot, FileNotFoundError):
            pass
    return producers_at(inputs, segments, start, segment.base_offset)
