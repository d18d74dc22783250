"""Closing a log: with a flush, as a crash would, or because it is deleted or its disk has failed."""

from __future__ import annotations

import os

from klog.disk import let_go
from klog.errors import ReadOnly, StorageOffline
from klog.log import lifecycle
from klog.log.state._log_core import LogCore
from klog.log.state.cleaning_state import without_cleaning
from klog.log.write import flush
from klog.logger import logger_of

_log = logger_of("log")


def close(log: LogCore) -> None:
    """Flush, trim the indexes, write the producer snapshot. See Log.close."""
    with without_cleaning(log), log.lock:
        log.lock.begins(log, "a close")
        owner, health = log.directory.owner, log.health
        if owner is not None:
            owner.check("a close")
        if health.closed:
            if health.handlers_closed:
                abandon(log)
                raise StorageOffline(f"{log.name} could not be flushed after close_handlers(): open it to recover")
            end_interrupted_close(log)
            return
        clean = False
        try:
            health.close()
            log.end_appends()
            log.notifier.notify()
            if not log.read_only and health.offline is None and os.getpid() == health.pid:
                _finish_locked(log)
                clean = True
        finally:
            _release(log, clean)


def _release(log: LogCore, clean: bool) -> None:
    """Release handles, views and locks."""
    try:
        for segment in log.segments:
            segment.close()
        _end_views(log)
    finally:
        log.directory.release_claim()
        if log.directory.owner is not None:
            log.directory.owner.release(log, clean)


def _finish_locked(log: LogCore) -> None:
    flush.flush_locked(log)
    log.directory.check_place()
    log.segments[-1].deactivate(sync=True)
    producers = log.producers
    producers.end_at(min(producers.end_offset, log.segments[-1].next_offset))  # log end of the next load
    producers.take_snapshot()


def _end_views(log: LogCore) -> None:
    """Before the directory is unlocked: end all views of files that another process may truncate, and make none."""
    segment_dir = log.directory.segment_dir
    if segment_dir is None or not segment_dir.mappable:
        return
    segment_dir.map_nothing()
    try:
        let_go(log.path)
    except (OSError, MemoryError) as error:
        _log.error("event=views_not_kept log=%s reason=%s", log.name, error)
    for segment in log.segments:
        segment.unmap()


def abandon(log: LogCore) -> None:
    """Release handles and locks as a crash would: without a flush, and not as a clean shutdown."""
    log.health.close()
    log.end_appends()
    _release(log, False)


def end_interrupted_close(log: LogCore) -> bool:
    """Finish a close that Ctrl-C, or an exception of a signal handler, interrupted: release all, write nothing. The
    next open recovers the log. Returns False, and has done nothing, if another thread is in a call of the log."""
    claim, owner = log.directory.claim, log.directory.owner
    if not log.closed or (claim is not None and claim.held):
        if log.lock.is_taken_elsewhere():
            return False
        abandon(log)
    elif owner is not None:
        owner.end_release()
    return True


def close_handlers(log: LogCore) -> None:
    """Close the files of a log whose directory has failed. See Log.close_handlers."""
    with without_cleaning(log), log.lock:
        log.lock.begins(log, "a close")
        if log.closed:
            return
        log.health.close(handlers=True)
        log.end_appends()
        for segment in log.segments:
            segment.close()
        log.directory.release_claim()


def delete(log: LogCore) -> None:
    """Delete the log with its directory, and close it. Raises StorageOffline if that fails."""
    with without_cleaning(log), log.lock:
        if log.read_only:
            raise ReadOnly(f"{log.name} was opened with read_only=True: open it for writing")
        log.lock.begins(log, "a deletion")
        try:
            log.health.close()
            log.health.delete()
            log.end_appends()
            lifecycle.delete_locked(log)
        finally:
            log.directory.release_claim()
        if log.directory.segment_dir is not None:
            log.directory.segment_dir.map_nothing()  # the mapped files are deleted
        if log.directory.owner is not None:
            log.directory.owner.forget(log)


def mark_for_deletion(log: LogCore, name: str) -> None:
    """Mark the log for deletion: rename the directory, which is deleted later, after its readers have finished."""
    with log.lock:
        log.lock.begins(log, "a deletion")
        lifecycle.rename_locked(log, name, False)
        disown(log, deleted=True)


def disown(log: LogCore, *, deleted: bool = False) -> None:
    """Report to no owner from here on. deleted: the log is marked for deletion."""
    log.directory.belong_to(None)
    if deleted:
        log.health.delete()
