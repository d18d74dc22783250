"""OpenState: whether a LogManager is open, for writing or reading, in which process; and the lock of its calls."""

from __future__ import annotations

import os
import threading

from klog.errors import ForkedHandle, LogClosed, ReadOnly
from klog.locks import CallLock


class OpenState:
    """The state of one manager: closed until opened() is called. Any thread. lock: the manager's lock.

    What writes in a log.dir without this lock, a load and a move, is waited for by wait() and ends with notify(), which
    may be left out where no thread is `waiting`.
    """

    def __init__(self, path: str, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self._make_lock()
        self.closed = True
        self._forked = False
        self._pid = os.getpid()

    def _make_lock(self) -> None:
        self.lock = CallLock()
        self._condition = threading.Condition(self.lock)  # type: ignore[arg-type]
        self.waiting = 0

    @property
    def of_this_process(self) -> bool:
        """False in a forked child."""
        return os.getpid() == self._pid

    def opened(self) -> None:
        """Let calls begin."""
        self.closed = False

    def end(self) -> None:
        """Let no call begin from here on."""
        self.closed = True

    def after_fork(self) -> None:
        """Reset in a forked child, where the thread that held the lock does not exist."""
        self._make_lock()
        self._forked = not self.read_only

    def wait(self) -> None:
        """Wait until a load or a move has ended. With the lock held, which is released meanwhile."""
        self.waiting += 1
        try:
            self._condition.wait()
        finally:
            self.waiting -= 1

    def notify(self) -> None:
        """A load or a move has ended. With the lock held."""
        self._condition.notify_all()

    def begins(self, what: str) -> None:
        """Begin a call that changes something, with the lock held. Raises ReentrantCall inside another one,
        LogClosed."""
        self.lock.begins(self, what)
        self.check_open()

    def check_open(self) -> None:
        """Raise LogClosed, ForkedHandle."""
        if self.closed:
            raise LogClosed(f"{self.path} is closed: open it again")
        if self._forked:
            self._raise_forked()

    def check_writable(self) -> None:
        """Raise LogClosed, ForkedHandle, ReadOnly."""
        self.check_open()
        if self.read_only:
            raise ReadOnly(f"{self.path} was opened with read_only=True: open it for writing")
        if not self.of_this_process:
            self._raise_forked()

    def _raise_forked(self) -> None:
        raise ForkedHandle(f"{self.path} belongs to process {self._pid}: open it again in this one")
