"""A deadline needs one task of the scheduler, however often it is moved."""

from __future__ import annotations

import threading

import pytest

from klog.clock import ManualClock
from klog.coordinator.groups.deadlines import Deadline, Deadlines
from klog.locks import OwnLock
from klog.scheduler import Scheduler
from tests.support.patience import until


class Watched:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = Scheduler(self.clock)
        self.lock = OwnLock()
        self.deadlines = Deadlines(self.scheduler, self.lock)
        self.fired: list[int] = []
        self.begin = self.scheduler.now_ms()

    def make(self) -> Deadline:
        def fire() -> None:
            assert self.lock._is_owned()
            self.fired.append(self.scheduler.now_ms() - self.begin)

        return self.deadlines.make("test", fire)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_deadline_fires_once_and_holds_the_lock(watched: Watched) -> None:
    deadline = watched.make()
    with watched.lock:
        deadline.set(100)
    watched.clock.advance(99)
    assert watched.fired == []
    watched.clock.advance(1_000)
    assert watched.fired == [100]


def test_moving_a_deadline_later_needs_no_new_task(watched: Watched) -> None:
    deadline = watched.make()
    for _ in range(50):
        deadline.set(100)
        watched.clock.advance(99)
    assert len(watched.scheduler._heap) == 1
    watched.clock.advance(10)
    assert watched.fired == [49 * 99 + 100]


def test_a_deadline_can_be_moved_earlier(watched: Watched) -> None:
    deadline = watched.make()
    deadline.set(1_000)
    deadline.set(10)
    watched.clock.advance(5_000)
    assert watched.fired == [10]


def test_a_deadline_can_be_cancelled_and_set_again(watched: Watched) -> None:
    deadline = watched.make()
    deadline.set(100)
    deadline.cancel()
    watched.clock.advance(50)
    deadline.set(100)
    watched.clock.advance(99)
    assert watched.fired == []
    watched.clock.advance(1)
    assert watched.fired == [150]
    deadline.set(10)
    deadline.cancel()
    watched.clock.advance(100)
    assert watched.fired == [150]


def test_a_deadline_that_is_cancelled_needs_no_task(watched: Watched) -> None:
    deadline = watched.make()
    deadline.set(100)
    deadline.cancel()
    assert all(task.cancelled for _, _, task in watched.scheduler._heap)


def test_a_deadline_set_again_while_its_task_waits_for_the_lock_needs_one_task(watched: Watched) -> None:
    deadline = watched.make()
    deadline.set(10)
    thread = threading.Thread(target=watched.clock.advance, args=(10,))
    with watched.lock:
        thread.start()
        until(lambda: watched.scheduler.next_due_ms is None)  # the other thread has taken the task
        deadline.cancel()
        deadline.set(100)
    thread.join()
    assert len(watched.scheduler._heap) == 1
    watched.clock.advance(100)
    assert watched.fired == [110]


def test_a_delay_of_zero_does_not_fire_inside_the_call(watched: Watched) -> None:
    deadline = watched.make()
    with watched.lock:
        deadline.set(0)
        deadline.set(-5)
        assert watched.fired == []
    watched.clock.advance(1)
    assert watched.fired == [1]


def test_a_deadline_waits_while_its_own_thread_holds_the_lock(watched: Watched) -> None:
    deadline = watched.make()
    deadline.set(10)
    with watched.lock:
        watched.clock.advance(20)  # as if an append ran the tasks that are due
        assert watched.fired == []
    watched.clock.advance(1)
    assert watched.fired == [21]


def test_no_deadline_fires_after_close(watched: Watched) -> None:
    deadline = watched.make()
    deadline.set(10)
    watched.deadlines.close()
    watched.clock.advance(20)
    assert watched.fired == []
