"""A log that is only read, beside a writer in another process: how it follows, and how it notices what was taken back.

  R1  a reader trusts whole batches that go on where it stood; of what has just come, the last one's checksum too
  R2  the batch that it knows as the last one is looked at again before anything is read on from there: a writer that
      takes back an append that failed, or truncates, changes that place in the file. Then the reader loads anew
  R3  bytes are given out after a second look that says the same as the first: what was read had been in the log
  R4  where a closed segment is another file or has another length, or one in the middle is gone, a cleaner has been
      there: it loads anew. Until it knows, it goes on in the files that it has open, which are whole, and opens no
      other in their place (segment S4)

No lock is shared with the writer. So a reader may see the leading batches of an append that the writer has not
finished, and that it takes back if its disk fails in the middle: a record counts as stored when append() has returned.
What a reader has given out it does not take back; one that stands beyond the new end of the log hears OffsetOutOfRange.

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

_LOOKS_MAX = 100  # a writer that rolls and deletes all the time takes files away under each look
_MARK_BYTES = 61  # a header of magic 2, or of an older message and some of its bytes: the checksum is in it


class TailFingerprint(NamedTuple):
    """Where a reader's log ends: the file, where its last batch begins (-1: there is none), and that batch's header."""

    segment: Segment
    inode: int
    position: int
    header: bytes


class Moment(NamedTuple):
    """What a log was when a question began. generation: how often more than appends and rolls had happened. taken_back:
    how often bytes beyond the log end had gone, those of an append that failed above all."""

    generation: int
    taken_back: int
    segments: tuple[Segment, ...]


def refresh_locked(log: LogView) -> bool:
    """What LogView.refresh documents; was it seen whole? Not where files went while they were looked at."""
    _follow_checkpoints(log)
    try:
        mtime = os.stat(log._directory).st_mtime_ns
        if not _stands(log):
            reload_locked(log)
        elif mtime != log._directory_mtime or _has_rolled(log):
            _relist(log)
        log._directory_mtime = mtime
        _follow_end(log)
    except FileNotFoundError:  # deleted since it was listed, or the whole directory is
        log._directory_mtime = -1
        return False
    return True


def overtaken(log: LogView, moment: Moment) -> bool:
    """Has the writer changed, not only lengthened, the log since that moment? A reader knows better now, if so; in the
    writer's own process he waits until what changes the log just now is through."""
    if log.closed:
        return False
    with log._lock:
        if log.read_only:
            for _ in range(_LOOKS_MAX):
                log._directory_mtime = -1  # whatever it says: on older kernels it moves in ticks of some milliseconds
                if refresh_locked(log) or not os.path.isdir(log._directory):
                    break
    return log._moment() != moment


def steady(log: LogView, moment: Moment) -> bool:
    """R3: has the writer done nothing but append since that moment? If not, a reader knows better now."""
    if log._generation != moment.generation:
        return False
    if not log.read_only:
        return True
    with log._lock:
        return _stands(log) or not overtaken(log, moment)


# ---- where it ends ---------------------------------------------------------------------------------------------------


def tail_fingerprint(segment: Segment, position: int) -> TailFingerprint:
    """What the last segment's last batch, at this byte, looks like."""
    inode = os.fstat(segment.file.fileno()).st_ino
    header = bytes(segment.file.read(position, _MARK_BYTES)) if position >= 0 else b""
    return TailFingerprint(segment, inode, position, header)


def _stands(log: LogView) -> bool:
    known = log._tail_fingerprint
    if known is None:
        return True
    try:
        found = os.stat(known.segment.path)
    except FileNotFoundError:
        return False
    if found.st_ino != known.inode or found.st_size < known.segment.size:
        return False
    return known.position < 0 or bytes(known.segment.file.read(known.position, _MARK_BYTES)) == known.header


def _extend(log: LogView, segment: Segment) -> None:
    """New batches at the end of a segment join the log."""
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
    """Is there a segment at the log end? The directory's time alone may miss one: on older kernels it moves in ticks of
    some milliseconds."""
    end, segments = log._log_end_offset, log._segments
    return (not segments or segments[-1].base_offset != end) and os.path.exists(
        names.file_path(log._directory, end, names.LOG)
    )


def _relist(log: LogView) -> None:
    """Follow rolls and deletions."""
    present = set()
    for name in settled_listing(log._directory):
        parsed = names.parse_name(name)
        if parsed is not None and parsed[1] == names.LOG:
            present.add(parsed[0])
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
    """Has a cleaner put others in the place of closed segments? Retention takes the oldest alone, and nothing else
    changes which file a closed segment is, or how long."""
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
    """Start afresh: the writer has truncated or replaced what this reader knew. What raises leaves it as it was."""
    loaded = log._load()
    for segment in log._segments:
        segment.close()  # a file of the same name may be another one now
    log._generation += 1
    log._rewritten += 1
    log._take(loaded)
    log._rewritten += 1  # once more: a question that began in between may have seen part of it


# ---- beside the partition --------------------------------------------------------------------------------------------


def _follow_checkpoints(log: LogView) -> None:
    """What the log.dir says of this partition now: a broker moves its high watermark on, a klog that writes takes that
    away; records that were deleted raise the log start."""
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
    """A checkpoint's content, if it is not that of the last look."""
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
