"""What is kept beside the records, brought in line with them: leader epochs, producers, aborted transactions.

  B1  after a crash each batch from the recovery point on is looked at once, in order: Beside goes along with recovery
  B2  no snapshot above the first recovered segment is believed; they are written anew, one at each base passed
  B3  after a clean stop the newest snapshot is believed, and only what follows it is replayed
  B4  what is missing or broken is made from the batches, never left out: a forgotten transaction index would show
      aborted records to read_committed
  B5  of producers nothing is kept that ends at or below the log start: neither a snapshot nor what recovery has learned
      in the segments below it
  B6  epochs are taken from the batches only where epochs_of_batches says so

Kafka: LogLoader, UnifiedLog.rebuildProducerState, LogSegment.recover.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Collection, Sequence

from klog.errors import CorruptIndex, CorruptSnapshot
from klog.log.load.batch_epochs import learn_epochs, mend_epochs
from klog.log.load.damage import contradicted, notable_headers
from klog.log.load.inputs import Findings, Inputs
from klog.log.load.replay import replay
from klog.log.state.leader_epochs import LeaderEpochCache
from klog.log.state.producers import Producers
from klog.log.state.snapshots import Snapshots, is_snapshot_size, read_snapshot
from klog.segment import AbortedTransaction, Header, Scan, Segment, names

_log = logging.getLogger("klog.log")
EMPTY_SNAPSHOT_BYTES = 10
DELETE_HORIZON = 0x40  # attribute bit


class Beside:
    """Epochs and producers of a log that is being loaded for writing. One load, one thread."""

    def __init__(self, inputs: Inputs) -> None:
        self.epochs = LeaderEpochCache(inputs.directory, inputs.files)
        self.epochs.load()
        self.producers: Producers | None = None  # as far as recovery has come
        self._lost = self.epochs.problem is not None or not self.epochs.entries
        self._inputs = inputs
        self._log_start = inputs.log_start_offset
        self._snapshots = Snapshots(inputs.directory, inputs.files)

    def begin(self, segments: Sequence[Segment], number: int, log_start: int) -> None:
        """Recovery begins with segments[number]."""
        self._log_start = log_start
        before, base = segments[:number], segments[number].base_offset
        last_two = {segment.base_offset for segment in segments[-2:]}
        if self._lost:
            learn_epochs(self.epochs, before)
        self.producers = producers_at(self._inputs, before, log_start, base, base, self._snapshots, last_two)

    def learn(self, segment: Segment, scan: Scan) -> None:
        """The next segment that recovery has checked."""
        producers = self.producers
        assert producers is not None
        if producers.end_offset <= self._log_start:
            producers.clear(self._log_start)  # B5
        if segment.base_offset > producers.end_offset:
            producers.end_offset = segment.base_offset
        producers.take_snapshot()  # of what came before; none where that is the snapshot it began with
        epochs = self.epochs if self._lost else None  # B6
        aborted = replay(scan.notable, segment.file, producers, epochs, segment.base_offset)
        segment.txn_index.write(aborted)
        segment.txn_index.checked = True
        producers.end_offset = max(producers.end_offset, segment.next_offset)

    def finish(self, segments: Sequence[Segment], log_start: int, log_end: int) -> Producers:
        """The segments are what they will be."""
        self._finish_epochs(segments, log_start, log_end)
        self._remove_snapshots(segments, log_start, log_end)
        producers, inputs = self.producers, self._inputs
        if producers is None or producers.end_offset > log_end:
            last_two = {segment.base_offset for segment in segments[-2:]}
            producers = producers_at(inputs, segments, log_start, log_end, None, self._snapshots, last_two)
        elif log_end <= log_start:
            producers.clear(log_start)  # B5
        producers.end_offset = log_end
        producers.expire(inputs.clock.wall_ms(), inputs.producer_expiration_ms)
        producers.take_snapshot()
        return producers

    def _finish_epochs(self, segments: Sequence[Segment], log_start: int, log_end: int) -> None:
        """Learn what a clean load has seen, drop what lies outside the log: first at its end, then at its start. The
        last epoch of a log whose records are all gone begins and ends at the log end."""
        epochs, start = self.epochs, self._inputs.log_start_offset
        learned = self.producers is None and self._lost
        if learned:
            learn_epochs(epochs, segments)
        dropped = epochs.latest
        epochs.truncate_from_end(log_end + 1 if 0 < log_start == log_end else log_end)
        if not epochs.entries and not learned:
            # The log start has passed every batch, or had before a crash took it back.
            learn_epochs(epochs, segments)
        if mend_epochs(epochs, segments, log_end):
            _log.warning("event=epochs_mended path=%s", epochs.path)
        epochs.default = max(epochs.latest or 0, dropped or 0)  # appends never fall behind what is there already
        if start:
            epochs.truncate_from_start(start)
        epochs.flush()

    def _remove_snapshots(self, segments: Sequence[Segment], log_start: int, log_end: int) -> None:
        """Those outside the log, those of no segment but the last, those cut short."""
        snapshots = self._snapshots
        snapshots.remove_strays({segment.base_offset for segment in segments})
        for offset in snapshots.offsets:
            path = names.file_path(self._inputs.directory, offset, names.SNAPSHOT)
            if not log_start < offset <= log_end:
                snapshots.delete(offset)
            elif not is_snapshot_size(os.stat(path, follow_symlinks=False).st_size):
                _log.warning("event=snapshot_unusable reason=cut short (%s)", path)  # one that is not read below, too
                snapshots.delete(offset)


# ---- producers -----------------------------------------------------------------------------------------------------


def producers_at(
    inputs: Inputs,
    segments: Sequence[Segment],
    log_start: int,
    end: int,
    snapshot_max: int | None = None,
    snapshots: Snapshots | None = None,
    snapshots_at: Collection[int] = (),
) -> Producers:
    """Producer state below offset `end`: the newest usable snapshot, and a replay of what follows it.

    snapshot_max: believe no snapshot above this offset. snapshots: the state keeps its own there, at those bases of
    snapshots_at that the replay passes; None for a state that is only looked at.
    """
    kept = snapshots is not None
    files = Snapshots(inputs.directory, inputs.files) if snapshots is None else snapshots
    producers = Producers(snapshots, expiration_ms=inputs.producer_expiration_ms)
    producers.clear(log_start)
    for offset in reversed(files.offsets):
        if log_start < offset <= (end if snapshot_max is None else min(end, snapshot_max)):
            try:
                producers.load(files.read(offset), offset)
                producers.expire(inputs.clock.wall_ms())
                break
            except (CorruptSnapshot, FileNotFoundError) as error:
                _log.warning("event=snapshot_unusable reason=%s", error)
                if kept:
                    files.delete(offset)
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end
        if segment.base_offset >= end or following <= producers.end_offset:
            continue
        if segment.base_offset in snapshots_at:
            producers.end_offset = max(producers.end_offset, segment.base_offset)
            producers.take_snapshot()
        if not segment.size:
            continue
        unreadable: list[Header] = []
        headers = [header for header in notable_headers(segment)[0] if header.last_offset < end]
        aborted = replay(headers, segment.file, producers, None, producers.end_offset, unreadable)
        for header in unreadable:
            _log.warning("event=marker_unreadable path=%s position=%d", segment.path, header.position)
        _add_missing(segment, aborted)
    producers.end_offset = end
    return producers


def _add_missing(segment: Segment, aborted: Sequence[AbortedTransaction]) -> None:
    """Markers that the replay of a segment met and its index does not know join it."""
    known: Sequence[AbortedTransaction] = ()
    with contextlib.suppress(CorruptIndex):  # of a log that is only read: the first to ask rebuilds it
        known = segment.txn_index.entries
    ends = {entry.last_offset for entry in known}
    missing = [entry for entry in aborted if entry.last_offset not in ends]
    if missing:
        segment.txn_index.correct(sorted((*known, *missing), key=lambda entry: entry.last_offset))


# ---- transaction indexes -------------------------------------------------------------------------------------------


def has_producers(directory: str) -> bool:
    """Does any snapshot or transaction index say that producers with ids write here?"""
    with os.scandir(directory) as entries:
        for entry in entries:
            _, suffix = names.parse_name(entry.name) or (0, "")
            if suffix == names.TXN_INDEX:
                return True
            if suffix == names.SNAPSHOT and entry.stat().st_size > EMPTY_SNAPSHOT_BYTES:
                return True
    return False


def rebuild_txn_index(inputs: Inputs, segments: Sequence[Segment], segment: Segment) -> None:
    """Bring a segment's transaction index in line with its markers, whatever its file says: it has no checksum."""
    index = segment.txn_index
    if not segment.size:
        return  # no batch can say otherwise
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
            said = known.pop(entry.last_offset, None)
            if said is not None:
                entries.append(_agreed(said, entry, start, whole=whole and not unreadable))
            elif not markers[entry.last_offset].attributes & DELETE_HORIZON:
                entries.append(entry)  # else the cleaner has removed its records, and the entry with them
    # Of transactions whose records the cleaner has removed, or retention, the file alone may know; and of those whose
    # markers damage hides. What no sound batch contradicts stays.
    entries += [
        known.pop(offset)
        for offset, marker in markers.items()
        if offset in known and marker.producer_id == known[offset].producer_id
    ]
    wrong = contradicted(segment, known)
    entries += [entry for offset, entry in known.items() if offset not in wrong]
    index.correct(sorted(entries, key=lambda entry: entry.last_offset))


