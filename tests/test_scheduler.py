"""Tasks run when they are due, in order of their due times, and never unexpectedly in a caller."""

from __future__ import annotations

import os
import signal
import threading
import weakref

import pytest

from klog.clock import ManualClock, SystemClock
from klog.scheduler import Scheduler
from tests.support.child import in_child
from tests.support.patience import PATIENCE


def test_a_manual_clock_runs_tasks_at_each_due_time_in_order() -> None:
    clock = ManualClock(0)
    scheduler, other = Scheduler(clock), Scheduler(clock)
    seen: list[tuple[str, int]] = []

    def note(name: str) -> None:
        seen.append((name, clock.wall_ms()))

    scheduler.schedule("late", lambda: note("late"), 30)
    scheduler.schedule("early", lambda: note("early"), 10)
    other.schedule("often", lambda: note("often"), 5, period_ms=20)
    clock.advance(9)
    assert seen == [("often", 5)]
    clock.advance(91)
    assert seen == [("often", 5), ("early", 10), ("often", 25), ("late", 30), *(("often", at) for at in (45, 65, 85))]
    assert clock.wall_ms() == 100


def test_a_task_without_delay_runs_at_once_and_one_may_schedule_another() -> None:
    clock = ManualClock(0)
    scheduler = Scheduler(clock)
    seen: list[int] = []
    scheduler.schedule("now", lambda: scheduler.schedule("then", lambda: seen.append(clock.wall_ms()), 7))
    assert seen == []
    clock.advance(8)
    assert seen == [7]
    assert scheduler.next_due_ms is None


def test_a_cancelled_task_does_not_run() -> None:
    clock = ManualClock(0)
    scheduler = Scheduler(clock)
    seen: list[int] = []
    task = scheduler.schedule("x", lambda: seen.append(clock.wall_ms()), 10, period_ms=10)
    clock.advance(25)
    task.cancel()
    clock.advance(100)
    assert seen == [10, 20]


def test_a_cancelled_task_keeps_nothing_alive_until_its_due_time() -> None:
    class Request:
        def answer(self) -> None:
            pass

    scheduler, request = Scheduler(ManualClock(0)), Request()
    gone = weakref.ref(request)
    task = scheduler.schedule("x", request.answer, 1_000_000)
    del request
    task.cancel()
    assert gone() is None


def test_a_failing_task_ends_neither_its_period_nor_the_others(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    scheduler = Scheduler(clock)
    seen: list[int] = []
    scheduler.schedule("bad", lambda: 1 // 0, 1, period_ms=10)
    scheduler.schedule("good", lambda: seen.append(1), 2)
    clock.advance(12)
    assert seen == [1]
    assert caplog.text.count("event=task_failed task=bad") == 2


class _Jumping(SystemClock):
    """A system clock that may jump, as after sleep mode."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_missed_periods_are_skipped() -> None:
    clock = _Jumping()
    scheduler = Scheduler(clock)
    seen: list[float] = []
    scheduler.schedule("x", lambda: seen.append(clock.now), 1000, period_ms=1000)
    assert scheduler.run_due() == 0
    clock.now = 150.5
    assert scheduler.run_due() == 1
    assert scheduler.run_due() == 0
    clock.now = 151.5
    assert scheduler.run_due() == 1
    assert seen == [150.5, 151.5]


def test_the_thread_runs_due_tasks_until_it_is_stopped() -> None:
    scheduler = Scheduler(SystemClock())
    ran = threading.Event()
    scheduler.start()
    scheduler.start()
    assert scheduler.running
    scheduler.schedule("far", lambda: None, 3_600_000)
    scheduler.schedule("near", ran.set, 1)
    assert ran.wait(PATIENCE)
    scheduler.stop()
    scheduler.stop()
    assert not scheduler.running
    assert scheduler.next_due_ms is None


def test_a_task_may_stop_its_own_scheduler() -> None:
    scheduler = Scheduler(SystemClock())
    done = threading.Event()

    def finish() -> None:
        scheduler.stop()
        done.set()

    scheduler.start()
    scheduler.schedule("finish", finish, 1)
    assert done.wait(PATIENCE)


def test_nothing_runs_in_a_forked_child() -> None:
    clock = ManualClock(0)
    scheduler = Scheduler(clock)
    ran: list[int] = []
    scheduler.schedule("x", lambda: ran.append(1), 5)
    child = os.fork()
    if child == 0:
        clock.advance(10)
        os._exit(len(ran))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    clock.advance(10)
    assert ran == [1]


@pytest.mark.parametrize(("delay_ms", "period_ms"), [(-1, None), (0, 0), (5, -1)])
def test_impossible_times_raise(delay_ms: int, period_ms: int | None) -> None:
    with pytest.raises(ValueError, match="task x"):
        Scheduler(ManualClock(0)).schedule("x", lambda: None, delay_ms, period_ms)


def test_due_tasks_run_only_in_the_schedulers_thread() -> None:
    """M21: an append does not run background tasks, however long they occupy the thread."""
    scheduler = Scheduler(SystemClock())
    entered, gate, ran = threading.Event(), threading.Event(), threading.Event()
    seen: list[str] = []
    scheduler.start()
    try:
        scheduler.schedule("long", lambda: (entered.set(), gate.wait(PATIENCE)), 1)
        assert entered.wait(PATIENCE)
        scheduler.schedule("next", lambda: (seen.append(threading.current_thread().name), ran.set()), 1)
        until = scheduler.now_ms() + 20
        while scheduler.now_ms() < until:
            assert scheduler.run_due() == 0
        assert seen == []
        gate.set()
        assert ran.wait(PATIENCE)
        assert seen == ["klog-scheduler"]
    finally:
        gate.set()
        scheduler.stop()


def test_a_forked_child_can_stop_it_while_the_parents_thread_holds_it() -> None:
    """The condition stays locked in the child forever: a manager's close() there must not wait for it."""
    scheduler, taken, over = Scheduler(SystemClock()), threading.Event(), threading.Event()

    def hold() -> None:
        with scheduler._condition:
            taken.set()
            over.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait(PATIENCE)

    def stop() -> str:
        signal.alarm(int(PATIENCE))  # ends it if it hangs
        scheduler.stop()
        return "stopped"

    try:
        assert in_child(stop) == "stopped"
    finally:
        over.set()
        thread.join()
    scheduler.stop()
