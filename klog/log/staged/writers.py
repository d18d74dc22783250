"""Which jobs have staged files in a log.dir, and the removal of what jobs that have ended left there.

    klog-staging-TOKEN.json := {"version": 1, "token": TOKEN,
                                "process": {"machine": [HOST, BOOT, PIDS], "pid": 4711, "start": 8150} | null,
                                "aborting": true, if an abort has begun}

The file is there before the job's first staging directory, and goes after the last one: without such a file, no
partition of the log.dir is searched for staging. process: the job's driver; machine: host name, boot id, namespace of
process ids.

  W1  a job is over when its driver has ended. If that cannot be known, as of another machine: when nothing of the job
      has changed for STALE_MS
  W2  what it leaves is removed as a whole: its staging directories, the directories that are empty then, the file,
      each durably before the next
  W3  a partition's directory is removed only under the lock of the log.dir: another holder may be creating it
  W4  tasks make directories, and the file goes, under directory_lock: no staging directory is without the file
  W5  tasks that find the file of another driver, or of an abort, sync all partitions before they stage: a process may
      have been killed between the removal of a directory and its sync, and a commit removes the file without that
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable
from typing import Any

from klog.clock import process_start_time
from klog.disk import (
    Files,
    directory_lock,
    exists,
    is_directory,
    is_full,
    read_whole,
    refuse_link,
    remove_tree,
)
from klog.errors import CorruptCheckpoint, NewerFormat
from klog.log.directory import versioned
from klog.log.directory.partition_names import parse_directory_name
from klog.log.staged import layout
from klog.values import NamedTuple, dataclass

VERSION = 1
STALE_MS = 24 * 3600 * 1000
_TRIES = 5


class Machine(NamedTuple):
    """The scope of a process id: a host's name, one boot of it, a namespace of process ids."""

    host: str
    boot: str
    pids: str


def this_machine() -> Machine:
    """The scope of this process."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return Machine(os.uname().nodename, file.read().strip(), os.readlink("/proc/self/ns/pid"))


@dataclass(frozen=True, slots=True)
class Driver:
    """The process that will commit a job, or abort it."""

    machine: Machine
    pid: int
    start: int

    @property
    def is_here(self) -> bool:
        """Is the process id one of this machine?"""
        return self.machine == this_machine()

    @property
    def has_ended(self) -> bool:
        """Is it certain that this process has ended? False on another host, or in another container."""
        here = this_machine()
        if self.machine == here:
            return process_start_time(self.pid) != self.start
        return self.machine.host == here.host and self.machine.boot != here.boot


def driver(pid: int | None = None) -> Driver | None:
    """A process of this machine as the driver of a job, None: this process. None if it has ended."""
    number = os.getpid() if pid is None else pid
    start = process_start_time(number)
    return None if start is None else Driver(this_machine(), number, start)


def announce(log_dir: str, token: str, process: Driver | None, files: Files) -> None:
    """Make the job known before its first staging directory, or by a new driver: that of a stream which has begun
    again, or the process that commits. Durable when it returns."""
    with directory_lock(log_dir):
        _announce(log_dir, token, process, files)


def make_staging(log_dir: str, topic: str, partition: int, token: str, process: Driver | None, files: Files) -> str:
    """Announce the job and make its staging directory in a partition. Returns the path. Raises OSError, also if the
    partition is a symbolic link, which the commit would not follow."""
    path = layout.staging_path(log_dir, topic, partition, token)
    refuse_link(os.path.dirname(path))
    with directory_lock(log_dir):  # tasks of several processes begin at once
        _announce(log_dir, token, process, files, to_stage=True)
        for directory in (os.path.dirname(path), path):
            with contextlib.suppress(FileExistsError):
                files.mkdir(directory)
    return path


def _announce(log_dir: str, token: str, process: Driver | None, files: Files, *, to_stage: bool = False) -> None:
    path = layout.writer_path(log_dir, token)
    data = versioned.encode(_document(token, process))
    is_there = exists(path)
    if is_there and read_whole(path) == data:
        return
    if is_there and to_stage:
        _sync_partitions(log_dir, files)  # W5
    files.replace(path, data)


def _document(token: str, process: Driver | None) -> dict[str, Any]:
    stored = None if process is None else {"machine": list(process.machine), "pid": process.pid, "start": process.start}
    return {"version": VERSION, "token": layout.check_token(token), "process": stored}


def _note_abort(log_dir: str, token: str, files: Files) -> None:
    """W5: before an abort removes the first staging directory. It does without this if the disk is full, so that it
    makes room."""
    path = layout.writer_path(log_dir, token)
    if not exists(path):
        return
    try:
        document = _document(token, _driver_of(log_dir, token))
        files.replace(path, versioned.encode({**document, "aborting": True}))
    except (CorruptCheckpoint, NewerFormat):
        pass  # tasks find a file that is not theirs
    except OSError as error:
        if not is_full(error):
            raise


def _driver_of(log_dir: str, token: str) -> Driver | None:
    """The driver of a job; None if the file does not name one. Raises NewerFormat, CorruptCheckpoint."""
    path = layout.writer_path(log_dir, token)
    try:
        return decode(read_whole(path), path, token)
    except FileNotFoundError:
        return None


def decode(data: bytes, path: str, token: str) -> Driver | None:
    """The driver that a job's file names. Raises NewerFormat, CorruptCheckpoint."""
    try:
        stored: Any = versioned.parse(data, path, VERSION)["process"]
        if stored is None:
            return None
        found = Driver(Machine(*stored["machine"]), stored["pid"], stored["start"])
        if (
            not all(isinstance(part, str) for part in found.machine)
            or type(found.pid) is not int
            or type(found.start) is not int
        ):
            raise ValueError(f"process {stored!r}")
        return found
    except (*versioned.MALFORMED, OverflowError) as error:
        raise CorruptCheckpoint(
            f"not the writer of staged files ({error}); remove it and the directories {layout.STAGING}{token} in the "
            "partitions, if that job has ended",
            path=path,
        ) from None


