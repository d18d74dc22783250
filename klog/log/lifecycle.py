"""Renames or deletes the directory of a partition. Under the log's lock.

A log marked for deletion (renamed to `-delete`) writes no leader epochs and no topic id, only appended records.
Kafka: UnifiedLog.renameDir, delete; LocalLog.deleteAllSegments, deleteEmptyDir.
"""

from __future__ import annotations

import os

from klog.disk import exists, remove_tree
from klog.errors import StorageOffline
from klog.log.state._log_core import LogCore
from klog.log.state.cleaning_state import without_cleaning
from klog.log.write.failures import uninterrupted
from klog.logger import logger_of

_log = logger_of("log")


def rename(log: LogCore, name: str, reinitialise: bool) -> bool:
    """Rename the directory. See Log.rename_dir."""
    with without_cleaning(log), log.lock:
        log.check_idle("a renaming")
        return rename_locked(log, name, reinitialise)


def rename_locked(log: LogCore, name: str, reinitialise: bool) -> bool:
    """Rename the directory. Returns False if it has that name. reinitialise False: it is marked for deletion."""
    parent = os.path.dirname(log.directory.path)
    target = os.path.join(parent, name)
    if target == log.directory.path:
        return False
    if exists(target, follow_symlinks=False):
        raise FileExistsError(f"{target} exists already")
    _log.info("event=rename log=%s from=%s to=%s", log.name, log.directory.path, target)
    uninterrupted(log, lambda: _rename(log, parent, target))
    log.epochs.move_to(target)
    if not reinitialise:
        log.epochs.clear()
        log.epochs.detach()
        log.directory.keep_no_metadata()
    return True


def _rename(log: LogCore, parent: str, target: str) -> None:
    log.directory.rename(target, log.options)
    for segment in log.segments:
        segment.forget_paths()
    log.producers.move_to(target)
    log.options.files.fsync_dir(parent)


def delete_locked(log: LogCore) -> None:
    """Delete the log with its directory."""
    _log.info("event=delete log=%s path=%s", log.name, log.directory.path)
    log.epochs.clear()
    log.epochs.detach()
    try:
        os.listdir(log.directory.path)  # raises if the path is no longer a directory
        for segment in reversed(log.segment_list.empty()):  # newest first: after a crash the rest is a valid log
            segment.delete_files()
        remove_tree(log.directory.path, log.options.files)
        log.options.files.fsync_dir(os.path.dirname(log.directory.path))
    except OSError as error:
        log.go_offline(f"deleting it failed: {error}")
        raise StorageOffline(f"{log.name} could not be deleted: {error}") from error
