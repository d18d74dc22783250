"""Requests that wait for a partition to change or for a time-out. Kafka: DelayedOperationPurgatory.

    D1  an operation completes once: by a change that satisfies it, or by its time-out. try_complete() decides, under
        the operation's own lock
    D2  an operation is not lost: it is tried again after it is watched, so a change in between is noticed
    D3  no operation is tried while a lock of a log or of a component is held: check() is called after it was released

Appends of the broker's requests check. A program that appends to the broker's logs itself calls Broker.check(), else
its records are found when the fetches time out.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from klog.logger import logger_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from klog.scheduler import Scheduler, Task

_log = logger_of("broker")


class Delayed(Protocol):
    """An operation that waits."""

    def try_complete(self, *, expired: bool) -> bool:
        """Complete the operation if its condition holds, or, expired, in any case. Returns whether it has completed,
        now or before."""


class _Waiting:
    """An operation with the keys that it watches."""

    __slots__ = ("keys", "operation", "task")

    def __init__(self, operation: Delayed, keys: tuple[Hashable, ...]) -> None:
        self.operation = operation
        self.keys = keys
        self.task: Task | None = None


class Purgatory:
    """The waiting operations, by the keys that they watch. Any thread. The lock guards all fields."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._watched: dict[Hashable, dict[_Waiting, None]] = {}
        self._waiting: set[_Waiting] = set()

    @property
    def size(self) -> int:
        """The number of operations that wait. Kafka: PurgatorySize."""
        return len(self._waiting)

    def watch(self, operation: Delayed, keys: Iterable[Hashable], timeout_ms: int) -> None:
        """Let an operation wait for changes of keys, for up to timeout_ms."""
        waiting = _Waiting(operation, tuple(keys))
        with self._lock:
            self._waiting.add(waiting)
            for key in waiting.keys:
                self._watched.setdefault(key, {})[waiting] = None
            waiting.task = self._scheduler.schedule(
                "delayed request", lambda: self._try(waiting, expired=True), max(1, timeout_ms)
            )
        self._try(waiting)  # D2

    def check(self, key: Hashable) -> None:
        """A partition has changed: try the operations that watch it. The caller holds no lock."""
        watchers = self._watched.get(key)
        if watchers is not None:
            with self._lock:
                found = list(watchers)
            for waiting in found:
                self._try(waiting)

    def close(self) -> None:
        """Complete everything that waits, as if its time were up."""
        with self._lock:
            found = list(self._waiting)
        for waiting in found:
            self._try(waiting, expired=True)

    def _try(self, waiting: _Waiting, *, expired: bool = False) -> None:
        try:
            done = waiting.operation.try_complete(expired=expired)
        except Exception as error:  # a failed operation must not prevent others; its client sends the request again
            _log.exception("event=delayed_request_failed error=%r", error)
            done = True
        if done:
            self._forget(waiting)

    def _forget(self, waiting: _Waiting) -> None:
        with self._lock:
            if waiting not in self._waiting:
                return
            self._waiting.remove(waiting)
            for key in waiting.keys:
                watchers = self._watched[key]
                del watchers[waiting]
                if not watchers:
                    del self._watched[key]
        assert waiting.task is not None
        waiting.task.cancel()