def _agreed(said: AbortedTransaction, found: AbortedTransaction, start: int, *, whole: bool) -> AbortedTransaction:
    """What is true of a transaction by its file and by its batches, which know nothing of before the log start, nor of
    what the cleaner has removed, nor, if they are not whole, where it began. The lower last stable offset only makes a
    reader look further."""
    if said.producer_id != found.producer_id:
        return found
    believed = not whole or 0 <= said.first_offset < start
    first = said.first_offset if believed else found.first_offset
    stable = min(said.last_stable_offset, found.last_stable_offset)
    return AbortedTransaction(found.producer_id, first, found.last_offset, stable)


def mend_txn_indexes(inputs: Inputs, listing: Sequence[str], segments: Sequence[Segment], found: Findings) -> None:
    """Rebuild transaction indexes that break their format, crash or not."""
    present = {name for name in listing if name.endswith(names.TXN_INDEX)}
    for segment in segments if present else ():
        if names.file_name(segment.base_offset, names.TXN_INDEX) not in present:
            continue
        try:
            segment.txn_index.check()
        except CorruptIndex as error:
            found.note(f"transaction index rebuilt: {error}")
            rebuild_txn_index(inputs, segments, segment)


def _producers_before(inputs: Inputs, segments: Sequence[Segment], segment: Segment, start: int) -> Producers:
    """Producers where a segment begins: mostly there is a snapshot of just that."""
    if segment.base_offset > start:
        try:
            producers = Producers(expiration_ms=inputs.producer_expiration_ms)
            producers.load(read_snapshot(inputs.directory, segment.base_offset), segment.base_offset)
            return producers
        except (CorruptSnapshot, FileNotFoundError):
            pass
    before = [other for other in segments if other.base_offset < segment.base_offset]
    return producers_at(inputs, before, start, segment.base_offset)
