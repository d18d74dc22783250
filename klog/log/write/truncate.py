"""Truncating a log at its end, or restarting it at another offset.

  T1  at every moment the directory holds a prefix of the old log: later segments are removed before earlier ones,
      whole segments before a part of one
  T2  a truncation, with all files that name the removed records, is on disk before the next append (S8)
  T3  the checkpoints of the log.dir are lowered before the first byte is removed: after a crash a load would believe a
      recovery point or a log start beyond the new log

Under the log's lock. An OSError takes the log offline; the next load finds a prefix. Kafka: UnifiedLog, LocalLog.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from klog.log.load.loader import new_segment
from klog.log.load.rebuild import producers_at
from klog.log.retain.removal import remove_locked
from klog.log.state import high_watermark
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.snapshots import Snapshots
from klog.segment import Segment

if TYPE_CHECKING:
    from klog.log.log import Log

_log = logging.getLogger("klog.log")


def truncate_to_locked(log: Log, offset: int) -> bool:
    """Truncate the log to end at offset. Returns False if it ends at or below it already."""
    if offset >= log._log_end_offset:
        log._epochs.truncate_from_end(log._log_end_offset)
        log._guard(log._epochs.flush)
        return False
    segments = log._segments
    if offset < segments[0].base_offset:
        truncate_fully_locked(log, offset, None)
        return True
    kept = tuple(segment for segment in segments if segment.base_offset <= offset)
    _, reached = kept[-1].place_of_cut(offset)  # raises on damage, before anything has changed
    _log.info("event=truncate log=%s offset=%d end=%d", log.name, offset, log._log_end_offset)
    start = min(offset, log._log_start_offset)
    if reached < start:
        log._finally(lambda: _truncate_to_start(log, offset, start))
    else:
        log._finally(lambda: _truncate(log, kept, offset, reached))
    return True


def _truncate(log: Log, kept: tuple[Segment, ...], offset: int, reached: int) -> None:
    gone = log._segments[len(kept) :]
    start = min(offset, log._log_start_offset)
    _lower(log, min(offset, reached), start)
    high_watermark.clamp_locked(log, offset)
    log._segments, log._log_start_offset = kept, start
    log._advance_end_locked(offset)
    log._generation += 1  # readers of the removed bytes look again
    log._rewritten += 1
    remove_locked(log, gone[::-1], "truncation")
    removed = kept[-1].truncate_to(offset, log.clock.wall_ms())
    _log.info("event=truncated log=%s offset=%d segments=%d bytes=%d", log.name, offset, len(gone), removed)
    reload_producers(log)
    log._epochs.truncate_from_end(offset)
    log._epochs.flush()
    log._options.files.fsync_dir(log._directory)
    log._taken_back += 1  # readers that began after _generation changed may have seen bytes beyond the new end


def _truncate_to_start(log: Log, offset: int, start: int) -> None:
    """Truncate so that no batch at or above the log start stays.

    A load would take segments that end below the log start for lost records, so the log continues with an empty
    segment that begins at the log start.
    """
    _restart(log, start, offset, start)
    reload_producers(log)
    log._epochs.truncate_from_end(offset)
    log._epochs.flush()
    log._options.files.fsync_dir(log._directory)


def truncate_fully_locked(log: Log, offset: int, log_start_offset: int | None) -> None:
    """Remove all records and continue at offset. log_start_offset None: the log also starts there."""
    start = offset if log_start_offset is None else log_start_offset
    _log.info("event=truncate_fully log=%s offset=%d end=%d", log.name, offset, log._log_end_offset)
    log._finally(lambda: _restart_at(log, offset, start))


def _restart_at(log: Log, offset: int, start: int) -> None:
    point = min(offset, log._flush_state.recovery_point)
    _restart(log, offset, offset, start)
    if log._high_watermark is not None:
        high_watermark.set_locked(log, high_watermark.end_of(log))
    log._producers.truncate_fully_and_start_at(offset)
    log._epochs.clear_and_flush()
    log._options.files.fsync_dir(log._directory)
    log._flush_state.synced_up_to(point)


def _restart(log: Log, base_offset: int, end: int, start: int) -> None:
    """Replace all segments by an empty one at base_offset. The log then has the offsets [start, end)."""
    first, gone = log._segments[0], log._segments[1:]
    files = log._options.files
    _lower(log, min(base_offset, first.base_offset), min(start, log._log_start_offset, first.base_offset))
    fresh = new_segment(log._inputs(), base_offset, writable=True)
    high_watermark.clamp_locked(log, min(end, log._log_end_offset))
    log._segments, log._log_start_offset = (fresh,), start
    log._advance_end_locked(end)
    if log._high_watermark is not None:
        log._high_watermark = OffsetMetadata(log._high_watermark.offset)  # its position is no longer valid
    log._generation += 1
    log._rewritten += 1
    log._cleaning.uncleanable = None  # the records that could not be cleaned are removed
    remove_locked(log, gone[::-1], "truncation")
    first.close()
    first.size, first.next_offset = 0, first.base_offset
    first.cut(0)
    if base_offset != first.base_offset:
        fresh.delete_files()
        files.rename(first.path, fresh.path)  # atomic: with both or neither the log would begin or end elsewhere
    for path in first.paths[1:]:
        files.unlink(path)
    fresh.activate()
    files.fsync_dir(log._directory)
    log._taken_back += 1


def _lower(log: Log, recovery_point: int, log_start_offset: int) -> None:
    """T3. Lowers the log's own recovery point and the checkpoints."""
    log._flush_state.lower(recovery_point)
    if log._owner is not None:
        log._owner.lower(log, recovery_point, log_start_offset)


def reload_producers(log: Log) -> None:
    """Reload the producers as of the new log end. Deletes snapshots of later offsets."""
    start, end = log._log_start_offset, log._log_end_offset
    snapshots = Snapshots(log._directory, log._options.files)
    for offset in snapshots.offsets:
        if not start < offset <= end:
            snapshots.delete(offset)
    log._producers = producers_at(log._inputs(), log._segments, start, end, snapshots=snapshots)
    log._producers.expire(log.clock.wall_ms())
    log._producers.on_high_watermark_updated(log.high_watermark)
