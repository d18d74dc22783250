"""DirectorySet: the log.dirs of a LogManager, online and offline.

A single directory that cannot be used is an error. Of several, one that cannot be used is offline, with a warning, and
the others go on. One that another process has locked is always an error, since its logs are in use there.
Kafka: LogManager.createAndValidateLogDirs, lockLogDirs, liveLogDirs, offlineLogDirs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator, Sequence

from klog import arguments
from klog.disk import Files, check_directory, exists, is_directory, is_final, make_directories
from klog.errors import StorageOffline
from klog.log.directory.partition_names import FUTURE
from klog.logger import logger_of
from klog.manager.directories import Entries, LogDirectory

_log = logger_of("manager")
_NEXT = "; klog.open('data', create=True) creates a new one"
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def as_paths(given: Paths) -> list[str]:
    """Return the directories' absolute paths. Raises ValueError if one is given twice, also by another name."""
    paths = list(map(os.path.abspath, arguments.log_dirs("path", given, _NEXT)))
    seen: dict[str, str] = {}
    for path in paths:
        real = os.path.realpath(path)
        if real in seen:
            other = "" if seen[real] == path else f" (as {seen[real]})"
            raise ValueError(f"{path} is given twice{other}: give each log.dir once")
        seen[real] = path
    return paths


class DirectorySet:
    """Every log.dir, in the order they were given. Any thread."""

    def __init__(self, paths: Sequence[str], files: Files, *, create: bool, read_only: bool) -> None:
        """Lock the directories, unless read_only. Raises AlreadyLocked, NotALogDirectory; ValueError if they are of
        different clusters; OSError if none can be used."""
        self._all = [LogDirectory(path, files, read_only=read_only) for path in paths]
        failure: OSError | None = None
        try:
            for directory in self._all:
                try:
                    if read_only:
                        check_directory(directory.path)
                    else:
                        _make(directory.path, files, create=create)
                    directory.open()
                except OSError as error:
                    if len(paths) == 1:
                        raise
                    failure = error
                    directory.left_out(str(error))
                    _log.warning("event=directory_unusable path=%s reason=%s", directory.path, error)
            if not read_only:
                self._check_cluster()
            if not self.online():
                raise StorageOffline(f"none of the log directories can be used: {self._reasons()}") from failure
        except BaseException:
            self.unlock()
            raise

    def _check_cluster(self) -> None:
        """Raise ValueError for directories of different clusters: topics of one name would count as one, and of two
        copies of a partition one would be renamed as stray. Kafka: MetaPropertiesEnsemble.verify."""
        known = [directory for directory in self._all if directory.cluster_id is not None]
        for directory in known[1:]:
            if directory.cluster_id != known[0].cluster_id:
                raise ValueError(
                    f"{directory.path} is of the cluster {directory.cluster_id!r}, {known[0].path} of "
                    f"{known[0].cluster_id!r}, as meta.properties states: open them one by one, or with read_only=True"
                )

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._all)

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path."""
        return tuple(directory.path for directory in self._all)

    @property
    def case_ignored(self) -> str | None:
        """The first path where names that differ only by case are the same name; None if there is none."""
        return next((directory.path for directory in self._all if directory.ignores_case), None)

    @property
    def offline(self) -> dict[str, str]:
        """{path: reason} of those that are offline."""
        return {directory.path: directory.offline for directory in self._all if directory.offline is not None}

    def online(self) -> list[LogDirectory]:
        """Those that are online."""
        return [directory for directory in self._all if directory.offline is None]

    def entries(self) -> dict[LogDirectory, Entries]:
        """The subdirectories of those that are online."""
        return {directory: directory.entries() for directory in self.online()}

    def _reasons(self) -> str:
        return "; ".join(f"{path}: {reason}" for path, reason in self.offline.items())

    def check_online(self) -> None:
        """Raise StorageOffline if none is online, and has its place."""
        for directory in self.online():
            with contextlib.suppress(OSError):  # it is offline then
                directory.check_place()
        if not self.online():
            raise StorageOffline(f"every log directory is offline: {self._reasons()}; close it and open it again")

    def is_spare(self, directory: LogDirectory) -> bool:
        """True if another directory is online."""
        return any(other is not directory for other in self.online())

    def choose(self, wanted: str | uuid.UUID) -> LogDirectory:
        """Return the directory of a path or of a directory id. Raises ValueError, StorageOffline."""
        for directory in self._all:
            if wanted in (directory.path, directory.directory_id):
                if directory.offline is not None:
                    raise StorageOffline(f"{directory.path} is offline: {directory.offline}")
                return directory
        paths = ", ".join(self.paths)
        raise ValueError(f"directory={wanted!r} is not a log.dir of this LogManager: choose from {paths}")

    def count_logs(self) -> dict[LogDirectory, int]:
        """Return the number of logs in each online directory, in the order they were given; copies of moves count,
        too. A single directory is not counted: there is none to compare it with."""
        online = self.online()
        counts = dict.fromkeys(online, 0)
        for directory, entries in self.entries().items() if len(online) > 1 else ():
            counts[directory] = len(entries.live) + sum(way.suffix == FUTURE for way in entries.suffixed_names.values())
        return counts

    def write_failed(self, path: str, error: OSError) -> None:
        """Handle a failed write of a file that every directory has: a final disk error takes its directory offline."""
        for directory in self.online():
            if directory.path == path and is_final(error):
                directory.fail(str(error))

    def check(self, what: str) -> None:
        """Raise ReentrantCall if this thread is writing a checkpoint."""
        for directory in self._all:
            directory.check(what)

    def after_fork(self) -> None:
        """Reset in a forked child."""
        for directory in self._all:
            directory.after_fork()

    def unlock(self) -> None:
        """Release the locks. May be called again."""
        for directory in self._all:
            directory.unlock()


def _make(path: str, files: Files, *, create: bool) -> None:
    if is_directory(path):
        return
    if exists(path, follow_symlinks=False):
        raise NotADirectoryError(f"{path} is a file; a log.dir is a directory")
    if not create:
        raise FileNotFoundError(
            errno.ENOENT, "no such directory; klog.open(..., create=True) creates a new log.dir", path
        )
    try:
        make_directories(path, files)
    except FileNotFoundError as error:  # of a file system without directories of its users, such as /proc
        text = f"{os.strerror(errno.ENOENT)}; no directory can be created there: choose another place"
        raise FileNotFoundError(errno.ENOENT, text, path) from error
