"""The cleaning state of a log: whether a cleaning, or a call that removes records, may change its closed segments.

    none         a cleaning may begin
    in progress  a cleaning runs, in the background or by hand
    aborted      a cleaning runs, and another call waits for it: it ends at its next chunk
    paused       no cleaning may begin until all pauses are resumed

  G1  at most one cleaning of a log at a time: two would write the same `.cleaned` files
  G2  a truncation, rename, deletion or close pauses first. Then no cleaning runs and none begins; a cleaning that ran
      before is finished, including its checkpoint
  G3  the condition's lock is the innermost of all: nothing is called while it is held. A thread that waits here holds
      no lock of a log, which the cleaning takes at its swap, and none of a manager, which its progress callback may
      take. A thread that holds the log's lock, or is the cleaning itself, does not wait: the cleaning notices its
      changes at the swap (Overtaken)
  G4  a thread never waits for itself: a signal handler that interrupts a pause of its own thread, or the wait for one,
      cannot clean the log and gets ReentrantCall (Y1 of klog/locks.pyx)

One condition serves all logs of a manager. Kafka: LogCleanerManager's map of states, with one difference: in Kafka a
second thread that pauses while the first still waits gets an error; here it waits, too.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Literal

from klog.errors import Overtaken, ReentrantCall
from klog.log.state._log_core import LogCore

State = Literal["none", "in progress", "aborted", "paused"]


class CleaningAborted(Overtaken):
    """Another call waits for the cleaning to end: a truncation, a deletion, a close, a cleaning by hand."""


class CleaningState:
    """The cleaning state of one log. Any thread.

    uncleanable: why the background cleaner skips the log, None if it does not. Reset when the log is closed, when all
    its records are removed, or when a cleaning by hand succeeds.
    """

    __slots__ = ("_condition", "_depth", "_foreground", "_holder", "_pausing", "_waiting", "uncleanable")

    def __init__(self, condition: threading.Condition | None = None) -> None:
        self._condition = condition or threading.Condition()
        self._holder: int | None = None  # the thread that cleans
        self._depth = 0
        self._foreground = False
        self._pausing: list[int] = []  # the thread of each pause, including those that still wait
        self._waiting = 0  # number of waiting cleanings by hand
        self.uncleanable: str | None = None

    def __repr__(self) -> str:
        return f"<CleaningState {self.state}>"

    def renew(self) -> None:
        """Reset in a forked child, where no other thread and no cleaning runs."""
        self.__init__()  # type: ignore[misc]

    @property
    def state(self) -> State:
        """The current state."""
        if self._holder is not None:
            return "aborted" if self.aborted else "in progress"
        return "paused" if self._pausing else "none"

    @property
    def pauses(self) -> int:
        """Number of pauses that are not resumed."""
        return len(self._pausing)

    def set_uncleanable(self, reason: str) -> None:
        """A cleaning has failed in a way that the next one would, too: the background cleaner leaves the log out."""
        self.uncleanable = reason

    def set_cleanable(self) -> None:
        """The records that could not be cleaned are gone, or a cleaning has succeeded."""
        self.uncleanable = None

    # ---- cleanings -------------------------------------------------------------------------------------------------

    @property
    def aborted(self) -> bool:
        """Is the running cleaning to end?"""
        return self._holder is not None and (bool(self._pausing) or (self._waiting > 0 and not self._foreground))

    def check(self) -> None:
        """Raise CleaningAborted if this thread's cleaning is to end. Called at every chunk."""
        if self.mine and self.aborted:
            raise CleaningAborted("the cleaning ends because another call waits for the log")

    def try_begin(self) -> bool:
        """Begin a background cleaning if none runs and no call waits. True: end it by done()."""
        with self._condition:
            if self._holder is not None or self._pausing or self._waiting:
                return False
            self._holder, self._depth, self._foreground = threading.get_ident(), 1, False
            return True

    def check_reentry(self) -> None:
        """Raise ReentrantCall if this thread itself has paused cleanings (G4)."""
        if not self.mine and threading.get_ident() in self._pausing:
            raise ReentrantCall(
                "a cleaning inside a call of the same thread that has paused cleanings: "
                "a signal handler must not clean; set a flag and clean after it returns"
            )

    @contextlib.contextmanager
    def by_hand(self) -> Iterator[None]:
        """A cleaning by hand. Waits for other cleanings by hand and for pauses, and aborts a background cleaning.

        A thread may nest it. Raises ReentrantCall.
        """
        with self._condition:
            self.check_reentry()
            if self._holder == threading.get_ident():
                self._depth += 1
            else:
                self._waiting += 1
                try:
                    self._condition.notify_all()  # wakes a background cleaning that waits for its throttle
                    self._condition.wait_for(lambda: self._holder is None and not self._pausing)
                    self._holder, self._depth, self._foreground = threading.get_ident(), 1, True
                finally:
                    self._waiting -= 1
                    self._condition.notify_all()
        try:
            yield
        finally:
            self.done()

    def done(self) -> None:
        """End the cleaning, successful or not. Only the thread that began it may call this."""
        with self._condition:
            assert self._holder is not None, f"no cleaning is in progress: {self.state}"
            self._depth -= 1
            if not self._depth:
                self._holder = None
                self._condition.notify_all()

    def wait(self, seconds: float, over: Callable[[], bool] = lambda: False) -> None:
        """Sleep during a cleaning, until it is aborted or over() is true. The caller that makes it true notifies the
        condition."""
        with self._condition:
            self._condition.wait_for(lambda: self.aborted or over(), min(seconds, threading.TIMEOUT_MAX))

    # ---- pauses ------------------------------------------------------------------------------------------------------

    @property
    def mine(self) -> bool:
        """Does this thread run the cleaning?"""
        return self._holder == threading.get_ident()

    def pause(self) -> None:
        """Abort the running cleaning, wait for its end, and let none begin until resume() is called once per pause.

        Raises ReentrantCall in the thread of the cleaning.
        """
        me = threading.get_ident()
        with self._condition:
            if self._holder == me:
                raise ReentrantCall("the same thread runs a cleaning, and would wait for itself")
            before = self._pausing.count(me)
            try:
                self._pausing.append(me)
                self._condition.notify_all()
                self._condition.wait_for(lambda: self._holder is None)
            except BaseException:  # Ctrl-C: undo the pause
                if self._pausing.count(me) > before:
                    self._unpause()
                raise

    def try_pause(self) -> bool:
        """Pause without waiting. False, and no pause, if a cleaning is in progress."""
        with self._condition:
            if self._holder is not None:
                return False
            self._pausing.append(threading.get_ident())
            return True

    def resume(self) -> None:
        """End one pause, one of this thread if there is one."""
        with self._condition:
            self._unpause()

    def _unpause(self) -> None:
        assert self._pausing, "there is no pause to end"
        me = threading.get_ident()
        self._pausing.remove(me if me in self._pausing else self._pausing[-1])
        self._condition.notify_all()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A context without cleanings."""
        self.pause()
        try:
            yield
        finally:
            self.resume()


def without_cleaning(log: LogCore) -> contextlib.AbstractContextManager[None]:
    """A context for removing records that a cleaning may be using: aborts the cleaning first, and lets none begin. A
    thread that holds the log's lock, or cleans, does not wait for it (G3)."""
    owned = log.lock._is_owned()
    return contextlib.nullcontext() if owned or log.cleaning.mine else log.cleaning.paused()


def cleaning_by_hand(log: LogCore) -> contextlib.AbstractContextManager[None]:
    """A context for rewriting closed segments by hand, without any other cleaning of this log, also by its manager. The
    caller holds no lock."""
    log.check_writable()
    return log.cleaning.by_hand()
