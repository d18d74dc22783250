"""Adopting a file: whole batches that are on disk become the active segment of a log, without being written again.

D1  the file is durable before it is renamed, with its offsets: a crash leaves it under its old name, or as a segment
    that a load accepts. Its indexes are written after that; without them a load builds them
D2  nothing is undone: an error takes the log offline, and the next load goes by what is on disk
"""

from __future__ import annotations

from klog.log.load.inputs import inputs_of, new_segment
from klog.log.state import high_watermark
from klog.log.state._log_core import LogCore
from klog.log.write.failures import uninterrupted
from klog.log.write.log_end import end_moved_locked
from klog.log.write.undo import wait_for_sync_locked
from klog.logger import logger_of

_log = logger_of("log")


def adopt(log: LogCore, path: str, leader_epoch: int) -> None:
    """Append a file of batches of magic 2, of one leader epoch and without producers, that begins at the log end. It
    is renamed. The caller is the only appender. Raises StorageOffline, ReadOnly, LogClosed, OSError."""
    with log.lock:
        log.check_idle("a roll")
        uninterrupted(log, lambda: _adopt_locked(log, path, leader_epoch))


def _adopt_locked(log: LogCore, path: str, leader_epoch: int) -> None:
    base_offset, files = log.log_end_offset, log.options.files
    wait_for_sync_locked(log)
    if log.epochs.assign(leader_epoch, base_offset):
        log.epochs.flush()
    before = log.segments[-1]
    is_empty = before.base_offset == base_offset
    if is_empty:
        before.close()
    else:
        before.deactivate(sync=True)
    segment = new_segment(inputs_of(log), base_offset, writable=True)
    segment.take_file(path)
    log.producers.end_at(base_offset)
    if is_empty or not log.producers.take_snapshot():  # a snapshot also syncs the directory
        files.fsync_dir(log.directory.path)
    if is_empty:
        log.segment_list.renew_active(segment)
    else:
        log.segment_list.add(segment)
    log.flush_state.synced_up_to(base_offset)
    high_watermark.rolled_locked(log)
    log.producers.end_at(segment.next_offset)
    log.counters.count_replicated(segment.size)
    log.end_at(segment.next_offset)
    end_moved_locked(log)
    _log.info("event=segment_adopted log=%s base_offset=%d bytes=%d", log.name, base_offset, segment.size)
