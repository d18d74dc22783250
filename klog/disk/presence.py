"""Whether a file or a directory exists, and whether it has changed since the last look.

os.path.exists and os.path.isdir return False for every error, also when the disk cannot be read. A caller would then
create or overwrite a file that exists, or forget it. The functions here raise OSError instead.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import TYPE_CHECKING

from klog.disk.faults import naming_the_next_step

if TYPE_CHECKING:
    from klog.disk._io import LogFile

_EXPECTED = "name a log.dir, which has a directory <topic>-<number> for each partition"
_SETTLED_NS = 50_000_000
_SECOND_NS = 1_000_000_000

FileState = tuple[int, int, int]


def file_state(file: str | int) -> FileState | None:
    """Return (inode, size, mtime) of a file, by path or descriptor: another state means that it was written or replaced
    since. None if there is no such path. Raises OSError."""
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def settled_change(path: str) -> int | None:
    """When an entry of a directory came, went or was renamed last, or a file was replaced, in ns: what is listed, or
    read, from now on lasts as long as this is the same. None if another change may get the same time: kernels stamp
    files in steps of milliseconds, some file systems in whole seconds. The time of modification would not do: restored
    backups set it."""
    now = time.time_ns()
    changed = os.stat(path).st_ctime_ns
    return changed if now - changed > _SETTLED_NS and changed % _SECOND_NS else None


def exists(path: str, *, follow_symlinks: bool = True) -> bool:
    """Does the path exist? Raises OSError if that cannot be found out."""
    return _mode(path, follow_symlinks) is not None


def is_directory(path: str, *, follow_symlinks: bool = True) -> bool:
    """Is the path a directory? Raises OSError if that cannot be found out."""
    mode = _mode(path, follow_symlinks)
    return mode is not None and stat.S_ISDIR(mode)


def is_file(path: str) -> bool:
    """Is the path a regular file, or a link to one? Raises OSError if that cannot be found out."""
    mode = _mode(path, True)
    return mode is not None and stat.S_ISREG(mode)


def has_its_name(file: LogFile) -> bool:
    """Does an open file's path still name it? It may have been removed or replaced. Raises OSError if that cannot be
    found out."""
    with naming_the_next_step(file.path, reading=True):
        try:
            return os.path.samestat(os.stat(file.path, follow_symlinks=False), os.fstat(file.fileno()))
        except FileNotFoundError:
            return False


def check_directory(path: str) -> str:
    """Return the path of a log.dir, or of a partition in it, that the caller has named. Raises FileNotFoundError,
    NotADirectoryError; OSError if that cannot be found out."""
    mode = _mode(path, True)
    if mode is None:
        raise FileNotFoundError(errno.ENOENT, f"no such directory; {_EXPECTED}", path)
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError(errno.ENOTDIR, f"not a directory; {_EXPECTED}", path)
    return path


def refuse_link(path: str) -> None:
    """Raise OSError if a partition of a log.dir that is written is a symbolic link to a directory: another process may
    write where it leads to, under the lock of that log.dir and with the checkpoints there."""
    if os.path.islink(path) and is_directory(path):
        raise OSError(
            errno.ELOOP,
            f"a symbolic link: the lock and the checkpoints of {os.path.dirname(path)} do not cover where it leads. "
            "Open the log.dir of that directory, move the directory here, or mount it here (mount --bind); "
            "read_only=True follows the link",
            path,
        )


def _mode(path: str, follow_symlinks: bool) -> int | None:
    """None if there is no such path."""
    with naming_the_next_step(path, reading=True):
        try:
            return os.stat(path, follow_symlinks=follow_symlinks).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
