"""Undoing the writes of a failed append or roll. Under the log's lock."""

from __future__ import annotations

import contextlib

from klog.disk import WriteBackFailed, failed_sync_in, is_final
from klog.errors import StorageOffline
from klog.log.state import high_watermark
from klog.log.state._log_core import LogCore
from klog.log.write.failures import note_failure
from klog.segment import Segment

Savepoint = tuple[int, int, bytes]


def savepoint_locked(log: LogCore) -> Savepoint:
    """The savepoint of the active segment for undo_locked(). Also prepares the segment for a write."""
    try:
        return log.segments[-1].savepoint()
    except OSError as error:
        if is_final(error):
            log.go_offline(str(error))
        raise


def undo_locked(log: LogCore, before: tuple[Segment, ...], savepoint: Savepoint, error: BaseException) -> None:
    """Undo the writes of a failed append or roll.

    If the undo fails too, or a sync has failed, the log is offline, and the next load decides from disk. If the error
    means that the disk has failed, the writes are undone and the log goes offline (P6). The undo is durable: the
    removed bytes must not reappear after the next append (P3).
    """
    end = log.append_end
    log.producers.end_at(end)
    with contextlib.suppress(StorageOffline):
        wait_for_sync_locked(log)
    failed = failed_sync_in(error)
    if failed is not None and (isinstance(error, WriteBackFailed) or not isinstance(error, OSError)):
        log.go_offline(str(failed))  # the kernel does not report it again
    if log.health.offline is not None or log.closed:
        return  # a closed log no longer holds the lock of its directory
    log.health.begin_undo(repr(error))
    try:
        _take_back_locked(log, before, savepoint, end)
        log.health.undone()
    except BaseException as second:
        if not isinstance(second, OSError):  # Ctrl-C: the log is offline; a failed sync concerns the log.dir too
            note_failure(log, second)
            raise
        log.go_offline(f"{error if isinstance(error, OSError) else repr(error)}; undoing it failed: {second}")
    else:
        if isinstance(error, OSError) and is_final(error):
            log.go_offline(str(error))
    finally:
        log.segment_list.took_back()


def _take_back_locked(log: LogCore, before: tuple[Segment, ...], savepoint: Savepoint, end: int) -> None:
    """Restore the segments, and the bytes of the last of them, from before. The log continues at `end`."""
    last = len(before) - 1
    added = [segment for segment in log.segments[last:] if segment is not before[-1]]
    log.segment_list.restore(before)
    high_watermark.unrolled_locked(log)
    for segment in added:
        if segment.base_offset == before[-1].base_offset:
            segment.close()  # it uses the files of an empty segment, which is reopened below
            continue
        segment.delete_files()
        log.producers.take_back_snapshot(segment.base_offset)
    before[-1].reopen()
    before[-1].rewind(savepoint)
    if added:
        log.options.files.fsync_dir(log.directory.path)
    if log.flush_state.lower(end) and log.directory.owner is not None:
        log.directory.owner.lower(log, end, log.log_start_offset)


def wait_for_sync_locked(log: LogCore) -> None:
    """F3 of flush: wait for the running sync; the log's lock, which the caller holds, prevents others. StorageOffline
    if one failed."""
    log.sync_lock.wait()
    log.health.check_online()
