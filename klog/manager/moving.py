"""Moves a partition to another log directory while it is written, through a `-future` directory there.

    1  roll, copy the closed segments; repeat while the active segment is large           reads and appends go on
    2  under the log's lock: roll, copy the rest, note "ready" (move_note.py)             appends wait
    3  -future -> live, its log.dir synced, source -> -delete, synced
    4  the Log in use switches to the new place; the old place is removed after file.delete.delay.ms

  M1  a partition always has a live directory: the copy has its name, durably, before the original loses it
  M2  after a crash between the two renames there are two: a start finishes the move, by the note; a broker refuses
  M3  a copy that is not ready, or whose partition has a live directory, is useless: a start removes it
  M4  the note goes last. A start removes it if it has seen the log.dir that the partition came from

Copies without the note are a broker's and are left alone. Only closed segments are copied. They change only by
truncation or compaction; a file that has changed is copied again.
Kafka: LogManager.replaceCurrentWithFutureLog, ReplicaAlterLogDirsThread (which copies by fetching).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from klog.disk import Files, FileState, exists, file_state, remove_tree
from klog.errors import ReentrantCall, UnknownTopicOrPartition
from klog.log import core
from klog.log.directory import checkpoint, cleaner_offsets
from klog.log.directory.partition_names import DELETE, FUTURE, suffixed_name
from klog.logger import logger_of
from klog.manager import move_note
from klog.manager.directories import Entries, LogDirectory, is_ordinary
from klog.manager.move_note import NOTE, UNREADY, MoveNote, left_over
from klog.progress import Event, Progress
from klog.segment import names
from klog.values import NamedTuple, dataclass, field, replace

if TYPE_CHECKING:
    from klog.log.core import Log, LogCore
    from klog.log.directory.checkpoint import Partition
    from klog.manager.catalog import TopicCatalog
    from klog.manager.deletions import LogDeletions
    from klog.manager.directory_set import DirectorySet
    from klog.manager.open_state import OpenState
    from klog.manager.registry import LogRegistry

_log = logger_of("manager")
_CHUNK_BYTES = 1 << 20
_REST_BYTES = 4 << 20  # at most this much is left to copy while appends wait
_ROUNDS = 8  # then the rest is copied under the lock, however fast the appender is
_FILES = (*names.SEGMENT_SUFFIXES, names.SNAPSHOT)  # .log first


class MoveProgress(NamedTuple):
    """A move under way. directory: where the copy is. next_offset: the records below it are in the copy."""

    topic: str
    partition: int
    directory: str
    bytes_copied: int
    next_offset: int


@dataclass(slots=True)
class Move:
    """A move under way. path: of the copy. cancelled: the topic is being deleted, or the manager closes. thread: the
    one that moves."""

    path: str
    thread: int
    cancelled: bool = False
    copied: dict[int, list[FileState | None]] = field(default_factory=dict)
    bytes_copied: int = 0


@dataclass(eq=False)
class Moves:
    """The moves of one manager. Any thread."""

    _state: OpenState
    _directories: DirectorySet
    _catalog: TopicCatalog
    _registry: LogRegistry
    _deletions: LogDeletions
    _files: Files
    _under_way: dict[Partition, Move] = field(default_factory=dict, init=False)

    def move(self, topic: str, partition: int, target_path: str, progress: Progress | None) -> None:
        """Move a partition; see LogManager.move."""
        target = self._directories.choose(target_path)
        if not is_ordinary(topic):
            raise ValueError(f"{topic} cannot be moved: it is a KRaft node's own log")
        key = topic, partition
        log = self._registry.get(topic, partition)
        with self._state.lock:
            source, _ = self._catalog.locate(topic, partition)
            if source is target:
                return
            if key in self._under_way:
                raise ValueError(f"{topic}-{partition} is being moved already")
            self._state.check_open()
            copy = os.path.join(target.path, suffixed_name(topic, partition, FUTURE))
            under_way = Move(copy, threading.get_ident())
            self._under_way[key] = under_way
        try:
            with target.guarded():
                self._files.mkdir(under_way.path)
                self._files.fsync_dir(target.path)  # before a checkpoint names the partition
                move_note.write(self._files, under_way.path, UNREADY._replace(key=key, source=source.path))
                _catch_up(log, under_way, self._files, progress)
            with core.without_cleaning(log._core), self._state.lock:
                self._swap(log, source, target, under_way, progress)
        except BaseException:
            if target.offline is None:
                self._remove_copy(under_way.path, key)
            raise
        finally:
            with self._state.lock:
                del self._under_way[key]
                self._state.notify()

    def under_way(self) -> list[MoveProgress]:
        """Return how far the moves are, sorted."""
        with self._state.lock:
            moves = sorted(self._under_way.items(), key=lambda each: each[0])
        found = []
        for (topic, partition), move in moves:
            try:
                log = self._registry.get(topic, partition)
            except UnknownTopicOrPartition:  # deleted meanwhile
                continue
            bases = [segment.base_offset for segment in log.segments]
            left = next((base for base in bases if base not in move.copied), log.log_end_offset)
            found.append(MoveProgress(topic, partition, os.path.dirname(move.path), move.bytes_copied, left))
        return found

    def give_up(self, topic: str) -> None:
        """End the moves of a topic that is being deleted. Manager's lock held."""
        for key, under_way in self._under_way.items():
            if key[0] == topic:
                under_way.cancelled = True

    def end(self) -> None:
        """End all moves, and wait for that. Manager's lock held, and released while waiting."""
        for under_way in self._under_way.values():
            under_way.cancelled = True
        while self._under_way:
            self._state.wait()

    def any_under_way(self) -> bool:
        """Is a move under way? Takes no lock."""
        return bool(self._under_way)

    def check(self, what: str) -> None:
        """Raise ReentrantCall if this thread is moving a partition: waiting for that move would never end."""
        for (topic, partition), under_way in list(self._under_way.items()):
            if under_way.thread == threading.get_ident():
                raise ReentrantCall(
                    f"{self._state.path}: {what} inside a move of {topic}-{partition} by the same thread; "
                    "a callback or a signal handler must not do this; set a flag and do it after the move"
                )

    # ---- swap --------------------------------------------------------------------------------------------------------

    def _swap(
        self,
        log: Log,
        source: LogDirectory,
        target: LogDirectory,
        under_way: Move,
        progress: Progress | None,
    ) -> None:
        """Steps 2 to 4. Manager's lock held."""
        self._state.check_open()
        key = log.topic, log.partition
        if under_way.cancelled:
            raise UnknownTopicOrPartition(f"{log.name} was deleted while it was being moved")
        with log._core.lock:
            log._core.check_idle("a move")
            with target.guarded():
                core.roll_or_undo_locked(log._core, log._core.log_end_offset)
                _copy_closed(log, under_way, self._files, progress)
                copy = self._open_copy(log, target, under_way)
            delay_ms = log.config.file_delete_delay_ms
            old, live = suffixed_name(*key, DELETE), f"{key[0]}-{key[1]}"
            with copy._core.lock:
                try:
                    core.rename_locked(copy._core, live, True)
                    core.rename_locked(log._core, old, True)
                except BaseException as error:
                    if copy.path != under_way.path or not isinstance(error, OSError):  # renamed; Ctrl-C: perhaps
                        log._core.go_offline(f"its move was not finished: {error}", disk=False)  # M2: the copy counts
                    core.disown(copy._core)
                    core.abandon(copy._core)
                    raise
                _exchange_locked(log._core, copy._core)
                self._registry.has_come(log)
                core.disown(copy._core, deleted=True)
                self._deletions.hold(copy)
        _log.info("event=moved log=%s from=%s to=%s", log.name, source.path, target.path)
        self._files.unlink(os.path.join(log.path, NOTE))
        source.forget_partition(key)
        self._deletions.remove_later(source, copy.path, delay_ms, copy)

    def _open_copy(self, log: Log, target: LogDirectory, under_way: Move) -> Log:
        """Open the copy as a Log that ends where the original does, and note that it is ready. Log's lock held."""
        files, path = self._files, under_way.path
        kept = {segment.base_offset for segment in log.segments[:-1]}
        for name in os.listdir(path):
            parsed = names.parse_name(name)
            if parsed is not None and parsed[0] not in kept:
                files.unlink(os.path.join(path, name))
        for name in os.listdir(log.path):
            if name.endswith(names.SNAPSHOT) or name in (names.METADATA, names.GAPS):
                copy_file(files, os.path.join(log.path, name), os.path.join(path, name))
        files.replace(os.path.join(path, names.EPOCHS), checkpoint.format_epochs(log._core.epochs.entries))
        end = log.log_end_offset
        files.open(names.file_path(path, end, names.LOG), write=True, create=True).close()
        inside = log.log_start_offset > (log.segments[0].base_offset if log.segments else end)
        target.note((log.topic, log.partition), end, log.log_start_offset if inside else None)
        cleaner_offsets.move(files, os.path.dirname(log.path), target.path, (log.topic, log.partition))
        options = replace(
            self._registry.options(target, (log.topic, log.partition), path),
            clean_shutdown=True,
            recovery_point=end,
            log_start_offset=log.log_start_offset,
            topic_id=log.topic_id,
            config=log.config,
            config_known=log._core.options.config_known,
        )
        copy = core.Log(path, options)
        try:
            core.belong_to(copy._core, target, target.flushed)
            _keep_state(log._core, copy._core)
            if (copy.log_start_offset, copy.log_end_offset) != (log.log_start_offset, end):
                raise OSError(f"{path} holds {copy!r} after copying {log!r}")
        except BaseException:
            core.abandon(copy._core)
            raise
        if log.is_managed:
            copy.update_high_watermark(log.high_watermark)
        move_note.write(files, path, MoveNote((log.topic, log.partition), os.path.dirname(log.path), True, end))
        return copy

    # ---- start -------------------------------------------------------------------------------------------------------

    def settle(self, found: Mapping[LogDirectory, Entries]) -> bool:
        """Finish or undo interrupted moves; return whether there were any. Called at start. found: the subdirectories
        of each log.dir. Raises NewerFormat, OSError."""
        live: dict[Partition, list[LogDirectory]] = {}
        for home, entries in found.items():
            for key in entries.live:
                live.setdefault(key, []).append(home)
        settled = self._settle_copies(found, live)
        has_crashed = len(found) > 1 and not all(home.was_clean for home in found)
        for key, homes in live.items():
            if len(homes) > 1:
                left = left_over([home.partition_path(*key) for home in homes])
                for home in [home for home in homes if home.partition_path(*key) in left]:
                    self._mark_deleted(home.partition_path(*key), key)
                    home.forget_partition(key)
                    homes.remove(home)
                    settled = True
                    _log.warning("event=move_finished path=%s", homes[0].partition_path(*key))
            if has_crashed and len(homes) == 1:
                self._remove_note(homes[0].partition_path(*key))
        return settled

    def _settle_copies(self, found: Mapping[LogDirectory, Entries], live: dict[Partition, list[LogDirectory]]) -> bool:
        """Remove the copies that are useless, and make live those that are the only directory of a partition (M3)."""
        settled = False
        for home, entries in found.items():
            for name, way in entries.suffixed_names.items():
                path = os.path.join(home.path, name)
                note = _note_of_copy(path) if way.suffix == FUTURE else None
                if note is None:
                    continue
                key = note.key
                settled = True
                if note.ready and key not in live:
                    if note.source in self._directories.offline:
                        _log.warning("event=move_open path=%s: %s may hold the log", path, note.source)
                        continue
                    self._files.rename(path, home.partition_path(*key))
                    self._files.fsync_dir(home.path)
                    live[key] = [home]
                    self._files.unlink(os.path.join(home.partition_path(*key), NOTE))
                    _log.warning("event=move_finished path=%s", home.partition_path(*key))
                else:
                    if key not in entries.live:
                        home.forget_partition(key)  # the checkpoints name it before the copy is ready
                    self._remove_copy(path, (way.topic, way.partition))
                    _log.warning("event=move_undone path=%s", path)
        return settled

    def _remove_note(self, path: str) -> None:
        """Remove the note of a finished move, if there is one (M4)."""
        note = move_note.read(path)
        if note is not None and note.source not in self._directories.offline:
            self._files.unlink(os.path.join(path, NOTE))

    def _mark_deleted(self, path: str, key: Partition) -> str:
        """Give a directory a name that ends in -delete, durably. Returns its new path."""
        home = os.path.dirname(path)
        marked = os.path.join(home, suffixed_name(*key, DELETE))
        self._files.rename(path, marked)
        self._files.fsync_dir(home)
        return marked

    def _remove_copy(self, path: str, key: Partition) -> None:
        """Remove a useless copy, under another name: what a crash leaves of it must not look like a broker's copy."""
        if exists(path):
            remove_tree(self._mark_deleted(path, key), self._files)


