"""Loads the segments of a partition directory: after a clean shutdown, after a crash, or read-only.

Order of a writable load (Kafka: LogLoader):
  1 leftovers of deletion and compaction      2 the segments, orphan indexes removed
  3 after a crash: every byte from the recovery point on is checked, the first invalid batch ends the log
  4 the log end, against the log start        5 leader epochs        6 producers, transactions

The policy decides what may be cut. recovery="kafka" cuts at the first invalid batch and drops all that follows.
recovery="strict" cuts only a torn tail, and refuses (CorruptLog) if valid batches follow an invalid one.
Only .log files are the source of truth; every other file is a cache that is rebuilt if it is missing or invalid.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from klog.errors import CorruptLog
from klog.log.load.batch_epochs import learn_epochs, mend_epochs
from klog.log.load.inputs import Findings, Inputs, Policy, Recovery, new_segment
from klog.log.load.leftovers import clear_leftovers
from klog.log.load.rebuild import (
    Beside,
    has_producers,
    mend_txn_indexes,
    producers_at,
    rebuild_txn_index,
)
from klog.log.load.recovery import (
    allow_cut,
    cut_text,
    delete_segments,
    find_end,
    recover,
    refuse_far_end,
    tail_position,
)
from klog.log.load.segment_starts import check_names
from klog.log.state.leader_epochs import LeaderEpochCache
from klog.log.state.producers import Producers
from klog.segment import Segment, names, scan_headers

__all__ = ["Inputs", "Loaded", "Policy", "Recovery", "has_producers", "list_segments", "load_read_only",
           "load_writable", "new_segment", "producers_at", "rebuild_txn_index", "settled_listing"]  # fmt: skip
_log = logging.getLogger("klog.log")
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


def list_segments(inputs: Inputs, listing: Sequence[str], *, writable: bool) -> list[Segment]:
    """The segments of the directory in order, with the sizes of their files. The end offset of the last is not known
    yet. listing: sorted names."""
    bases = []
    for name in listing:
        if not name.endswith(names.LOG):
            continue
        parsed = names.parse_name(name)
        if parsed is not None:
            bases.append(parsed[0])
        else:
            _log.warning("event=foreign_file path=%s", os.path.join(inputs.directory, name))
    segments = [new_segment(inputs, base, writable=writable) for base in bases]
    for number, segment in enumerate(segments):
        status = os.stat(segment.path, follow_symlinks=False)
        segment.size = status.st_size
        if not writable:
            segment.take_for(status, closed=number + 1 < len(bases))
        if segment.size > SEGMENT_BYTES_MAX:
            raise CorruptLog(
                f"the segment has {segment.size} bytes, more than the maximum of {SEGMENT_BYTES_MAX}", path=segment.path
            )
        segment.next_offset = bases[number + 1] if number + 1 < len(bases) else segment.base_offset
    return segments


def settled_listing(directory: str) -> list[str]:
    """The sorted names of a directory, for a reader beside a writer.

    Waits while a cleaner replaces segments, when old names are gone and new ones are missing. After a crash in that
    state it returns the names as they are, after 0.2 s.
    """
    for _ in range(_SWAP_LOOKS):
        listing = sorted(os.listdir(directory))
        if not any(name.endswith(names.LOG + names.SWAP) for name in listing):
            break
        time.sleep(0.002)
    return listing


def load_writable(inputs: Inputs) -> Loaded:
    """Load for appending. Raises CorruptLog if the policy forbids a cut, OSError if the disk fails."""
    started = inputs.clock.monotonic()
    found = Findings()
    listing = clear_leftovers(inputs.directory, inputs.files, inputs.policy, found.note)
    _remove_orphans(inputs, listing, found)
    segments = list_segments(inputs, listing, writable=True)
    check_names(inputs, segments, found)
    beside = Beside(inputs)
    if beside.epochs.problem is not None:
        found.note(f"leader epochs rebuilt: {beside.epochs.problem}")
    mend_txn_indexes(inputs, listing, segments, found)
    if inputs.clean_shutdown:
        for segment in segments[-1:]:
            find_end(inputs, segment, found)
    elif segments:
        segments = recover(inputs, segments, found, beside)
    log_end = segments[-1].next_offset if segments else inputs.log_start_offset
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
        segments = []
        beside = Beside(inputs)
        beside.epochs.clear()
    if not segments:
        segments = [new_segment(inputs, inputs.log_start_offset, writable=True)]
        log_end = inputs.log_start_offset
    log_start = max(inputs.log_start_offset, segments[0].base_offset)
    if inputs.clean_shutdown:
        recovery_point = log_end
    else:
        recovery_point = max(min(inputs.recovery_point, log_end), min(inputs.log_start_offset, log_end))
    producers = beside.finish(segments, log_start, log_end)
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
    return Loaded(
        segments, beside.epochs, producers, log_start, recovery_point, recovery, to_unlink=tuple(found.to_unlink)
    )


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
    segments = list_segments(inputs, settled_listing(inputs.directory), writable=False)
    check_names(inputs, segments, found)
    epochs = LeaderEpochCache(inputs.directory, inputs.files)
    epochs.load()
    last_at = -1
    if segments:
        active = segments[-1]
        size, position = active.size, tail_position(active)
        scan = scan_headers(active.file, position, size, 0, active.base_offset)
        if scan.reason == "offset_order" and position:
            scan = scan_headers(active.file, 0, size, 0, active.base_offset)
        refuse_far_end(inputs, active, scan)
        if scan.reason:  # an append in progress looks like a truncated batch without valid batches after it
            allow_cut(inputs, active, scan, size, [], 'recovery="kafka" reads the log up to there')
            found.details.append(cut_text(active, scan, size, [], "left out"))
        active.learn_tail(scan)
        last_at = scan.last_at if scan.batches else -1
    log_start = max(inputs.log_start_offset, segments[0].base_offset) if segments else inputs.log_start_offset
    if epochs.problem is not None or (not epochs.entries and any(segment.size for segment in segments)):
        learn_epochs(epochs, segments)
    elif segments:
        mend_epochs(epochs, segments, segments[-1].next_offset)
    seconds = inputs.clock.monotonic() - started
    recovery = Recovery(inputs.clean_shutdown, seconds, 0, 0, 0, "; ".join(found.details), tuple(found.details))
    return Loaded(segments, epochs, Producers(), log_start, inputs.recovery_point, recovery, last_at)


def _remove_orphans(inputs: Inputs, listing: Sequence[str], found: Findings) -> None:
    """Remove index files without a .log."""
    present = set(listing)
    for name in listing:
        if not name.endswith("index"):
            continue
        parsed = names.parse_name(name)
        if parsed is None:
            continue
        if names.file_name(parsed[0], names.LOG) not in present:
            found.note(f"{name} removed: it has no .log")
            inputs.files.unlink(os.path.join(inputs.directory, name))