def is_over(log_dir: str, token: str, now_ms: int) -> bool:
    """W1. Raises NewerFormat, CorruptCheckpoint."""
    process = _driver_of(log_dir, token)
    if process is not None and (process.is_here or process.has_ended):
        return process.has_ended
    return now_ms - _newest_ms(log_dir, token) > STALE_MS


def _newest_ms(log_dir: str, token: str) -> int:
    newest = 0
    for path in (layout.writer_path(log_dir, token), *staging_directories(log_dir, token)):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            newest = max(newest, os.stat(path).st_mtime_ns)
            with os.scandir(path) as entries:
                newest = max([newest, *(entry.stat().st_mtime_ns for entry in entries)])
    return newest // 1_000_000


def staging_directories(log_dir: str, token: str) -> list[str]:
    """The staging directories of a job in the partitions of a log.dir, sorted."""
    paths = (os.path.join(partition, layout.STAGING + token) for partition in _partitions(log_dir))
    return [path for path in paths if is_directory(path, follow_symlinks=False)]


def _partitions(log_dir: str) -> list[str]:
    with os.scandir(log_dir) as entries:
        return sorted(entry.path for entry in entries if parse_directory_name(entry.name) is not None)


def remove_staging(log_dir: str, token: str, files: Files, *, again: bool = False) -> None:
    """W2: remove everything of a job except its manifest. The caller holds the lock of the log.dir. again: a call that
    was killed may have removed directories; that is made durable in all partitions, before the file goes."""
    for path in staging_directories(log_dir, token):
        _remove(path, files)
        if not again:
            _sync_partition(os.path.dirname(path), files)
    _forget(log_dir, token, files, alone=True, again=again)


def withdraw(log_dir: str, token: str, files: Files, *, alone: bool) -> bool:
    """W6: remove everything of a job, unless it is committed: then nothing. Returns whether it did. alone: the caller
    holds the lock of the log.dir; if not, empty directories are left to the next start, and the file, by which it finds
    them."""
    with directory_lock(log_dir):
        if exists(layout.commit_path(log_dir, token)):
            return False
        _note_abort(log_dir, token, files)
        for path in staging_directories(log_dir, token):
            _remove(path, files)
    _forget(log_dir, token, files, alone=alone, again=True)
    return True


def _forget(log_dir: str, token: str, files: Files, *, alone: bool, again: bool) -> None:
    """The rest of W2, after the staging directories."""
    if again:
        _sync_partitions(log_dir, files)
    with directory_lock(log_dir):
        empty = _empty_partitions(log_dir)
        for partition in empty if alone else ():
            try:
                files.rmdir(partition)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):  # its owner has put something there
                    raise
        files.fsync_dir(log_dir)
        if staging_directories(log_dir, token) or (empty and not alone):
            return  # a late attempt has staged again
        files.unlink(layout.writer_path(log_dir, token))
        files.fsync_dir(log_dir)


def _sync_partitions(log_dir: str, files: Files) -> None:
    for partition in _partitions(log_dir):
        _sync_partition(partition, files)


def _sync_partition(partition: str, files: Files) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # its topic is deleted meanwhile
        files.fsync_dir(partition)


def _remove(path: str, files: Files) -> None:
    """Remove a staging directory with its files, also those that a late attempt adds meanwhile."""
    for tries_left in reversed(range(_TRIES)):
        try:
            remove_tree(path, files)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or not tries_left:
                raise
        else:
            return


def _empty_partitions(log_dir: str) -> list[str]:
    with os.scandir(log_dir) as entries:
        partitions = [
            entry.path
            for entry in entries
            if parse_directory_name(entry.name) is not None and entry.is_dir(follow_symlinks=False)
        ]
    return [path for path in partitions if _is_empty(path)]


def _is_empty(partition: str) -> bool:
    try:
        return not os.listdir(partition)
    except FileNotFoundError:  # its topic is deleted meanwhile
        return False


def sweep_partition(path: str, names: Iterable[str], now_ms: int, files: Files) -> None:
    """The same in one partition. The rest of these jobs stays for the next start in the log.dir."""
    log_dir = os.path.dirname(path)
    for token in layout.writers_in(names):
        staging = os.path.join(path, layout.STAGING + token)
        if is_directory(staging) and _is_abandoned(log_dir, token, now_ms):
            _remove(staging, files)


def _is_abandoned(log_dir: str, token: str, now_ms: int) -> bool:
    return not exists(layout.commit_path(log_dir, token)) and is_over(log_dir, token, now_ms)


def sweep(log_dir: str, names: Iterable[str], now_ms: int, files: Files) -> list[str]:
    """Remove what jobs that are over have left. names: of the log.dir. Returns the tokens of these jobs."""
    swept = [token for token in layout.writers_in(names) if _is_abandoned(log_dir, token, now_ms)]
    for token in swept:
        for path in staging_directories(log_dir, token):
            _remove(path, files)
    if swept:  # also what calls that were killed have removed
        _sync_partitions(log_dir, files)
    for token in swept:
        remove_staging(log_dir, token, files)
    return swept