# ---- copy ------------------------------------------------------------------------------------------------------------


def _catch_up(log: Log, under_way: Move, files: Files, progress: Progress | None) -> None:
    for _ in range(_ROUNDS):
        log.roll()
        _copy_closed(log, under_way, files, progress)
        if log.segments[-1].size <= _REST_BYTES:
            return


def _copy_closed(log: Log, under_way: Move, files: Files, progress: Progress | None) -> None:
    """Copy every closed segment that is not copied yet or has changed since."""
    closed = log.segments[:-1]
    total = sum(segment.size for segment in closed)
    for segment in closed:
        if under_way.cancelled:
            return
        try:
            # All files count: a truncation may make a segment active again, with indexes of full size, without a change
            # in .log.
            found = [file_state(names.file_path(log.path, segment.base_offset, suffix)) for suffix in _FILES]
            if found[0] is None or under_way.copied.get(segment.base_offset) == found:
                continue
            for suffix in _FILES:
                source = names.file_path(log.path, segment.base_offset, suffix)
                copy = names.file_path(under_way.path, segment.base_offset, suffix)
                if exists(source):
                    under_way.bytes_copied += copy_file(files, source, copy)
                else:
                    files.unlink(copy)  # of the segment before a compaction: other batches, another transaction index
            under_way.copied[segment.base_offset] = found
        except FileNotFoundError:
            continue  # retention has removed it
        if progress is not None:
            progress(Event("move", min(under_way.bytes_copied, total), total, "bytes", log.name))


