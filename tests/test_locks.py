"""Locks that store which thread has acquired them."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from klog.disk import directory_lock
from klog.errors import KlogError, ReentrantCall
from klog.locks import CallLock, OwnLock
from tests.support.patience import PATIENCE

LOG: Any = SimpleNamespace(name="t-0")


def in_another_thread(action: Any) -> Any:
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(action()))
    thread.start()
    thread.join(PATIENCE)
    assert got, "it never returned"
    return got[0]


@pytest.mark.parametrize("kind", [OwnLock, CallLock])
def test_any_thread_may_call_locked(kind: type[OwnLock]) -> None:
    """threading.Condition of Python 3.14 requires this of a lock."""
    lock = kind()
    assert (lock.locked(), in_another_thread(lock.locked)) == (False, False)
    with lock:
        assert (lock.locked(), in_another_thread(lock.locked)) == (True, True)
    assert not lock.locked()


@pytest.mark.parametrize("kind", [OwnLock, CallLock])
def test_one_thread_at_a_time(kind: type[OwnLock]) -> None:
    """Y2: 4 threads count, and no increment is lost."""
    lock, count, least = kind(), 0, []

    def work() -> None:
        nonlocal count
        for _ in range(2000):
            with lock:
                before = count
                if before % 100 == 0:
                    threading.Event().wait(0)
                count = before + 1
                least.append(lock._is_owned())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert count == 8000 and all(least) and not lock._is_owned()


def test_a_thread_never_waits_for_itself() -> None:
    """Y1"""
    lock = OwnLock()
    with lock:
        with pytest.raises(ReentrantCall), lock:
            pass
        assert lock._is_owned() and not in_another_thread(lambda: lock._is_owned())
    assert not lock._is_owned() and in_another_thread(lambda: lock.acquire() and lock.release() is None)
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.release()


def test_calls_run_one_at_a_time_and_end_with_their_lock() -> None:
    lock = CallLock()
    with lock:
        with lock:
            lock.begins(LOG, "a roll")
            with lock, pytest.raises(KlogError, match="t-0: an append inside a roll of the same thread"):
                lock.begins(LOG, "an append")
            with pytest.raises(ReentrantCall):
                lock.check(LOG, "a close")
            assert in_another_thread(lambda: lock.check(LOG, "a close") is None)
            call = lock.pause()
            with lock:
                lock.begins(LOG, "an append")
            lock.resume(call)
            with pytest.raises(ReentrantCall, match="inside a roll"):
                lock.begins(LOG, "an append")
        lock.begins(LOG, "a flush")
    lock.check(LOG, "a close")


def test_a_call_under_beside_counts_as_a_call() -> None:
    lock = CallLock()
    with lock.beside, pytest.raises(ReentrantCall, match="a close inside a flush"):
        lock.check(LOG, "a close")
    with lock, lock.beside, pytest.raises(ReentrantCall, match="a close inside a flush"):
        lock.begins(LOG, "a close")
    with lock:
        lock.begins(LOG, "a close")


def test_a_condition_releases_every_level() -> None:
    lock = CallLock()
    condition = threading.Condition(lock)  # type: ignore[arg-type]
    with condition, lock:
        lock.begins(LOG, "a load")

        def other() -> bool:
            with condition:
                lock.begins(LOG, "a load")
                condition.notify_all()
            return True

        thread = threading.Thread(target=other)
        thread.start()
        assert condition.wait(PATIENCE)
        with pytest.raises(ReentrantCall):
            lock.begins(LOG, "a close")
    thread.join(PATIENCE)
    assert not lock._is_owned() and in_another_thread(lambda: lock.acquire())


def test_the_locks_of_a_directory(tmp_path: Any) -> None:
    with directory_lock(str(tmp_path)):
        with pytest.raises(ReentrantCall), directory_lock(str(tmp_path)):
            pass
        with directory_lock(str(tmp_path.parent)):
            pass
    with directory_lock(str(tmp_path)):
        pass
