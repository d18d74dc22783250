"""Requests that wait for a partition to change or for a time-out. Kafka: DelayedOperationPurgatory.

    D1  an operation completes once: by a change that satisfies it, or by its time-out. try_complete() decides, under
        the operation's own lock
    D2  an operation is not lost: it is tried again after it is watched, so a change in between is noticed
    D3  no operation is tried while a lock of a log or of a component is held: check() is called after it was released
    D4  a key that nothing watches costs check() one lookup
    D5  an operation ends when its client closes its side of the connection, as if its time were up, and when the
        connection is closed: the time-out may be weeks away, and Kafka keeps the operation until then

A key is a partition, (topic, number), or anything else that changes: a fetch session is the key of its fetch.
Appends of the broker's requests check. A program that appends to the broker's logs itself calls Broker.check(), else
its records are found when the fetches time out.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Protocol

from klog.logger import logger_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from klog.scheduler import Scheduler, Task

_log = logger_of("broker")


class Delayed(Protocol):
    """An operation that waits."""

    def on_disconnect(self, callback: Callable[[], object]) -> None:
        """Call callback() if the client closes its connection before the operation is complete."""

    def try_complete(self, *, expired: bool) -> bool:
        """Complete the operation if its condition holds, or, expired, in any case. Returns whether it has completed,
        now or before."""


class Watcher(Protocol):
    """What is notified of changes of a key."""

    def changed(self) -> None:
        """The key has changed. Called without a lock."""


class _Waiting:
    """An operation with the keys that it watches."""

    __slots__ = ("__weakref__", "_purgatory", "keys", "operation", "task")

    def __init__(self, purgatory: Purgatory, operation: Delayed, keys: tuple[Hashable, ...]) -> None:
        self._purgatory = purgatory
        self.operation = operation
        self.keys = keys
        self.task: Task | None = None

    def changed(self) -> None:
        self._purgatory._try(self)


class Purgatory:
    """The waiting operations, by the keys that they watch. Any thread. The lock guards all fields."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._watched: dict[Hashable, dict[Watcher, None]] = {}
        self._waiting: set[_Waiting] = set()
        self._closed = False

    @property
    def size(self) -> int:
        """The number of operations that wait. Kafka: PurgatorySize."""
        return len(self._waiting)

    @property
    def watched(self) -> list[Hashable]:
        """The keys that have an operation or a watcher."""
        with self._lock:
            return list(self._watched)

    def watch(self, operation: Delayed, keys: Iterable[Hashable], timeout_ms: int) -> None:
        """Let an operation wait for changes of keys, for up to timeout_ms."""
        waiting = _Waiting(self, operation, tuple(keys))
        with self._lock:
            self._waiting.add(waiting)
            for key in waiting.keys:
                self._watched.setdefault(key, {})[waiting] = None
            waiting.task = self._scheduler.schedule(
                "delayed request", lambda: self._try(waiting, expired=True), max(1, timeout_ms)
            )
        self._try(waiting, expired=self._closed)  # D2
        # D5. The connection keeps no operation: one that has failed is dropped, which closes its connection.
        kept = weakref.ref(waiting)
        operation.on_disconnect(lambda: self._disconnected(kept()))

    def check(self, key: Hashable) -> None:
        """A key has changed: notify what watches it. The caller holds no lock."""
        watchers = self._watched.get(key)
        if watchers is not None:
            with self._lock:
                found = list(watchers)
            for watcher in found:
                watcher.changed()

    def subscribe(self, watcher: Watcher, key: Hashable) -> None:
        """Notify a watcher of each change of a key, until unsubscribe()."""
        with self._lock:
            self._watched.setdefault(key, {})[watcher] = None

    def unsubscribe(self, watcher: Watcher, key: Hashable) -> None:
        """End it."""
        with self._lock:
            self._unwatch_locked(watcher, key)

    def close(self) -> None:
        """Complete everything that waits, as if its time were up, and from now on what would wait: consumers fetch
        again at once, and the stop would wait for that."""
        with self._lock:
            self._closed = True
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

    def _disconnected(self, waiting: _Waiting | None) -> None:
        if waiting is not None:
            self._try(waiting, expired=True)

    def _forget(self, waiting: _Waiting) -> None:
        with self._lock:
            if waiting not in self._waiting:
                return
            self._waiting.remove(waiting)
            for key in waiting.keys:
                self._unwatch_locked(waiting, key)
        assert waiting.task is not None
        waiting.task.cancel()

    def _unwatch_locked(self, watcher: Watcher, key: Hashable) -> None:
        watchers = self._watched[key]
        del watchers[watcher]
        if not watchers:
            del self._watched[key]
