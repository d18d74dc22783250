"""The lock of a log.dir: an open-file-description lock of the whole `.lock` file, which conflicts with a JVM's
FileChannel lock.

Nothing protects a `.lock` that a user removes as a leftover while its holder lives, perhaps suspended. So klog also
locks the directory itself. The kernel locks it for reading only: each holder locks a byte, and asks who else has one.

A POSIX lock would be lost when any descriptor of the file closes; flock(2) is invisible to Kafka. The holder writes its
process id and start time into the file, because the kernel does not report the holder of such a lock. A forked child
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
from klog.disk._io import LogFile
from klog.disk.faults import naming_the_next_step, os_error
from klog.disk.presence import has_its_name
from klog.errors import AlreadyLocked, ReentrantCall

_GETLK = getattr(fcntl, "F_OFD_GETLK", 36)
_SETLK = getattr(fcntl, "F_OFD_SETLK", 37)
_FLOCK = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length (0: to the end), process
_EXCLUSIVE_BYTE, _SHARED_BYTE = 0, 1  # of the directory
_held: weakref.WeakSet[DirectoryLock] = weakref.WeakSet()


def set_lock(file: LogFile, kind: int, first: int = 0, count: int = 0) -> None:
    """Lock or unlock bytes without waiting. kind: F_RDLCK, F_WRLCK or F_UNLCK. Raises OSError, with EAGAIN or EACCES if
    another holder has locked one of them."""
    fcntl.fcntl(file, _SETLK, _FLOCK.pack(kind, os.SEEK_SET, first, count, 0))


def locked_range(file: LogFile, first: int, count: int) -> tuple[int, int] | None:
    """Return (first, count) of bytes that another holder has locked and that overlap these; None if there are none.
    Raises OSError."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, first, count, 0)
    kind, _, found, held, _ = _FLOCK.unpack(fcntl.fcntl(file, _GETLK, asked))
    return None if kind == fcntl.F_UNLCK else (found, held)


class DirectoryLock:
    """Held from construction to release(). shared: several may hold it together; an exclusive holder excludes all
    others.

    Raises AlreadyLocked if another holder has it, whose `holder` names that process if it is known; OSError.
    """

    _file: LogFile  # it closes its descriptor once, also where a signal handler raises
    _directory: LogFile

    def __init__(self, directory: str, *, shared: bool = False) -> None:
        self.path = os.path.join(directory, ".lock")
        self._pid = os.getpid()
        while not self._take(directory, shared):
            pass
        try:
            self._hold(directory, shared)
        except BaseException:
            self._file.close()
            raise
        if not shared:
            self._write_holder()
        _held.add(self)

    def _take(self, directory: str, shared: bool) -> bool:
        """Lock the file. Returns False if the last holder has unlinked it meanwhile: a lock on it would exclude no
        other process."""
        with naming_the_next_step(self.path):
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
            self._file = LogFile(fd, self.path, True)
        try:
            self._lock(directory, shared)
            locked = has_its_name(self._file)
        except BaseException:
            self._file.close()
            raise
        if not locked:
            self._file.close()
        return locked

    def _lock(self, directory: str, shared: bool) -> None:
        try:
            set_lock(self._file, fcntl.F_RDLCK if shared else fcntl.F_WRLCK)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            holder = self._holder()
            raise AlreadyLocked(
                f"{directory} is held by {holder or 'another process (a Kafka broker writes no name)'}; "
                f"close it there, or open it here with read_only=True",
                path=directory,
                holder=holder,
            ) from None

    def _hold(self, directory: str, shared: bool) -> None:
        """Lock the directory. Raises AlreadyLocked for a holder whose `.lock` was removed."""
        with naming_the_next_step(directory):
            self._directory = LogFile(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), directory)
            found = os.fstat(self._directory.fd)
        self._place = found.st_dev, found.st_ino  # asked once: each load calls check_place()
        try:
            with contextlib.suppress(OSError):  # a file system without such locks
                set_lock(self._directory, fcntl.F_RDLCK, _SHARED_BYTE if shared else _EXCLUSIVE_BYTE, 1)
            if self._is_held_beside(1 if shared else 2):
                raise AlreadyLocked(
                    f"{directory} is held by a process, perhaps a suspended one, whose {self.path} was removed; close "
                    f"it there, or open it here with read_only=True",
                    path=directory,
                )
        except BaseException:
            self._directory.close()
            raise

    def check_place(self) -> None:
        """Raise OSError if the directory no longer has its path: it was renamed, or a link leads elsewhere. What is
        there now may have another holder."""
        path = self._directory.path
        try:
            found = os.stat(path)
        except OSError as error:
            raise os_error(error.errno or errno.EIO, path) from None
        if self._directory.fd >= 0 and (found.st_dev, found.st_ino) != self._place:  # held, and in no forked child
            raise OSError(
                errno.ESTALE, "another directory is there now; close this one, move it back, then open it again", path
            )

    def _is_held_beside(self, count: int) -> bool:
        """Has another holder locked one of the first `count` bytes of the directory?"""
        try:
            return locked_range(self._directory, 0, count) is not None
        except OSError:
            return False

    def _write_holder(self) -> None:
        text = f"pid={self._pid} start={process_start_time(self._pid)}\n".encode()
        with contextlib.suppress(OSError):  # the name is optional: a full disk must not prevent opening the log
            os.ftruncate(self._file.fd, 0)
            os.pwrite(self._file.fd, text, 0)

    def _holder(self) -> str | None:
        try:
            pid, runs = _named_holder(self._file.fd)
        except (OSError, ValueError, KeyError):
            return self._shared_holder()
        if not runs:
            return None  # left over by a process that has ended
        return f"process {pid}" + (" (this one)" if pid == os.getpid() else "")

    def _shared_holder(self) -> str | None:
        """Return a shared holder of this process, if any: holders that share the lock write no name."""
        here = any(os.path.realpath(lock.path) == os.path.realpath(self.path) for lock in list(_held))
        return f"a Log.open of process {os.getpid()} (this one)" if here else None

    def alone(self) -> bool:
        """Make the lock exclusive if no other holder shares it. Returns whether it is."""
        try:
            set_lock(self._file, fcntl.F_WRLCK)
        except OSError:
            return False
        return not self._is_held_beside(2)

    def release(self) -> None:
        """Unlock, and remove the file if no other process holds it; releasing twice is allowed."""
        if self._file.fd < 0:
            return
        _held.discard(self)
        if os.getpid() == self._pid:
            with contextlib.suppress(OSError):  # a child that has not yet closed its copy would keep the lock
                set_lock(self._directory, fcntl.F_UNLCK)
            with contextlib.suppress(OSError):
                if self.alone() and has_its_name(self._file):  # not after a release that was interrupted after unlink()
                    os.unlink(self.path)
        self._file.close()
        self._directory.close()

    def abandon(self) -> None:
        """Close without unlocking, so that the parent keeps its lock: for a forked child."""
        self._directory.close()
        self._file.close()


