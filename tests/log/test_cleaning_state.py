"""The cleaning state of a log: cleanings exclude each other, and a pause waits until none is running."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from klog.errors import ReentrantCall
from klog.log.state.cleaning_state import CleaningAborted, CleaningState
from tests.support.patience import PATIENCE, until


def in_thread(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def test_a_cleaning_ends_in_the_state_it_began_in() -> None:
    """CM10: ending a cleaning in state none or paused is an error; in progress becomes none, aborted becomes paused."""
    cleaning = CleaningState()
    with pytest.raises(AssertionError):
        cleaning.done()
    cleaning.pause()
    with pytest.raises(AssertionError):
        cleaning.done()
    assert cleaning.state == "paused"
    cleaning.resume()
    assert cleaning.try_begin()
    assert cleaning.state == "in progress"
    cleaning.done()
    assert cleaning.state == "none"
    assert cleaning.try_begin()
    pausing = in_thread(cleaning.pause)
    until(lambda: cleaning.state == "aborted")
    cleaning.done()
    pausing.join(PATIENCE)
    assert cleaning.state == "paused"
    cleaning.resume()
    assert cleaning.state == "none"
    with pytest.raises(AssertionError):
        cleaning.resume()


def test_two_pauses_need_two_resumes() -> None:
    """CM7: no cleaning begins before the second one; aborting also works if no cleaning is in progress."""
    cleaning = CleaningState()
    with cleaning.paused():
        pass
    assert cleaning.state == "none"
    cleaning.pause()
    cleaning.pause()
    assert cleaning.pauses == 2
    cleaning.resume()
    assert not cleaning.try_begin()
    assert cleaning.state == "paused"
    cleaning.resume()
    assert cleaning.state == "none"
    assert cleaning.try_begin()


def test_a_cleaning_ends_when_a_pause_waits() -> None:
    """CM7: also with several waiting threads. Each of them finds no cleaning, and in the end the state is none
    again."""
    cleaning, free, found = CleaningState(), threading.Event(), []

    def truncate() -> None:
        with cleaning.paused():
            found.append(cleaning.state)
            free.wait(PATIENCE)

    assert cleaning.try_begin()
    cleaning.check()
    threads = [in_thread(truncate) for _ in range(3)]
    until(lambda: cleaning.pauses == 3)
    with pytest.raises(CleaningAborted):
        cleaning.check()
    assert not found
    cleaning.done()
    until(lambda: len(found) == 3)
    free.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert found == ["paused"] * 3
    assert cleaning.state == "none"


def test_an_interrupted_wait_leaves_no_pause() -> None:
    cleaning = CleaningState()

    class Interrupted(threading.Condition):
        def wait_for(self, predicate: object, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    cleaning._condition = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        cleaning.pause()
    assert cleaning.state == "none"
    with pytest.raises(KeyboardInterrupt), cleaning.by_hand():
        pass
    assert cleaning.try_begin()


def test_a_cleaning_by_hand_aborts_a_background_one_and_waits_for_another_by_hand() -> None:
    cleaning, log, free = CleaningState(), [], threading.Event()

    def clean(name: str) -> None:
        with cleaning.by_hand():
            log.append(name)
            free.wait(PATIENCE)
            log.append(name)

    assert cleaning.try_begin()
    threads = [in_thread(lambda: clean("a")), in_thread(lambda: clean("b"))]
    until(lambda: cleaning._waiting == 2)
    with pytest.raises(CleaningAborted):
        cleaning.check()
    cleaning.done()
    until(lambda: len(log) == 1)
    assert not cleaning.try_begin()
    assert cleaning.state == "in progress"  # the other cleaning waits and does not abort it
    free.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert log in (["a", "a", "b", "b"], ["b", "b", "a", "a"])
    assert cleaning.state == "none"


def test_cleanings_by_hand_may_nest() -> None:
    cleaning = CleaningState()
    with cleaning.by_hand():
        with cleaning.by_hand():
            assert cleaning.mine
        assert cleaning.state == "in progress"
    assert cleaning.state == "none"


def test_a_pause_without_waiting() -> None:
    """CM6: retention skips a log that is being cleaned."""
    cleaning = CleaningState()
    assert cleaning.try_begin()
    assert not cleaning.try_pause()
    cleaning.done()
    assert cleaning.try_pause()
    assert not cleaning.try_begin()
    cleaning.resume()
    assert cleaning.try_begin()


def test_a_wait_inside_a_cleaning_is_woken_by_an_abort() -> None:
    cleaning, out = CleaningState(), []
    begun = threading.Event()

    def clean() -> None:
        assert cleaning.try_begin()
        begun.set()
        cleaning.wait(PATIENCE)
        out.append(cleaning.state)
        cleaning.done()

    thread = in_thread(clean)
    begun.wait(PATIENCE)
    with cleaning.paused():
        thread.join(PATIENCE)
    assert out == ["aborted"]


def test_a_thread_never_waits_for_itself() -> None:
    """Y1: a signal handler would do so during a pause, during the wait for one, or during a cleaning."""
    cleaning, met = CleaningState(), []

    class Interrupted(threading.Condition):
        def wait_for(self, predicate: Callable[[], object], timeout: float | None = None) -> bool:
            with pytest.raises(ReentrantCall), cleaning.by_hand():
                pass
            met.append(cleaning.pauses)
            return bool(super().wait_for(predicate, timeout))

    cleaning._condition = Interrupted()
    cleaning.pause()
    with pytest.raises(ReentrantCall):
        cleaning.check_reentry()
    with cleaning.paused():
        pass
    with pytest.raises(ReentrantCall), cleaning.by_hand():
        pass
    assert met == [1, 2]
    cleaning._condition = threading.Condition()
    cleaning.resume()
    assert cleaning.try_pause()
    with pytest.raises(ReentrantCall), cleaning.by_hand():
        pass
    cleaning.resume()
    with cleaning.by_hand():
        cleaning.check_reentry()
        with pytest.raises(ReentrantCall):
            cleaning.pause()
    assert cleaning.state == "none"


def test_another_thread_may_wait_for_a_pause() -> None:
    cleaning, done = CleaningState(), []

    def clean() -> None:
        with cleaning.by_hand():
            done.append(cleaning.state)

    cleaning.pause()
    thread = in_thread(clean)
    until(lambda: cleaning._waiting == 1)
    cleaning.resume()
    thread.join(PATIENCE)
    assert done == ["in progress"]
