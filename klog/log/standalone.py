"""Log.open: one partition directory without a manager of its log.dir.

Two locks exclude other writers: a flock on the partition directory (klog against klog), and a shared lock on the
parent's `.lock`, which a broker or a LogManager locks exclusively. The clean-shutdown marker of the parent holds for
all its partitions: a writer renames it while it works, and renames it back at close. A second writer in the same
log.dir unlinks the renamed marker: it may crash unnoticed before the first one closes.

A commit in progress is finished in this partition when it is opened for writing; its manifest stays for the others.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import uuid
import weakref
from collections.abc import Callable, Mapping
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
    check_directory_lock,
    directory_lock,
    exists,
    is_directory,
    os_error,
)
from klog.errors import AlreadyLocked, CorruptCheckpoint, InvalidTopic, UnknownTopicOrPartition
from klog.log.closing import abandon
from klog.log.directory import checkpoint, cleaner_offsets
from klog.log.directory.partition_names import parse_directory_name
from klog.log.directory.reader_positions import lower_positions, reader_names
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


class _Opened(Protocol):
    _core: LogCore


L = TypeVar("L", bound=_Opened)

_owners: weakref.WeakSet[_Owner] = weakref.WeakSet()


class _Owner:
    """The locks of one Log.open, and the checkpoints that it writes when it closes."""

    _fd = -1
    _lock: DirectoryLock | None = None

    def __init__(self, path: str, files: Files) -> None:
        self._files = files
        self._parent = os.path.dirname(path) or "."
        self._renamed_marker = os.path.join(self._parent, checkpoint.CLEAN_SHUTDOWN_RENAMED)
        self._pid = os.getpid()
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.marker_was_there = False
        self.high_watermark_was_there = False
        _owners.add(self)
        try:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
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

    def take_marker(self) -> None:
        """Rename the clean-shutdown marker before the load: from here on the next load notices a crash."""
        changed = exists(self._renamed_marker)
        if changed:  # renamed by another writer that is open or has crashed
            self._files.unlink(self._renamed_marker)
        with contextlib.suppress(FileNotFoundError):
            self._files.rename(checkpoint.clean_shutdown_path(self._parent), self._renamed_marker)
            changed = self.marker_was_there = True
        if changed:
            self._files.fsync_dir(self._parent)

    def take_high_watermark(self, key: checkpoint.Partition) -> None:
        """Remove the high watermark of the last shutdown, which would hide new records from readers."""
        path = os.path.join(self._parent, checkpoint.HIGH_WATERMARK)
        with directory_lock(self._parent):
            high_watermarks = _offsets(path)
            self.high_watermark_was_there = high_watermarks.pop(key, None) is not None
            if self.high_watermark_was_there:
                checkpoint.write_offsets(self._files, path, high_watermarks)

    def lower(self, log: LogCore, recovery_point: int, log_start_offset: int) -> None:
        """Lower the checkpoints of a log that is about to be truncated."""
        key = log.topic, log.partition
        with directory_lock(self._parent):
            for name, bound in ((checkpoint.RECOVERY_POINT, recovery_point), (checkpoint.LOG_START, log_start_offset)):
                path = os.path.join(self._parent, name)
                offsets = _offsets(path)
                if offsets.get(key, 0) > bound:
                    checkpoint.write_offsets(self._files, path, {**offsets, key: bound})
        cleaner_offsets.lower(self._files, self._parent, key, recovery_point)

    def forget(self, log: LogCore) -> None:
        """Remove the checkpoints of a deleted log: a new one of its name begins at 0."""
        key = log.topic, log.partition
        try:
            with directory_lock(self._parent):
                for name in (checkpoint.RECOVERY_POINT, checkpoint.LOG_START, checkpoint.HIGH_WATERMARK):
                    path = os.path.join(self._parent, name)
                    offsets = _offsets(path)
                    if offsets.pop(key, None) is not None:
                        checkpoint.write_offsets(self._files, path, offsets)
            cleaner_offsets.forget(self._files, self._parent, lambda other: other == key)
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

    def _write_checkpoints(self, log: LogCore) -> None:
        path = os.path.join(self._parent, checkpoint.RECOVERY_POINT)
        key = log.topic, log.partition
        offsets = {**_offsets(path), key: log.recovery_point}
        checkpoint.write_offsets(self._files, path, offsets)
        path = os.path.join(self._parent, checkpoint.LOG_START)
        before = _offsets(path)
        starts = {other: start for other, start in before.items() if other != key}
        if log.log_start_offset > log.segments[0].base_offset:
            starts[key] = log.log_start_offset
        if starts != before:
            checkpoint.write_offsets(self._files, path, starts)
        path = os.path.join(self._parent, checkpoint.HIGH_WATERMARK)
        if self.high_watermark_was_there:
            checkpoint.write_offsets(self._files, path, {**_offsets(path), key: log.high_watermark})
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
        if self._fd >= 0:
            if os.getpid() == self._pid:
                fcntl.flock(self._fd, fcntl.LOCK_UN)  # a forked child may still have a copy of the descriptor
            os.close(self._fd)
            self._fd = -1

    def abandon(self) -> None:
        """Close the descriptor in a forked child, so that the lock ends with the parent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _after_fork_in_child() -> None:
    for owner in list(_owners):
        owner.abandon()
    _owners.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _offsets(path: str) -> dict[checkpoint.Partition, int]:
    with contextlib.suppress(CorruptCheckpoint):
        return checkpoint.read_offsets(path)
    return {}


