"""Time, passed in: nobody outside this module asks the machine what time it is. (_append and _commit do, as
SystemClock would.)

Two kinds that never mix: wall time (ms since 1970, may jump; what timestamps and retention use) and monotonic time
(seconds, never goes back; what durations and timeouts use). ManualClock starts them far apart, so that a mix-up shows.
"""

from __future__ import annotations

import time
import weakref
from typing import Protocol

from klog import arguments


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
        time.sleep(arguments.some_seconds("seconds", seconds))


def let_others_in() -> None:
    """For a thread that has let go of a lock and is about to take it again: locks are not fair, and who waits for one
    needs a moment to wake up. It is no time that a Clock tells."""
    time.sleep(0.0002)


class _Waiting(Protocol):
    """Who has something to do at a moment of a clock: klog.scheduler.Scheduler."""

    @property
    def next_due_ms(self) -> int | None: ...

    def run_due(self) -> int: ...


class ManualClock:
    """A clock that stands still until told. Kafka: MockTime.

    advance() passes through every moment at which a scheduler on this clock has something to do, and lets it be done.
    sleep() advances the clock, so that code that waits for it comes to an end.
    """

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = arguments.whole("wall_ms", wall_ms)
        self._monotonic_ms = 1_000_000_000
        self._waiting: weakref.WeakSet[_Waiting] = weakref.WeakSet()

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic(self) -> float:
        return self._monotonic_ms / 1000

    def subscribe(self, waiting: _Waiting) -> None:
        """advance() will call its run_due() when next_due_ms has come. It is held weakly."""
        arguments.having("waiting", waiting, ("run_due",), "something with next_due_ms and run_due()")
        self._waiting.add(waiting)

    def advance(self, ms: int) -> None:
        """Let ms milliseconds pass on both clocks, and what is due meanwhile be done."""
        ms = arguments.whole("ms", ms)
        if ms < 0:
            raise ValueError(f"ms={ms}: a clock cannot go back by {-ms} ms; make a new ManualClock instead")
        target = self._monotonic_ms + ms
        while True:
            due = [(waiting.next_due_ms, waiting) for waiting in list(self._waiting)]
            soon = [(moment, waiting) for moment, waiting in due if moment is not None and moment <= target]
            if not soon:
                break
            moment, waiting = min(soon, key=lambda pair: pair[0])
            self._pass_to(moment)
            waiting.run_due()
        self._pass_to(target)

    def _pass_to(self, moment: int) -> None:
        passed = max(moment - self._monotonic_ms, 0)
        self._monotonic_ms += passed
        self._wall_ms += passed

    def sleep(self, seconds: float) -> None:
        self.advance(int(arguments.some_seconds("seconds", seconds) * 1000) or 1)


def process_start_time(pid: int) -> int | None:
    """Kernel ticks from boot to the start of pid (field 22 of /proc/PID/stat), to tell a recycled pid; None if gone."""
    pid = arguments.whole("pid", pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rsplit(b")", 1)[1].split()[19])
    except (OSError, ValueError, IndexError):
        return None
