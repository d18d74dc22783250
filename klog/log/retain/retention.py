"""Retention: which segments are deleted by age, by size, or because they are below the log start.

Predicates have no side effects. Only whole segments are deleted, from the oldest on, and none above the high watermark.
A round over many logs calls is_due() of each, and apply() if that is true.

  R1  is_due() depends only on the current log and time, and is True exactly if apply() would delete. It looks only at
      the oldest segment, since nothing is deleted before that. So a change of configuration, a roll, a truncation or a
      jump of the clock, forwards or back, never makes a round miss a due segment
  R2  is_due() takes constant time and no lock. It reads a file only the first time a segment is the oldest (the
      youngest timestamp is kept), and if no record of the segment has a timestamp
  R3  apply() decides once, and releases the lock between two BATCHes of segments: an append waits for the renames of
      one batch. One sync of the directory and one task to unlink follow, whatever the number of segments

The newest segment is deleted like any other once it has expired (an empty one replaces it), with one exception that
Kafka does not make: a single record with an odd timestamp does not decide alone. Otherwise a record with a timestamp of
1970, and all records without a timestamp in its segment, would be deleted as soon as they are written. If only one
record has a timestamp, and that is further from its append than segment.ms, the last append must be old enough, too.
Kafka: UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from klog.clock import let_others_in
from klog.errors import ConfigUnknown, KlogError, OffsetOutOfRange, PolicyViolation
from klog.log.state._log_core import LogCore
from klog.log.state.partition_dir import Owner
from klog.log.write.failures import guard, guard_sync, guard_undoable, uninterrupted
from klog.log.write.flush import flush_locked, sync_directory
from klog.log.write.removal import load_aborted, mark_for_deletion_locked, unlink_later_locked
from klog.log.write.roll import roll_or_undo_locked
from klog.logger import logger_of
from klog.segment import Segment, stamped_records

_log = logger_of("log")
BATCH = 128  # segments deleted while the lock is held: about ten milliseconds of renames
Predicate = Callable[[Segment, Segment | None], bool]
"""(a segment, the next one or None): may it be deleted?"""
Choice = Callable[[LogCore], list[tuple[Segment, str]]]
"""The segments of a log to delete now, each with the reason."""


def deletable(segments: Sequence[Segment], high_watermark: int, log_end: int, predicate: Predicate) -> list[Segment]:
    """The segments to delete by a predicate, from the oldest on.

    Ends before the first segment that the predicate keeps, that is not wholly below the high watermark, or that is the
    empty active one.
    """
    gone = []
    for number, segment in enumerate(segments):
        following = segments[number + 1] if number + 1 < len(segments) else None
        bound = log_end if following is None else following.base_offset
        if bound > high_watermark or not predicate(segment, following) or (following is None and segment.size == 0):
            break
        gone.append(segment)
    return gone


def below(log_start_offset: int) -> Predicate:
    """A predicate: segments without records at or above the log start."""
    return lambda _, following: following is not None and following.base_offset <= log_start_offset


def beyond_size(size: int, retention_bytes: int) -> Predicate:
    """A predicate: segments without which a log of this size still has retention_bytes. Call it once per segment, from
    the oldest on."""
    surplus = size - retention_bytes

    def predicate(segment: Segment, _: Segment | None) -> bool:
        nonlocal surplus
        if surplus < segment.size:
            return False
        surplus -= segment.size
        return True

    return predicate


def expired(retention_ms: int, now_ms: int, segment_ms: int) -> Predicate:
    """A predicate: segments whose youngest record (without timestamps: the last append) is older than retention_ms."""

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
        return stamped_records(segment, 2) != 1  # last, because it may read the whole segment

    return predicate


# ---- retention of a log --------------------------------------------------------------------------------------------


def is_due(log: LogCore, now_ms: int) -> bool:
    """R1: would apply() delete anything? Without `delete` in cleanup.policy only segments below the log start count.

    Any thread, no lock. True if a segment cannot be read, by damage or a truncation in progress: apply() then decides.
    """
    segments = log.segments
    if not segments or not log.options.config_known:
        return False
    first = segments[0]
    if len(segments) > 1:
        following = segments[1]
        bound = following.base_offset
    elif first.size:
        following, bound = None, log.log_end_offset
    else:
        return False
    if bound > log.high_watermark:
        return False
    if following is not None and bound <= log.log_start_offset:
        return True
    config = log.config
    if "delete" not in config.cleanup_policy:
        return False
    if 0 <= config.retention_bytes <= log.size - first.size:
        return True
    retention_ms = config.retention_ms
    if retention_ms < 0:
        return False
    try:
        if 0 <= now_ms - retention_ms <= first.max_timestamp:
            return False  # the usual case
        return expired(retention_ms, now_ms, config.segment_ms)(first, following)
    except (OSError, KlogError):
        return True


def apply(log: LogCore) -> int:
    """Delete the segments that retention selects. Returns their number. The caller holds no lock of the log."""
    log.check_writable()
    with contextlib.suppress(OSError, KlogError):
        outgoing(log)  # the first call reads the youngest timestamp of each segment: do that without the lock
    return _remove(log, outgoing)


def _remove(log: LogCore, choose: Choice) -> int:
    to_unlink: list[str] = []
    try:
        count = _remove_all(log, to_unlink, choose)
        directory = log.directory.path
        guard_sync(log, lambda: sync_directory(log, directory))
    finally:  # also after Ctrl-C or a lack of descriptors: these segments are removed from the log
        if to_unlink:
            with log.lock:
                unlink_later_locked(log, to_unlink)
    log.options.scheduler.run_due()
    return count


def remove_below_start(log: LogCore) -> int:
    """Delete the segments below the log start, whatever the configuration says. Returns their number."""
    log.check_writable()
    return _remove(log, below_start)


def below_start(log: LogCore) -> list[tuple[Segment, str]]:
    """The segments that end at or below the log start."""
    found = deletable(log.segments, log.high_watermark, log.log_end_offset, below(log.log_start_offset))
    return [(segment, "log start") for segment in found]


def _remove_all(log: LogCore, to_unlink: list[str], choose: Choice) -> int:
    """Mark the selected segments for deletion. Returns their number. to_unlink: gets the file names by batch."""
    with log.lock:
        log.check_idle("retention")
        waiting = collections.deque(choose(log))
        if not waiting:
            return 0
        guard_undoable(log, log.directory.check_place)
        _start_after_locked(log, len(waiting))
        count = _remove_batch_locked(log, waiting, to_unlink)
    while waiting:
        let_others_in()
        with log.lock:
            log.check_idle("retention")
            count += _remove_batch_locked(log, waiting, to_unlink)
    return count


def _check_known(log: LogCore) -> None:
    if not log.options.config_known:
        raise ConfigUnknown(
            f"the retention of {log.name} is unknown: a broker's directory does not store it. Set a configuration "
            f"first, by logs.alter_topic({log.topic!r}, {{...}}) or Log.open(path, config={{...}})"
        )


def outgoing(log: LogCore) -> list[tuple[Segment, str]]:
    """The segments that retention deletes now, each with the reason: first by log start, then by size, then by time.

    Under the log's lock. Without it the result is approximate. Raises ConfigUnknown.
    """
    _check_known(log)
    config, left = log.config, log.segments
    size = log.size
    gone: list[tuple[Segment, str]] = []

    def give(predicate: Predicate, reason: str) -> None:
        nonlocal left, size
        given = deletable(left, log.high_watermark, log.log_end_offset, predicate)
        left = left[len(given) :]
        size -= sum(segment.size for segment in given)
        gone.extend((segment, reason) for segment in given)

    give(below(log.log_start_offset), "log start")
    if "delete" not in config.cleanup_policy:
        return gone
    if config.retention_bytes >= 0:
        give(beyond_size(size, config.retention_bytes), "retention.bytes")
    if config.retention_ms >= 0:
        give(expired(config.retention_ms, log.clock.wall_ms(), config.segment_ms), "retention.ms")
    return gone


def _start_after_locked(log: LogCore, count: int) -> None:
    """Move the log start after the first `count` segments; rolls if no segment would remain.

    From here on these segments are not read. If the deletion is interrupted, the next round does the rest.
    """
    if count == len(log.segments):
        roll_or_undo_locked(log, log.log_end_offset)
    increment_log_start_locked(log, log.segments[count].base_offset, "segment_deletion")


def _remove_batch_locked(log: LogCore, waiting: collections.deque[tuple[Segment, str]], to_unlink: list[str]) -> int:
    """Mark at most BATCH of the waiting segments for deletion, all for one reason. Returns their number.

    Empties `waiting` if another thread has changed the start of the log meanwhile.
    """
    gone, reason = [], waiting[0][1]
    for segment, following in zip(log.segments[:BATCH], log.segments[1:], strict=False):
        if not waiting or waiting[0] != (segment, reason) or following.base_offset > log.log_start_offset:
            break
        gone.append(waiting.popleft()[0])
    if not gone:
        waiting.clear()
        return 0
    load_aborted(gone)
    log.segment_list.drop_oldest(len(gone))
    uninterrupted(log, lambda: to_unlink.extend(mark_for_deletion_locked(log, gone, reason, durably=False)))
    return len(gone)


def increment_log_start(log: LogCore, offset: int, reason: str) -> bool:
    """Raise the log start. See Log.maybe_increment_log_start_offset."""
    with log.lock:
        log.check_idle("a move of the log start")
        moved = increment_log_start_locked(log, offset, reason)
    log.options.scheduler.run_due()
    return moved


def delete_records(log: LogCore, before: int, *, store: bool = True) -> int:
    """Raise the log start to `before` (-1: the high watermark) by request of a user. Returns the new log start.

    store: False if store_starts() follows.
    """
    with log.lock:
        log.check_idle("a deletion")
        guard_undoable(log, log.directory.check_place)
        if log.directory.owner is not None:
            log.directory.owner.check("a deletion")  # before anything has changed
        if "delete" not in log.config.cleanup_policy:
            raise PolicyViolation(
                f"{log.name} has cleanup.policy={','.join(log.config.cleanup_policy)}, without delete: set "
                "cleanup.policy=compact,delete, or delete single keys by tombstones"
            )
        bound = log.high_watermark
        offset = bound if before == -1 else before
        if offset < 0:
            raise OffsetOutOfRange(offset, log.log_start_offset, bound, f"{log.name} below its high watermark")
        increment_log_start_locked(log, offset, "record_deletion")
        if store:
            store_starts((log,))
        start: int = log.log_start_offset
    log.options.scheduler.run_due()
    return start


def increment_log_start_locked(log: LogCore, offset: int, reason: str) -> bool:
    """Raise the log start to offset. Returns False if it is there already or above."""
    if offset > log.high_watermark:
        raise OffsetOutOfRange(offset, log.log_start_offset, log.high_watermark, f"{log.name} below its high watermark")
    if offset <= log.log_start_offset:
        return False
    if offset > log.flush_state.recovery_point:
        guard(log, lambda: flush_locked(log))  # S9: after a crash the log start must not be beyond the log end
    if offset > log.segments[-1].next_offset:  # a truncation left the end above the batches: a roll stores that end
        roll_or_undo_locked(log, log.log_end_offset)
    _log.info("event=log_start log=%s offset=%d reason=%s", log.name, offset, reason)
    log.start_at(offset)
    log.epochs.truncate_from_start(offset)
    log.producers.on_log_start_offset_incremented(offset)
    _write_if_space(log, "epochs", log.epochs.flush)  # a load drops what lies below the log start
    return True


def store_starts(logs: Iterable[LogCore]) -> None:
    """Store the log starts that delete_records has raised, so that no crash brings the deleted records back. One write
    for each log.dir."""
    owners: dict[Owner, list[LogCore]] = {}
    for log in logs:
        if log.directory.owner is not None:
            owners.setdefault(log.directory.owner, []).append(log)
    for owner, some in owners.items():
        _write_if_space(some[0], "log_starts", partial(owner.store_starts, some))


def _write_if_space(log: LogCore, what: str, write: Callable[[], object]) -> None:
    """Write a file after a move of the log start. Without disk space it stays as it is, and is written later: retention
    makes space."""
    try:
        guard_undoable(log, write)
    except OSError as error:
        if log.health.offline is not None:
            raise
        _log.warning("event=%s_not_written log=%s reason=%s", what, log.name, error)
