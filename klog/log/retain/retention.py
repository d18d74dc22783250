"""Which segments may go: by age, by size, below the log start. Predicates are pure; nothing above the high watermark,
and nothing but whole segments from the oldest on, ever goes.

A round over many logs asks is_due() of each and calls apply() where it says so.

  R1  is_due() is what the log and the time are now, nothing remembered: True exactly where apply() would delete. Only
      the oldest segment is looked at, since without it nothing goes. So no change of configuration, roll, truncation
      or jump of the clock, forwards or back, can make a round miss what is due
  R2  that look takes the same time whatever the number of segments, no lock, and no read of a file but the first time
      a segment is the oldest (its youngest timestamp is kept) and where no record of it has a timestamp
  R3  apply() decides once, and lets others at the log between two BATCHes of segments: an append waits for the renames
      of one, not of all. One sync of the directory and one task to unlink follow, whatever their number

The newest segment goes like any other once it has expired (an empty one takes its place), with one exception that Kafka
does not make: one record from far away does not decide alone. A producer that says 1970 would see its record, and all
that came without a timestamp beside it, deleted as soon as it is written. Where only one record has a timestamp, and
that is further from its append than segment.ms, the last append must be long enough ago, too.
Kafka: UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

import collections
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from klog.clock import let_others_in
from klog.errors import ConfigUnknown, KlogError, OffsetOutOfRange, PolicyViolation
from klog.log.retain.removal import know_aborted, mark_for_deletion_locked, unlink_later_locked
from klog.log.write.flush import flush_locked, sync_directory
from klog.segment import Segment

if TYPE_CHECKING:
    from klog.log.log import Log

_log = logging.getLogger("klog.log")
BATCH = 128  # segments that go while the lock is held: some ten milliseconds of renames
Predicate = Callable[[Segment, Segment | None], bool]
"""(a segment, the one behind it or None): may it go?"""


def deletable(segments: Sequence[Segment], high_watermark: int, log_end: int, predicate: Predicate) -> list[Segment]:
    """The segments from the oldest on that a predicate gives away: up to the first that it does not, that is not wholly
    below the high watermark, or that is the empty newest one."""
    gone = []
    for number, segment in enumerate(segments):
        following = segments[number + 1] if number + 1 < len(segments) else None
        bound = log_end if following is None else following.base_offset
        if bound > high_watermark or not predicate(segment, following) or (following is None and segment.size == 0):
            break
        gone.append(segment)
    return gone


def below(log_start_offset: int) -> Predicate:
    """Segments that hold nothing at or above the log start."""
    return lambda _, following: following is not None and following.base_offset <= log_start_offset


def beyond_size(size: int, retention_bytes: int) -> Predicate:
    """Segments without which a log of this size still holds retention_bytes. To be asked from the oldest on, once."""
    surplus = size - retention_bytes

    def predicate(segment: Segment, _: Segment | None) -> bool:
        nonlocal surplus
        if surplus < segment.size:
            return False
        surplus -= segment.size
        return True

    return predicate


def expired(retention_ms: int, now_ms: int, segment_ms: int) -> Predicate:
    """Segments whose youngest record is older than retention_ms; of records without timestamps, the last append."""

    def predicate(segment: Segment, following: Segment | None) -> bool:
        youngest = segment.max_timestamp
        if youngest < 0:
            return now_ms - segment.modified_ms > retention_ms
        if now_ms - youngest <= retention_ms:
            return False
        if following is not None:
            return True
        modified = segment.modified_ms
        if now_ms - modified >= retention_ms or modified - youngest <= segment_ms:
            return True
        return segment.stamped_records(2) != 1  # asked last: it may have to read the whole segment

    return predicate


# ---- as a log does it ----------------------------------------------------------------------------------------------


def is_due(log: Log, now_ms: int) -> bool:
    """R1: would apply() delete anything? By the whole policy: of a log without `delete` only what is below its start.

    Any thread, no lock. What cannot be looked at (somebody truncates just now, or damage) is for apply() to find out.
    """
    segments = log._segments
    if not segments or not log._options.config_known:
        return False
    first = segments[0]
    if len(segments) > 1:
        following = segments[1]
        bound = following.base_offset
    elif first.size:
        following, bound = None, log._log_end_offset
    else:
        return False
    if bound > log.high_watermark:
        return False
    if following is not None and bound <= log._log_start_offset:
        return True
    config = log._config
    if "delete" not in config.cleanup_policy:
        return False
    if 0 <= config.retention_bytes <= log.size - first.size:
        return True
    retention_ms = config.retention_ms
    if retention_ms < 0:
        return False
    try:
        if 0 <= now_ms - retention_ms <= first.max_timestamp:
            return False  # as nearly always
        return expired(retention_ms, now_ms, config.segment_ms)(first, following)
    except (OSError, KlogError):
        return True


def apply(log: Log) -> int:
    """What Log.apply_retention documents. The caller holds no lock of the log."""
    log._check_writable()
    _check_known(log)
    with contextlib.suppress(OSError, KlogError):
        outgoing(log)  # a first look reads the youngest timestamp of each segment: not while others wait for the lock
    to_unlink: list[str] = []
    try:
        count = _remove_all(log, to_unlink)
        directory = log._directory
        log._guard_sync(lambda: sync_directory(log, directory))
    finally:  # also where too few descriptors, or Ctrl-C, end it half-way: what is out of the log is out
        if to_unlink:
            with log._lock:
                unlink_later_locked(log, to_unlink)
    return count


def _remove_all(log: Log, to_unlink: list[str]) -> int:
    """Put aside what goes; how many segments those were. doomed: learns the files to unlink, batch by batch."""
    with log._lock:
        log._check_idle("retention")
        waiting = collections.deque(outgoing(log))
        if not waiting:
            return 0
        _begin_behind_locked(log, len(waiting))
        count = _remove_batch_locked(log, waiting, to_unlink)
    while waiting:
        let_others_in()
        with log._lock:
            log._check_idle("retention")
            count += _remove_batch_locked(log, waiting, to_unlink)
    return count


def _check_known(log: Log) -> None:
    if not log._options.config_known:
        raise ConfigUnknown(
            f"nobody has said how long {log.name} keeps its records, and a broker's directory does not tell: give it "
            f"a configuration first, logs.alter_topic({log.topic!r}, {{...}}) or Log.open(path, config={{...}})"
        )


def outgoing(log: Log) -> list[tuple[Segment, str]]:
    """Every segment that retention gives away now, and why: by log start, then by size, then by time.

    Under the log's lock, or as good as what others change meanwhile allows.
    """
    config, left = log._config, log._segments
    size = log.size
    gone: list[tuple[Segment, str]] = []

    def give(predicate: Predicate, reason: str) -> None:
        nonlocal left, size
        given = deletable(left, log.high_watermark, log._log_end_offset, predicate)
        left = left[len(given) :]
        size -= sum(segment.size for segment in given)
        gone.extend((segment, reason) for segment in given)

    give(below(log._log_start_offset), "log start")
    if "delete" not in config.cleanup_policy:
        return gone
    if config.retention_bytes >= 0:
        give(beyond_size(size, config.retention_bytes), "retention.bytes")
    if config.retention_ms >= 0:
        give(expired(config.retention_ms, log.clock.wall_ms(), config.segment_ms), "retention.ms")
    return gone


def _begin_behind_locked(log: Log, count: int) -> None:
    """The log starts behind its first `count` segments; one always remains, empty if need be. From here on they hold
    nothing that is read: who stops half-way leaves the rest to the next round."""
    if count == len(log._segments):
        log._roll_or_undo_locked(log._log_end_offset)
    increment_log_start_locked(log, log._segments[count].base_offset, "segment_deletion")


def _remove_batch_locked(log: Log, waiting: collections.deque[tuple[Segment, str]], to_unlink: list[str]) -> int:
    """Put aside the first of those that wait, BATCH of them at most, all for one reason; how many those were. None
    wait any more where others have been at the log's beginning meanwhile."""
    gone, reason = [], waiting[0][1]
    for segment, following in zip(log._segments[:BATCH], log._segments[1:], strict=False):
        if not waiting or waiting[0] != (segment, reason) or following.base_offset > log._log_start_offset:
            break
        gone.append(waiting.popleft()[0])
    if not gone:
        waiting.clear()
        return 0
    know_aborted(gone)
    log._segments = log._segments[len(gone) :]
    log._finally(lambda: to_unlink.extend(mark_for_deletion_locked(log, gone, reason, durably=False)))
    return len(gone)


