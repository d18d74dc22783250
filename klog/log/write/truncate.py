"""Truncating a log at its end, or restarting it at another offset.

  T1  at every moment the directory holds a prefix of the records from the log start on: later segments are removed
      before earlier ones, whole segments before a part of one, and segments below the log start at last
  T2  a truncation, with all files that name the removed records, is on disk before the next append (S8)
  T3  the checkpoints of the log.dir and the positions of named readers are lowered before the first byte is removed:
      after a crash a load would believe a recovery point or a log start beyond the new log, and a reader would miss the
      records that replace those that it has read
  T4  the listener gets a new high watermark at the end: it may append
  T5  a gap is removed from klog-gaps after the segment that follows it: else the load after a crash between the two
      would take the gap for lost records
  T6  the positions of named readers are lowered again afterwards: a reader may have read and committed the removed
      records meanwhile
  T7  the last stable offset is lowered before the cut: a transaction whose marker is removed is undecided again, and
      readers take no lock

Under the log's lock. An OSError takes the log offline; the next load finds a prefix. Kafka: UnifiedLog, LocalLog.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from klog.log.directory import gaps
from klog.log.load.batch_epochs import learn_epochs
from klog.log.load.inputs import Inputs, inputs_of, new_segment
from klog.log.load.rebuild import producers_at
from klog.log.state import high_watermark
from klog.log.state._log_core import LogCore
from klog.log.state.cleaning_state import without_cleaning
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.segments import number_of
from klog.log.state.snapshots import Snapshots
from klog.log.write.failures import guard, guard_undoable, uninterrupted
from klog.log.write.removal import remove_locked
from klog.log.write.undo import wait_for_sync_locked
from klog.logger import logger_of
from klog.segment import Segment

_log = logger_of("log")


def truncate_to(log: LogCore, offset: int) -> bool:
    """Truncate the log to end at offset. See Log.truncate_to."""
    with without_cleaning(log), log.lock:
        log.check_idle("a truncation")
        guard_undoable(log, log.directory.check_place)
        wait_for_sync_locked(log)
        truncated = truncate_to_locked(log, offset)
    log.options.scheduler.run_due()
    return truncated


def truncate_fully(log: LogCore, offset: int, log_start_offset: int) -> None:
    """Remove all records and continue at offset. See Log.truncate_fully_and_start_at."""
    with without_cleaning(log), log.lock:
        log.check_idle("a truncation")
        guard_undoable(log, log.directory.check_place)
        wait_for_sync_locked(log)
        truncate_fully_locked(log, offset, log_start_offset)
    log.options.scheduler.run_due()


def truncate_to_locked(log: LogCore, offset: int) -> bool:
    """Truncate the log to end at offset. Returns False if it ends at or below it already."""
    if offset >= log.log_end_offset:
        log.epochs.truncate_from_end(log.log_end_offset)
        guard(log, lambda: _write_epochs(log))
        return False
    segments = log.segments
    if offset < segments[0].base_offset:
        truncate_fully_locked(log, offset, offset)
        return True
    kept = tuple(segment for segment in segments if segment.base_offset <= offset)
    _, reached = kept[-1].cut_position(offset)  # raises on damage, before anything has changed
    _log.info("event=truncate log=%s offset=%d end=%d", log.name, offset, log.log_end_offset)
    start = min(offset, log.log_start_offset)
    if reached < start:
        _remove(log, start, lambda: _truncate_to_start(log, offset, start))
    else:
        _remove(log, min(offset, reached), lambda: _truncate(log, kept, offset, reached))
    return True


def _remove(log: LogCore, next_end: int, action: Callable[[], None]) -> None:
    """next_end: where the next load will end the log."""
    before, owner = log.high_watermark, log.directory.owner

    def lower_positions() -> None:
        if owner is not None:
            guard_undoable(log, partial(owner.lower_positions, log, next_end, True))

    def remove() -> None:
        action()
        gaps.cut(log.options.files, log.directory.path, log.segments[-1].base_offset)  # T5

    lower_positions()  # T3
    uninterrupted(log, remove)
    try:
        lower_positions()  # T6
    finally:
        if log.high_watermark != before:
            high_watermark.notify_listener(log, log.high_watermark)  # T4


def _truncate(log: LogCore, kept: tuple[Segment, ...], offset: int, reached: int) -> None:
    gone = log.segments[len(kept) :]
    start = min(offset, log.log_start_offset)
    _lower(log, min(offset, reached), start)
    high_watermark.clamp_locked(log, offset)
    _lower_last_stable_offset(log, kept, offset, reached)
    log.cut(kept, start, offset)  # readers of the removed bytes look again
    log.notifier.notify()
    remove_locked(log, gone[::-1], "truncation")
    removed = kept[-1].truncate_to(offset, log.clock.wall_ms())
    _log.info("event=truncated log=%s offset=%d segments=%d bytes=%d", log.name, offset, len(gone), removed)
    reload_producers(log)
    had_epochs = log.epochs.latest is not None
    log.epochs.truncate_from_end(offset)
    if had_epochs and log.epochs.latest is None:
        # A crash has lost a raised log start, and the first entry began there: the records below have epochs, too.
        learn_epochs(log.epochs, log.segments)
        log.epochs.truncate_from_start(start)
    _write_epochs(log)
    log.options.files.fsync_dir(log.directory.path)
    log.segment_list.took_back()  # readers that began after the cut may have seen bytes beyond the new end


def _lower_last_stable_offset(log: LogCore, kept: tuple[Segment, ...], offset: int, reached: int) -> None:
    """T7. Uses the producers as of the new log end; reload_producers() follows, with the snapshots that are left."""
    if log.producers.entries:
        inputs, high = inputs_of(log), min(offset, log.high_watermark)
        start = _producers_start(log, inputs, min(offset, log.log_start_offset))
        log.use_producers(producers_at(inputs, kept, start, offset, reached, high))
        log.producers.on_high_watermark_updated(high)


def _truncate_to_start(log: LogCore, offset: int, start: int) -> None:
    """Truncate so that no batch at or above the log start stays.

    A load would take segments that end below the log start for lost records, so the log continues with an empty
    segment that begins at the log start.
    """
    _restart(log, start, offset, start)
    reload_producers(log)
    log.epochs.truncate_from_end(offset)
    _write_epochs(log)
    log.options.files.fsync_dir(log.directory.path)


def _write_epochs(log: LogCore) -> None:
    """Write the leader epochs of the records that are left, and that of the leader."""
    log.epochs.begin_at(log.epochs.default, log.segments[-1].next_offset)
    log.epochs.flush()


def truncate_fully_locked(log: LogCore, offset: int, start: int) -> None:
    """Remove all records and continue at offset, with the log start at `start`."""
    _log.info("event=truncate_fully log=%s offset=%d end=%d", log.name, offset, log.log_end_offset)
    _remove(log, offset, lambda: _restart_at(log, offset, start))


def _restart_at(log: LogCore, offset: int, start: int) -> None:
    point = min(offset, log.flush_state.recovery_point)
    _restart(log, offset, offset, start)
    if log.watermark.metadata is not None:
        log.watermark.set(high_watermark.end_of(log))
    log.producers.truncate_fully_and_start_at(offset)
    log.epochs.clear()
    _write_epochs(log)
    log.options.files.fsync_dir(log.directory.path)
    log.flush_state.synced_up_to(point)


def _restart(log: LogCore, base_offset: int, end: int, start: int) -> None:
    """Replace all segments by an empty one at base_offset. The log then has the offsets [start, end)."""
    # After a crash the log still begins at its log start: what is above it goes first, then the segments below it as
    # retention removes them, and a load that finds no record at all begins at the stored start.
    stored = min(start, log.log_start_offset)
    at = number_of(log.segments, stored)
    below, first, above = log.segments[:at], log.segments[at], log.segments[at + 1 :]
    files = log.options.files
    _lower(log, min(base_offset, first.base_offset), stored)
    fresh = new_segment(inputs_of(log), base_offset, writable=True)
    high_watermark.clamp_locked(log, min(end, log.log_end_offset))
    log.cut((fresh,), start, end)
    log.notifier.notify()
    if log.watermark.metadata is not None:
        log.watermark.set(OffsetMetadata(log.watermark.metadata.offset))  # its position is no longer valid
    log.cleaning.set_cleanable()
    remove_locked(log, (*above[::-1], *below), "truncation")
    first.empty()
    if base_offset != first.base_offset:
        fresh.delete_files()
        files.rename(first.path, fresh.path)  # atomic: with both or neither the log would begin or end elsewhere
    for path in first.paths[1:]:
        files.unlink(path)
    fresh.activate()
    files.fsync_dir(log.directory.path)
    log.segment_list.took_back()


def _lower(log: LogCore, recovery_point: int, log_start_offset: int) -> None:
    """T3. Lowers the log's own recovery point and the checkpoints."""
    log.flush_state.lower(recovery_point)
    if log.directory.owner is not None:
        log.directory.owner.lower(log, recovery_point, log_start_offset)


def reload_producers(log: LogCore) -> None:
    """Reload the producers as of the new log end. Deletes snapshots outside the log, and those above its last batch: if
    the new end is inside a batch or a gap, the next load ends the log after that batch.

    The producers are those since the log start of the load: a crash may lose a later one, and brings back the records
    below it. Then the snapshots that are written from now on must have the transactions of these records.
    """
    inputs, start, end = inputs_of(log), log.log_start_offset, log.log_end_offset
    snapshots = Snapshots(log.directory.path, log.options.files)
    for offset in snapshots.offsets:
        if not start < offset <= min(end, log.segments[-1].next_offset):
            snapshots.delete(offset)
    start = _producers_start(log, inputs, start)
    log.use_producers(
        producers_at(inputs, log.segments, start, end, high_watermark=log.high_watermark, snapshots=snapshots)
    )
    log.producers.expire(log.clock.wall_ms(), inputs.producer_expiration_ms)
    log.producers.on_high_watermark_updated(log.high_watermark)


def _producers_start(log: LogCore, inputs: Inputs, log_start: int) -> int:
    return min(log_start, max(inputs.log_start_offset, log.segments[0].base_offset))
