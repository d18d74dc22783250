"""From a partition directory to its segments: after a clean stop, after a crash, or only to look.

Order of a writable load (Kafka: LogLoader):
  1 leftovers of deletion and compaction      2 the segments, orphan indexes removed
  3 after a crash: every byte from the recovery point on is checked, the first bad batch ends the log
  4 the log end, against the log start        5 leader epochs        6 producers, transactions

What may be cut is the policy's choice. recovery="kafka" cuts at the first bad batch and drops what follows.
recovery="strict" cuts a torn tail alone and refuses (CorruptLog) when good batches follow a bad one.
Only .log is believed; every other file is a cache that is rebuilt when it is missing or wrong.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass

from klog.errors import CorruptIndex, CorruptLog, CorruptSnapshot
from klog.log.epochs import LeaderEpochs
from klog.log.inputs import Findings, Inputs, Policy, Recovery, new_segment
from klog.log.leftovers import clear_leftovers
from klog.log.producers import Producers
from klog.log.recover import allow_cut, cut_text, delete_segments, find_end, recover, refuse_far_end, tail_position
from klog.log.replay import replay
from klog.log.snapshots import Snapshots, is_snapshot_size, snapshot_offsets
from klog.segment import Scan, Segment, names, scan_headers

__all__ = ["Inputs", "Loaded", "Policy", "Recovery", "has_producers", "list_segments", "load_read_only",
           "load_writable", "new_segment", "producers_at", "rebuild_txn_index"]  # fmt: skip

_log = logging.getLogger("klog.log")
SEGMENT_BYTES_MAX = 2**31 - 1
EMPTY_SNAPSHOT_BYTES = 10
DELETE_HORIZON = 0x40  # attribute bit


@dataclass(slots=True)
class Loaded:
    """A log as loading leaves it. The last segment is not active yet."""

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: Producers
    log_start_offset: int
    recovery_point: int
    recovery: Recovery


def list_segments(inputs: Inputs, *, writable: bool) -> list[Segment]:
    """The directory's segments in order, each as large as its file, its end not known yet."""
    bases = []
    for name in sorted(os.listdir(inputs.directory)):
        parsed = names.parse_name(name)
        if parsed is not None and parsed[1] == names.LOG:
            bases.append(parsed[0])
        elif name.endswith(names.LOG):
            _log.warning("event=foreign_file path=%s", os.path.join(inputs.directory, name))
    segments = [new_segment(inputs, base, writable=writable) for base in bases]
    for number, segment in enumerate(segments):
        segment.size = os.stat(segment.path, follow_symlinks=False).st_size
        if segment.size > SEGMENT_BYTES_MAX:
            raise CorruptLog(
                f"a segment of {segment.size} bytes: positions end at {SEGMENT_BYTES_MAX}", path=segment.path
            )
        segment.next_offset = bases[number + 1] if number + 1 < len(bases) else segment.base_offset
    return segments


def load_writable(inputs: Inputs) -> Loaded:
    """Load for appending. Raises CorruptLog where the policy forbids to cut, OSError where the disk fails."""
    started = inputs.clock.monotonic()
    found = Findings()
    clear_leftovers(inputs.directory, inputs.files, found.note)
    _remove_orphans(inputs, found)
    segments = list_segments(inputs, writable=True)
    epochs = LeaderEpochs(inputs.directory, inputs.files)
    epochs.load()
    if epochs.problem is not None:
        found.note(f"leader epochs rebuilt: {epochs.problem}")
    scans: dict[int, Scan] = {}  # of whole segments
    tail: dict[int, Scan] = {}  # of the part behind the last index entry
    _mend_txn_indexes(inputs, segments, found)
    if inputs.clean_shutdown:
        if segments:
            tail[segments[-1].base_offset] = find_end(inputs, segments[-1], found)
    else:
        segments = recover(
            inputs,
            segments,
            scans,
            found,
            lambda upto, scan: _rebuild_txn_index(inputs, upto, scans, scan, upto[-1]),
        )
    log_end = segments[-1].next_offset if segments else inputs.log_start_offset
    if segments and log_end < inputs.log_start_offset:
        if inputs.policy == "strict":
            raise CorruptLog(
                f"the log-start checkpoint says {inputs.log_start_offset}, the log ends at {log_end}: opening would "
                f'delete every record. Correct the checkpoint, or open with recovery="kafka"',
                path=inputs.directory,
                kind="checkpoint",
            )
        found.note(f"every segment deleted: the log ends at {log_end}, below its start {inputs.log_start_offset}")
        delete_segments(inputs, segments)
        segments = []
        epochs.clear()
    if not segments:
        segments = [new_segment(inputs, inputs.log_start_offset, writable=True)]
        log_end = inputs.log_start_offset
    log_start = max(inputs.log_start_offset, segments[0].base_offset)
    if inputs.clean_shutdown:
        recovery_point = log_end
    else:
        recovery_point = max(min(inputs.recovery_point, log_end), min(inputs.log_start_offset, log_end))
    _load_epochs(inputs, epochs, segments, scans, tail, log_end)
    producers = _load_producers(inputs, segments, scans, log_start, log_end, found)
    seconds = inputs.clock.monotonic() - started
    reason = "; ".join(found.details) if found.details else "" if inputs.clean_shutdown else "no clean shutdown"
    recovery = Recovery(
        inputs.clean_shutdown,
        seconds,
        found.segments_scanned,
        found.bytes_scanned,
        found.bytes_truncated,
        reason,
        tuple(found.details),
    )
    return Loaded(segments, epochs, producers, log_start, recovery_point, recovery)


