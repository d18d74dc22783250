"""Directories of test brokers: in memory where that is possible, and nothing is left of them.

    klog-test-PID-START-RANDOM     START: when the process began, in kernel ticks; a PID alone is used again

A process that is killed cannot remove its directories. The next test broker does, after an hour: a process of another
container may have a PID that means nothing here.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile

from klog.clock import SystemClock, process_start_time
from klog.disk import RealFiles, remove_tree

_TMPFS = "/dev/shm"
_PREFIX = "klog-test-"
_LEFT_AFTER_MS = 3_600_000
_FICLONE = 0x40049409
_COPY_BYTES = 1 << 16
_BLOCK_BYTES = 512  # of st_blocks


def new_directory(size: int = 0) -> str:
    """Make an empty directory, which only this user can read. size: how many bytes it will get at once: more than half
    of the memory that is free go to a disk."""
    parent = _TMPFS if os.access(_TMPFS, os.W_OK) and size <= _free(_TMPFS) // 2 else tempfile.gettempdir()
    remove_left(parent)
    path = os.path.join(parent, f"{_PREFIX}{os.getpid()}-{process_start_time(os.getpid())}-{secrets.token_hex(4)}")
    os.mkdir(path, 0o700)
    return path


def remove_left(parent: str) -> None:
    """Remove the directories of this user's processes that have ended."""
    for entry in os.scandir(parent):
        if not entry.name.startswith(_PREFIX):
            continue
        pid, _, rest = entry.name.removeprefix(_PREFIX).partition("-")
        start = rest.partition("-")[0]
        try:
            found = entry.stat(follow_symlinks=False)
            is_old = SystemClock().wall_ms() - found.st_mtime_ns // 1_000_000 > _LEFT_AFTER_MS
            if is_old and found.st_uid == os.getuid() and process_start_time(int(pid)) != int(start):
                remove_tree(entry.path, RealFiles())
        except (ValueError, OSError):
            continue  # another name, or removed by another process meanwhile


def new_copy(source: str | os.PathLike[str]) -> str:
    """Make a directory with the files of a log.dir. Raises FileNotFoundError, NotADirectoryError, OSError."""
    size = sum(
        os.lstat(os.path.join(home, name)).st_blocks * _BLOCK_BYTES
        for home, _, names in os.walk(source, onerror=_raise)
        for name in names
    )
    path = new_directory(size)
    try:
        copy_directory(source, path)
    except BaseException:
        remove_tree(path, RealFiles())
        raise
    return path


def _raise(error: OSError) -> None:
    raise error


def _free(path: str) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def copy_directory(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy all files of a log.dir but its lock. On file systems that can, they share their blocks."""
    shutil.copytree(
        source, target, ignore=shutil.ignore_patterns(".lock"), copy_function=_copy_file, dirs_exist_ok=True
    )


def _copy_file(source: str, target: str) -> str:
    """Copy one file with its times: retention goes by them where records have no timestamp."""
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
    shutil.copystat(source, target)
    return target
