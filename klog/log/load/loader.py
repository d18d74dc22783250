"""Loads the segments of a partition directory: after a clean shutdown, after a crash, or read-only.

Order of a writable load (Kafka: LogLoader):
  1 leftovers of deletion and compaction      2 the segments, orphan indexes removed
  3 after a crash: every byte from the recovery point on is checked, the first invalid batch ends the log
  4 the log end, against the log start        5 after a crash: what was not flushed is synced
  6 leader epochs                             7 producers, transactions

The policy decides what may be cut. recovery="kafka" cuts at the first invalid batch and drops all that follows.
recovery="strict" cuts only a torn tail, and refuses (CorruptLog) if valid batches follow an invalid one.
recovery="skip" is for readers: it refuses nothing that can be read past, and readers raise CorruptBatch there.
Only .log files are the source of truth; every other file is a cache that is rebuilt if it is missing or invalid.
"""

from __future__ import annotations

import contextlib
import os
import time

from klog.disk import Files
from klog.errors import CorruptBatch, CorruptLog
from klog.log.directory._listing import Listing
from klog.log.load.batch_epochs import learn_epochs, mend_epochs
from klog.log.load.damage import batch_after, before_wrong_length
from klog.log.load.inputs import Findings, Inputs, Recovery, new_segment, segment_dir_of
from klog.log.load.leftovers import check_complete, clear_leftovers, remove_orphans
from klog.log.load.missing import refuse_cut_end, refuse_deleted, refuse_emptied, refuse_orphans
from klog.log.load.rebuild import (
    DerivedState,
    mend_txn_indexes,
)
from klog.log.load.recovery import (
    allow_cut,
    cut_text,
    delete_segments,
    find_end,
    last_headers,
    passed_text,
    recover,
    refuse_far_end,
)
from klog.log.load.segment_starts import check_names
from klog.log.state.leader_epochs import LeaderEpochCache
from klog.log.state.producers import Producers
from klog.log.state.segments import number_of
from klog.logger import logger_of
from klog.segment import Header, Scan, Segment, SettledEnd, names, read_heads, scan_headers, settled_end
from klog.values import dataclass

__all__ = ["Inputs", "Loaded", "Recovery", "load_read_only", "load_writable", "settled_listing"]
_log = logger_of("log")
SEGMENT_BYTES_MAX = 2**31 - 1
_SWAP_LOOKS = 100
_LOADS_MAX = 20


@dataclass(slots=True)
class Loaded:
    """The result of a load. The last segment is not active yet."""

    segments: list[Segment]
    epochs: LeaderEpochCache
    producers: Producers
    log_start_offset: int
    recovery_point: int
    recovery: Recovery
    last_at: int = -1  # of a read-only log: the position of the last batch in the last segment
    to_unlink: tuple[str, ...] = ()  # names of files to unlink later
    shows_transactions: bool = False  # by a transaction index


def _list_segments(
    inputs: Inputs, listing: Listing, found: Findings, *, writable: bool, end: SettledEnd | None = None
) -> list[Segment]:
    """The segments of the directory in order, with the sizes of their files. Their names are checked.

    end: that of the last segment, else it is not known yet.
    """
    for name in listing.foreign_logs:
        _log.warning("event=foreign_file path=%s", os.path.join(inputs.directory, name))
    bases = listing.logs
    unread = bases if end is None else bases[:-1]
    drop = not inputs.clean_shutdown and inputs.config.io.scan_drop_behind
    heads = read_heads(inputs.directory, unread, drop, inputs.files.table) if unread else []
    if end is not None:
        heads.append((end.size, end.inode, bases[-1]))
    segment_dir, now = segment_dir_of(inputs, writable=writable), inputs.clock.wall_ms()
    segments, emptied = [], []
    following = [*bases[1:], bases[-1] if end is None else end.next_offset] if bases else []
    for base, next_offset, (size, inode, _) in zip(bases, following, heads, strict=True):
        segment = Segment(segment_dir, base, now, size, next_offset)
        segments.append(segment)
        if not size and base != bases[-1]:
            emptied.append(segment)
        if not writable:
            segment.take_for_inode(inode, closed=base != bases[-1])
        if size > SEGMENT_BYTES_MAX:
            raise CorruptLog(
                f"the segment has {size} bytes, more than the maximum of {SEGMENT_BYTES_MAX}", path=segment.path
            )
    if inputs.policy == "strict":
        refuse_emptied(inputs, emptied)
    check_names(inputs, segments, heads, found)
    return segments


def _settled_end(inputs: Inputs, listing: Listing) -> SettledEnd | None:
    """The end of the last segment, if a clean stop has left it as find_end() would."""
    if not (inputs.clean_shutdown and listing.logs):
        return None
    end = settled_end(inputs.directory, listing.logs[-1], inputs.files.table)
    if end is not None and inputs.policy == "strict" and inputs.recovery_point not in (0, end.next_offset):
        return None
    return end