def load_read_only(inputs: Inputs) -> Loaded:
    """Load for reading: nothing on disk changes. The end is that of the last whole batch.

    A tail that is no batch may be a write that is going on, and is only told in Recovery. Where good batches follow,
    the strict policy raises CorruptLog rather than show a log that is too short.
    """
    started = inputs.clock.monotonic()
    found = Findings()
    segments = list_segments(inputs, writable=False)
    epochs = LeaderEpochs(inputs.directory, inputs.files)
    epochs.load()
    if segments:
        active = segments[-1]
        size, position = active.size, tail_position(active)
        scan = scan_headers(active.file, position, size, 0, active.base_offset)
        if scan.reason == "offset_order" and position:
            scan = scan_headers(active.file, 0, size, 0, active.base_offset)
        refuse_far_end(inputs, active, scan)
        if scan.reason:  # an append in full swing looks truncated, with nothing good behind
            allow_cut(inputs, active, scan, size, [], 'recovery="kafka" reads the log up to there')
            found.details.append(cut_text(active, scan, size, [], "left out"))
        active.learn_tail(scan)
    log_start = max(inputs.log_start_offset, segments[0].base_offset) if segments else inputs.log_start_offset
    if epochs.problem is not None or (not epochs.entries and any(segment.size for segment in segments)):
        for segment in segments:
            scan = scan_headers(segment.file, 0, segment.size, 0)
            replay(scan.notable, segment.file, None, epochs, 0)
    seconds = inputs.clock.monotonic() - started
    recovery = Recovery(inputs.clean_shutdown, seconds, 0, 0, 0, "; ".join(found.details), tuple(found.details))
    return Loaded(segments, epochs, Producers(), log_start, inputs.recovery_point, recovery)


def _remove_orphans(inputs: Inputs, found: Findings) -> None:
    """Index files whose .log is gone."""
    present = set(os.listdir(inputs.directory))
    for name in sorted(present):
        parsed = names.parse_name(name)
        if parsed is None or parsed[1] in (names.LOG, names.SNAPSHOT):
            continue
        if names.file_name(parsed[0], names.LOG) not in present:
            found.note(f"{name} removed: it has no .log")
            inputs.files.unlink(os.path.join(inputs.directory, name))


# ---- epochs --------------------------------------------------------------------------------------------------------


def _load_epochs(
    inputs: Inputs,
    epochs: LeaderEpochs,
    segments: list[Segment],
    scans: dict[int, Scan],
    tail: dict[int, Scan],
    log_end: int,
) -> None:
    """Bring the epoch cache in line with the batches: learn what it lacks, drop what lies past the end."""
    lost = epochs.problem is not None or not epochs.entries
    for segment in segments:
        scan = scans.get(segment.base_offset)
        if scan is None and lost and segment.size:
            scan = scan_headers(segment.file, 0, segment.size, 0)
        elif scan is None:
            scan = tail.get(segment.base_offset)
        if scan is not None:
            replay(scan.notable, segment.file, None, epochs, 0)
    epochs.truncate_from_end(log_end)
    if inputs.log_start_offset:
        epochs.truncate_from_start(inputs.log_start_offset)
    epochs.flush()


# ---- producers -----------------------------------------------------------------------------------------------------


