"""Leases: numbers that the processes of one machine divide among themselves, by locks on a file. No server, no
heartbeat.

    file := record*        512 bytes for each holder: `pid=PID name=NAME`, then spaces and a newline

    byte N below 2^31      locked: number N is leased; the lock needs no such byte in the file
    byte 2^32 + SLOT       locked: the holder of the record at SLOT * 512 is alive

  E1  one holder for each number
  E2  the kernel releases a holder's locks when its process ends. A suspended process keeps them
  E3  a holder enters, and the only holder removes the file, under the directory_lock: so all holders lock the same
      file
  E4  a holder whose file a user has removed locks the new one at its next call, or has lost its leases if another
      holder has taken one of them meanwhile

The locks are open-file-description locks, as those of lock.py. A forked child closes its copies and holds nothing.
Each change writes to the file or closes it, so a Waiter of the directory notices it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import weakref
from collections.abc import Iterator

from klog.disk._io import LogFile
from klog.disk.faults import naming_the_next_step
from klog.disk.lock import directory_lock, locked_range, set_lock
from klog.disk.presence import has_its_name
from klog.errors import AlreadyLocked, ForkedHandle, LogClosed
from klog.values import NamedTuple

NUMBERS = 2**31
_SLOTS_FIRST, _SLOTS_END = 2**32, 2**32 + 2**20
_RECORD_BYTES = 512
_held: weakref.WeakSet[Leases] = weakref.WeakSet()


class Holder(NamedTuple):
    """One holder. pid: 0 if it is not known."""

    name: str
    pid: int


class Leases:
    """One holder's leases, from construction to close(). One thread at a time; close() from any thread."""

    _file: LogFile  # it closes its descriptor once, also where a signal handler raises

    def __init__(self, directory: str, file_name: str, name: str) -> None:
        self.path = os.path.join(directory, file_name)
        self._directory = directory
        self._name = name
        self._pid = os.getpid()
        self._taken: dict[int, int] = {}  # {first number: count}
        self._lost: int | None = None  # a number that another holder has taken (E4)
        with directory_lock(directory):
            self._enter()
        self._note()

    def _enter(self) -> None:
        """Open the file and lock its first free slot."""
        with naming_the_next_step(self.path):
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
            self._file = LogFile(fd, self.path, True)
        try:
            others = {slot for slot, _ in self._others()}
            self._slot = next(slot for slot in range(len(others) + 1) if slot not in others)
            if not self._lock(fcntl.F_WRLCK, _SLOTS_FIRST + self._slot, 1):
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), self.path)
            _held.add(self)
        except BaseException:
            self._file.close()
            raise

    def _enter_again(self) -> None:
        """Lock the file that has the name now (E4)."""
        with directory_lock(self._directory):
            self._file.close()
            self._enter()
            lost = [first for first, count in self._taken.items() if not self._lock(fcntl.F_WRLCK, first, count)]
        if lost:
            self._lost = lost[0]
            self.close()
        else:
            self._note()

    def _has_its_name(self) -> bool:
        try:
            return has_its_name(self._file)
        except OSError:  # a disk that fails: the next commit raises
            return True

    def _lock(self, kind: int, first: int, count: int) -> bool:
        """Lock or unlock bytes; False if another holder has locked one of them."""
        try:
            set_lock(self._file, kind, first, count)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            return False
        return True

    def _note(self) -> None:
        """Write the record. It only names the holder, so a full disk must not prevent leases."""
        text = f"pid={self._pid} name={self._name}".encode()
        with contextlib.suppress(OSError):
            os.pwrite(self._file.fd, text.ljust(_RECORD_BYTES - 1) + b"\n", self._slot * _RECORD_BYTES)

    def _others(self) -> Iterator[tuple[int, Holder]]:
        """Yield the slots of the other living holders, in any order."""
        ranges = [(_SLOTS_FIRST, _SLOTS_END)]
        while ranges:
            first, end = ranges.pop()
            if first >= end:
                continue
            held = locked_range(self._file, first, end - first)
            if held is None:
                continue
            found, count = held
            ranges += [(first, found), (found + count, end)]  # the kernel reports any one of them
            for byte in range(max(found, first), min(found + count, end)):
                yield byte - _SLOTS_FIRST, self._holder(byte - _SLOTS_FIRST)

    def _holder(self, slot: int) -> Holder:
        try:
            text = os.pread(self._file.fd, _RECORD_BYTES, slot * _RECORD_BYTES).decode()
            words = dict(word.split("=", 1) for word in text.split())
            return Holder(words["name"], int(words["pid"]))
        except (OSError, ValueError, KeyError):  # also text that is not UTF-8
            return Holder("unknown", 0)

    @property
    def me(self) -> Holder:
        """This holder."""
        return Holder(self._name, self._pid)

    def check(self) -> None:
        """Raise LogClosed after close(), ForkedHandle in a forked child, AlreadyLocked if leases are lost (E4)."""
        if self._pid != os.getpid():
            raise ForkedHandle(f"{self.path}: held by process {self._pid}, the parent; make a reader in this process")
        if self._file.fd >= 0 and not self._has_its_name():
            with contextlib.suppress(FileNotFoundError):  # without the directory the next commit raises
                self._enter_again()
        if self._lost is not None:
            raise AlreadyLocked(
                f"{self.path}: was removed while this reader used it, and another one has {self._lost} now: do not "
                "remove it while readers are open; make a new reader, which goes on at the last commit",
                path=self.path,
            )
        if self._file.fd < 0:
            raise LogClosed(f"{self.path}: this reader was closed; make a new one")

    def take(self, first: int, count: int = 1) -> bool:
        """Lease the numbers [first, first + count). Returns False, and leases none, if another holder has one of them.
        Raises LogClosed, ForkedHandle, AlreadyLocked (E4), as the other methods do."""
        self.check()
        if not self._lock(fcntl.F_WRLCK, first, count):
            return False
        self._taken[first] = count
        return True

    def give_up(self, first: int) -> None:
        """Release a number that was leased alone."""
        self.check()
        self._taken.pop(first, None)
        self._lock(fcntl.F_UNLCK, first, 1)
        self._note()

    def holders(self) -> list[Holder]:
        """Return all living holders, in the order of their slots."""
        self.check()
        found = dict(self._others())
        found[self._slot] = self.me
        return [found[slot] for slot in sorted(found)]

    def rank(self) -> tuple[int, int]:
        """Return how many living holders have a lower slot, and how many there are."""
        self.check()
        others = [slot for slot, _ in self._others()]
        return sum(slot < self._slot for slot in others), len(others) + 1

    def remove(self) -> None:
        """Remove the file if there is no other holder."""
        self.check()
        with directory_lock(self._directory):
            if next(self._others(), None) is None and self._has_its_name():
                os.unlink(self.path)

    def close(self) -> None:
        """Release all numbers; closing twice is allowed."""
        if self._file.fd < 0:
            return
        _held.discard(self)
        with contextlib.suppress(OSError):  # a child that has not yet closed its copy would keep the locks
            self._lock(fcntl.F_UNLCK, 0, 0)
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self.close()

    def abandon(self) -> None:
        """Close without unlocking, so that the parent keeps its leases: for a forked child."""
        self._file.close()


def _after_fork_in_child() -> None:
    for leases in list(_held):
        leases.abandon()
    _held.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