def settled_listing(directory: str, files: Files) -> Listing:
    """What a directory holds, for a reader beside a writer.

    Waits up to 0.2 s while a cleaner replaces segments, when old names are gone and new ones are missing. Raises
    CorruptLog if they stay so, since the writer is suspended or dead.
    """
    for _ in range(_SWAP_LOOKS):
        listing = Listing(directory)
        if not any(name.endswith(names.LOG + names.SWAP) for name in listing.unfinished):
            return listing
        time.sleep(0.002)
    try:
        check_complete(listing, files)
    except FileNotFoundError:  # the writer goes on
        return settled_listing(directory, files)
    return listing


def _complete_listing(inputs: Inputs) -> Listing:
    """settled_listing(). Under the strict policy raises CorruptLog, as load_writable() does, if a segment in the middle
    is missing. While a writer renames files it may look so: then this looks again, for up to 0.2 s."""
    for left in reversed(range(_SWAP_LOOKS)):
        listing = settled_listing(inputs.directory, inputs.files)
        if inputs.policy != "strict":
            break
        try:
            refuse_deleted(inputs, listing)
            refuse_orphans(inputs, listing, listing.orphans(), listing.unfinished)
            break
        except CorruptLog:
            if not left:
                raise
            time.sleep(0.002)
    return listing


def load_writable(inputs: Inputs) -> Loaded:
    """Load for appending. Raises CorruptLog if the policy forbids a cut, OSError if the disk fails."""
    started = inputs.clock.monotonic()
    found = Findings()
    listing = Listing(inputs.directory)
    unfinished = listing.unfinished
    if unfinished:
        if inputs.policy == "strict":
            refuse_deleted(inputs, listing)
        listing = clear_leftovers(listing, inputs.files, inputs.policy, found.note)
    _remove_orphans(inputs, listing, unfinished, found)
    end = _settled_end(inputs, listing)
    segments = _list_segments(inputs, listing, found, writable=True, end=end)
    if segments and end is None and inputs.policy == "strict":
        refuse_cut_end(inputs, segments[-1])
    derived = DerivedState(inputs, listing)
    if derived.epochs.problem is not None:
        found.note(f"leader epochs rebuilt: {derived.epochs.problem}")
    if listing.txn_indexes:
        mend_txn_indexes(inputs, listing, segments, found)
    if end is not None:
        if segments[-1].base_offset in listing.txn_indexes:
            segments[-1].txn_index.truncate_to(end.next_offset)
    elif segments and inputs.clean_shutdown:
        find_end(inputs, segments[-1], found)
    elif segments:
        segments = recover(inputs, segments, found, derived)
    log_end = segments[-1].next_offset if segments else inputs.log_start_offset
    if log_end < inputs.recovery_point:
        found.note(_missing_text(inputs, segments, log_end))
    if segments and log_end < inputs.log_start_offset:
        nothing_there = found.bytes_truncated == 0 and not any(segment.size for segment in segments)
        if inputs.policy == "strict" and not nothing_there:
            raise CorruptLog(
                f"the log start in the checkpoint, {inputs.log_start_offset}, is above the log end, {log_end}: opening "
                f'would delete every record. Correct the checkpoint, or open with recovery="kafka"',
                path=inputs.directory,
                kind="checkpoint",
            )
        found.note(f"all segments deleted: the log end {log_end} is below the log start {inputs.log_start_offset}")
        found.to_unlink += delete_segments(inputs, segments)
        segments, end = [], None
        derived = DerivedState(inputs, Listing(inputs.directory))
    if not inputs.clean_shutdown:
        _sync_what_a_killed_process_left(inputs, segments)
    if not segments:
        segments = [new_segment(inputs, inputs.log_start_offset, writable=True)]
        log_end = inputs.log_start_offset
    log_start = max(inputs.log_start_offset, segments[0].base_offset)
    if inputs.clean_shutdown:
        recovery_point = log_end
    else:
        recovery_point = max(min(inputs.recovery_point, log_end), min(inputs.log_start_offset, log_end))
    producers = derived.finish(segments, log_start, log_end, None if end is None else end.leader_epoch)
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
        max(0, inputs.recovery_point - log_end),
    )
    return Loaded(
        segments,
        derived.epochs,
        producers,
        log_start,
        recovery_point,
        recovery,
        to_unlink=tuple(found.to_unlink),
        shows_transactions=bool(listing.txn_indexes),
    )


def _missing_text(inputs: Inputs, segments: list[Segment], end: int) -> str:
    path, size = (segments[-1].path, segments[-1].size) if segments else (inputs.directory, 0)
    return (
        f"flushed records are missing: {path} ends at position {size}, offset {end}, below the recovery point "
        f"{inputs.recovery_point}"
    )


