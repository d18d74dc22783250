"""Rolling: closing the active segment, and beginning the next one. Under the log's lock. Kafka: LocalLog.roll."""

from __future__ import annotations

import os

from klog.disk import exists
from klog.errors import CorruptLog
from klog.log.directory import gaps
from klog.log.load.inputs import inputs_of, new_segment
from klog.log.state import high_watermark
from klog.log.state._log_core import LogCore
from klog.log.write.failures import guard_sync, guard_undoable
from klog.log.write.removal import unlink_later_locked
from klog.log.write.undo import savepoint_locked, undo_locked, wait_for_sync_locked
from klog.logger import logger_of
from klog.segment import Segment, names

_log = logger_of("log")


def roll(log: LogCore, expected_next_offset: int) -> Segment:
    """Begin a new segment at the log end, or at the expected offset if that is beyond. See Log.roll."""
    with log.lock:
        log.check_idle("a roll")
        segment = roll_or_undo_locked(log, max(log.log_end_offset, expected_next_offset))
    log.options.scheduler.run_due()
    return segment


def roll_or_undo_locked(log: LogCore, base_offset: int) -> Segment:
    """Roll, and undo the roll if it fails. Returns the new active segment."""
    before, savepoint = log.segments, savepoint_locked(log)
    try:
        roll_locked(log, base_offset)
    except BaseException as error:
        undo_locked(log, before, savepoint, error)
        raise
    high_watermark.rolled_locked(log)
    return log.segments[-1]


def roll_locked(log: LogCore, base_offset: int) -> None:
    """Roll. The old segments are durable before the new one exists (L3)."""
    guard_undoable(log, log.directory.check_place)
    active = log.segments[-1]
    if base_offset == active.base_offset and active.size:
        raise CorruptLog(
            f"no segment can begin at {base_offset}: the active one does, and has only batches below its base offset. "
            f"`klog verify` lists the damage. Rename its files to the offset of its first batch, or move them away",
            path=active.path,
            position=0,
            offset=base_offset,
            kind="offset_order",
        )
    if base_offset < active.base_offset:
        raise ValueError(
            f"{log.name}: no segment can begin at {base_offset}: the active one holds [{active.base_offset}, "
            f"{active.next_offset})"
        )
    if base_offset == active.base_offset:
        _remake_locked(log, active)
        return
    options, path, began = log.options, log.directory.path, log.clock.monotonic()
    wait_for_sync_locked(log)
    guard_undoable(log, lambda: log.segments[-1].deactivate(sync=True))
    if active.next_offset < base_offset:
        first = log.segments[0].base_offset
        guard_undoable(log, lambda: gaps.note(options.files, path, active.next_offset, base_offset, first))
    segment = new_segment(inputs_of(log), base_offset, writable=True)
    segment.delete_files()
    log.segment_list.add(segment)  # before its files exist, so that an undo finds it
    segment.activate()
    log.producers.end_at(base_offset)
    if not log.producers.take_snapshot():  # a snapshot also syncs the directory with the new segment's names
        guard_sync(log, lambda: options.files.fsync_dir(path))
    log.flush_state.synced_up_to(min(base_offset, max(log.log_end_offset, active.next_offset)))
    log.counters.roll_times.note(log.clock.monotonic() - began)
    _log.info("event=roll log=%s base_offset=%d segments=%d", log.name, base_offset, len(log.segments))
    if log.directory.on_flush is not None:
        log.directory.on_flush(log)


def _remake_locked(log: LogCore, empty: Segment) -> None:
    """Replace the indexes of an empty active segment. The old ones are deleted like those of any segment; the `.log`
    stays, since after a crash nothing else may name the log end."""
    _log.warning("event=roll_empty log=%s base_offset=%d", log.name, empty.base_offset)
    empty.close()
    files, to_unlink = log.options.files, []
    for path in empty.paths[1:]:
        if exists(path):
            files.unlink(path + names.DELETED)
            files.rename(path, path + names.DELETED)
            to_unlink.append(os.path.basename(path) + names.DELETED)
    segment = new_segment(inputs_of(log), empty.base_offset, writable=True)
    log.segment_list.renew_active(segment)
    segment.activate()
    files.fsync_dir(log.directory.path)
    unlink_later_locked(log, to_unlink)
