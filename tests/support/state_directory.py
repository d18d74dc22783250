"""One directory in which crash states are laid out one after the other: cheaper than a new tree for each."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.support.crash_states import State


class StateDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._root = str(path)

    def lay_out(self, state: State) -> Path:
        """Replace whatever is here by a state."""
        for directory in state.directories:
            self._sweep(directory, state)
        for path, data in state.files.items():
            fd = self._open(f"{self._root}/{path}")
            if data:
                os.write(fd, data)
            os.ftruncate(fd, len(data))
            os.close(fd)
        return self.path

    def _sweep(self, directory: str, state: State) -> None:
        """Create a directory, or remove from it what the state does not have."""
        at, prefix = (self._root, "") if directory == "." else (f"{self._root}/{directory}", directory + "/")
        try:
            names = os.listdir(at)
        except FileNotFoundError:
            os.makedirs(at)
            return
        for name in names:
            if prefix + name not in state.files and prefix + name not in state.directories:
                _remove(f"{at}/{name}")

    @staticmethod
    def _open(path: str) -> int:
        try:
            return os.open(path, os.O_WRONLY | os.O_CREAT, 0o640)
        except FileNotFoundError:  # its directory is removed, which is not on disk
            os.makedirs(os.path.dirname(path))
            return os.open(path, os.O_WRONLY | os.O_CREAT, 0o640)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except IsADirectoryError:
        shutil.rmtree(path)
