"""Time, passed in: nobody outside this module asks the machine what time it is.

Two kinds that never mix: wall time (ms since 1970, may jump; what timestamps and retention use) and monotonic time
(seconds, never goes back; what durations and timeouts use). ManualClock starts them far apart, so that a mix-up shows.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Any thread may call any of it."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """A clock that stands still until told. Kafka: MockTime.

    sleep() advances it, so that code that waits for it comes to an end.
    """

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic = 1_000_000.0

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, ms: int) -> None:
        """Let ms milliseconds pass on both clocks."""
        if ms < 0:
            raise ValueError(f"a clock cannot go back by {-ms} ms; make a new ManualClock instead")
        self._wall_ms += ms
        self._monotonic += ms / 1000

    def sleep(self, seconds: float) -> None:
        self.advance(int(seconds * 1000) or 1)


def process_start_time(pid: int) -> int | None:
    """Kernel ticks from boot to the start of pid (field 22 of /proc/PID/stat), to tell a recycled pid; None if gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rsplit(b")", 1)[1].split()[19])
    except (OSError, ValueError, IndexError):
        return None
