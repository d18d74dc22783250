"""Deleting segments: they are renamed to `.deleted` at once and unlinked after file.delete.delay.ms.

Readers of a deleted segment continue. Files that are left when the log is closed are unlinked by the next load. Under
the log's lock. Kafka: LocalLog.removeAndDeleteSegments.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from klog.disk import is_full, lacks_descriptors
from klog.errors import CorruptIndex
from klog.segment import Segment, names

if TYPE_CHECKING:
    from klog.log.log import Log

_log = logging.getLogger("klog.log")
UNLINK_SECONDS = 0.05


def remove_locked(log: Log, segments: Sequence[Segment], reason: str) -> None:
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
    log: Log, segments: Sequence[Segment], reason: str, kept_snapshot: int | None = None, *, durably: bool = True
) -> list[str]:
    """Rename the files of segments to .deleted. Returns the names to unlink, after the log has no such segments.

    Also renames the producer snapshots at their base offsets, except the one at kept_snapshot, where another segment
    begins. durably False: the caller syncs the directory.
    """
    files = log._options.files
    _log.info(
        "event=segments_deleted log=%s reason=%s bases=%s",
        log.name,
        reason,
        ",".join(str(segment.base_offset) for segment in segments),
    )
    to_unlink: list[str] = []
    home = log._home_of_deleted()
    for segment in segments:
        paths, snapshot = segment.paths, None
        try:
            segment.move_to(home)
            if segment.base_offset != kept_snapshot:
                snapshot = log._producers.remove_and_mark_for_deletion(segment.base_offset)
        except OSError as error:
            if not is_full(error):
                raise
            for path in (*paths, *segment.paths):  # no disk space for a rename: unlink at once to free space
                files.unlink(path)
            if segment.base_offset != kept_snapshot:
                log._producers.take_back_snapshot(segment.base_offset)
            continue  # not to be unlinked later: another segment may soon use the same names
        to_unlink += (os.path.basename(path) for path in segment.paths)
        to_unlink += [] if snapshot is None else [os.path.basename(snapshot)]
    if durably:
        files.fsync_dir(log._directory)
    return to_unlink


def unlink_later_locked(log: Log, to_unlink: Iterable[str]) -> None:
    """Schedule the unlinking of files in the log's directory, which may be renamed by then.

    One task unlinks all of them. It yields after UNLINK_SECONDS, since unlinking large files takes long.
    """
    files, directory, known = log._options.files, log._directory, weakref.ref(log)
    clock, scheduler, waiting = log.clock, log._options.scheduler, collections.deque(to_unlink)

    def unlink() -> None:
        still = known()
        until = clock.monotonic() + UNLINK_SECONDS
        while waiting:
            name = waiting.popleft()
            with contextlib.suppress(OSError):  # the next load tries again
                files.unlink(os.path.join(directory if still is None else still._directory, name))
            if waiting and clock.monotonic() >= until:
                scheduler.schedule("delete-file", unlink, 1)
                return

    scheduler.schedule("delete-file", unlink, log.config.file_delete_delay_ms)


def unlink_now(log: Log) -> tuple[str, ...]:
    """Unlink all files marked for deletion now, durably. Returns the names of those that could not be unlinked.

    Readers have these files open, or find the new segments of the log. No cleaning may run except the caller's own,
    before it has written anything that counts.
    """
    files, failed = log._options.files, []
    with log._lock:  # renames to .deleted are synced before the lock is released
        directory = log.path
        listed = sorted(os.listdir(directory))
    for name in listed:
        if name.endswith((names.DELETED, names.CLEANED)) and not name.endswith(".checkpoint" + names.DELETED):
            try:
                files.unlink(os.path.join(directory, name))
            except OSError as error:
                _log.warning("event=not_unlinked log=%s file=%s reason=%s", log.name, name, error)
                failed.append(name)
    log._guard(lambda: files.fsync_dir(directory))
    return tuple(failed)
