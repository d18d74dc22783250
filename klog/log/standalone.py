"""Log.open: one partition directory without a manager of its log.dir.

Two locks exclude other writers: a flock on the partition directory (klog against klog), and a shared lock on the
parent's `.lock`, which a broker or a LogManager locks exclusively. The clean-shutdown marker of the parent holds for
all its partitions: a writer renames it while it works, and puts it back at close, after a deletion, and if the open is
refused. A second writer in the same log.dir unlinks the renamed marker: it may crash unnoticed before the first one
closes.

A commit in progress is finished in this partition when it is opened for writing; its manifest stays for the others.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from klog import arguments
from klog.arguments import flag, optional_flag, optional_whole
from klog.clock import Clock
from klog.config import LogConfig, split_config
from klog.disk import (
    DirectoryLock,
    Files,
    HandleCache,
    LogFile,
    check_directory_lock,
    directory_lock,
    exists,
    is_directory,
    naming_the_next_step,
    os_error,
)
from klog.errors import AlreadyLocked, InvalidTopic, KlogError, UnknownTopicOrPartition
from klog.log.closing import abandon
from klog.log.directory import checkpoint, cleaner_offsets
from klog.log.directory.partition_names import parse_directory_name
from klog.log.directory.reader_positions import PositionFile, lower_positions, reader_names
from klog.log.opening import belong_to
from klog.log.options import Durability, Options, Policy, check_choices, settled
from klog.log.read import warm_ranges
from klog.log.staged.layout import holds_only_staging
from klog.log.staged.manifest import Manifest, read_all
from klog.log.staged.pending import PendingCommits
from klog.log.staged.roll_forward import check, roll_forward
from klog.log.staged.writers import sweep_partition
from klog.log.state._log_core import LogCore
from klog.scheduler import Scheduler
from klog.values import NamedTuple


class _Opened(Protocol):
    _core: LogCore


L = TypeVar("L", bound=_Opened)

_owners: weakref.WeakSet[_Owner] = weakref.WeakSet()


class _Owner:
    """The locks of one Log.open, and the checkpoints that it writes when it closes."""

    _claimed: LogFile | None = None  # the directory itself
    _lock: DirectoryLock | None = None

    def __init__(self, path: str, files: Files) -> None:
        self._files = files
        self._parent = os.path.dirname(path) or "."
        self._renamed_marker = os.path.join(self._parent, checkpoint.CLEAN_SHUTDOWN_RENAMED)
        self._pid = os.getpid()
        self._claimed = LogFile(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), path)
        self.marker_was_there = False
        self.high_watermark_was_there = False
        _owners.add(self)
        try:
            try:
                fcntl.flock(self._claimed, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno != errno.EWOULDBLOCK:
                    raise
                raise AlreadyLocked(
                    f"{path} is open for writing already; close it there, or open it here with read_only=True",
                    path=path,
                ) from None
            self._lock = DirectoryLock(self._parent, shared=True)
        except BaseException:
            self._unlock()
            raise

    def check_place(self) -> None:
        """Raise OSError if another directory has the path of the log.dir by now."""
        if self._lock is not None:
            self._lock.check_place()

    def take_marker(self) -> None:
        """Rename the clean-shutdown marker before the load: from here on the next load notices a crash. The name of the
        partition, which a killed process may have made, is on disk on return."""
        self._files.unlink(self._renamed_marker)  # renamed by another writer that is open or has crashed
        with contextlib.suppress(FileNotFoundError):
            self._files.rename(checkpoint.clean_shutdown_path(self._parent), self._renamed_marker)
            self.marker_was_there = True
        self._files.fsync_dir(self._parent)

    def _set(self, name: str, key: checkpoint.Partition, offset: int | None) -> bool:
        """Set the offset of a log in a checkpoint; None removes it. Returns False if nothing changes. Under the lock of
        the log.dir."""
        path = os.path.join(self._parent, name)
        self.check_place()
        before = checkpoint.known_offsets(path)
        after = {other: known for other, known in before.items() if other != key}
        if offset is not None:
            after[key] = offset
        if after == before:
            return False
        checkpoint.write_offsets(self._files, path, after)
        return True

    def take_high_watermark(self, key: checkpoint.Partition) -> None:
        """Remove the high watermark of the last shutdown, which would hide new records from readers."""
        with directory_lock(self._parent):
            self.high_watermark_was_there = self._set(checkpoint.HIGH_WATERMARK, key, None)

    def lower(self, log: LogCore, recovery_point: int, log_start_offset: int) -> None:
        """Lower the checkpoints of a log that is about to be truncated."""
        key = log.topic, log.partition
        with directory_lock(self._parent):
            for name, bound in ((checkpoint.RECOVERY_POINT, recovery_point), (checkpoint.LOG_START, log_start_offset)):
                if checkpoint.known_offsets(os.path.join(self._parent, name)).get(key, 0) > bound:
                    self._set(name, key, bound)
        cleaner_offsets.lower(self._files, self._parent, key, recovery_point)

    def store_starts(self, logs: Iterable[LogCore]) -> None:
        """Store the log start durably. There is one log."""
        with directory_lock(self._parent):
            for log in logs:
                self._set_start(log)

    def _set_start(self, log: LogCore) -> None:
        start = log.log_start_offset
        inside = start > log.segments[0].base_offset  # else the name of the first segment states it
        self._set(checkpoint.LOG_START, (log.topic, log.partition), start if inside else None)

    def lower_positions(self, log: LogCore, log_end: int, truncated: bool) -> None:
        """Lower the positions of named readers of a log that was shortened, or is about to be."""
        readers = [PositionFile(self._parent, name, self._files) for name in reader_names(self._parent)]
        lower_positions(readers, log.topic, log.partition, log_end, truncated=truncated)

    def remove_checkpoints(self, key: checkpoint.Partition) -> None:
        """Remove the checkpoints of a deleted log: a new one of its name begins at 0."""
        with directory_lock(self._parent):
            for name in (checkpoint.RECOVERY_POINT, checkpoint.LOG_START, checkpoint.HIGH_WATERMARK):
                self._set(name, key, None)
        cleaner_offsets.forget(self._files, self._parent, lambda other: other == key)

    def forget(self, log: LogCore) -> None:
        """Remove the checkpoints of a log that has been deleted."""
        try:
            self.remove_checkpoints((log.topic, log.partition))
            self.put_marker_back()
        finally:
            self._unlock()

    def flush_soon(self, log: LogCore) -> bool:
        """False: without a manager there is no thread, so the append flushes."""
        return False

    def check(self, what: str) -> None:
        """Raise ReentrantCall if this thread is replacing a file of the log.dir."""
        check_directory_lock(self._parent, what)

    def failed(self, log: LogCore, reason: str) -> None:
        """Called when the log goes offline. Other logs of the log.dir do not belong to this process."""

    def release(self, log: LogCore, clean: bool) -> None:
        """Write the checkpoints if the close is clean, then unlock. Called by Log.close."""
        try:
            if clean:
                with directory_lock(self._parent):
                    self._write_checkpoints(log)
        finally:
            self._unlock()

    def end_release(self) -> None:
        """See Owner."""
        self._unlock()

    def _write_checkpoints(self, log: LogCore) -> None:
        key = log.topic, log.partition
        self._set(checkpoint.RECOVERY_POINT, key, log.recovery_point)
        self._set_start(log)
        if self.high_watermark_was_there:
            self._set(checkpoint.HIGH_WATERMARK, key, log.high_watermark)
        self.put_marker_back()

    def put_marker_back(self) -> None:
        """Undo take_marker(), unless another writer has come since: no partition needs a recovery because of this
        one."""
        if not self.marker_was_there or self._lock is None:
            return
        if exists(self._renamed_marker) and self._lock.alone():
            text = checkpoint.clean_shutdown_text(self._renamed_marker)
            self._files.replace(checkpoint.clean_shutdown_path(self._parent), text)
            self._files.unlink(self._renamed_marker)

    def __del__(self) -> None:
        self._unlock()  # for an open that Ctrl-C ends before the log owns this

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        if self._claimed is not None and self._claimed.fd >= 0:
            if os.getpid() == self._pid:
                fcntl.flock(self._claimed, fcntl.LOCK_UN)  # a forked child may still have a copy of the descriptor
            self._claimed.close()

    def abandon(self) -> None:
        """Close the descriptor in a forked child, so that the lock ends with the parent."""
        if self._claimed is not None:
            self._claimed.close()


def _after_fork_in_child() -> None:
    for owner in list(_owners):
        owner.abandon()
    _owners.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _created_id(manifests: list[Manifest], topic: str) -> uuid.UUID | None:
    """The id of a topic that a commit in progress creates."""
    return next((manifest.topics[topic].topic_id for manifest in manifests if topic in manifest.topics), None)


def _without_link(path: str) -> str:
    """The directory that a link leads to: name, locks and checkpoints belong to it. Raises OSError if that cannot be
    found out."""
    with naming_the_next_step(path, reading=True):
        try:
            return os.path.realpath(path, strict=True) if stat.S_ISLNK(os.lstat(path).st_mode) else path
        except FileNotFoundError:  # it is to be created
            return os.path.realpath(path) if os.path.islink(path) else path


def _check_may_write(path: str) -> None:
    """Raise OSError if the path is not writable, before the marker is renamed: that makes the next start unclean."""
    if not os.access(path, os.W_OK | os.X_OK, effective_ids=True):
        read_only = os.statvfs(path).f_flag & os.ST_RDONLY
        raise os_error(errno.EROFS if read_only else errno.EACCES, path)


def open_standalone(
    make: Callable[[str, Options], L],
    path: str | os.PathLike[str],
    *,
    config: LogConfig | Mapping[str, Any] | None,
    recovery: Policy,
    read_only: bool,
    durability: Durability,
    clean_shutdown: bool | None,
    recovery_point: int | None,
    log_start_offset: int | None,
    high_watermark: int | None,
    topic_id: uuid.UUID | str | None,
    clock: Clock,
    files: Files,
) -> L:
    """Log.open: checks the arguments, takes the locks, loads the log."""
    path = os.path.abspath(arguments.path("path", path))
    path = _without_link(path)
    read_only = flag("read_only", read_only)
    check_choices(recovery, durability, read_only=read_only)
    given = _Given(
        optional_flag("clean_shutdown", clean_shutdown),
        optional_whole("recovery_point", recovery_point),
        optional_whole("log_start_offset", log_start_offset),
        optional_whole("high_watermark", high_watermark),
        checkpoint.as_uuid(topic_id),
    )
    key = parse_directory_name(os.path.basename(path))
    if key is None:
        raise InvalidTopic(f"{path} is not a partition directory: its name must be <topic>-<number>, such as events-0")
    log_config, broker = split_config(config)
    is_made = _check_directory(path, read_only, files)

    def load(**stated: Any) -> L:
        options = Options(
            topic=key[0],
            partition=key[1],
            config=settled(log_config, durability),
            read_only=read_only,
            recovery=recovery,
            durability=durability,
            clock=clock,
            files=files,
            handles=HandleCache(),
            scheduler=Scheduler(clock),
            broker=broker,
            config_known=config is not None,
            **stated,
        )
        if read_only:
            options.hold_back(partial(PendingCommits(os.path.dirname(path)).bounds, key))
        return make(path, options)

    if read_only:
        log = load(**_stated_to_reader(path, key, given))
    else:
        log = _open_to_write(path, key, given, load, files, clock.wall_ms(), is_made=is_made)
    warm_ranges.at_open([log._core])
    return log


class _Given(NamedTuple):
    """The arguments of Log.open that the log.dir states, too. None: what it states counts."""

    clean_shutdown: bool | None
    recovery_point: int | None
    log_start_offset: int | None
    high_watermark: int | None
    topic_id: uuid.UUID | None


def _check_directory(path: str, read_only: bool, files: Files) -> bool:
    """Make a partition's directory if it is missing, for a writer, and check that it can be written. Returns whether it
    was made."""
    parent, is_new = os.path.dirname(path), not is_directory(path)
    if is_new:
        if read_only:
            raise UnknownTopicOrPartition(f"{path} does not exist: `klog ls {parent}` lists what does")
        if not is_directory(parent):
            raise FileNotFoundError(
                errno.ENOENT, "the log.dir of the partition does not exist; create it first", parent
            )
        files.mkdir(path)
        files.fsync_dir(parent)
    if not read_only:
        _check_may_write(path)
    return is_new


def _stated(path: str, key: checkpoint.Partition, given: _Given) -> dict[str, Any]:
    """Arguments of Options: what is given, else what the log.dir states. Raises InconsistentTopicId."""
    parent = os.path.dirname(path)
    stored, clean = checkpoint.check_topic_id(path, given.topic_id), given.clean_shutdown
    points, starts = (
        checkpoint.known_offsets(os.path.join(parent, name))
        for name in (checkpoint.RECOVERY_POINT, checkpoint.LOG_START)
    )
    return {
        "topic_id": given.topic_id,
        "topic_id_stored": stored,
        "clean_shutdown": exists(checkpoint.clean_shutdown_path(parent)) if clean is None else clean,
        "recovery_point": points.get(key, 0) if given.recovery_point is None else given.recovery_point,
        "log_start_offset": max(starts.get(key, 0) if given.log_start_offset is None else given.log_start_offset, 0),
        "high_watermark": given.high_watermark,
        "cleaned_to": cleaner_offsets.read(parent).get(key, 0),
    }


def _stated_to_reader(path: str, key: checkpoint.Partition, given: _Given) -> dict[str, Any]:
    """The same for a reader, which follows the checkpoint of the high watermark unless one is given."""
    stated = _stated(path, key, given)
    if given.log_start_offset is not None:
        stated["log_start_min"] = stated["log_start_offset"]
    if given.high_watermark is None:
        followed = os.path.join(os.path.dirname(path), checkpoint.HIGH_WATERMARK)
        stated |= {"high_watermark": checkpoint.known_offsets(followed).get(key), "high_watermark_path": followed}
    if holds_only_staging(path):
        raise UnknownTopicOrPartition(f"{path} does not exist yet: it holds only staged files")
    return stated


def _open_to_write(
    path: str,
    key: checkpoint.Partition,
    given: _Given,
    load: Callable[..., L],
    files: Files,
    now_ms: int,
    *,
    is_made: bool,
) -> L:
    """Take the locks and the marker, load the log, finish the commits in progress. is_made: the directory is new."""
    parent, owner, log = os.path.dirname(path), _Owner(path, files), None
    try:
        is_new = is_made and not os.listdir(path)
        if is_new:
            owner.remove_checkpoints(key)  # a deletion that a crash has ended may have left them
        stated = _stated(path, key, given)
        listed = os.listdir(parent)  # a writer must not miss a manifest: it raises if it cannot look
        owner.take_marker()
        manifests = read_all(parent, listed)
        sweep_partition(path, listed, now_ms, files)
        created_id = _created_id(manifests, key[0])
        if created_id is None and holds_only_staging(path):
            raise UnknownTopicOrPartition(
                f"{path} does not exist yet: it holds only staged files of a job, whose commit creates the topic; "
                "open it after that"
            )
        stated["topic_id"] = given.topic_id or created_id
        log = load(**stated)
        belong_to(log._core, owner)
        if is_new:
            owner.lower_positions(log._core, log._core.log_end_offset, False)  # of a deleted log of this name
        for manifest in manifests:
            check(log._core, manifest)
            roll_forward(log._core, manifest)
        owner.take_high_watermark(key)
        return log
    except BaseException as error:
        if log is not None:
            abandon(log._core)
        elif isinstance(error, KlogError) and given.clean_shutdown is not False:  # refused: it is as clean as before
            with contextlib.suppress(OSError):
                owner.put_marker_back()
        owner._unlock()
        raise
