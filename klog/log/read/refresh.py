"""How a read-only log follows a writer in another process, and notices undone appends and truncations.

  R1  a reader accepts whole batches that continue at its log end, after it verified the checksum of the last of them
  R2  before it reads on, a reader compares its last batch with the file: a writer that undoes a failed append, or
      truncates, changes the file there. Then the reader loads the log again
  R3  bytes are returned only after a second look that equals the first: what was read was in the log
  R4  if a closed segment is another file or has another size, or one in the middle is missing, a cleaner has replaced
      it: the reader loads again. Until it notices, it reads the files that it has open, which are complete, and opens
      no others in their place (segment S4)

Reader and writer share no lock. So a reader may see the first batches of an append that the writer has not finished,
and that it undoes if its disk fails: a record counts as stored when append() has returned. A reader does not revoke
records that it has returned; a reader whose position is beyond the new log end gets OffsetOutOfRange.

refresh_locked() under the log's lock, the rest from any thread.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from klog.errors import CorruptCheckpoint
from klog.log.directory import checkpoint
from klog.log.load.loader import new_segment, settled_listing
from klog.segment import Segment, names

if TYPE_CHECKING:
    from klog.log.view import LogView

_LOOKS_MAX = 100  # a writer that rolls and deletes all the time may remove files during each refresh
_FINGERPRINT_BYTES = 61  # a header of magic 2, or an older header and more bytes: both include the checksum


class TailFingerprint(NamedTuple):
    """The end of a reader's log: the file, the position of its last batch (-1: none), and that batch's header."""

    segment: Segment
    inode: int
    position: int
    header: bytes


class Moment(NamedTuple):
    """The state of a log when a read began.

    generation: counts changes other than appends and rolls. taken_back: counts removals of bytes beyond the log end,
    mostly of failed appends.
    """

    generation: int
    taken_back: int
    segments: tuple[Segment, ...]


def refresh_locked(log: LogView) -> bool:
    """Follow the writer. False: files were removed meanwhile, so the result may be incomplete."""
    _follow_checkpoints(log)
    try:
        mtime = os.stat(log._directory).st_mtime_ns
        if not _stands(log):
            reload_locked(log)
        elif mtime != log._directory_mtime or _has_rolled(log):
            _relist(log)
        log._directory_mtime = mtime
        _follow_end(log)
    except FileNotFoundError:  # a file was deleted after the listing, or the whole directory was
        log._directory_mtime = -1
        return False
    return True


def overtaken(log: LogView, moment: Moment) -> bool:
    """Has the writer changed the log since that moment, other than by appends? Then the reader looks again.

    In the writer's own process it waits for a change that is being made.
    """
    if log.closed:
        return False
    with log._lock:
        if log.read_only:
            for _ in range(_LOOKS_MAX):
                log._directory_mtime = -1  # do not trust the mtime: older kernels update it in steps of milliseconds
                if refresh_locked(log) or not os.path.isdir(log._directory):
                    break
    return log._moment() != moment


def steady(log: LogView, moment: Moment) -> bool:
    """R3: has the writer only appended since that moment? If not, the reader looks again."""
    if log._generation != moment.generation:
        return False
    if not log.read_only:
        return True
    with log._lock:
        return _stands(log) or not overtaken(log, moment)


# ---- the log end -----------------------------------------------------------------------------------------------------


def tail_fingerprint(segment: Segment, position: int) -> TailFingerprint:
    """The fingerprint of the last segment, whose last batch is at this position."""
    inode = os.fstat(segment.file.fileno()).st_ino
    header = bytes(segment.file.read(position, _FINGERPRINT_BYTES)) if position >= 0 else b""
    return TailFingerprint(segment, inode, position, header)


def _stands(log: LogView) -> bool:
    """R2: does the file still have the tail fingerprint?"""
    known = log._tail_fingerprint
    if known is None:
        return True
    try:
        found = os.stat(known.segment.path)
    except FileNotFoundError:
        return False
    if found.st_ino != known.inode or found.st_size < known.segment.size:
        return False
    return known.position < 0 or bytes(known.segment.file.read(known.position, _FINGERPRINT_BYTES)) == known.header


def _extend(log: LogView, segment: Segment) -> None:
    """Take new batches at the end of a segment into the log."""
    found = os.stat(segment.path)
    if not segment.size:
        segment.take_for(found, closed=False)
    size = found.st_size
    scan = segment.extend(size) if size > segment.size else None
    if scan is not None and scan.batches:
        log._tail_fingerprint = tail_fingerprint(segment, scan.last_at)
    elif log._tail_fingerprint is None or log._tail_fingerprint.segment.base_offset < segment.base_offset:
        log._tail_fingerprint = tail_fingerprint(segment, -1)


def _follow_end(log: LogView) -> None:
    if log._segments:
        active = log._segments[-1]
        _extend(log, active)
        log._log_end_offset = max(log._log_end_offset, active.next_offset)


# ---- segments --------------------------------------------------------------------------------------------------------


def _has_rolled(log: LogView) -> bool:
    """Is there a new segment at the log end? The mtime of the directory may miss it: older kernels update it in steps
    of milliseconds."""
    end, segments = log._log_end_offset, log._segments
    return (not segments or segments[-1].base_offset != end) and os.path.exists(
        names.file_path(log._directory, end, names.LOG)
    )


def _relist(log: LogView) -> None:
    """Follow rolls and deletions."""
    present = set(settled_listing(log._directory).logs)
    known = {segment.base_offset: segment for segment in log._segments}
    log._follow_epochs()
    if known and (max(known) not in present or _compacted(log, present)):
        reload_locked(log)
        return
    if present == set(known):
        return
    segments: list[Segment] = []
    bases = sorted(present)
    for number, base in enumerate(bases):
        segment = known.get(base) or new_segment(log._inputs(), base, writable=False)
        if base not in known or segment is log._segments[-1]:
            _extend(log, segment)
        if number + 1 < len(bases):
            segment.next_offset = max(segment.next_offset, bases[number + 1])
        segments.append(segment)
    if known and bases[0] > min(known):
        log._generation += 1
    log._segments = tuple(segments)
    if segments:
        log._log_start_offset = max(log._log_start_offset, segments[0].base_offset)
        log._log_end_offset = max(log._log_end_offset, segments[-1].next_offset)


def _compacted(log: LogView, present: set[int]) -> bool:
    """Has a cleaner replaced closed segments? Retention removes only the oldest, and nothing else changes the file or
    the size of a closed segment."""
    oldest = min(present, default=0)
    for segment in log._segments[:-1]:
        if segment.base_offset < oldest:
            continue
        if segment.base_offset not in present:
            return True
        found = os.stat(segment.path)
        if found.st_size != segment.size or not segment.is_file(found):
            return True
    return False


def reload_locked(log: LogView) -> None:
    """Load again: the writer has truncated or replaced segments. An exception leaves the log unchanged."""
    loaded = log._load()
    for segment in log._segments:
        segment.close()  # the name may belong to another file now
    log._generation += 1
    log._rewritten += 1
    log._take(loaded)
    log._rewritten += 1  # again: a read that began in between may have seen a part of the change


# ---- checkpoints of the log.dir --------------------------------------------------------------------------------------


def _follow_checkpoints(log: LogView) -> None:
    """Read the checkpoints of the log.dir: a broker raises the high watermark, a klog that writes removes it, and
    deleted records raise the log start."""
    options, key = log._options, (log.topic, log.partition)
    path = options.high_watermark_path
    if path is None:
        return
    found = _changed(log, path)
    if found is not None:
        options.high_watermark = found.get(key)
    found = _changed(log, os.path.join(os.path.dirname(path), checkpoint.LOG_START))
    if found is not None and found.get(key, 0) <= log._log_end_offset:
        log._log_start_offset = max(log._log_start_offset, found.get(key, 0))


def _changed(log: LogView, path: str) -> dict[checkpoint.Partition, int] | None:
    """The content of a checkpoint, None if the file has not changed since the last call."""
    state = None
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(path)
        state = found.st_ino, found.st_mtime_ns
    if log._checkpoint_states.get(path, ()) == state:
        return None
    with contextlib.suppress(CorruptCheckpoint):
        offsets = checkpoint.read_offsets(path)
        log._checkpoint_states[path] = state
        return offsets
    return None
