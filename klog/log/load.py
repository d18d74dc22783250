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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from klog.clock import Clock
from klog.config import LogConfig
from klog.disk import Files, HandleCache
from klog.errors import CorruptIndex, CorruptLog, CorruptSnapshot
from klog.log.epochs import LeaderEpochs
from klog.log.leftovers import clear_leftovers
from klog.log.producers import Producers
from klog.log.replay import replay
from klog.log.snapshots import Snapshots, is_snapshot_size, snapshot_offsets
from klog.segment import Header, Home, Scan, Segment, find_offset, names, nul_page_within, scan_headers, search_batch

_log = logging.getLogger("klog.log")
SEGMENT_BYTES_MAX = RELATIVE_OFFSET_MAX = 2**31 - 1
EMPTY_SNAPSHOT_BYTES = 10
BATCH_HEADER = 61
DELETE_HORIZON = 0x40  # attribute bit
Policy = Literal["strict", "kafka"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What loading found. reason is "" after a clean stop with nothing to mend; details has a line per finding."""

    clean_shutdown: bool
    seconds: float
    segments_scanned: int
    bytes_scanned: int
    bytes_truncated: int
    reason: str
    details: tuple[str, ...]


@dataclass(slots=True)
class Inputs:
    """What a load is told, and the tools it works with."""

    directory: str
    config: LogConfig
    files: Files
    handles: HandleCache
    clock: Clock
    policy: Policy
    clean_shutdown: bool
    recovery_point: int
    log_start_offset: int
    producer_expiration_ms: int
    check_gaps: bool  # False where the topic may be compacted
    progress: Callable[[int], None] | None = None
    home: Home | None = None  # what its segments share, made with the first of them


@dataclass(slots=True)
class Loaded:
    """A log as loading leaves it. The last segment is not active yet."""

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: Producers
    log_start_offset: int
    recovery_point: int
    recovery: Recovery
    last_at: int = -1  # of a log that is only read: where in the last segment the last batch begins


@dataclass(slots=True)
class Findings:
    """What loading has met so far, for Recovery."""

    segments_scanned: int = 0
    bytes_scanned: int = 0
    bytes_truncated: int = 0
    details: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.details.append(text)
        _log.warning("event=recovery %s", text)


def new_segment(inputs: Inputs, base_offset: int, *, writable: bool) -> Segment:
    """A Segment object for a base offset; touches no file."""
    home = inputs.home
    if home is None or home.writable != writable:
        home = inputs.home = Home(inputs.directory, inputs.config, inputs.files, inputs.handles, writable=writable)
    return Segment(home, base_offset, inputs.clock.wall_ms())


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


def tail_position(segment: Segment) -> int:
    """Where the scan for the log end may begin: the last index entry that lands on its batch, else 0."""
    try:
        index = segment.index
    except (OSError, CorruptIndex):
        return 0
    if index.entries == 0:
        return 0
    offset, position = index.entry(index.entries - 1)
    header = find_offset(segment.file, position, segment.size, 0)
    return position if header is not None and header.position == position and header.last_offset == offset else 0


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
            tail[segments[-1].base_offset] = _find_end(inputs, segments[-1], found)
    else:
        segments = _recover(inputs, segments, scans, found)
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
        _delete(inputs, segments)
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
    last_at = -1
    if segments:
        active = segments[-1]
        size, position = active.size, tail_position(active)
        scan = scan_headers(active.file, position, size, 0, active.base_offset)
        if scan.reason == "offset_order" and position:
            scan = scan_headers(active.file, 0, size, 0, active.base_offset)
        _refuse_far_end(inputs, active, scan)
        if scan.reason:  # an append in full swing looks truncated, with nothing good behind
            _allow_cut(inputs, active, scan, size, [], 'recovery="kafka" reads the log up to there')
            found.details.append(_cut_text(active, scan, size, [], "left out"))
        active.learn_tail(scan)
        last_at = scan.last_at if scan.batches else -1
    log_start = max(inputs.log_start_offset, segments[0].base_offset) if segments else inputs.log_start_offset
    if epochs.problem is not None or (not epochs.entries and any(segment.size for segment in segments)):
        for segment in segments:
            scan = scan_headers(segment.file, 0, segment.size, 0)
            replay(scan.notable, segment.file, None, epochs, 0)
    seconds = inputs.clock.monotonic() - started
    recovery = Recovery(inputs.clean_shutdown, seconds, 0, 0, 0, "; ".join(found.details), tuple(found.details))
    return Loaded(segments, epochs, Producers(), log_start, inputs.recovery_point, recovery, last_at)


# ---- recovery ------------------------------------------------------------------------------------------------------


def _recover(inputs: Inputs, segments: list[Segment], scans: dict[int, Scan], found: Findings) -> list[Segment]:
    """Check every segment from the one that holds the recovery point on; the segments that remain."""
    first = 0
    for number, segment in enumerate(segments):
        if segment.base_offset <= inputs.recovery_point:
            first = number
    for number in range(first, len(segments)):
        segment = segments[number]
        if number and inputs.check_gaps and inputs.policy == "strict":
            _refuse_gap(segments[number - 1], segment)
        found.segments_scanned += 1
        found.bytes_scanned += segment.size
        size = segment.size
        scan = segment.recover(inputs.progress)
        scans[segment.base_offset] = scan
        if number + 1 < len(segments) and scan.next_offset > segments[number + 1].base_offset:
            scan.liars.append(scan.last_at)  # the last batch reaches into the next segment
            segment.next_offset = segments[number + 1].base_offset
        _refuse_far_end(inputs, segment, scan)
        _rebuild_txn_index(inputs, segments[: number + 1], scans, scan, segment)
        _report_liars(inputs, segment, scan, found, refuse=inputs.policy == "strict")
        if scan.end == size:
            continue
        later = segments[number + 1 :]
        _allow_cut(inputs, segment, scan, size, later)
        found.bytes_truncated += size - scan.end
        found.note(_cut_text(segment, scan, size, later))
        segment.cut(scan.end)
        found.bytes_truncated += sum(other.size for other in later)
        _delete(inputs, later)
        return segments[: number + 1]
    return segments


def _refuse_gap(before: Segment, after: Segment) -> None:
    if before.next_offset < after.base_offset and after.size:
        raise CorruptLog(
            f"records {before.next_offset} to {after.base_offset - 1} are missing between two segments: restore "
            f'{before.path}, or open with recovery="kafka" to go on without them',
            path=after.path,
            position=0,
            offset=before.next_offset,
            kind="gap",
        )


def _allow_cut(
    inputs: Inputs,
    segment: Segment,
    scan: Scan,
    size: int,
    later: list[Segment],
    way_out: str = 'recovery="kafka" cuts the log here as a broker would',
) -> None:
    """Raise CorruptLog under the strict policy unless what is cut is a torn tail or write-back that never came."""
    if inputs.policy == "kafka":
        return
    if not bytes(segment.file.read(scan.end, BATCH_HEADER)).strip(b"\0"):
        return  # a whole write never came, only the length of the file and a later write did
    behind: Header | None = search_batch(segment.file, scan.end, size, segment.base_offset, scan.next_offset)
    if nul_page_within(segment.file, scan.end, size if behind is None else behind.position) >= 0:
        return  # zeros in the values of the good batches behind are no such page
    where = "" if behind is None else f"a good batch of offset {behind.base_offset} stands at byte {behind.position}"
    if behind is None:
        for other in later:
            header = find_offset(other.file, 0, other.size, other.base_offset)
            if header is not None:
                where = f"{other.path} holds batches from offset {header.base_offset} on"
                break
        else:
            return
    raise CorruptLog(
        f"a bad batch ({scan.reason}) with good ones behind it: {where}. Nothing was changed. `klog verify` lists the "
        f"damage; {way_out}",
        path=segment.path,
        position=scan.end,
        offset=max(scan.next_offset, segment.base_offset),
        kind="crc" if scan.reason == "crc" else "length",
    )


_WHAT = {
    "truncated": "a batch cut short",
    "length": "no batch",
    "crc": "a batch whose checksum fails",
    "magic": "no batch of a known format",
    "offset_order": "a batch whose offsets go back",
}


def _cut_text(segment: Segment, scan: Scan, size: int, later: list[Segment], fate: str = "cut") -> str:
    text = (
        f"{segment.path}: {_WHAT[scan.reason]} at byte {scan.end}, {size - scan.end} bytes {fate}, "
        f"log ends at {scan.next_offset}"
    )
    return text + (f", {len(later)} later segments deleted" if later else "")


def _find_end(inputs: Inputs, segment: Segment, found: Findings) -> Scan:
    """The end of the last segment after a clean stop, by its headers; a torn or foreign tail is cut."""
    size = segment.size
    position = tail_position(segment)
    floor = segment.base_offset if inputs.policy == "strict" else 0
    scan = scan_headers(segment.file, position, size, floor, segment.base_offset)
    if scan.reason == "offset_order" and position:  # who lies can only be told from the beginning
        scan = scan_headers(segment.file, 0, size, floor, segment.base_offset)
    _refuse_far_end(inputs, segment, scan)
    _report_liars(inputs, segment, scan, found, refuse=False)
    if scan.reason:
        _allow_cut(inputs, segment, scan, size, [])
        found.bytes_truncated += size - scan.end
        found.note(_cut_text(segment, scan, size, []))
        segment.cut(scan.end)
    segment.learn_tail(scan)
    segment.txn_index.truncate_to(segment.next_offset)
    return scan


def _report_liars(inputs: Inputs, segment: Segment, scan: Scan, found: Findings, *, refuse: bool) -> None:
    """A batch with a wrong base offset stays where it is: readers meet CorruptBatch there."""
    for position in scan.liars:
        text = "a batch whose base offset jumps ahead of the good batches behind it"
        if refuse:
            raise CorruptLog(
                f'{text}. Nothing was changed. `klog verify` lists the damage; recovery="kafka" opens the log as it is',
                path=segment.path,
                position=position,
                kind="offset_order",
            )
        found.note(f"{segment.path}: {text} at byte {position}, left as it is")


def _refuse_far_end(inputs: Inputs, segment: Segment, scan: Scan) -> None:
    """The last batch alone has none behind it that would show its base offset to be wrong; but no segment holds offsets
    that its index cannot name (Kafka splits such ones, which klog leaves as they are). A log that went on from there
    would have a hole of two thousand million offsets and more."""
    if inputs.policy == "strict" and scan.batches and scan.next_offset - 1 - segment.base_offset > RELATIVE_OFFSET_MAX:
        raise CorruptLog(
            f"the last batch ends at offset {scan.next_offset - 1}, more than a segment from {segment.base_offset} on "
            f'can hold. Nothing was changed. `klog verify` lists the damage; recovery="kafka" opens the log as it is',
            path=segment.path,
            position=scan.last_at,
            offset=scan.next_offset - 1,
            kind="offset_order",
        )


def _delete(inputs: Inputs, segments: list[Segment]) -> None:
    """Take segments and their snapshots out of the log: renamed to .deleted, which the next load unlinks."""
    for segment in segments:
        segment.close()
        for suffix in (*names.SEGMENT_SUFFIXES, names.SNAPSHOT):
            path = names.file_path(inputs.directory, segment.base_offset, suffix)
            if os.path.exists(path):
                inputs.files.rename(path, path + names.DELETED)
    if segments:
        inputs.files.fsync_dir(inputs.directory)


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
