"""Work for later: what is due runs in the thread that start() begins, or whenever the engine finds a moment for it.

Without a thread nothing happens behind the caller's back: appends, rolls and retention call run_due() when they hold no
lock. Under a ManualClock tasks run inside advance(), each at its own moment. What is still waiting when its log closes
never runs; whatever it would have done must be something that the next load can do. Kafka: Scheduler, MockScheduler.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import threading
from collections.abc import Callable

from klog.clock import Clock, ManualClock
from klog.locks import CallLock

_log = logging.getLogger("klog.scheduler")
_NEVER = 2**63 - 1
_STOP_SECONDS = 60.0


class Task:
    """One piece of work. cancel(): it will not run again; a run that has begun goes on to its end."""

    __slots__ = ("_action", "_period_ms", "cancelled", "name")

    def __init__(self, name: str, action: Callable[[], object], period_ms: int | None) -> None:
        self.name = name
        self.cancelled = False
        self._action = action
        self._period_ms = period_ms

    def __repr__(self) -> str:
        return f"<Task {self.name}{' cancelled' if self.cancelled else ''}>"

    def cancel(self) -> None:
        """Not again; a second time is no error."""
        self.cancelled = True

    def _run(self) -> None:
        try:
            self._action()
        except Exception:  # one failed task must not end the others
            _log.exception("event=task_failed task=%s", self.name)


class Scheduler:
    """Tasks in the order of their due times. Any thread.

    A periodic task never runs beside itself, and makes up for no period that it missed. In a forked child nothing runs:
    the files are the parent's.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pid = os.getpid()
        self._lock = CallLock()
        self._condition = threading.Condition(self._lock)  # type: ignore[arg-type]
        self._heap: list[tuple[int, int, Task]] = []
        self._order = itertools.count()
        self._next_ms = _NEVER
        self._thread: threading.Thread | None = None
        self._stopping = False
        if isinstance(clock, ManualClock):
            clock.subscribe(self)

    def now_ms(self) -> int:
        """Milliseconds of the clock that due times are on, which never goes back."""
        return round(self._clock.monotonic() * 1000)

    @property
    def next_due_ms(self) -> int | None:
        """When the next task is due, on the scale of now_ms(); None if nothing waits, or not for this process."""
        return None if self._next_ms == _NEVER or os.getpid() != self._pid else self._next_ms

    def is_inside(self) -> bool:
        """Is this thread in the middle of a call? Not while a task runs."""
        return self._lock._is_owned()

    def schedule(
        self, name: str, action: Callable[[], object], delay_ms: int = 0, period_ms: int | None = None
    ) -> Task:
        """Run action after delay_ms, and every period_ms from then on. Without delay and period: now, right here."""
        if delay_ms < 0 or (period_ms is not None and period_ms < 1):
            raise ValueError(f"task {name}: delay_ms={delay_ms}, period_ms={period_ms}: not below 0, and not below 1")
        task = Task(name, action, period_ms)
        if delay_ms == 0 and period_ms is None:
            task._run()
        else:
            self._add(task, self.now_ms() + delay_ms)
        return task

    def _add(self, task: Task, due_ms: int) -> None:
        with self._condition:
            heapq.heappush(self._heap, (due_ms, next(self._order), task))
            self._next_ms = self._heap[0][0]
            self._condition.notify_all()

    def _take(self, now_ms: int) -> tuple[int, Task] | None:
        with self._condition:
            while self._heap and (self._heap[0][0] <= now_ms or self._heap[0][2].cancelled):
                due_ms, _, task = heapq.heappop(self._heap)
                self._next_ms = self._heap[0][0] if self._heap else _NEVER
                if not task.cancelled:
                    return due_ms, task
        return None

    def run_due(self) -> int:
        """Run what is due; how many tasks that were. The caller holds no lock of a log.

        Where a thread does that, nobody else does: an append would wait for a round of flushes.
        """
        if self._next_ms == _NEVER or self.now_ms() < self._next_ms or os.getpid() != self._pid:
            return 0
        if self.running and threading.current_thread() is not self._thread:
            return 0
        ran = 0
        now_ms = self.now_ms()
        while (found := self._take(now_ms)) is not None:
            due_ms, task = found
            task._run()
            ran += 1
            if task._period_ms is not None and not task.cancelled:
                following = due_ms + task._period_ms
                self._add(task, following if following > now_ms else now_ms + task._period_ms)
        return ran

    # ---- the thread ------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Has start() begun a thread that is still at it?"""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Let a thread run what is due; a second time is no error. With a ManualClock there is none: advance() does."""
        if self.running or isinstance(self._clock, ManualClock):
            return
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="klog-scheduler", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        while True:
            with self._condition:
                while not self._stopping and (self._next_ms == _NEVER or self._next_ms > self.now_ms()):
                    wait_ms = self._next_ms - self.now_ms()
                    self._condition.wait(None if self._next_ms == _NEVER else wait_ms / 1000)
                if self._stopping:
                    return
            self.run_due()

    def stop(self) -> None:
        """End the thread, after the task that it is in; forget what waits. A second time is no error."""
        if os.getpid() != self._pid:
            return  # nothing runs in a forked child, where a thread of the parent may hold the condition for ever
        with self._condition:
            self._stopping = True
            self._heap.clear()
            self._next_ms = _NEVER
            self._condition.notify_all()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(_STOP_SECONDS)