def copy_file(files: Files, source: str, target: str) -> int:
    """Copy a file's bytes, durably. Returns their number."""
    files.unlink(target)
    with files.open(source) as original, files.open(target, write=True, create=True) as copy:
        size = original.length()
        for position in range(0, size, _CHUNK_BYTES):
            copy.write(original.read(position, min(_CHUNK_BYTES, size - position)), position)
        files.fsync(copy)
        return size


def _keep_state(log: LogCore, copy: LogCore) -> None:
    """Give a copy what its load has dropped: the epoch of a leader without a record, and of producers what a snapshot
    lacks. Both logs have the same batches."""
    copy.producers.take_over(log.producers)
    copy.epochs.put_back(log.epochs.entries)
    copy.epochs.begin_at(log.epochs.current, log.log_end_offset)
    copy.epochs.flush()


def _note_of_copy(path: str) -> MoveNote | None:
    """Return the note of a copy made by klog; None for another's. Of one that is empty, because the note is written
    first, it is not ready."""
    note = move_note.read(path)
    return UNREADY if note is None and set(os.listdir(path)) <= {NOTE + names.TEMPORARY} else note


def _exchange_locked(log: LogCore, copy: LogCore) -> None:
    """Let the users of the log use the copy, step 3. Both locks are held. Kafka replaces the log in its maps: there no
    caller keeps one."""
    for each in (log, copy):
        core.wait_for_sync_locked(each)
    log.exchange(copy)
