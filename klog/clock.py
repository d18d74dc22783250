"""Clocks, which are passed to all users of time. No other module reads the machine's clocks, except native ones, which
do what SystemClock does.

Two kinds that must not be mixed: wall time (ms since 1970, may jump; for timestamps and retention) and monotonic time
(seconds, never decreases; for durations and timeouts). ManualClock starts them far apart, so that a mix-up shows.
"""

from __future__ import annotations

import functools
import os
import time
import weakref
from typing import Protocol

from klog import arguments

__all__ = ["Clock", "ManualClock", "SystemClock"]


def __dir__() -> list[str]:
    return sorted(__all__)


class Clock(Protocol):
    """Wall time, monotonic time and sleep. Any thread."""

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

    monotonic = staticmethod(time.monotonic)  # requests and appends ask often

    def sleep(self, seconds: float) -> None:
        time.sleep(arguments.some_seconds("seconds", seconds))


def let_others_in() -> None:
    """Sleep 0.2 ms between releasing a lock and taking it again. Locks are not fair: a waiting thread needs that time
    to wake up. Always real time, not that of a Clock."""
    time.sleep(0.0002)


class _Waiting(Protocol):
    """An object with work that is due at a time of the clock: klog.scheduler.Scheduler."""

    @property
    def next_due_ms(self) -> int | None: ...

    def run_due(self) -> int: ...


class ManualClock:
    """A clock that moves only by calls. Kafka: MockTime.

    advance() stops at the due time of each task of the schedulers on this clock, and runs it. sleep() advances the
    clock, so that code that sleeps on it continues.
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
        """Let advance() call waiting.run_due() at its next_due_ms. Holds only a weak reference to it."""
        arguments.having("waiting", waiting, ("run_due",), "something with next_due_ms and run_due()")
        self._waiting.add(waiting)

    def advance(self, ms: int) -> None:
        """Move both times forward by ms milliseconds, and run what becomes due."""
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
    """Kernel ticks from boot to the start of pid (field 22 of /proc/PID/stat), to detect a reused pid; None if it has
    ended, also if its parent has not waited for it yet."""
    pid = arguments.whole("pid", pid)
    try:
        return _own_start_time(pid) if pid == os.getpid() else _start_time(pid)
    except (OSError, ValueError, IndexError):
        return None


def _start_time(pid: int) -> int | None:
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rsplit(b")", 1)[1].split()
    state, threads, start = fields[0], int(fields[17]), int(fields[19])
    has_ended = state in (b"Z", b"X") and threads <= 1  # with more, only the first thread has ended
    return None if has_ended else start


@functools.cache
def _own_start_time(pid: int) -> int | None:
    """Read once, as each lock of a log.dir states it, and the kernel adds up all threads for a read. A forked child has
    another pid."""
    return _start_time(pid)