def _sync_what_a_killed_process_left(inputs: Inputs, segments: list[Segment]) -> None:
    """Sync the segments from the one with the recovery point on, and the names of all files.

    Appends, rolls and truncations of a process that was killed may be in the page cache only. A power cut must not take
    a segment away with what is appended to it and synced from now on, nor bring back a tail that was cut.
    """
    if segments:
        for segment in segments[number_of(segments, inputs.recovery_point) :]:
            segment.sync()
    inputs.files.fsync_dir(inputs.directory)


def load_read_only(inputs: Inputs) -> Loaded:
    """Load for reading, without changing anything on disk. The log ends after the last whole batch.

    An incomplete batch at the end may be a write in progress, and is only reported in Recovery. If valid batches follow
    it, the strict policy raises CorruptLog instead of showing a log that is too short. If the writer deletes a file
    after the directory was listed, the load starts again.
    """
    for _ in range(_LOADS_MAX):
        with contextlib.suppress(FileNotFoundError):
            return _load_read_only(inputs)
    return _load_read_only(inputs)


def _load_read_only(inputs: Inputs) -> Loaded:
    started = inputs.clock.monotonic()
    found = Findings()
    listing = _complete_listing(inputs)
    segments = _list_segments(inputs, listing, found, writable=False)
    epochs = LeaderEpochCache(inputs.directory, inputs.files)
    epochs.load()
    last_at = _learn_end(inputs, segments[-1], found) if segments else -1
    log_end = segments[-1].next_offset if segments else inputs.log_start_offset
    missing = max(0, inputs.recovery_point - log_end)
    if missing and not found.details:
        found.details.append(_missing_text(inputs, segments, log_end))
    log_start = max(inputs.log_start_offset, segments[0].base_offset) if segments else inputs.log_start_offset
    if segments:  # the leader keeps an epoch whose records a crash or a truncation inside a gap has left out
        epochs.truncate_from_end(log_end + 1)
    if epochs.problem is not None or (not epochs.entries and any(segment.size for segment in segments)):
        learn_epochs(epochs, segments)
    elif segments:
        mend_epochs(epochs, segments, log_end)
    seconds = inputs.clock.monotonic() - started
    details = tuple(found.details)
    recovery = Recovery(inputs.clean_shutdown, seconds, 0, 0, 0, "; ".join(details), details, missing)
    return Loaded(
        segments,
        epochs,
        Producers(),
        log_start,
        inputs.recovery_point,
        recovery,
        last_at,
        shows_transactions=bool(listing.txn_indexes),
    )


def _learn_end(inputs: Inputs, active: Segment, found: Findings) -> int:
    """Find the end of a reader's last segment by its headers. Returns the position of its last batch, -1 without one.

    Raises CorruptLog under the strict policy if valid batches follow an invalid one. Under "skip" the scan goes on at
    the first of them.
    """
    size = active.size
    scan, position = last_headers(active, 0)
    _refuse_far_end(inputs, active, scan)
    before, newest, end = scan, scan.max_timestamp, active.base_offset
    while scan.reason:  # an append in progress looks like a truncated batch without valid batches after it
        misled = None if inputs.policy == "kafka" else before_wrong_length(active, scan, position)
        following: Header | None = None
        try:
            for each in (scan, misled) if misled is not None else (scan,):
                allow_cut(inputs, active, each, size, [], 'recovery="kafka" reads the log up to there, "skip" past it')
        except CorruptLog:
            if inputs.policy != "skip":
                raise
            scan = scan if misled is None else misled
            following = batch_after(active, scan)
        if following is None:
            found.details.append(cut_text(active, scan, size, [], "left out"))
            break
        found.details.append(passed_text(active, scan, following))
        if following.base_offset < scan.unmoved:
            end = max(end, scan.next_offset)  # the offset of the following batch is wrong
        position = following.position
        scan = scan_headers(active.file, position, size, 0, following.base_offset)
        _refuse_far_end(inputs, active, scan)
        newest = max(newest, scan.max_timestamp)
    active.learn_tail(scan)
    if scan is not before:
        active.reaches(newest)
        active.followed_by(end)
    return scan.last_at if scan.batches else -1


def _refuse_far_end(inputs: Inputs, active: Segment, scan: Scan) -> None:
    with contextlib.suppress(CorruptBatch):  # bytes that look like a message of magic 0 or 1, after a wrong length
        refuse_far_end(inputs, active, scan)


def _remove_orphans(inputs: Inputs, listing: Listing, unfinished: list[str], found: Findings) -> None:
    """Remove index files without a .log."""
    orphans = listing.orphans()
    if orphans and inputs.policy == "strict":
        refuse_orphans(inputs, listing, orphans, unfinished)
    remove_orphans(inputs.directory, orphans, inputs.files, found.note)
