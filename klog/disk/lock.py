"""The lock of a log.dir: an open-file-description lock over the whole of `.lock`, which a JVM's FileChannel lock obeys.

A POSIX lock would be lost when any descriptor of the file closes, flock(2) is invisible to Kafka. The holder writes its
process id and start time into the file, since the kernel names no holder of such a lock. A forked child
closes its copy.
Kafka: LogManager.lockLogDirs, FileLock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import threading
import weakref
from collections.abc import Iterator

from klog.clock import process_start_time
from klog.disk.faults import naming_the_next_step
from klog.errors import AlreadyLocked, ReentrantCall

_F_OFD_SETLK = getattr(fcntl, "F_OFD_SETLK", 37)
_held: weakref.WeakSet[DirectoryLock] = weakref.WeakSet()


def _flock(kind: int) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0)


class DirectoryLock:
    """Held from construction to release(). shared: several may hold it together, against one exclusive holder.

    Raises AlreadyLocked when somebody else holds it; its `holder` says who where that is known.
    """

    def __init__(self, directory: str, *, shared: bool = False) -> None:
        self.path = os.path.join(directory, ".lock")
        self._pid = os.getpid()
        while not self._take(directory, shared):
            pass
        if not shared:
            self._write_holder()
        _held.add(self)

    def _take(self, directory: str, shared: bool) -> bool:
        """Lock the file; False if its last holder has unlinked it meanwhile: that lock would keep nobody out."""
        with naming_the_next_step(self.path):
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
        try:
            fcntl.fcntl(self._fd, _F_OFD_SETLK, _flock(fcntl.F_RDLCK if shared else fcntl.F_WRLCK))
        except OSError as error:
            holder = self._holder()
            os.close(self._fd)
            self._fd = -1
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise AlreadyLocked(
                f"{directory} is held by {holder or 'another process (a Kafka broker writes no name)'}; "
                f"close it there, or open it here with read_only=True",
                path=directory,
                holder=holder,
            ) from None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self.path, follow_symlinks=False), os.fstat(self._fd)):
                return True
        os.close(self._fd)
        self._fd = -1
        return False

    def _write_holder(self) -> None:
        text = f"pid={self._pid} start={process_start_time(self._pid)}\n".encode()
        with contextlib.suppress(OSError):  # a name is a courtesy: a full disk must not keep the log shut
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, text, 0)

    def _holder(self) -> str | None:
        try:
            words = dict(word.split("=", 1) for word in os.pread(self._fd, 200, 0).decode().split())
            pid = int(words["pid"])
        except (OSError, ValueError, KeyError, UnicodeDecodeError):
            return self._shared_holder()
        if str(process_start_time(pid)) != words.get("start"):
            return None  # left over by a process that is gone
        return f"process {pid}" + (" (this one)" if pid == os.getpid() else "")

    def _shared_holder(self) -> str | None:
        """Holders that share the lock write no name; those of this process are known."""
        here = any(os.path.realpath(lock.path) == os.path.realpath(self.path) for lock in list(_held))
        return f"a Log.open of process {os.getpid()} (this one)" if here else None

    def alone(self) -> bool:
        """Does nobody share this lock? It is exclusive from here on, if so."""
        try:
            fcntl.fcntl(self._fd, _F_OFD_SETLK, _flock(fcntl.F_WRLCK))
        except OSError:
            return False
        return True

    def release(self) -> None:
        """Let go and remove the file if nobody else holds it; a second time is no error."""
        if self._fd < 0:
            return
        _held.discard(self)
        if os.getpid() == self._pid:
            with contextlib.suppress(OSError):
                if self.alone():
                    os.unlink(self.path)
        os.close(self._fd)
        self._fd = -1

    def abandon(self) -> None:
        """Close without unlocking for others' sake: what a forked child does with its parent's lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_turns: set[tuple[int, str]] = set()  # by thread: a second turn of the same one would wait for its own first


@contextlib.contextmanager
def directory_lock(path: str) -> Iterator[None]:
    """An flock of a directory, waited for: whoever reads, changes and replaces a file in it does so one after another.

    It is seen by klog alone, and not in the way of a DirectoryLock, whoever holds that. ReentrantCall in a signal's
    handler that interrupts a turn of the same thread.
    """
    check_directory_lock(path, "another replacement")
    me = threading.get_ident(), os.path.realpath(path)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        _turns.add(me)
        yield
    finally:
        _turns.discard(me)
        os.close(fd)


def check_directory_lock(path: str, what: str) -> None:
    """ReentrantCall where this thread is in the middle of a turn of the directory's."""
    if _turns and (threading.get_ident(), os.path.realpath(path)) in _turns:
        raise ReentrantCall(
            f"{path}: {what} while a file is being replaced there, which is under way in the same thread: "
            "a signal handler can only leave word of what is to be done behind it"
        )


def _after_fork_in_child() -> None:
    for lock in list(_held):
        lock.abandon()
    _held.clear()
    _turns.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
