"""Directories of test brokers: in memory where that is possible, and always removed.

    klog-test-RANDOM/log     klog-test-RANDOM is locked (flock) by the process that has made it, as long as it lives

A process removes those of its brokers that it has not closed when it exits. One that is killed cannot. The next one
that makes a directory does: it can lock them.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import os
import stat

from klog import arguments
from klog.disk import RealFiles, check_directory, remove_tree
from klog.disk.faults import NOT_REGULAR

_TMPFS = "/dev/shm"
_PREFIX = "klog-test-"
_LOG = "log"
_FICLONE = 0x40049409
_COPY_BYTES = 1 << 16
_BLOCK_BYTES = 512  # of st_blocks
_locks: dict[str, int] = {}  # by path: the descriptor that holds the lock


def new_directory(size: int = 0) -> str:
    """Make an empty directory, which only this user can read; remove_directory() removes it. size: how many bytes it
    will get at once: more than half of the memory that is free go to a disk."""
    parent = _parent(size)
    remove_left(parent)
    while True:
        home = os.path.join(parent, f"{_PREFIX}{os.urandom(8).hex()}")
        os.mkdir(home, 0o700)
        lock = _locked(home)
        if lock is not None:
            break  # else another process was faster, and has removed it
    path = os.path.join(home, _LOG)
    os.mkdir(path, 0o700)
    _locks[path] = lock
    return path


@atexit.register
def _remove_all() -> None:
    for path in list(_locks):
        with contextlib.suppress(OSError):  # a broker that is not closed still writes
            remove_directory(path)


os.register_at_fork(after_in_child=_locks.clear)  # the directories are those of the parent


def _parent(size: int) -> str:
    if os.access(_TMPFS, os.W_OK) and size <= _free(_TMPFS) // 2:
        return _TMPFS
    import tempfile  # these two take a millisecond each

    return tempfile.gettempdir()


def remove_directory(path: str) -> None:
    """Remove a directory that this process has made. A second call does nothing."""
    lock = _locks.pop(path, None)
    if lock is not None:
        try:
            remove_tree(os.path.dirname(path), RealFiles())
        finally:
            os.close(lock)


def remove_left(parent: str) -> None:
    """Remove the directories of this user's processes that have ended."""
    for entry in os.scandir(parent):
        if not entry.name.startswith(_PREFIX):
            continue
        lock = _locked(entry.path)
        if lock is not None:
            try:
                if os.fstat(lock).st_uid == os.getuid():
                    remove_tree(entry.path, RealFiles())
            finally:
                os.close(lock)


def _locked(home: str) -> int | None:
    """Lock a directory. None if another process has it, or if it is gone."""
    try:
        lock = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.stat(home).st_ino == os.fstat(lock).st_ino:
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def new_copy(source: str | os.PathLike[str]) -> str:
    """Make a directory with the files of a log.dir, of klog or of a stopped Kafka broker, whose topics the copy takes
    over. Raises FileNotFoundError, NotADirectoryError, OSError, and what klog.handover.adopt raises."""
    source = check_directory(arguments.path("copy_of", source))
    size = sum(
        os.lstat(os.path.join(home, name)).st_blocks * _BLOCK_BYTES
        for home, _, names in os.walk(source, onerror=_raise)
        for name in names
    )
    path = new_directory(size)
    try:
        copy_log_dir(source, path)
    except BaseException:
        remove_directory(path)
        raise
    return path


def _raise(error: OSError) -> None:
    raise error


def _free(path: str) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def copy_log_dir(source: str | os.PathLike[str], target: str) -> None:
    """Copy a log.dir, of klog or of a stopped Kafka broker, whose topics the copy takes over. Raises OSError, and what
    klog.handover.adopt raises."""
    from klog.broker.adopted import is_adopted  # imports the broker

    copy_directory(source, target)
    if not is_adopted([target]):
        from klog.handover import adopt

        adopt(target)


def copy_directory(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy all files of a log.dir but its lock. On file systems that can, they share their blocks."""
    import shutil

    shutil.copytree(
        source, target, ignore=shutil.ignore_patterns(".lock"), copy_function=_copy_file, dirs_exist_ok=True
    )


def _copy_file(source: str, target: str) -> str:
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
    found = os.stat(source)
    os.chmod(target, found.st_mode & 0o777)
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
    return target
