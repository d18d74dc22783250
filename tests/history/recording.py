"""The history of a run while it grows: threads append operations, and each sees the same clock."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

now = time.monotonic


class History:
    """Any thread."""

    def __init__(self) -> None:
        self.operations: list[Any] = []
        self.errors: list[str] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def add(self, operation: Any) -> None:
        with self._lock:
            self.operations.append(operation)

    def fail(self, text: str) -> None:
        """Something that no client should see, whatever the faults."""
        with self._lock:
            if text not in self.errors:
                self.errors.append(text)

    def number(self) -> int:
        """Rises with every call."""
        with self._lock:
            return next(self._numbers)

    def snapshot(self) -> list[Any]:
        with self._lock:
            return list(self.operations)


class Worker(threading.Thread):
    """Calls step() until stop() is called, then close(). An exception ends it and is reported."""

    def __init__(self, name: str, history: History) -> None:
        super().__init__(name=name, daemon=True)
        self.history = history
        self.ending = threading.Event()

    def step(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                self.step()
            self.close()
        except BaseException as error:
            self.history.fail(f"{self.name}: {type(error).__name__}: {error}")
