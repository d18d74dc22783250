"""Renames or deletes the directory of a partition. Under the log's lock.

A log marked for deletion (renamed to `-delete`) writes no leader epochs and no topic id, only appended records.
Kafka: UnifiedLog.renameDir, delete; LocalLog.deleteAllSegments, deleteEmptyDir.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from typing import TYPE_CHECKING

from klog.errors import StorageOffline
from klog.segment import Segment

if TYPE_CHECKING:
    from klog.log.log import Log

_log = logging.getLogger("klog.log")


def rename_locked(log: Log, name: str, reinitialise: bool) -> bool:
    """Rename the directory. Returns False if it has that name. reinitialise False: it is marked for deletion."""
    parent = os.path.dirname(log._directory)
    target = os.path.join(parent, name)
    if target == log._directory:
        return False
    if os.path.lexists(target):
        raise FileExistsError(f"{target} exists already")
    _log.info("event=rename log=%s from=%s to=%s", log.name, log._directory, target)
    log._finally(lambda: _rename(log, parent, target))
    log._epochs.move_to(target)
    if not reinitialise:
        log._epochs.clear()
        log._epochs.detach()
        log._keeps_metadata = False
    return True


def _rename(log: Log, parent: str, target: str) -> None:
    home = log._home
    with home.opening if home is not None else contextlib.nullcontext():
        log._options.files.rename(log._directory, target)
        log._directory = target
        log._home_of_deleted().directory = target
        if home is not None:
            home.directory = target
    for segment in log._segments:
        segment.forget_paths()
    log._producers.move_to(target)
    log._options.files.fsync_dir(parent)


def delete_all_segments_locked(log: Log) -> list[Segment]:
    """Remove all segments and their files, but not the directory. Returns the segments."""
    segments, log._segments = log._segments, ()
    for segment in reversed(segments):  # newest first: after a crash the rest is a valid log
        segment.delete_files()
    return list(segments)


def delete_empty_dir_locked(log: Log) -> None:
    """Delete the directory with what is left in it. ValueError if the log still has segments."""
    if log._segments:
        raise ValueError(f"{log.name} still has {len(log._segments)} segments: delete them first")
    shutil.rmtree(log._directory)
    log._options.files.fsync_dir(os.path.dirname(log._directory))


def delete_locked(log: Log) -> None:
    """Delete the log with its directory."""
    _log.info("event=delete log=%s path=%s", log.name, log._directory)
    log._epochs.clear()
    log._epochs.detach()
    try:
        os.listdir(log._directory)  # raises if the path is no longer a directory
        delete_all_segments_locked(log)
        delete_empty_dir_locked(log)
    except OSError as error:
        log._go_offline(f"deleting it failed: {error}")
        raise StorageOffline(f"{log.name} could not be deleted: {error}") from error
