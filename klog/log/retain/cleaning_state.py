"""Whose turn it is at the closed segments of a log: a cleaning's, or that of somebody who takes records away.

    none         a cleaning may begin
    in progress  one is at work, in the background or by hand
    aborted      the same, but somebody waits: it ends at its next chunk
    paused       none may begin until everybody who waited has resumed

  G1  at most one cleaning of a log at a time: two would write the same `.cleaned` files
  G2  who truncates, renames, deletes or closes pauses first, and so finds no cleaning under way and starts none; what a
      cleaning has done by then, its checkpoint included, is done before that
  G3  the condition's lock is the innermost of all: nothing is called while it is held. Who waits here holds no lock of
      a log's and none of a manager's, since a cleaning takes the first at its swap and whoever hears of its progress
      may take the second. A thread that holds the log's lock, or is the cleaning itself, does not wait: what it changes
      the cleaning finds out at its swap (Overtaken)
  G4  a thread never waits for itself: a signal's handler that comes over a pause of its own thread, or over the wait
      for one, cannot clean the log, and hears ReentrantCall (Y1 of klog/locks.pyx)

One condition serves all logs of a manager. Kafka: LogCleanerManager's map of states, with one difference: there a
second thread that pauses while the first still waits is an error, here it waits, too.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Literal

from klog.errors import KlogError, ReentrantCall

State = Literal["none", "in progress", "aborted", "paused"]


class Overtaken(KlogError):
    """The log has changed under the cleaning: retention, truncation or a new name of its directory."""


class CleaningAborted(Overtaken):
    """Somebody waits for the cleaning to end: a truncation, a deletion, a stop, a cleaning by hand."""


class CleaningState:
    """Of one log. Any thread.

    uncleanable: why the background leaves the log alone for good, None while it does not. It ends with the log, with
    all of its records, or with a cleaning by hand that comes to its end.
    """

    __slots__ = ("_condition", "_depth", "_foreground", "_holder", "_pausing", "_waiting", "uncleanable")

    def __init__(self, condition: threading.Condition | None = None) -> None:
        self._condition = condition or threading.Condition()
        self._holder: int | None = None  # the thread that cleans
        self._depth = 0
        self._foreground = False
        self._pausing: list[int] = []  # the thread of each pause, those that still wait for theirs included
        self._waiting = 0  # those who want to clean by hand
        self.uncleanable: str | None = None

    def __repr__(self) -> str:
        return f"<CleaningState {self.state}>"

    def renew(self) -> None:
        """In a forked child: no other thread is there, and no cleaning."""
        self.__init__()  # type: ignore[misc]

    @property
    def state(self) -> State:
        """What holds of the log now."""
        if self._holder is not None:
            return "aborted" if self.aborted else "in progress"
        return "paused" if self._pausing else "none"

    @property
    def pauses(self) -> int:
        """How many have paused it and not resumed."""
        return len(self._pausing)

    # ---- who cleans ------------------------------------------------------------------------------------------------

    @property
    def aborted(self) -> bool:
        """Shall the cleaning that is under way end?"""
        return self._holder is not None and (bool(self._pausing) or (self._waiting > 0 and not self._foreground))

    def check(self) -> None:
        """CleaningAborted where this thread's cleaning shall end. It asks at every chunk."""
        if self.mine and self.aborted:
            raise CleaningAborted("somebody waits for the cleaning to end")

    def try_begin(self) -> bool:
        """For the background: is it its turn now? Then done() ends it."""
        with self._condition:
            if self._holder is not None or self._pausing or self._waiting:
                return False
            self._holder, self._depth, self._foreground = threading.get_ident(), 1, False
            return True

    def check_reentry(self) -> None:
        """ReentrantCall where this thread itself keeps cleanings away (G4)."""
        if not self.mine and threading.get_ident() in self._pausing:
            raise ReentrantCall(
                "a cleaning inside a call that keeps cleanings away, which is under way in the same thread: "
                "a signal handler can only leave word of what is to be done behind it"
            )

    @contextlib.contextmanager
    def by_hand(self) -> Iterator[None]:
        """A cleaning that somebody asked for: it waits for others of its kind and for who has paused, and ends one of
        the background. Within itself it may come again. Raises ReentrantCall."""
        with self._condition:
            self.check_reentry()
            if self._holder == threading.get_ident():
                self._depth += 1
            else:
                self._waiting += 1
                try:
                    self._condition.notify_all()  # the background, which may wait for its throttle
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
        """The cleaning is over, however it went. Only who has begun may say so."""
        with self._condition:
            assert self._holder is not None, f"no cleaning is under way: {self.state}"
            self._depth -= 1
            if not self._depth:
                self._holder = None
                self._condition.notify_all()

    def wait(self, seconds: float, over: Callable[[], bool] = lambda: False) -> None:
        """Let time pass in the middle of a cleaning, less of it where that shall end, or something else is over: who
        sees to that notifies the condition."""
        with self._condition:
            self._condition.wait_for(lambda: self.aborted or over(), min(seconds, threading.TIMEOUT_MAX))

    # ---- who keeps cleanings away ------------------------------------------------------------------------------------

    @property
    def mine(self) -> bool:
        """Is it this thread that cleans?"""
        return self._holder == threading.get_ident()

    def pause(self) -> None:
        """End the cleaning that is under way, if there is one, and let none begin until resume(): once for each
        pause. Raises ReentrantCall in the thread that cleans."""
        me = threading.get_ident()
        with self._condition:
            if self._holder == me:
                raise ReentrantCall("a cleaning is under way in the same thread, which would wait for its own end")
            before = self._pausing.count(me)
            try:
                self._pausing.append(me)
                self._condition.notify_all()
                self._condition.wait_for(lambda: self._holder is None)
            except BaseException:  # Ctrl-C: it is as if nobody had asked
                if self._pausing.count(me) > before:
                    self._unpause()
                raise

    def try_pause(self) -> bool:
        """Pause where that needs no waiting. False: a cleaning is under way."""
        with self._condition:
            if self._holder is not None:
                return False
            self._pausing.append(threading.get_ident())
            return True

    def resume(self) -> None:
        """Take one pause back, one of this thread's if there is one."""
        with self._condition:
            self._unpause()

    def _unpause(self) -> None:
        assert self._pausing, "nobody has paused"
        me = threading.get_ident()
        self._pausing.remove(me if me in self._pausing else self._pausing[-1])
        self._condition.notify_all()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Without cleanings meanwhile."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def abort(self) -> None:
        """End the cleaning that is under way."""
        with self.paused():
            pass
