"""Directories of test brokers: in memory where that is possible, and always removed.

    klog-test-RANDOM/log     klog-test-RANDOM is locked (flock) by the process that has made it, as long as it lives

A process removes those of its brokers that it has not closed when it exits. One that is killed cannot. The next one
that makes a directory does: it can lock them.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os

from klog.disk import RealFiles, remove_tree

_TMPFS = "/dev/shm"
_PREFIX = "klog-test-"
_LOG = "log"
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


def _free(path: str) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