def producers_at(
    inputs: Inputs,
    segments: Sequence[Segment],
    scans: dict[int, Scan],
    log_start: int,
    end: int,
    snapshot_max: int | None = None,
) -> Producers:
    """Producer state below offset `end`: the newest usable snapshot, and a replay of what follows it.

    snapshot_max: believe no snapshot above this offset. After a crash that is the first segment that was recovered:
    what follows it is replayed anyway, and its snapshots are written anew.
    """
    writable = bool(segments) and segments[0].writable
    snapshots = Snapshots(inputs.directory, inputs.files)
    producers = Producers(snapshots if writable else None, expiration_ms=inputs.producer_expiration_ms)
    producers.clear(log_start)
    for offset in reversed(snapshots.offsets):
        if log_start < offset <= (end if snapshot_max is None else min(end, snapshot_max)):
            try:
                producers.load(snapshots.read(offset), offset)
                producers.expire(inputs.clock.wall_ms())
                break
            except CorruptSnapshot as error:
                _log.warning("event=snapshot_unusable reason=%s", error)
                if writable:
                    snapshots.delete(offset)
    for number, segment in enumerate(segments):
        if snapshot_max is not None and max(snapshot_max, log_start) < segment.base_offset and segment.writable:
            producers.end_offset = segment.base_offset
            producers.take_snapshot()
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end
        if segment.base_offset >= end or following <= producers.end_offset or not segment.size:
            continue
        scan = scans.get(segment.base_offset)
        if scan is None:
            scan = scan_headers(segment.file, 0, segment.size, 0)
        headers = [header for header in scan.notable if header.last_offset < end]
        aborted = replay(headers, segment.file, producers, None, producers.end_offset)
        known = {entry.last_offset for entry in segment.txn_index.entries}
        missing = [entry for entry in aborted if entry.last_offset not in known]
        if missing:
            segment.txn_index.add(missing)
    producers.end_offset = end
    return producers


def _load_producers(
    inputs: Inputs, segments: list[Segment], scans: dict[int, Scan], log_start: int, log_end: int, found: Findings
) -> Producers:
    bases = {segment.base_offset for segment in segments}
    stray = [offset for offset in snapshot_offsets(inputs.directory) if offset not in bases]
    for offset in snapshot_offsets(inputs.directory):
        path = names.file_path(inputs.directory, offset, names.SNAPSHOT)
        kept_stray = stray and offset == stray[-1] and offset > segments[-1].base_offset
        if offset > log_end or offset <= log_start or (offset in stray and not kept_stray):
            inputs.files.unlink(path)
        elif not is_snapshot_size(os.stat(path, follow_symlinks=False).st_size):
            _log.warning("event=snapshot_unusable reason=cut short (%s)", path)  # one that is not read below, too
            inputs.files.unlink(path)
    snapshot_max = min(scans) if scans else None
    producers = producers_at(inputs, segments, scans, log_start, log_end, snapshot_max)
    producers.expire(inputs.clock.wall_ms(), inputs.producer_expiration_ms)
    return producers


# ---- transaction indexes -------------------------------------------------------------------------------------------


def _rebuild_txn_index(
    inputs: Inputs, segments: list[Segment], scans: dict[int, Scan], scan: Scan, segment: Segment
) -> None:
    """The transaction index of a recovered segment, from its markers."""
    if any(header.is_control and header.producer_id >= 0 for header in scan.notable):
        first = segments[0].base_offset
        producers = producers_at(inputs, segments[:-1], scans, max(inputs.log_start_offset, first), segment.base_offset)
        aborted = replay(scan.notable, segment.file, producers, None, segment.base_offset)
    else:
        aborted = []
    segment.txn_index.write(aborted)


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
    """The aborted transactions whose markers lie in a segment, from its batches."""
    scan = scan_headers(segment.file, 0, segment.size, 0)
    if any(header.is_control and header.producer_id >= 0 for header in scan.notable):
        upto = [other for other in segments if other.base_offset < segment.base_offset]
        start = max(inputs.log_start_offset, segments[0].base_offset)
        producers = producers_at(inputs, upto, {}, start, segment.base_offset)
        aborted = replay(scan.notable, segment.file, producers, None, segment.base_offset)
        # A marker with a delete horizon is one whose records the cleaner has removed, and the entry with them.
        emptied = {header.last_offset for header in scan.notable if header.attributes & DELETE_HORIZON}
        emptied.update(entry.last_offset for entry in segment.txn_index.entries)
        aborted = [entry for entry in aborted if entry.last_offset not in emptied]
        if aborted:
            segment.txn_index.add(aborted)


def _mend_txn_indexes(inputs: Inputs, segments: list[Segment], found: Findings) -> None:
    """Rebuild transaction indexes that break their format, crash or not."""
    for number, segment in enumerate(segments):
        if not os.path.exists(segment.txn_index.path):
            continue
        try:
            segment.txn_index.check()
        except CorruptIndex as error:
            found.note(f"transaction index rebuilt: {error}")
            scan = scan_headers(segment.file, 0, segment.size, 0)
            _rebuild_txn_index(inputs, segments[: number + 1], {}, scan, segment)
