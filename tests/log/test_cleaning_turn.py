"""The cleaning state of a log: cleanings exclude each other, and a pause waits until none is running."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from klog.errors import ReentrantCall
from klog.log.retain.cleaning_state import CleaningAborted, CleaningState

WAIT = 30.0


def in_thread(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def until(true: Callable[[], bool]) -> None:
    """Wait until other threads have come this far."""
    passed = threading.Event()
    for _ in range(3000):
        if true():
            return
        passed.wait(0.01)
    raise AssertionError("they have not")


def test_a_cleaning_ends_in_the_state_it_began_in() -> None:
    """CM10: ending one in state none or paused is a mistake; in progress becomes none, aborted becomes paused."""
    turn = CleaningState()
    with pytest.raises(AssertionError):
        turn.done()
    turn.pause()
    with pytest.raises(AssertionError):
        turn.done()
    assert turn.state == "paused"
    turn.resume()
    assert turn.try_begin()
    assert turn.state == "in progress"
    turn.done()
    assert turn.state == "none"
    assert turn.try_begin()
    pausing = in_thread(turn.pause)
    until(lambda: turn.state == "aborted")
    turn.done()
    pausing.join(WAIT)
    assert turn.state == "paused"
    turn.resume()
    assert turn.state == "none"
    with pytest.raises(AssertionError):
        turn.resume()


def test_two_pauses_need_two_resumes() -> None:
    """CM7: and no cleaning begins before; aborting works where nothing is in progress."""
    turn = CleaningState()
    turn.abort()
    assert turn.state == "none"
    turn.pause()
    turn.pause()
    assert turn.pauses == 2
    turn.resume()
    assert not turn.try_begin()
    assert turn.state == "paused"
    turn.resume()
    assert turn.state == "none"
    assert turn.try_begin()


def test_a_cleaning_ends_when_a_pause_waits() -> None:
    """CM7: several waiting threads, too; each of them finds no cleaning, and in the end the state is none again."""
    turn, free, found = CleaningState(), threading.Event(), []

    def truncate() -> None:
        with turn.paused():
            found.append(turn.state)
            free.wait(WAIT)

    assert turn.try_begin()
    turn.check()
    threads = [in_thread(truncate) for _ in range(3)]
    until(lambda: turn.pauses == 3)
    with pytest.raises(CleaningAborted):
        turn.check()
    assert not found
    turn.done()
    until(lambda: len(found) == 3)
    free.set()
    for thread in threads:
        thread.join(WAIT)
    assert found == ["paused"] * 3
    assert turn.state == "none"


def test_an_interrupted_wait_leaves_no_pause() -> None:
    turn = CleaningState()

    class Interrupted(threading.Condition):
        def wait_for(self, predicate: object, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    turn._condition = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        turn.pause()
    assert turn.state == "none"
    with pytest.raises(KeyboardInterrupt), turn.by_hand():
        pass
    assert turn.try_begin()


def test_a_cleaning_by_hand_aborts_a_background_one_and_waits_for_another_by_hand() -> None:
    turn, log, free = CleaningState(), [], threading.Event()

    def clean(name: str) -> None:
        with turn.by_hand():
            log.append(name)
            free.wait(WAIT)
            log.append(name)

    assert turn.try_begin()
    threads = [in_thread(lambda: clean("a")), in_thread(lambda: clean("b"))]
    until(lambda: turn._waiting == 2)
    with pytest.raises(CleaningAborted):
        turn.check()
    turn.done()
    until(lambda: len(log) == 1)
    assert not turn.try_begin()
    assert turn.state == "in progress"  # the other cleaning waits and does not abort it
    free.set()
    for thread in threads:
        thread.join(WAIT)
    assert log in (["a", "a", "b", "b"], ["b", "b", "a", "a"])
    assert turn.state == "none"


def test_a_cleaning_by_hand_within_itself_is_refused() -> None:
    turn = CleaningState()
    with turn.by_hand():
        with turn.by_hand():
            assert turn.mine
        assert turn.state == "in progress"
    assert turn.state == "none"


def test_a_pause_without_waiting() -> None:
    """CM6: retention skips a log that is being cleaned."""
    turn = CleaningState()
    assert turn.try_begin()
    assert not turn.try_pause()
    turn.done()
    assert turn.try_pause()
    assert not turn.try_begin()
    turn.resume()
    assert turn.try_begin()


def test_a_wait_inside_a_cleaning_is_woken_by_a_pause() -> None:
    turn, out = CleaningState(), []
    begun = threading.Event()

    def clean() -> None:
        assert turn.try_begin()
        begun.set()
        turn.wait(WAIT)
        out.append(turn.state)
        turn.done()

    thread = in_thread(clean)
    begun.wait(WAIT)
    turn.abort()
    thread.join(WAIT)
    assert out == ["aborted"]


def test_a_thread_never_waits_for_itself() -> None:
    """Y1: as the handler of a signal would during a pause, its wait, or a cleaning."""
    turn, met = CleaningState(), []

    class Interrupted(threading.Condition):
        def wait_for(self, predicate: Callable[[], object], timeout: float | None = None) -> bool:
            with pytest.raises(ReentrantCall), turn.by_hand():
                pass
            met.append(turn.pauses)
            return bool(super().wait_for(predicate, timeout))

    turn._condition = Interrupted()
    turn.pause()
    with pytest.raises(ReentrantCall):
        turn.check_reentry()
    with turn.paused():
        pass
    with pytest.raises(ReentrantCall), turn.by_hand():
        pass
    assert met == [1, 2]
    turn._condition = threading.Condition()
    turn.resume()
    assert turn.try_pause()
    with pytest.raises(ReentrantCall), turn.by_hand():
        pass
    turn.resume()
    with turn.by_hand():
        turn.check_reentry()
        with pytest.raises(ReentrantCall):
            turn.pause()
    assert turn.state == "none"


def test_another_thread_may_wait_for_a_pause() -> None:
    turn, done = CleaningState(), []

    def clean() -> None:
        with turn.by_hand():
            done.append(turn.state)

    turn.pause()
    thread = in_thread(clean)
    until(lambda: turn._waiting == 1)
    turn.resume()
    thread.join(WAIT)
    assert done == ["in progress"]
