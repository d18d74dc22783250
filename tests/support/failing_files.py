"""A disk that fails on purpose: at the Nth operation, once or from then on, or at every operation below a path.

Operations are those of Files: open for writing, create, write, fsync, fdatasync, truncate, replace, rename, link,
unlink, fsync_dir. faulty_io makes single system calls fail.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from klog.disk import LogFile, RealFiles, os_error

if TYPE_CHECKING:
    from typing_extensions import Buffer


class FailingFile(LogFile):
    disk: FailingFiles

    def write(self, data: bytes, position: int) -> None:
        try:
            self.disk.check("write", self.path)
        except OSError:
            if self.disk.torn:
                super().write(memoryview(data)[: len(memoryview(data)) // 2], position)
            raise
        super().write(data, position)

    def write_parts(self, parts: Iterable[Buffer], position: int) -> int:
        self.disk.check("write", self.path)
        return super().write_parts(parts, position)

    def write_behind(self, position: int, size: int, wait: bool = False) -> None:
        self.disk.check("fsync", self.path)

    def preallocate(self, position: int, size: int, zeros: bool = False) -> None:
        if zeros:
            self.disk.check("write", self.path)
        super().preallocate(position, size, zeros)


class FailingFiles(RealFiles):
    """nth: the number of the operation that fails; 0 for none. under: every operation below these paths fails.

    torn: half of a failing write reaches the file. Nothing is counted or fails until the object is armed.
    only: the kinds of operations that may fail; by default all.
    failed: the kinds of the failed operations; places: their paths.
    """

    def __init__(
        self, nth: int = 0, error: int = errno.EIO, *, forever: bool = False, torn: bool = False, armed: bool = True
    ) -> None:
        super().__init__()
        self.nth, self.error, self.forever, self.torn, self.armed = nth, error, forever, torn, armed
        self.under: list[str] = []
        self.only: tuple[str, ...] = ()
        self.calls = 0
        self.failed: list[str] = []
        self.places: list[str] = []

    def check(self, what: str, path: str) -> None:
        if self.only and what not in self.only:
            return
        self.calls += self.armed
        mine = any(path == place or path.startswith(place + "/") for place in self.under)
        nth = self.armed and self.nth and (self.calls == self.nth or (self.forever and self.calls > self.nth))
        if mine or nth:
            self.failed.append(what)
            self.places.append(path)
            raise os_error(self.error, path, sync=what.startswith("fsync"))

    def open(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        if write:
            self.check("open", path)
        return self._failing(super().open(path, write=write, create=create), path, write)

    def create(self, path: str) -> LogFile:
        self.check("create", path)
        return self._failing(super().create(path), path, True)

    def _failing(self, plain: LogFile, path: str, write: bool) -> LogFile:
        file = FailingFile(os.dup(plain.fileno()), path, write)
        plain.close()
        file.disk = self
        return file

    def open_direct(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        return self.open(path, write=write, create=create)

    def fsync(self, file: LogFile) -> None:
        self.check("fsync", file.path)
        super().fsync(file)

    def fdatasync(self, file: LogFile) -> None:
        self.check("fsync", file.path)
        super().fdatasync(file)

    def truncate(self, file: LogFile, size: int) -> None:
        self.check("truncate", file.path)
        super().truncate(file, size)

    def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
        self.check("replace", path)
        super().replace(path, data, private=private)

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        super().rename(source, target)

    def exchange(self, path: str, other: str) -> None:
        self.check("exchange", path)
        super().exchange(path, other)

    def link(self, source: str, target: str) -> None:
        self.check("link", target)
        super().link(source, target)

    def unlink(self, path: str) -> None:
        self.check("unlink", path)
        super().unlink(path)

    def fsync_dir(self, path: str) -> None:
        self.check("fsync_dir", path)
        super().fsync_dir(path)


class CountingFiles(FailingFiles):
    """Counts how often each file was replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.replaced: dict[str, int] = {}

    def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
        self.replaced[os.path.basename(path)] = self.replaced.get(os.path.basename(path), 0) + 1
        super().replace(path, data, private=private)
