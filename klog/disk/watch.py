"""Waits for changes: in a directory (inotify), or reported by another thread of this process.

Code that makes changes calls a Notifier. A Waiter has a descriptor that becomes readable then, so it need not poll. If
the kernel gives no descriptor or sees no changes (a network file system), the wait ends after RECHECK_SECONDS anyway:
the waiting thread checks again, so it notices changes late but does not miss them.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterable
from typing import Self

from klog.disk._notified import NotifierFields
from klog.disk._os import ffi, lib
from klog.disk.ready import wait_ready
from klog.locks import CallLock

RECHECK_SECONDS = 1.0
_IN_MODIFY, _IN_CLOSE_WRITE, _IN_MOVED, _IN_CREATE, _IN_DELETE, _IN_SELF = 0x2, 0x8, 0xC0, 0x100, 0x200, 0xC00
# The files of a process are closed when it ends: _IN_CLOSE_WRITE.
_CHANGES = _IN_MODIFY | _IN_CLOSE_WRITE | _IN_MOVED | _IN_CREATE | _IN_DELETE | _IN_SELF
_NAMES = _IN_MOVED | _IN_DELETE
_DRAIN_BYTES = 65536


class Notifier(NotifierFields):
    """Notifies waiters of changes. Any thread. Without waiters notify() costs nothing."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = CallLock()
        self._fds = ()

    def notify(self) -> None:
        """Notify all waiters."""
        if self._fds:
            with self._lock:  # a descriptor must not be closed and reused while it is written to
                for fd in self._fds:
                    if fd in self._fds:  # a signal handler, or the end of an object, may close a waiter meanwhile
                        try:
                            os.eventfd_write(fd, 1)
                        except BlockingIOError:  # notified so often that the counter is full
                            pass

    def listen(self, fd: int) -> None:
        """Notify this eventfd from now on."""
        with self._lock:
            self._fds = (*self._fds, fd)

    def leave(self, fd: int) -> None:
        """Stop notifying this eventfd."""
        with self._lock:
            self._fds = tuple(other for other in self._fds if other != fd)

    def renew(self) -> None:
        """Reset it in a forked child, which has no waiters yet and no thread that holds the lock."""
        self._lock = CallLock()
        self._fds = ()


class Waiter:
    """Waits for notifiers and for changes in directories. One thread; close() it, or use `with`.

    A change after its construction and before wait() ends that wait at once: construct it, check the state, then
    wait.
    directories: watched for appends, rolls and deletions. named: watched only for replaced or removed files.
    """

    def __init__(self, notifiers: Iterable[Notifier], directories: Iterable[str], named: Iterable[str] = ()) -> None:
        self._notifiers = tuple(notifiers)
        self._directories = {**dict.fromkeys(named, _NAMES), **dict.fromkeys(directories, _CHANGES)}
        self._fds: list[int] = []
        self._pid = -1
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        with contextlib.suppress(OSError):  # too many open files: the wait ends after RECHECK_SECONDS
            if self._notifiers:
                fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                self._fds.append(fd)
                for notifier in self._notifiers:
                    notifier.listen(fd)
            if self._directories:
                fd = lib.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
                if fd >= 0:
                    self._fds.append(fd)
                    for path, mask in self._directories.items():
                        lib.inotify_add_watch(fd, ffi.from_buffer(os.fsencode(path) + b"\0"), mask)

    def _is_new_here(self) -> bool:
        """In a forked child, open its own descriptors: reading the parent's would take its events."""
        if os.getpid() == self._pid:
            return False
        for fd in self._fds:
            os.close(fd)
        self._fds = []
        self._open()
        return True

    def _drain(self) -> None:
        for fd in self._fds:
            with contextlib.suppress(BlockingIOError):
                os.read(fd, _DRAIN_BYTES)

    def wait(self, seconds: float | None = None) -> None:
        """Return after a change, after this time, or after RECHECK_SECONDS; at once if a forked child calls it for the
        first time, since nothing has told the child of a change after its check of the state."""
        if self._is_new_here():
            return
        poll = select.poll()
        for fd in self._fds:
            poll.register(fd, select.POLLIN)
        bound = RECHECK_SECONDS if seconds is None else min(seconds, RECHECK_SECONDS)
        if poll.poll(max(bound, 0.0) * 1000):
            self._drain()

    async def wait_async(self, seconds: float | None = None) -> None:
        """Like wait(), in the running event loop."""
        if self._is_new_here():
            return
        await wait_ready(
            readers=self._fds, seconds=RECHECK_SECONDS if seconds is None else min(seconds, RECHECK_SECONDS)
        )
        self._drain()

    def close(self) -> None:
        """Close its descriptors; closing twice is allowed."""
        fds, self._fds = self._fds, []
        if fds and os.getpid() == self._pid:
            for notifier in self._notifiers:
                notifier.leave(fds[0])
        for fd in fds:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
