"""ReplicaMoves: moves of partitions between the log directories, which clients have asked for.

One at a time, in the order they were asked for, in a thread that ends when none is left. A move that fails is logged,
and the partition stays where it was; so does one that was not finished at close().
Kafka: ReplicaAlterLogDirsManager.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from klog.errors import KlogError
from klog.logger import logger_of

if TYPE_CHECKING:
    from klog.manager import LogManager
    from klog.progress import Event

_log = logger_of("broker")
Partition = tuple[str, int]


class _Stopped(Exception):
    """Ends a move that is under way."""


class ReplicaMoves:
    """Any thread. The lock guards what is waiting and the thread."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._lock = threading.Lock()
        self._waiting: dict[Partition, str] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def ask(self, topic: str, partition: int, directory: str) -> None:
        """Queue a move of a partition. A later request for the same partition replaces one that waits."""
        with self._lock:
            if self._closed:
                return
            self._waiting[topic, partition] = directory
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="klog-replica-moves", daemon=True)
                thread.start()
                self._thread = thread

    def forget(self, topic: str, partition: int) -> None:
        """Do not begin a move that waits."""
        with self._lock:
            self._waiting.pop((topic, partition), None)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no move is left. Returns False if `timeout` seconds passed first."""
        with self._lock:
            thread = self._thread
        if thread is None:
            return True
        thread.join(timeout)
        return not thread.is_alive()

    def close(self) -> None:
        """Begin no further move, give up the one that is under way, and wait for that."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
        self.wait()

    def _next(self) -> tuple[Partition, str] | None:
        with self._lock:
            if not self._waiting:
                self._thread = None
                return None
            key = next(iter(self._waiting))
            return key, self._waiting.pop(key)

    def _run(self) -> None:
        while (found := self._next()) is not None:
            (topic, partition), directory = found
            try:
                self._logs.move(topic, partition, directory, progress=self._progress)
            except _Stopped:
                _log.info("event=move_given_up log=%s-%d", topic, partition)
            except (KlogError, OSError, ValueError) as error:
                _log.error("event=move_failed log=%s-%d to=%s reason=%s", topic, partition, directory, error)

    def _progress(self, _: Event) -> None:
        if self._closed:
            raise _Stopped
