"""Deadlines that are moved often: by each heartbeat of a member.

Moving a deadline later stores a number. The task that watches it finds the new one when it runs, and is scheduled again
for the rest. So a member costs one task of the scheduler, however often it sends heartbeats. A deadline that is
cancelled has none: it may be weeks away, as clients choose timeouts, and its task would keep the group until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.locks import OwnLock
    from klog.scheduler import Scheduler, Task


class Deadlines:
    """Makes deadlines whose actions run under one lock. They stop with close()."""

    def __init__(self, scheduler: Scheduler, lock: OwnLock) -> None:
        self.scheduler = scheduler
        self.lock = lock
        self.now_ms = scheduler.now_ms
        self.closed = False

    def make(self, name: str, action: Callable[[], object]) -> Deadline:
        """A deadline that is not set yet. name: for the log."""
        return Deadline(self, name, action)

    def close(self) -> None:
        """No action runs any more."""
        self.closed = True


class Deadline:
    """One deadline. Its methods need the lock; the action runs under it, once for each deadline that is reached."""

    __slots__ = ("_action", "_armed_ms", "_due_ms", "_name", "_of", "_task")

    def __init__(self, of: Deadlines, name: str, action: Callable[[], object]) -> None:
        self._of = of
        self._name = name
        self._action = action
        self._due_ms: int | None = None
        self._armed_ms = 0
        self._task: Task | None = None

    @property
    def is_set(self) -> bool:
        """Is there a deadline?"""
        return self._due_ms is not None

    def set(self, delay_ms: int) -> None:
        """Move the deadline to delay_ms from now, at least 1."""
        self._due_ms = due_ms = self._of.now_ms() + (delay_ms if delay_ms > 0 else 1)
        if self._task is None or due_ms < self._armed_ms:
            self._arm(due_ms)

    def cancel(self) -> None:
        """There is no deadline any more."""
        self._due_ms = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _arm(self, due_ms: int) -> None:
        if self._task is not None:
            self._task.cancel()
        self._armed_ms = due_ms
        self._task = self._of.scheduler.schedule(self._name, self._fire, max(due_ms - self._of.now_ms(), 1))

    def _fire(self) -> None:
        if self._of.lock._is_owned():  # the scheduler ran inside an append that was made under the lock
            self._of.scheduler.schedule(self._name, self._fire, 1)
            return
        with self._of.lock:
            now_ms = self._of.now_ms()
            if self._due_ms is None or self._armed_ms > now_ms or self._of.closed:
                return  # it was cancelled while this task waited for the lock, and perhaps set again
            self._task = None
            if self._due_ms > now_ms:
                self._arm(self._due_ms)
                return
            self._due_ms = None
            self._action()
