"""Worker: one thread of the background cleaner, and its last cleaning."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from klog.values import dataclass

if TYPE_CHECKING:
    from klog.cleaner import RoundStats


@dataclass(eq=False)
class Worker:
    """State of one thread, or of the task with a ManualClock. stats and seconds are of its last cleaning."""

    thread: threading.Thread | None = None
    stopping: bool = False
    stats: RoundStats | None = None
    seconds: float = 0.0
    delay_ms: int = 0

    @property
    def dead(self) -> bool:
        """True if its thread ended unexpectedly."""
        return self.thread is not None and not self.stopping and not self.thread.is_alive()
