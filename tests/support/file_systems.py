"""A real file system on a loop device. A test can cut its power: then writes that were not synced never reach the
device.

It is mounted only in a mount namespace of its own (`alone`). The kernel unmounts it and detaches the loop device when
the last process there ends, however it ends; each such process ends with its parent (`end_with_parent`).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN
LOSE_JOURNAL, KEEP_JOURNAL = 2, 1  # whether the journal in memory is written before the device is cut off
_PR_SET_PDEATHSIG = 1
_SYNC_FILE_RANGE_ALL = 7
_libc = ctypes.CDLL(None, use_errno=True)


class Kind(NamedTuple):
    """A kind of file system: the commands that make it, mount it and, if it has no journal, check it after a power
    cut."""

    make: tuple[str, ...]
    megabytes: int
    options: str = ""
    check: tuple[str, ...] = ()


_EXT4 = ("mkfs.ext4", "-q", "-F", "-J", "size=4")
KINDS = {
    "ext4": Kind(_EXT4, 48, "data=ordered"),
    "ext4-writeback": Kind(_EXT4, 48, "data=writeback"),
    "ext4-commit-1": Kind(_EXT4, 48, "nobarrier,commit=1"),
    "ext4-no-journal": Kind(("mkfs.ext4", "-q", "-F", "-O", "^has_journal"), 48, "", ("e2fsck", "-fy")),
    "xfs": Kind(("mkfs.xfs", "-q", "-f"), 320),
}


def alone(kind: str, *module: str) -> list[str]:
    """The command for `python -m MODULE` in a mount namespace of its own. Skips the test where it cannot mount."""
    for program in (KINDS[kind].make[0], "unshare", "losetup"):
        if not shutil.which(program):
            pytest.skip(f"needs: {program}")
    if subprocess.run(["unshare", "-m", "losetup", "-f"], capture_output=True).returncode:
        pytest.skip("needs: root, loop devices")
    return ["unshare", "-m", "--propagation", "private", sys.executable, "-m", *module]


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when `parent`, which started it, ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has ended already
        os._exit(1)


def run(*command: str) -> None:
    """Run a command; its output is in the error that it raises."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def copy_image(image: Path, to: Path) -> None:
    """Copy an image, with holes for its zeros."""
    run("cp", "--sparse=always", str(image), str(to))


class Unmountable(OSError):
    """The kernel refuses to mount a file system."""


class FileSystem:
    """One file system in the image file `image`, mounted at `place` between mount() and unmount().

    One thread. Only for a process in a mount namespace of its own.
    """

    def __init__(self, kind: str, image: Path, place: Path) -> None:
        self.kind, self.image, self.place = KINDS[kind], image, place
        place.mkdir(parents=True, exist_ok=True)
        self._directory: int | None = None

    def make(self) -> None:
        with open(self.image, "wb") as file:
            file.truncate(self.kind.megabytes << 20)
        run(*self.kind.make, str(self.image))

    def mount(self) -> None:
        options = ",".join(filter(None, ("loop", self.kind.options)))
        try:
            run("mount", "-o", options, str(self.image), str(self.place))
        except OSError as error:
            raise Unmountable(str(error)) from None
        self._directory = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)

    def unmount(self) -> None:
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None
            run("umount", str(self.place))

    @contextmanager
    def mounted(self) -> Iterator[None]:
        self.mount()
        try:
            yield
        except BaseException:
            with suppress(OSError):  # not mounted any more
                run("umount", "-l", str(self.place))  # lazily: a failed check may hold files open
            raise
        self.unmount()

    def cut(self, how: int) -> None:
        """Cut the power: from now on every operation fails with EIO, and nothing more reaches the device."""
        assert self._directory is not None
        fcntl.ioctl(self._directory, _SHUTDOWN, struct.pack("I", how))

    def restart(self) -> None:
        """Unmount and mount again, as a start of the machine does."""
        self.unmount()
        if self.kind.check:  # exit code 1: problems were corrected
            done = subprocess.run([*self.kind.check, str(self.image)], capture_output=True, text=True)
            assert done.returncode <= 1, done.stdout + done.stderr
        self.mount()

    def sync(self) -> None:
        assert self._directory is not None
        if _libc.syncfs(self._directory):
            raise OSError(ctypes.get_errno(), "syncfs")

    def write_back(self, rng: random.Random) -> None:
        """Write some pages of some files, and commit the journal, as the kernel may do at any time."""
        for directory, _, names in os.walk(self.place):  # which passes over what the writer removes meanwhile
            for name in sorted(names):
                if rng.random() < 0.3:
                    _write_some_pages(Path(directory, name), rng)
        if rng.random() < 0.3:
            with open(self.place / ".another-file", "wb") as file:
                file.write(b"x")
                file.flush()
                os.fsync(file.fileno())


def _write_some_pages(path: Path, rng: random.Random) -> None:
    with suppress(FileNotFoundError):  # the writer may rename or remove it
        fd = os.open(path, os.O_RDONLY)
        try:
            pages = max(os.fstat(fd).st_size // 4096, 1)
            first = rng.randrange(pages)
            of = ctypes.c_int64(first * 4096), ctypes.c_int64(rng.randint(1, pages) * 4096)
            _libc.sync_file_range(fd, *of, _SYNC_FILE_RANGE_ALL)
        finally:
            os.close(fd)
