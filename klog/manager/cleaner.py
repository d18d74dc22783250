"""The cleaner of a manager, which is loaded when it starts. A manager that is never started cleans nothing, and opens
without the modules that clean.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from klog.config import ManagerConfig
from klog.log.log import Log

if TYPE_CHECKING:
    from klog.manager.cleaner_threads import BackgroundCleaner


class Cleaner:
    """Any thread. make: returns the BackgroundCleaner, not running. The methods are those of BackgroundCleaner."""

    def __init__(self, make: Callable[[], BackgroundCleaner]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._started: BackgroundCleaner | None = None

    def start(self) -> None:
        """Start by the manager's configuration. Raises InvalidConfig."""
        with self._lock:
            if self._started is None:
                self._started = self._make()
        self._started.start()

    def stop(self) -> None:
        """End the threads and abort their cleanings at the next chunk. May be called again."""
        if self._started is not None:
            self._started.stop()

    def abandon(self) -> None:
        """Stop for a manager that was garbage-collected."""
        if self._started is not None:
            self._started.abandon()

    def check(self, config: ManagerConfig) -> None:
        """Raise InvalidConfig if the running cleaner cannot go on with this configuration."""
        if self._started is not None:
            self._started.check(config)

    def reconfigure(self) -> None:
        """Take over the manager's configuration, if it is running."""
        if self._started is not None:
            self._started.reconfigure()

    def after_fork(self) -> None:
        """Reset in a forked child, where the threads do not exist."""
        self._lock = threading.Lock()
        if self._started is not None:
            self._started.after_fork()

    def metrics(self, logs: list[Log], directories: list[str]) -> dict[str, dict[str, float]]:
        """Return Kafka's gauges of a running cleaner; empty while it is not running."""
        return {} if self._started is None else self._started.metrics(logs, directories)
