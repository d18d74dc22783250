"""File operations: every open, sync, rename and unlink of the engine is a method here.

RealFiles is the machine's disk. Tests use other Files that remember unsynced writes or fail on purpose. To replace a
file: write a temporary file, fsync it, rename it, fsync the directory. Never in place.
"""

from __future__ import annotations

import contextlib
import os
from typing import Protocol

from klog.disk._direct import DirectFile
from klog.disk._directory import exchange
from klog.disk._handles import open_fd
from klog.disk._io import LogFile
from klog.disk._os import ffi, lib
from klog.disk._sync import sync_file
from klog.disk._views import begin_cut, end_cut
from klog.disk.faults import naming_the_next_step, os_error

_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Files(Protocol):
    """The file operations that the engine needs. Any thread. table: address of the kl_io_t for calls on open files."""

    table: int

    def open(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        """Open a regular file. Raises OSError for FIFOs, directories and symlinks."""

    def open_direct(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        """Like open(), but large reads and writes bypass the page cache if the file system supports it."""

    def create(self, path: str) -> LogFile:
        """Create a file that other users may read: its mode is 0666 less the umask. Raises FileExistsError."""

    def fsync(self, file: LogFile) -> None:
        """Wait until data and metadata are on disk. An OSError is final: never retried."""

    def fdatasync(self, file: LogFile) -> None:
        """Wait until data, and the size needed to find it, are on disk. An OSError is final."""

    def truncate(self, file: LogFile, size: int) -> None:
        """Set the file's length to `size` bytes. Raises OSError."""

    def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
        """Make the file at path hold data, atomically and durably. private: the file has mode 0600 from the start, for
        read_private(). Raises OSError."""

    def fsync_dir(self, path: str) -> None:
        """Wait until the names in the directory are on disk. An OSError is final."""

    def rename(self, source: str, target: str) -> None:
        """rename(2); durable only after fsync_dir."""

    def exchange(self, path: str, other: str) -> None:
        """Exchange two names in one step; durable only after fsync_dir. Raises OSError, with EINVAL or ENOSYS where the
        file system cannot do that."""

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; durable only after fsync_dir. Raises FileExistsError, and OSError where the file
        system has no hard links."""

    def unlink(self, path: str) -> None:
        """Remove a file; one that does not exist is not an error."""

    def mkdir(self, path: str, mode: int = 0o750) -> None:
        """Make a directory; durable only after fsync_dir of its parent. Raises FileExistsError."""

    def rmdir(self, path: str) -> None:
        """Remove an empty directory; durable only after fsync_dir of its parent."""


class RealFiles:
    """The machine's disk. table: address of the kl_io_t for its calls, 0 for the kernel's own."""

    def __init__(self, table: int = 0) -> None:
        self.table = table
        self._io = ffi.cast("const kl_io_t *", table) if table else lib.kl_io_kernel()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        return LogFile.open(path, write, create, self.table)

    def open_direct(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        while True:
            fd = open_fd(path, (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0))
            direct = -1
            with contextlib.suppress(OSError):  # EINVAL: not supported by this file system
                direct = os.open(path, _OPEN | os.O_DIRECT | (os.O_RDWR if write else os.O_RDONLY))
            file = DirectFile(fd, path, write, self.table, direct=direct)
            if direct < 0 or os.path.sameopenfile(fd, direct):
                return file
            file.close()  # another file got the name in between

    def create(self, path: str) -> LogFile:
        with naming_the_next_step(path):
            fd = os.open(path, _OPEN | os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        return LogFile(fd, path, True, self.table)

    def fsync(self, file: LogFile) -> None:
        sync_file(file.fileno(), file.path, False, self.table)

    def fdatasync(self, file: LogFile) -> None:
        sync_file(file.fileno(), file.path, True, self.table)

    def truncate(self, file: LogFile, size: int) -> None:
        cut = begin_cut(file.fileno(), size)
        try:
            status = lib.kl_ftruncate(self._io, file.fileno(), size)
            if status < 0:
                raise os_error(-status, file.path)
        finally:
            end_cut(cut)

    def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
        temporary = path + ".tmp"
        with naming_the_next_step(temporary):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            fd = os.open(temporary, _OPEN | os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o640)
        file = LogFile(fd, temporary, True, self.table)
        try:
            file.write(data, 0)
            self.fsync(file)
            with naming_the_next_step(path):
                os.rename(temporary, path)
        except BaseException:  # also after Ctrl-C: verify calls the leftover a problem
            with contextlib.suppress(OSError):  # a full disk may refuse it
                os.unlink(temporary)
            raise
        finally:
            file.close()
        self.fsync_dir(os.path.dirname(path))

    def fsync_dir(self, path: str) -> None:
        with naming_the_next_step(path, reading=True):
            fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync_file(fd, path, False, self.table)
        finally:
            os.close(fd)

    def rename(self, source: str, target: str) -> None:
        with naming_the_next_step(source):
            os.rename(source, target)

    def exchange(self, path: str, other: str) -> None:
        exchange(path, other)

    def link(self, source: str, target: str) -> None:
        with naming_the_next_step(target):
            os.link(source, target)

    def unlink(self, path: str) -> None:
        with naming_the_next_step(path), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def mkdir(self, path: str, mode: int = 0o750) -> None:
        with naming_the_next_step(path):
            os.mkdir(path, mode)

    def rmdir(self, path: str) -> None:
        with naming_the_next_step(path):
            os.rmdir(path)