def _named_holder(fd: int) -> tuple[int, bool]:
    """Return the process id in the file, and whether that process runs. Raises OSError, ValueError, KeyError."""
    words = dict(word.split("=", 1) for word in os.pread(fd, 200, 0).decode().split())
    pid = int(words["pid"])
    return pid, str(process_start_time(pid)) == words.get("start")


def holder_of(directory: str) -> int | None:
    """Return the id of the klog process that has a log.dir open for writing; None if there is none, or if it is not
    known: a broker writes no name."""
    try:
        fd = os.open(os.path.join(directory, ".lock"), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        pid, runs = _named_holder(fd)
    except (OSError, ValueError, KeyError):
        return None
    finally:
        os.close(fd)
    return pid if runs else None


_locked_by_thread: set[tuple[int, str]] = set()  # (thread, directory): taking one twice would deadlock
_flocked: set[LogFile] = set()  # a forked child closes its copies, else it would keep the flock of a parent that dies


@contextlib.contextmanager
def directory_lock(path: str) -> Iterator[None]:
    """Wait for an flock of a directory. Code that reads, changes and replaces a file there does so under this lock.

    Only klog sees it, and it does not conflict with a DirectoryLock. Raises ReentrantCall in a signal handler that
    interrupts the holder in the same thread.
    """
    check_directory_lock(path, "another replacement")
    me = threading.get_ident(), os.path.realpath(path)
    file = LogFile(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), path)
    _flocked.add(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        _locked_by_thread.add(me)
        yield
    finally:
        _locked_by_thread.discard(me)
        _flocked.discard(file)
        if file.fd >= 0:  # not in a forked child
            fcntl.flock(file, fcntl.LOCK_UN)  # a child that has not yet closed its copy would keep it
        file.close()


def check_directory_lock(path: str, what: str) -> None:
    """Raise ReentrantCall if this thread holds the directory_lock of the directory."""
    if _locked_by_thread and (threading.get_ident(), os.path.realpath(path)) in _locked_by_thread:
        raise ReentrantCall(
            f"{path}: {what} while a file is being replaced there by the same thread: "
            "a signal handler must not do this; set a flag and do it after the handler returns"
        )


def _after_fork_in_child() -> None:
    for lock in list(_held):
        lock.abandon()
    _held.clear()
    for file in _flocked:
        file.close()
    _flocked.clear()
    _locked_by_thread.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
