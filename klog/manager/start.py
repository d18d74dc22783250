"""Opens the LogDirectories of a LogManager from their paths.

A single directory that cannot be used is an error. Of several, one that cannot be used is offline, with a warning, and
the others go on. One that another process has locked is always an error, since its logs are in use there.
Kafka: LogManager.createAndValidateLogDirs, lockLogDirs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence

from klog import arguments
from klog.disk import Files, naming_the_next_step
from klog.errors import StorageOffline
from klog.manager.directories import LogDirectory

_log = logging.getLogger("klog.manager")
_NEXT = "; klog.open('data', create=True) creates a new one"
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def as_paths(given: Paths) -> list[str]:
    """Return the directories' absolute paths. Raises ValueError if one is given twice, also by another name."""
    if isinstance(given, str | bytes | os.PathLike):
        paths = [os.path.abspath(arguments.path("path", given))]
    elif isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise arguments.wrong_type("path", given, "a log.dir, as str or pathlib.Path, or a list of them,", _NEXT)
    else:
        paths = [os.path.abspath(arguments.path(f"path[{n}]", each)) for n, each in enumerate(given)]
    if not paths:
        raise ValueError("path=[]: no log.dir given: name one or more")
    seen: dict[str, str] = {}
    for path in paths:
        real = os.path.realpath(path)
        if real in seen:
            other = "" if seen[real] == path else f" (as {seen[real]})"
            raise ValueError(f"{path} is given twice{other}: give each log.dir once")
        seen[real] = path
    return paths


def open_directories(paths: Sequence[str], files: Files, *, create: bool, read_only: bool) -> list[LogDirectory]:
    """Return a LogDirectory for each path, locked unless read_only. Raises AlreadyLocked; OSError if none can be
    used."""
    directories = [LogDirectory(path, files, read_only=read_only) for path in paths]
    failure: OSError | None = None
    try:
        for directory in directories:
            try:
                _make(directory.path, files, create=create and not read_only)
                directory.open()
            except OSError as error:
                if len(paths) == 1:
                    raise
                failure = error
                directory.offline = str(error)
                _log.warning("event=directory_unusable path=%s reason=%s", directory.path, error)
        if all(directory.offline for directory in directories):
            raise StorageOffline(
                "none of the log directories can be used: "
                + "; ".join(f"{directory.path}: {directory.offline}" for directory in directories)
            ) from failure
    except BaseException:
        for directory in directories:
            directory.unlock()
        raise
    return directories


def _make(path: str, files: Files, *, create: bool) -> None:
    if os.path.isdir(path):
        return
    if os.path.lexists(path):
        raise NotADirectoryError(f"{path} is a file; a log.dir is a directory")
    if not create:
        raise FileNotFoundError(f"{path} does not exist: klog.open(..., create=True) creates a new log.dir")
    with naming_the_next_step(path):
        os.makedirs(path, 0o750)
    files.fsync_dir(os.path.dirname(path))
