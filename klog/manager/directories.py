"""LogDirectory: one log.dir of a LogManager: its lock, checkpoints, clean-shutdown marker and entries.

  D1  the marker is removed before a log is loaded; it is written last, and only if every log was closed cleanly
  D2  a checkpoint never claims more than is on disk; before a log is truncated, its checkpoints are lowered
  D3  a directory that failed is not written again: no checkpoint, no marker, until it is opened again

Call under the manager's lock, except entries(), and what logs call: flushed(), lower(), store_starts(), release(),
failed().
Kafka: LogManager's maps of one directory, CleanShutdownFileHandler, OffsetCheckpointFile, MetaPropertiesEnsemble.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from klog.disk import (
    DirectoryLock,
    Files,
    FileState,
    exists,
    failed_sync_in,
    file_state,
    identity_of,
    is_final,
    naming_the_next_step,
    refuse_link,
    settled_change,
    sync_name,
)
from klog.errors import CorruptCheckpoint, NotALogDirectory, ReentrantCall
from klog.internal_topics.names import CLUSTER_METADATA
from klog.locks import OwnLock
from klog.log.directory import checkpoint, cleaner_offsets
from klog.log.directory.partition_names import (
    REMOTE_INDEX_CACHE,
    SuffixedName,
    parse_directory_name,
    parse_suffixed_name,
)
from klog.log.staged import layout
from klog.log.staged.pending import PendingCommits
from klog.logger import logger_of
from klog.segment import names
from klog.values import NamedTuple

if TYPE_CHECKING:
    from klog.log.core import LogCore
    from klog.log.directory.checkpoint import Partition
    from klog.log.options import ReaderBounds

_log = logger_of("manager")
RESERVED_IDS = 100  # Kafka reserves the first ids: unassigned, lost, migrating


class Entries(NamedTuple):
    """The subdirectories of a log.dir: their names by kind."""

    live: dict[Partition, str]
    suffixed_names: dict[str, SuffixedName]
    foreign: list[str]


class LogDirectory:
    """One log.dir. offline: the reason why it is offline; None while it is online."""

    def __init__(self, path: str, files: Files, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self.ignores_case = False  # are names that differ only by case the same name here?
        self.offline: str | None = None
        self.failed_at_work = False  # True: it failed after it was opened
        self.points: dict[Partition, int] = {}
        self.starts: dict[Partition, int] = {}
        self.high_watermarks: dict[Partition, int] = {}
        self._cleaned: dict[Partition, int] = {}  # the cleaner's checkpoint as read at start
        self.was_clean = False
        self.closed_well: set[Partition] = set()  # closed cleanly in this run: loading them again needs no recovery
        self.closed_badly: set[Partition] = set()  # closed uncleanly: the next load must recover them
        self.directory_id: uuid.UUID | None = None
        self.cluster_id: str | None = None  # of the broker whose directory it is
        self.flush_soon: Callable[[LogCore], bool] = lambda _log: False
        self._write_soon: Callable[[LogDirectory], bool] = lambda _directory: False
        self.lower_positions: Callable[[LogCore, int, bool], None] = lambda *_: None
        self._on_failure: Callable[[LogDirectory, str], None] = lambda _directory, _reason: None
        self._files = files
        self._mutex = OwnLock()  # guards the dictionaries and their files
        self._on_disk: dict[str, dict[Partition, int]] = {}  # checkpoints as this process has written them
        self._seen: dict[str, FileState | None] = {}  # checkpoints as a reader has read them
        self._deferring = 0  # number of deferring() blocks under way
        self._written_soon = False  # a write of the recovery points is scheduled
        self._marker_text = checkpoint.CLEAN_SHUTDOWN_TEXT
        self._lock: DirectoryLock | None = None
        self._pending = PendingCommits(path)
        self._listed: tuple[int, Entries] | None = None  # as it was at this time of the last change

    def __repr__(self) -> str:
        return f"<LogDirectory {self.path}{' offline' if self.offline else ''}>"

    def report_to(
        self,
        on_failure: Callable[[LogDirectory, str], None],
        lower_positions: Callable[[LogCore, int, bool], None],
    ) -> None:
        """on_failure is called when it goes offline, with the reason. lower_positions is called when a log is
        truncated, and lowers the positions of named readers."""
        self._on_failure, self.lower_positions = on_failure, lower_positions

    def work_in_background(
        self, flush_soon: Callable[[LogCore], bool], write_soon: Callable[[LogDirectory], bool]
    ) -> None:
        """Leave flushes of logs and writes of the recovery points to these. They return False if there is no thread."""
        self.flush_soon, self._write_soon = flush_soon, write_soon

    # ---- start -----------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the directory and read its checkpoints.

        Raises AlreadyLocked; NotALogDirectory for a partition's directory; OSError if it cannot be used.
        """
        with naming_the_next_step(self.path, reading=self.read_only), os.scandir(self.path) as found:
            listed = list(found)
        self._check_not_a_partition([entry.name for entry in listed])
        for entry in listed:
            if entry.is_symlink() and parse_directory_name(entry.name) is not None:
                _log.warning("event=link_left_out path=%s", entry.path)  # see identity()
        if not self.read_only:
            self._lock = DirectoryLock(self.path)
            self._warn_of_other_users()
        self.ignores_case = self._ignores_case([entry.name for entry in listed])
        self.points = self._read(checkpoint.RECOVERY_POINT)
        self.starts = self._read(checkpoint.LOG_START)
        self.high_watermarks = self._read(checkpoint.HIGH_WATERMARK)
        self._cleaned = cleaner_offsets.read(self.path)
        properties = checkpoint.meta_properties(self.path)
        self.directory_id, self.cluster_id = _directory_id(properties), properties.get("cluster.id")
        marker = checkpoint.clean_shutdown_path(self.path)
        self.was_clean = exists(marker)
        self._marker_text = checkpoint.clean_shutdown_text(marker)

    def _check_not_a_partition(self, entries: list[str]) -> None:
        if any((parsed := names.parse_name(entry)) is not None and parsed[1] == names.LOG for entry in entries):
            raise NotALogDirectory(
                f"{self.path} is the directory of one partition: open it with klog.Log.open, or its log.dir "
                f"{os.path.dirname(self.path)} with klog.open"
            )

    def _warn_of_other_users(self) -> None:
        with naming_the_next_step(self.path, reading=True):
            mode = os.stat(self.path).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            note = "every user of the machine may remove and replace its files: chmod o-w"
            _log.warning("event=writable_by_all path=%s note='%s'", self.path, note)

    def _ignores_case(self, entries: list[str]) -> bool:
        """Is a name found here if the case of its letters is changed? A reader of an empty directory need not know."""
        for name in entries if self.read_only else [".lock"]:
            other = name.swapcase()
            if other != name and other not in entries:
                return exists(os.path.join(self.path, other), follow_symlinks=False)
        return False

    def begin(self) -> None:
        """Remove the files of the last stop, so that a crash from now on is recognized as a crash (D1)."""
        # A single copy's high watermark is its log end. The number of the last stop would hide newer records from
        # readers while we write; without one they see all records, and a broker starts from the log start.
        for path in (
            checkpoint.clean_shutdown_path(self.path),
            os.path.join(self.path, checkpoint.CLEAN_SHUTDOWN_RENAMED),  # renamed by a Log.open that crashed
            os.path.join(self.path, checkpoint.HIGH_WATERMARK),
            *(os.path.join(self.path, name + names.TEMPORARY) for name in checkpoint.NAMES),  # left by a kill
        ):
            self._files.unlink(path)
        self._files.fsync_dir(self.path)
        if not self.was_clean:
            sync_name(self.path, self._files)  # a process that was killed may have made it

    def _read(self, name: str) -> dict[Partition, int]:
        try:
            return dict(checkpoint.read_offsets(os.path.join(self.path, name)))
        except CorruptCheckpoint as error:
            _log.warning("event=checkpoint_unreadable reason=%s", error)
            return {}

    def follow(self) -> None:
        """Read the checkpoints that have changed since, for a reader that loads a log. With those of the opening it
        would lack records of a topic that was created again, or truncated, meanwhile, or take others for lost."""
        with self._mutex:
            self.points = self._followed(checkpoint.RECOVERY_POINT, self.points)
            self._cleaned = self._followed(checkpoint.CLEANER, self._cleaned)
            self.starts = self._followed(checkpoint.LOG_START, self.starts)
            self.high_watermarks = self._followed(checkpoint.HIGH_WATERMARK, self.high_watermarks)

    def _followed(self, name: str, before: dict[Partition, int]) -> dict[Partition, int]:
        state = file_state(os.path.join(self.path, name))
        if self._seen.get(name, ()) == state:
            return before
        read = self._read(name)
        self._seen[name] = state
        return read

    @property
    def broker_epoch(self) -> int | None:
        """The broker epoch in the marker of the last stop; None if there was no marker or no epoch in it."""
        if not self.was_clean:
            return None
        epoch = json.loads(self._marker_text).get("brokerEpoch", -1)
        return epoch if isinstance(epoch, int) and epoch >= 0 else None

    # ---- entries ---------------------------------------------------------------------------------------------------

    def entries(self) -> Entries:
        """Return the partition directories and the other subdirectories, not to be changed. Any thread.

        The directory is listed again when it has changed: each append to a topic asks for its partitions.
        """
        changed, listed = settled_change(self.path), self._listed
        if listed is not None and listed[0] == changed:
            found = listed[1]
        else:
            found, lasts = self._list()
            self._listed = (changed, found) if lasts and changed is not None else None
        if self.read_only and (hidden := self._pending.hidden_topics()):
            return found._replace(live={key: name for key, name in found.live.items() if key[0] not in hidden})
        return found

    def _list(self) -> tuple[Entries, bool]:
        """Return the subdirectories, and whether they are the same until the directory changes: what jobs have staged
        depends on the partitions' own files, too."""
        live: dict[Partition, str] = {}
        suffixed_names: dict[str, SuffixedName] = {}
        foreign: list[str] = []
        with os.scandir(self.path) as found:
            listed = list(found)
        directories = sorted([entry.name for entry in listed if entry.is_dir(follow_symlinks=False)])
        for name in directories:
            if (parsed := parse_directory_name(name)) is not None:
                live[parsed] = name
            elif (suffixed := parse_suffixed_name(name)) is not None:
                suffixed_names[name] = suffixed
            elif name != REMOTE_INDEX_CACHE:
                foreign.append(name)
        staging = bool(layout.writers_in([entry.name for entry in listed]))
        if staging:
            live = {key: name for key, name in live.items() if not _is_only_staged(os.path.join(self.path, name))}
        return Entries(live, suffixed_names, foreign), not staging

    def reader_bounds(self, key: Partition) -> ReaderBounds | None:
        """Return the bounds that a commit in progress sets to a reader of a partition; None: none."""
        return self._pending.bounds(key)

    def partition_path(self, topic: str, partition: int) -> str:
        """Return the path of a partition's directory, which need not exist."""
        return f"{self.path.rstrip('/')}/{topic}-{partition}"

    def identity(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return the identity of the partition's directory (see Claim); None if it is not here.

        Raises OSError for a symbolic link in a log.dir that is written.
        """
        if self.offline is not None:
            return None
        path = self.partition_path(topic, partition)
        if self.ignores_case and (topic, partition) not in self.entries().live:
            return None  # the path may lead to the partition of another topic
        identity = identity_of(path, links=self.read_only)
        if identity is None:
            refuse_link(path)
        return identity

    # ---- checkpoints -------------------------------------------------------------------------------------------------

    def _write(self, name: str, offsets: dict[Partition, int]) -> None:
        """Replace a checkpoint, unless it is unchanged: most background rounds find nothing new."""
        path = os.path.join(self.path, name)
        if self._lock is not None and self.offline is None:
            self._lock.check_place()
        if self.offline is not None or (self._on_disk.get(name) == offsets and exists(path)):
            return
        self._on_disk.pop(name, None)
        checkpoint.write_offsets(self._files, path, offsets)
        self._on_disk[name] = dict(offsets)

    def write_points(self, logs: Iterable[LogCore] = ()) -> None:
        """Write the recovery points, with the current ones of those of `logs` that are still open here."""
        with self._mutex:
            self._written_soon = False
            self._write_points(filter(self._has, logs))

    def _write_points(self, logs: Iterable[LogCore]) -> None:
        self.points.update({(log.topic, log.partition): log.recovery_point for log in logs})
        self._write(checkpoint.RECOVERY_POINT, self.points)

    def write_starts(self, logs: Iterable[LogCore]) -> None:
        """Write the log starts: only of logs that start inside their first segment; its name gives the others. Ignores
        logs that are not open here any more."""
        with self._mutex:
            self._write_starts(filter(self._has, logs))

    def _write_starts(self, logs: Iterable[LogCore]) -> None:
        for log in logs:
            self._note_start(log)
        self._write(checkpoint.LOG_START, self.starts)

    def _has(self, log: LogCore) -> bool:
        """True if the log is open here. If it was closed, deleted or moved away, there may be another one of its name,
        and what the log states is not true of that one (D2). The mutex is held."""
        return log.directory.owner is self and not log.closed

    def _note_start(self, log: LogCore) -> None:
        self.starts.pop((log.topic, log.partition), None)
        if _starts_inside(log):
            # S9: never beyond what is on disk. The next load takes a start above the log end for damage.
            self.starts[log.topic, log.partition] = min(log.log_start_offset, log.recovery_point)

    def write_high_watermarks(self, logs: Iterable[LogCore]) -> None:
        """Write the high watermarks of those of `logs` that are still open here; remove the file if there are none."""
        with self._mutex:
            known = {(log.topic, log.partition): log.high_watermark for log in logs if self._has(log)}
            self._write_high_watermarks(known)

    def _write_high_watermarks(self, high_watermarks: dict[Partition, int]) -> None:
        if high_watermarks:
            self._write(checkpoint.HIGH_WATERMARK, high_watermarks)
        elif exists(os.path.join(self.path, checkpoint.HIGH_WATERMARK)):
            self._files.unlink(os.path.join(self.path, checkpoint.HIGH_WATERMARK))

    def forget_partition(self, key: Partition) -> None:
        """Remove a partition that is no longer here from the checkpoints."""
        self._forget(lambda other: other == key)

    def forget_topic(self, topic: str) -> None:
        """Remove every partition of a topic from the checkpoints."""
        self._forget(lambda other: other[0] == topic)

    def forget_before(self, topic: str, partitions: Iterable[int]) -> None:
        """Remove partitions that are about to be made from the checkpoints: a partition of this name may have been
        removed by another program. A new log begins at 0."""
        keys = {(topic, number) for number in partitions}
        if not (keys.isdisjoint(self.points) and keys.isdisjoint(self.starts)):
            self._forget(keys.__contains__)

    def _forget(self, gone: Callable[[Partition], bool]) -> None:
        with self._mutex:
            for name, offsets in ((checkpoint.RECOVERY_POINT, self.points), (checkpoint.LOG_START, self.starts)):
                keys = [key for key in offsets if gone(key)]
                for key in keys:
                    del offsets[key]
                if keys:
                    self._write(name, offsets)
            for key in [key for key in self.high_watermarks if gone(key)]:
                del self.high_watermarks[key]
            self.closed_well = {key for key in self.closed_well if not gone(key)}
            self.closed_badly = {key for key in self.closed_badly if not gone(key)}
            if self.offline is None:
                cleaner_offsets.forget(self._files, self.path, gone)

    def cleaned_to(self, key: Partition) -> int:
        """Return the cleaner's checkpoint of a log that is about to be loaded, or a lower bound of it. The file is read
        once at start; again only for logs that were open in this run, which may have been cleaned since."""
        known = self._cleaned
        if key in self.closed_well or key in self.closed_badly:
            known = cleaner_offsets.read(self.path)
        return known.get(key, 0)

    def note(self, key: Partition, recovery_point: int, log_start_offset: int | None) -> None:
        """Add a partition that has come here; log_start_offset is given if its files do not state it. What an earlier
        partition of the name has left does not count."""
        with self._mutex:
            left = self.starts.pop(key, None)
            if log_start_offset is not None:
                self.starts[key] = log_start_offset
            if left != log_start_offset:
                self._write(checkpoint.LOG_START, self.starts)
            self.points[key] = recovery_point
            self._write(checkpoint.RECOVERY_POINT, self.points)

    # ---- what logs call ----------------------------------------------------------------------------------------------

    def flushed(self, log: LogCore) -> None:
        """Note that a log's recovery point has moved. If there is a thread for that, it is written a little later,
        together with others: the file names every log of the directory. Ignored for a log that has been deleted or
        closed meanwhile, as in _has(); a close itself flushes, too."""
        with self._mutex:
            if not self._has(log) and (log.directory.owner is not self or not log.lock._is_owned()):
                return
            self.points[log.topic, log.partition] = log.recovery_point
            if self._deferring or self._written_soon:
                return
            self._written_soon = self._write_soon(self)
            if not self._written_soon:
                self._write(checkpoint.RECOVERY_POINT, self.points)

    def check_place(self) -> None:
        """Raise OSError, and go offline, if another directory has the path by now."""
        if self._lock is None or self.offline is not None:
            return
        try:
            self._lock.check_place()
        except OSError as error:
            if is_final(error):
                self.fail(str(error))
            raise

    def check(self, what: str) -> None:
        """Raise ReentrantCall if this thread is already writing a checkpoint here."""
        if self._mutex._is_owned():
            raise ReentrantCall(
                f"{self.path}: {what} while a checkpoint is being written in the same thread; "
                "a signal handler must not do this; set a flag and do it after the handler returns"
            )

    def after_fork(self) -> None:
        """Reset in a forked child, where the thread that held the mutex does not exist."""
        self._mutex = OwnLock()
        self._written_soon = False

    @contextlib.contextmanager
    def deferring(self) -> Iterator[None]:
        """Write the recovery points once, after many logs have been flushed."""
        with self._mutex:
            self._deferring += 1
            before = dict(self.points)
        try:
            yield
        finally:
            with self._mutex:
                self._deferring -= 1
            if self.points != before:
                self.write_points()

    def lower(self, log: LogCore, recovery_point: int, log_start_offset: int) -> None:
        """Lower the checkpoints of a log before it is truncated (D2)."""
        key = log.topic, log.partition
        with self._mutex:
            for name, offsets, bound in (
                (checkpoint.RECOVERY_POINT, self.points, recovery_point),
                (checkpoint.LOG_START, self.starts, log_start_offset),
            ):
                if offsets.get(key, 0) > bound:
                    offsets[key] = bound
                    self._write(name, offsets)
        cleaner_offsets.lower(self._files, self.path, key, recovery_point)

    def store_starts(self, logs: Iterable[LogCore]) -> None:
        """Write the log starts now, if any of these logs starts inside its first segment. Ignores those that are not
        open here any more."""
        with self._mutex:
            inside = [log for log in logs if self._has(log) and _starts_inside(log)]
            if inside:
                self._write_starts(inside)

    def forget(self, log: LogCore) -> None:
        """Remove a deleted log from the checkpoints: a new log of its name begins at 0."""
        self.forget_partition((log.topic, log.partition))

    def release(self, log: LogCore, clean: bool) -> None:
        """Note that a log was closed. clean: its next load needs no recovery; else the directory's next start is
        unclean."""
        if self.read_only:
            return
        key = log.topic, log.partition
        with self._mutex:
            if clean:
                self.points[key] = log.recovery_point
                self._note_start(log)  # for the next load by this manager; the file is written when it stops
                self.closed_well.add(key)
                self.closed_badly.discard(key)
            else:
                self.closed_well.discard(key)
                self.closed_badly.add(key)
                self.was_clean = False

    def failed(self, log: LogCore, reason: str) -> None:
        """Take the whole directory offline after a disk error of a log."""
        self.fail(f"{log.name}: {reason}")

    def fail(self, reason: str) -> None:
        """Take the directory offline. Only the first reason is kept and logged."""
        if self.offline is None:
            self.offline = reason
            self.failed_at_work = True
            self.was_clean = False
            _log.error("event=directory_offline path=%s reason=%s", self.path, reason)
            self._on_failure(self, reason)

    def left_out(self, reason: str) -> None:
        """It could not be opened, and the manager goes on without it."""
        self.offline = reason

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Guard an operation on the directory itself: a final disk error takes it offline and is raised."""
        try:
            self.check_place()
            yield
        except BaseException as error:
            failed = failed_sync_in(error)  # also if a KeyboardInterrupt covers it
            if failed is not None or (isinstance(error, OSError) and is_final(error)):
                self.fail(str(failed or error))
            raise

    # ---- stop --------------------------------------------------------------------------------------------------------

    def stop(self, logs: Iterable[LogCore], *, clean: bool) -> None:
        """Write the checkpoints of its logs, which are closed, and the marker if the stop was clean and no log is left
        that needs recovery."""
        if self.offline is not None:
            return
        self.check_place()
        logs = list(logs)
        with self._mutex:
            self._write_points(logs)
            self._write_starts(logs)
            self._write_high_watermarks(
                self.high_watermarks
                | {(log.topic, log.partition): min(log.high_watermark, log.log_end_offset) for log in logs}
            )
        opened = {(log.topic, log.partition) for log in logs}
        untouched = [name for key, name in self.entries().live.items() if key not in opened]
        if clean and not self.closed_badly and (self.was_clean or self._all_new(untouched)):
            self._files.replace(checkpoint.clean_shutdown_path(self.path), self._marker_text)

    def _all_new(self, directories: list[str]) -> bool:
        """True if these directories have no segment yet, so that there is nothing to recover."""
        return not any(
            name.endswith(names.LOG)
            for directory in directories
            for name in os.listdir(os.path.join(self.path, directory))
        )

    def end_release(self) -> None:
        """See Owner. The lock is of the directory, and stays."""

    @property
    def locked(self) -> bool:
        """True while this process holds its lock."""
        return self._lock is not None

    def unlock(self) -> None:
        """Release the lock. May be called again."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _starts_inside(log: LogCore) -> bool:
    """True if the log starts inside its first segment, so that its start is not the number in that one's name."""
    segments = log.segments
    return bool(segments) and log.log_start_offset > segments[0].base_offset


def _is_only_staged(path: str) -> bool:
    """True if a partition's directory holds nothing but staged files, or nothing at all."""
    try:
        return not os.listdir(path) or layout.holds_only_staging(path)
    except OSError:  # gone meanwhile, or unreadable: the load raises
        return False


def is_ordinary(topic: str) -> bool:
    """True unless the topic is KRaft's metadata log, which only its controller may write."""
    return topic != CLUSTER_METADATA


def _directory_id(properties: dict[str, str]) -> uuid.UUID | None:
    """Return directory.id of meta.properties, which a broker writes; None if it is missing or invalid."""
    with contextlib.suppress(ValueError):
        return checkpoint.decode_uuid(properties.get("directory.id", ""))
    return None
