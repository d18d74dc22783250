"""A copy of a log.dir, also while a broker writes it: it is what a crash at some moment would leave, for the next start
to recover.

  C1  the files of a directory are copied from the newest segment to the oldest: what retention deletes meanwhile is
      missing at the beginning of the log, and what rolls is missing at its end
  C2  a directory whose segments change otherwise meanwhile, as by compaction, is copied again
  C3  a topic that is created or deleted meanwhile is in the copy, or it is not; so are the files beside the partitions
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from klog import arguments
from klog.disk import RealFiles, check_directory, remove_tree
from klog.disk.faults import NOT_REGULAR
from klog.testing.place import new_directory, remove_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

_ATTEMPTS = 10
_FICLONE = 0x40049409
_COPY_BYTES = 1 << 16
_BLOCK_BYTES = 512  # of st_blocks
_LOCK, _SEGMENT = ".lock", ".log"


def new_copy(source: str | os.PathLike[str]) -> str:
    """Make a directory, of klog.testing.place, with the files of a log.dir, of klog or of a Kafka broker, whose topics
    the copy takes over. Raises FileNotFoundError, NotADirectoryError, OSError, and what klog.handover.adopt raises."""
    source = check_directory(arguments.path("copy_of", source))
    path = new_directory(_blocks_of(source))
    try:
        copy_log_dir(source, path)
    except BaseException:
        remove_directory(path)
        raise
    return path


def copy_log_dir(source: str | os.PathLike[str], target: str) -> None:
    """Copy a log.dir, of klog or of a Kafka broker, whose topics the copy takes over. Raises OSError, and what
    klog.handover.adopt raises."""
    from klog.broker.adopted import is_adopted  # imports the broker

    copy_directory(source, target)
    if not is_adopted([target]):
        from klog.handover import adopt

        adopt(target)


def copy_directory(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy all files of a log.dir but its lock. On file systems that can, they share their blocks. Raises OSError."""
    source, target = os.fspath(source), os.fspath(target)
    os.makedirs(target, exist_ok=True)
    copied: dict[str, int] = {}
    for _ in range(_ATTEMPTS):
        entries = _entries(source)
        homes = {entry.name: entry.inode() for entry in entries if entry.is_dir()}
        for name in [name for name, inode in copied.items() if homes.get(name) != inode]:
            remove_tree(os.path.join(target, name), RealFiles())
            del copied[name]
        _copy_files(entries, target)
        for name in homes.keys() - copied.keys():
            _copy_home(os.path.join(source, name), os.path.join(target, name))
        copied = homes
        if {entry.name: entry.inode() for entry in _entries(source) if entry.is_dir()} == homes:
            shutil.copystat(source, target)
            return
    raise _too_fast(source)


def _copy_home(source: str, target: str) -> None:
    """Copy a directory with all in it, or nothing if it is deleted meanwhile (C1, C2)."""
    for _ in range(_ATTEMPTS):
        try:
            entries = _entries(source)
            os.mkdir(target)
            _copy_files(entries, target)
            for entry in entries:
                if entry.is_dir():
                    _copy_home(entry.path, os.path.join(target, entry.name))
            shutil.copystat(source, target)
            if _goes_on(_segments(entries), _segments(_entries(source))):
                return
        except FileNotFoundError:
            if os.path.isdir(source):
                raise
            remove_tree(target, RealFiles())
            return
        remove_tree(target, RealFiles())
    raise _too_fast(source)


def _entries(home: str) -> list[os.DirEntry[str]]:
    """The entries of a directory, the newest segment first."""
    with os.scandir(home) as found:
        return sorted(found, key=lambda entry: entry.name, reverse=True)


def _segments(entries: list[os.DirEntry[str]]) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in entries if entry.name.endswith(_SEGMENT)}


def _goes_on(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """Have segments only been deleted at the beginning of a log, and added at its end?"""
    kept = {name for name, inode in before.items() if after.get(name) == inode}
    if not kept:
        return not before
    gone, new = before.keys() - kept, after.keys() - before.keys()
    return all(name not in after and name < min(kept) for name in gone) and all(name > max(kept) for name in new)


def _copy_files(entries: list[os.DirEntry[str]], target: str) -> None:
    for entry in entries:
        if entry.name != _LOCK and not entry.is_dir():
            with suppress(FileNotFoundError):  # deleted meanwhile
                _copy_file(entry.path, os.path.join(target, entry.name))


def _copy_file(source: str, target: str) -> None:
    """Copy one file with its times: retention goes by them where records have no timestamp."""
    if not stat.S_ISREG(os.stat(source).st_mode):  # a FIFO would block
        raise OSError(errno.EINVAL, NOT_REGULAR, source)
    with open(source, "rb") as reader, open(target, "wb") as writer:
        try:
            fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
        except OSError:  # another file system, or one that cannot share blocks
            while chunk := reader.read(_COPY_BYTES):
                if chunk.count(0) == len(chunk):  # preallocated: a hole in the copy
                    writer.seek(len(chunk), os.SEEK_CUR)
                else:
                    writer.write(chunk)
            writer.truncate()
        found = os.fstat(reader.fileno())
    os.chmod(target, found.st_mode & 0o777)
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def _blocks_of(source: str) -> int:
    """The bytes that the files of a directory take on its disk. Raises OSError."""
    size = 0
    for home, _, names in os.walk(source, onerror=_raise_unless_gone):
        for name in names:
            with suppress(FileNotFoundError):
                size += os.lstat(os.path.join(home, name)).st_blocks * _BLOCK_BYTES
    return size


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _too_fast(path: str) -> OSError:
    return OSError(errno.EBUSY, "it changes faster than it can be copied; stop its broker, or copy a snapshot", path)
