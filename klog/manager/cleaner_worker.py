"""Worker: one thread of the background cleaner, and its last cleaning."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from klog.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from klog.cleaner import RoundStats


@dataclass(eq=False)
class Worker:
    """One thread, or the task of a ManualClock. stats and seconds are of its last cleaning. delay_ms is the longest
    delay of a compaction when it last looked for the dirtiest log."""

    thread: threading.Thread | None = None
    stopping: bool = False
    stats: RoundStats | None = None
    seconds: float = 0.0
    delay_ms: int = 0

    def start(self, name: str, run: Callable[[Worker], object]) -> None:
        """Start its thread. Raises RuntimeError if the machine has none left."""
        thread = threading.Thread(target=run, args=(self,), name=name, daemon=True)
        thread.start()
        self.thread = thread

    def stop(self) -> None:
        """Its thread ends when it next looks."""
        self.stopping = True

    def surveyed(self, delay_ms: int) -> None:
        """It has looked for the dirtiest log."""
        self.delay_ms = delay_ms

    def cleaned(self, stats: RoundStats, seconds: float) -> None:
        """It has cleaned a log."""
        self.stats, self.seconds = stats, seconds

    @property
    def dead(self) -> bool:
        """True if its thread ended unexpectedly."""
        return self.thread is not None and not self.stopping and not self.thread.is_alive()
