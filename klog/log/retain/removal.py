"""Segments on their way out: renamed to `.deleted` now, unlinked after file.delete.delay.ms.

Who reads in one meanwhile goes on. What is still there when the log is closed, the next load unlinks. Under the log's
lock. Kafka: LocalLog.removeAndDeleteSegments.
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
    """Take segments that are out of the log already off the disk, in the order given: what a crash leaves in between
    must be a log. Durable when it returns, save that the bytes go later. OSError is final."""
    if segments:
        unlink_later_locked(log, mark_for_deletion_locked(log, segments, reason))


def know_aborted(segments: Sequence[Segment]) -> None:
    """Read what mark_for_deletion_locked needs of segments before anything is changed. Raises OSError where too many
    files are open; a file that cannot be read for another reason is skipped."""
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
    """The first half of remove_locked: the files to unlink, once nobody finds these segments in the log any more.

    Producer snapshots at their bases go, too, but for that at kept_snapshot, where another segment begins. durably
    False: the directory is the caller's to sync."""
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
            for path in (*paths, *segment.paths):  # no room for a name, where room is what the removal is to make
                files.unlink(path)
            if segment.base_offset != kept_snapshot:
                log._producers.take_back_snapshot(segment.base_offset)
            continue  # they are gone, and another segment of this base may soon have their names
        to_unlink += (os.path.basename(path) for path in segment.paths)
        to_unlink += [] if snapshot is None else [os.path.basename(snapshot)]
    if durably:
        files.fsync_dir(log._directory)
    return to_unlink


def unlink_later_locked(log: Log, to_unlink: Iterable[str]) -> None:
    """Unlink files of the log's directory, wherever that is by then: one task for all of them, which lets others have
    the thread after UNLINK_SECONDS, since large files take their time."""
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
    """Everything in the log's directory that waits to be unlinked goes now, and durably; the names of what could not.

    Who reads in one has it open, or finds that the log has others by now. No cleaning may be under way but the
    caller's own, which has nothing written that counts."""
    files, failed = log._options.files, []
    with log._lock:  # who puts files aside has synced their new names before it lets go
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