def increment_log_start_locked(log: Log, offset: int, reason: str) -> bool:
    """What Log.maybe_increment_log_start_offset documents."""
    if offset > log.high_watermark:
        raise OffsetOutOfRange(offset, log.log_start_offset, log.high_watermark, f"{log.name} below its high watermark")
    if offset <= log._log_start_offset:
        return False
    if offset > log._recovery_point:
        log._guard(lambda: flush_locked(log))  # S9: a log start that a crash could find beyond the log end means damage
    if offset > log._segments[-1].next_offset:  # a truncation left the end above the batches: a load must find that end
        log._roll_or_undo_locked(log._log_end_offset)
    _log.info("event=log_start log=%s offset=%d reason=%s", log.name, offset, reason)
    log._log_start_offset = offset
    log._epochs.truncate_from_start(offset)
    log._producers.on_log_start_offset_incremented(offset)
    return True


def delete_records_locked(log: Log, before: int) -> int:
    """What Log.delete_records documents."""
    if "delete" not in log.config.cleanup_policy:
        raise PolicyViolation(f"{log.name} has cleanup.policy={','.join(log.config.cleanup_policy)}, without delete")
    mark = log.high_watermark
    if before == -1:
        before = mark
    if before < 0:
        raise OffsetOutOfRange(before, log.log_start_offset, mark, f"{log.name} below its high watermark")
    increment_log_start_locked(log, before, "record_deletion")
    return log.log_start_offset
