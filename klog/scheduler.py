"""Scheduled tasks. Due tasks run in the thread that start() begins, or inside calls of the engine.

Without the thread appends, rolls and retention call run_due() while they hold no lock. With a ManualClock tasks run
inside advance(), each at its due time. Tasks that are still waiting when their log closes never run, so the next load
must be able to do their work. Kafka: Scheduler, MockScheduler.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
from collections.abc import Callable

from klog.clock import Clock, ManualClock
from klog.locks import CallLock
from klog.logger import logger_of

_log = logger_of("scheduler")
_NEVER = 2**63 - 1
_STOP_SECONDS = 60.0
_CLEAN_UP_AT = 1024


class Task:
    """One scheduled action. After cancel() it does not start again; a run that has begun continues."""

    __slots__ = ("_action", "_period_ms", "cancelled", "name")

    def __init__(self, name: str, action: Callable[[], object], period_ms: int | None) -> None:
        self.name = name
        self.cancelled = False
        self._action = action
        self._period_ms = period_ms

    def __repr__(self) -> str:
        return f"<Task {self.name}{' cancelled' if self.cancelled else ''}>"

    def cancel(self) -> None:
        """Do not start it again, and keep nothing that its action refers to. A second call is not an error."""
        self.cancelled = True
        self._action = _nothing

    def _run(self) -> None:
        try:
            self._action()
        except Exception:  # one failed task must not end the others
            _log.exception("event=task_failed task=%s", self.name)


def _nothing() -> None:
    """The action of a cancelled task, which waits for its due time."""


class Scheduler:
    """Tasks in the order of their due times. Any thread.

    A periodic task never runs twice at once, and does not catch up on missed periods. In a forked child no task runs:
    the files belong to the parent.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pid = os.getpid()
        self._lock = CallLock()
        self._condition = threading.Condition(self._lock)  # type: ignore[arg-type]
        self._heap: list[tuple[int, int, Task]] = []
        self._order = itertools.count()
        self._next_ms = _NEVER
        self._clean_up_at = _CLEAN_UP_AT
        self._thread: threading.Thread | None = None
        self._stopping = False
        if isinstance(clock, ManualClock):
            clock.subscribe(self)

    def now_ms(self) -> int:
        """Milliseconds of the monotonic clock that due times use."""
        return round(self._clock.monotonic() * 1000)

    @property
    def next_due_ms(self) -> int | None:
        """The due time of the next task, on the scale of now_ms(); None without tasks, and in a forked child."""
        return None if self._next_ms == _NEVER or os.getpid() != self._pid else self._next_ms

    def is_inside(self) -> bool:
        """Is this thread inside a call of the scheduler? False while a task runs."""
        return self._lock._is_owned()

    def schedule(
        self, name: str, action: Callable[[], object], delay_ms: int = 0, period_ms: int | None = None
    ) -> Task:
        """Run action after delay_ms, then every period_ms. Without delay and period: at once, in this thread."""
        if delay_ms < 0 or (period_ms is not None and period_ms < 1):
            raise ValueError(
                f"task {name}: delay_ms={delay_ms} must be at least 0, period_ms={period_ms} at least 1 or None"
            )
        task = Task(name, action, period_ms)
        if delay_ms == 0 and period_ms is None:
            task._run()
        else:
            self._add(task, self.now_ms() + delay_ms)
        return task

    def _add(self, task: Task, due_ms: int) -> None:
        with self._lock:
            if len(self._heap) > self._clean_up_at:
                self._forget_cancelled_locked()
            heapq.heappush(self._heap, (due_ms, next(self._order), task))
            is_first = due_ms < self._next_ms
            self._next_ms = self._heap[0][0]
            if is_first and self._thread is not None:
                self._condition.notify_all()

    def _forget_cancelled_locked(self) -> None:
        """Drop cancelled tasks before they are due: a broker has one for each request that it did not have to wait
        for."""
        self._heap = [each for each in self._heap if not each[2].cancelled]
        heapq.heapify(self._heap)
        self._clean_up_at = max(_CLEAN_UP_AT, 2 * len(self._heap))

    def _take(self, now_ms: int) -> tuple[int, Task] | None:
        with self._condition:
            while self._heap and (self._heap[0][0] <= now_ms or self._heap[0][2].cancelled):
                due_ms, _, task = heapq.heappop(self._heap)
                self._next_ms = self._heap[0][0] if self._heap else _NEVER
                if not task.cancelled:
                    return due_ms, task
        return None

    def run_due(self) -> int:
        """Run the due tasks. Returns their number. The caller holds no lock of a log.

        If the scheduler has a thread, only that runs tasks: an append would wait for a round of flushes.
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
        """Is the thread of start() running?"""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start a thread that runs due tasks. A second call is not an error. With a ManualClock advance() runs them."""
        if self.running or isinstance(self._clock, ManualClock):
            return
        self._stopping = False
        thread = threading.Thread(target=self._loop, name="klog-scheduler", daemon=True)
        thread.start()  # raises RuntimeError if the machine has no thread left
        self._thread = thread

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
        """End the thread after its current task, and drop all waiting tasks. A second call is not an error."""
        if os.getpid() != self._pid:
            return  # nothing runs in a forked child; a thread of the parent may have held the condition at the fork
        with self._condition:
            self._stopping = True
            self._heap.clear()
            self._next_ms = _NEVER
            self._condition.notify_all()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(_STOP_SECONDS)