def _created_id(manifests: list[Manifest], topic: str) -> uuid.UUID | None:
    """The id of a topic that a commit in progress creates."""
    return next((manifest.topics[topic].topic_id for manifest in manifests if topic in manifest.topics), None)


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
    if os.path.islink(path):
        path = os.path.realpath(path)  # name, locks and checkpoints belong to the directory itself
    check_choices(recovery, durability)
    read_only, clean_shutdown = flag("read_only", read_only), optional_flag("clean_shutdown", clean_shutdown)
    recovery_point = optional_whole("recovery_point", recovery_point)
    log_start_offset = optional_whole("log_start_offset", log_start_offset)
    high_watermark = optional_whole("high_watermark", high_watermark)
    wanted = checkpoint.as_uuid(topic_id)
    parsed = parse_directory_name(os.path.basename(path))
    if parsed is None:
        raise InvalidTopic(f"{path} is not a partition directory: its name must be <topic>-<number>, such as events-0")
    topic, partition = parsed
    log_config, broker = split_config(config)
    if not is_directory(path):
        if read_only:
            raise UnknownTopicOrPartition(f"{path} does not exist: `klog ls {os.path.dirname(path)}` lists what does")
        if not is_directory(os.path.dirname(path)):
            raise FileNotFoundError(
                errno.ENOENT, "the log.dir of the partition does not exist; create it first", os.path.dirname(path)
            )
        files.mkdir(path)
        files.fsync_dir(os.path.dirname(path))
    if not read_only:
        _check_may_write(path)
    parent, key = os.path.dirname(path), (topic, partition)
    owner: _Owner | None = None
    log: L | None = None
    try:
        owner = None if read_only else _Owner(path, files)
        stored = checkpoint.check_topic_id(path, wanted)
        if clean_shutdown is None:
            clean_shutdown = exists(checkpoint.clean_shutdown_path(parent))
        if owner is not None:
            listed = os.listdir(parent)  # a writer must not miss a manifest: it raises if it cannot look
            owner.take_marker()
        starts = _offsets(os.path.join(parent, checkpoint.LOG_START))
        points = _offsets(os.path.join(parent, checkpoint.RECOVERY_POINT))
        high_watermarks = _offsets(os.path.join(parent, checkpoint.HIGH_WATERMARK))
        cleaned = {} if read_only else cleaner_offsets.read(parent)
        created_id = None
        if owner is not None:
            manifests = read_all(parent, listed)
            sweep_partition(path, listed, clock.wall_ms(), files)
            created_id = _created_id(manifests, topic)
            if created_id is None and holds_only_staging(path):
                raise UnknownTopicOrPartition(
                    f"{path} does not exist yet: it holds only staged files of a job, whose commit creates the topic; "
                    "open it after that"
                )
        elif holds_only_staging(path):
            raise UnknownTopicOrPartition(f"{path} does not exist yet: it holds only staged files")
        options = Options(
            topic=topic,
            partition=partition,
            config=settled(log_config, durability),
            read_only=read_only,
            recovery=recovery,
            durability=durability,
            clean_shutdown=clean_shutdown,
            recovery_point=points.get(key, 0) if recovery_point is None else recovery_point,
            log_start_offset=max(starts.get(key, 0) if log_start_offset is None else log_start_offset, 0),
            high_watermark=high_watermarks.get(key) if high_watermark is None and read_only else high_watermark,
            topic_id=wanted or created_id,
            topic_id_stored=stored,
            clock=clock,
            files=files,
            handles=HandleCache(),
            scheduler=Scheduler(clock),
            producer_expiration_ms=broker.producer_id_expiration_ms,
            producer_expiration_check_ms=broker.producer_id_expiration_check_interval_ms,
            config_known=config is not None,
            dedupe_buffer_size=broker.log_cleaner_dedupe_buffer_size,
            dedupe_load_factor=broker.log_cleaner_io_buffer_load_factor,
            cleaned_to=cleaned.get(key, 0),
            high_watermark_path=os.path.join(parent, checkpoint.HIGH_WATERMARK)
            if read_only and high_watermark is None
            else None,
        )
        if owner is None:
            options.hold_back(partial(PendingCommits(parent).bounds, key))
        log = make(path, options)
        if owner is not None:
            belong_to(log._core, owner)
            if not log._core.recovery.clean_shutdown:
                lower_positions(parent, reader_names(parent), topic, partition, log._core.log_end_offset, files)
            for manifest in manifests:
                check(log._core, manifest)
                roll_forward(log._core, manifest)
            owner.take_high_watermark(key)
    except BaseException:
        if log is not None:
            abandon(log._core)
        if owner is not None:
            owner._unlock()
        raise
    warm_ranges.at_open([log._core])
    return log
