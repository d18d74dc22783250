"""One directory that gets the files of one crash state after the other: cheaper than a new tree for each.

Every file of a state is compared with the existing file, and the bytes that differ are written. The descriptor of the
file stays open: as long as the name has the same inode, the comparison is one pread(2).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from tests.support.crash_states import State

_OPEN_MAX = 300
_UNKNOWN = -1, -1


class StateDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._root = str(path)
        self._open: dict[str, tuple[int, int]] = {}  # descriptor and inode number, by path in the state

    def __del__(self) -> None:
        self._close_all()

    def _close_all(self) -> None:
        for fd, _ in self._open.values():
            os.close(fd)
        self._open.clear()

    def lay_out(self, state: State) -> Path:
        """Replace the content of the directory by a state."""
        if len(self._open) > _OPEN_MAX:
            self._close_all()
        there: dict[str, int] = {}
        for directory in state.directories:
            self._sweep(directory, state, there)
        if len(set(there.values())) < len(there):
            self._part(state, there)
        known, links, inode_of = self._open.get, state.links, there.get
        for path, data in state.files.items():
            if path in links:
                self._link(links[path], path)
                continue
            inode = inode_of(path)
            if inode is None:
                assert os.pwrite(self._opened(path, os.O_TRUNC), data, 0) == len(data)
                continue
            fd, opened = known(path, _UNKNOWN)
            if opened != inode:
                fd = self._opened(path)
            if (found := os.pread(fd, len(data) + 1, 0)) != data:
                assert os.pwrite(fd, data, 0) == len(data)
                if len(found) > len(data):
                    os.ftruncate(fd, len(data))
        return self.path

    def _sweep(self, directory: str, state: State, there: dict[str, int]) -> None:
        """Create a directory, or remove the entries that the state does not have. Adds the inode numbers of the
        remaining entries to `there`."""
        at, prefix = (self._root, "") if directory == "." else (f"{self._root}/{directory}", directory + "/")
        try:
            with os.scandir(at) as entries:
                found = [(prefix + entry.name, entry.inode()) for entry in entries]
        except FileNotFoundError:
            os.makedirs(at)
            return
        for path, inode in found:
            if path in state.files:
                there[path] = inode
            elif path not in state.directories:
                _remove(f"{self._root}/{path}")

    def _part(self, state: State, there: dict[str, int]) -> None:
        """Remove the names of files that have other ones, too, unless the state has the same names for them."""
        files: dict[int, set[str]] = {}
        for path, inode in there.items():
            files.setdefault(inode, set()).add(state.links.get(path, path))
        for path, inode in [*there.items()]:
            if len(files[inode]) > 1:
                os.unlink(f"{self._root}/{path}")
                del there[path]

    def _opened(self, path: str, how: int = 0) -> int:
        if path in self._open:
            os.close(self._open.pop(path)[0])
        try:
            fd = os.open(f"{self._root}/{path}", os.O_RDWR | os.O_CREAT | how, 0o640)
        except FileNotFoundError:  # its directory is removed, which is not on disk
            os.makedirs(os.path.dirname(f"{self._root}/{path}"))
            fd = os.open(f"{self._root}/{path}", os.O_RDWR | os.O_CREAT | how, 0o640)
        self._open[path] = fd, os.fstat(fd).st_ino
        return fd

    def _link(self, source: str, path: str) -> None:
        here, target = f"{self._root}/{source}", f"{self._root}/{path}"
        with contextlib.suppress(FileNotFoundError):
            if os.stat(target).st_ino == os.stat(here).st_ino:
                return
            os.unlink(target)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.link(here, target)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except IsADirectoryError:
        shutil.rmtree(path)
