"""Deleting segments: they are renamed to `.deleted` at once and unlinked after file.delete.delay.ms.

Readers of a deleted segment continue. Files that are left when the log is closed are unlinked by the next load. Under
the log's lock. Kafka: LocalLog.removeAndDeleteSegments.
"""

from __future__ import annotations

import collections
import contextlib
import os
from collections.abc import Iterable, Sequence

from klog.disk import is_full, lacks_descriptors
from klog.errors import CorruptIndex
from klog.log.state._log_core import LogCore
from klog.log.write.failures import guard
from klog.logger import logger_of
from klog.segment import Segment, names

_log = logger_of("log")
UNLINK_SECONDS = 0.05


def remove_locked(log: LogCore, segments: Sequence[Segment], reason: str) -> None:
    """Delete the files of segments that are already removed from the log, in the given order.

    After a crash in between the rest must be a valid log. The renames are durable when it returns; the unlinks come
    later. An OSError is final.
    """
    if segments:
        unlink_later_locked(log, mark_for_deletion_locked(log, segments, reason))


def load_aborted(segments: Sequence[Segment]) -> None:
    """Read the transaction indexes of segments that mark_for_deletion_locked needs, before anything is changed.

    Raises OSError if too many files are open. Skips a file that cannot be read for another reason.
    """
    for segment in segments:
        try:
            segment.txn_index.entries  # noqa: B018
        except CorruptIndex:
            continue
        except OSError as error:
            if lacks_descriptors(error):
                raise


def mark_for_deletion_locked(
    log: LogCore, segments: Sequence[Segment], reason: str, kept_snapshot: int | None = None, *, durably: bool = True
) -> list[str]:
    """Rename the files of segments to .deleted. Returns the names to unlink, after the log has no such segments.

    Also renames the producer snapshots at their base offsets, except the one at kept_snapshot, where another segment
    begins. durably False: the caller syncs the directory.
    """
    files = log.options.files
    _log.info(
        "event=segments_deleted log=%s reason=%s bases=%s",
        log.name,
        reason,
        ",".join(str(segment.base_offset) for segment in segments),
    )
    to_unlink: list[str] = []
    segment_dir = log.directory.deleted_dir(log.options)
    for segment in segments:
        paths, snapshot = segment.paths, None
        try:
            segment.move_to(segment_dir)
            if segment.base_offset != kept_snapshot:
                snapshot = log.producers.remove_and_mark_for_deletion(segment.base_offset)
        except OSError as error:
            if not is_full(error):
                raise
            for path in (*paths, *segment.paths):  # no disk space for a rename: unlink at once to free space
                files.unlink(path)
            if segment.base_offset != kept_snapshot:
                log.producers.take_back_snapshot(segment.base_offset)
            continue  # not to be unlinked later: another segment may soon use the same names
        to_unlink += (os.path.basename(path) for path in segment.paths)
        to_unlink += [] if snapshot is None else [os.path.basename(snapshot)]
    if durably:
        files.fsync_dir(log.directory.path)
    return to_unlink


def unlink_later_locked(log: LogCore, to_unlink: Iterable[str]) -> None:
    """Schedule the unlinking of files in the log's directory, which may be renamed by then.

    One task unlinks all of them. It yields after UNLINK_SECONDS, since unlinking large files takes long.
    """
    files, place = log.options.files, log.directory
    clock, scheduler, waiting = log.clock, log.options.scheduler, collections.deque(to_unlink)

    def unlink() -> None:
        until = clock.monotonic() + UNLINK_SECONDS
        while waiting:
            name = waiting.popleft()
            with contextlib.suppress(OSError):  # the next load tries again
                files.unlink(os.path.join(place.path, name))
            if waiting and clock.monotonic() >= until:
                scheduler.schedule("delete-file", unlink, 1)
                return

    scheduler.schedule("delete-file", unlink, log.config.file_delete_delay_ms)


def unlink_now(log: LogCore) -> tuple[str, ...]:
    """Unlink all files marked for deletion now, durably. Returns the names of those that could not be unlinked.

    Readers have these files open, or find the new segments of the log. No cleaning may run except the caller's own,
    before it has written anything that counts.
    """
    files, failed = log.options.files, []
    with log.lock:  # renames to .deleted are synced before the lock is released
        directory = log.path
        listed = sorted(os.listdir(directory))
    for name in listed:
        if name.endswith((names.DELETED, names.CLEANED)) and not name.endswith(".checkpoint" + names.DELETED):
            try:
                files.unlink(os.path.join(directory, name))
            except OSError as error:
                _log.warning("event=not_unlinked log=%s file=%s reason=%s", log.name, name, error)
                failed.append(name)
    guard(log, lambda: files.fsync_dir(directory))
    return tuple(failed)
