"""A workload runs once. At all or a sample of its operations the power is cut and restored. The sample includes each
operation at which a cut may leave a clean-shutdown file.

At each of them the workload pauses, klog opens crash states of that moment, and the result is compared with what the
workload was promised so far. States of equal content are opened once, and compared again if a later moment has them
too. A run that has opened no state has failed: `Tally` counts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar
from unittest import mock

from klog.errors import CorruptLog
from klog.log.directory import checkpoint
from klog.log.options import Policy
from klog.manager import loading, manager
from klog.manager.pool import run_all
from tests.support.crash_files import CrashFiles, PowerCut
from tests.support.crash_states import Cut, State
from tests.support.state_directory import StateDirectory

Found = TypeVar("Found")
IDLE_MAX = 12
"""The choice at a cut ends after this many chosen states in a row that were seen before."""
AT_THE_END = 1 << 40
"""A stride: the power is cut at the end only."""


@dataclasses.dataclass
class Tally:
    """Counts of a run. steps: operations of the workload. cuts: operations at which the power was cut. states: crash
    states chosen. digests: of the states of different content, each of which was opened and read. compared: how often
    a state was compared with the promises. full: states that klog also appended to, stopped, opened again and verified.
    second: crashes while klog opened a state. refused: states that "strict" did not open."""

    steps: int = 0
    cuts: int = 0
    states: int = 0
    compared: int = 0
    full: int = 0
    second: int = 0
    refused: int = 0
    digests: set[int] = dataclasses.field(default_factory=set, repr=False)

    @property
    def distinct(self) -> int:
        """The number of states of different content."""
        return len(self.digests)

    def add(self, other: Tally) -> None:
        """Add the counts of another run."""
        for field in dataclasses.fields(self):
            if field.name != "digests":
                setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        self.digests |= other.digests

    def __str__(self) -> str:
        return (
            f"{self.steps} operations, {self.cuts} of them cut, {self.states} states chosen, "
            f"{self.compared} comparisons, {self.full} states appended to, stopped, opened again "
            f"and verified, {self.second} second crashes, {self.refused} refused by strict"
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Turn off klog's log lines inside the block: every recovery writes some."""
    logger = logging.getLogger("klog")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def cut_while(root: Path, rng: random.Random, steps_max: int, work: Callable[[CrashFiles], None]) -> State:
    """Cut the power at one of the first steps_max operations of work, or at its end. Returns what that leaves."""
    files = CrashFiles(rng.randrange(steps_max))
    files.keep(root)
    with contextlib.suppress(PowerCut):
        work(files)
    return files.cut(root).any_state(rng)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """klog loads and closes logs in the calling thread inside the block: the order of the operations of several threads,
    and so the case of a seed, depends on time."""

    def in_turn(jobs: Sequence[Callable[[], object]], _threads: int) -> list[BaseException]:
        return run_all(jobs, 1)

    with mock.patch.object(manager, "run_all", in_turn), mock.patch.object(loading, "run_all", in_turn):
        yield


class StateOpener(Protocol[Found]):
    """Opens crash states with klog. A call is a full check; tests/crash/opening.py documents the other methods."""

    def __call__(self, root: Path, recovery: Policy) -> Found: ...

    def quick(self, state: State, root: Path, recovery: Policy) -> Found: ...

    def interrupted(self, root: Path, recovery: Policy, rng: random.Random) -> State: ...


class PowerCuts(Generic[Found]):
    """Runs a workload, cuts the power, and checks what klog makes of the crash states.

    open_state(directory, recovery): opens the state laid out there, and returns its content. check_found(found,
    only_died): compares that content with the promises to the workload so far; only_died: the page cache is intact.

    stride: AT_THE_END cuts only there; any other also whenever the files may hold a clean-shutdown file.

    share: one of so many distinct states gets a full check. If it is above 1, `open_state` is a StateOpener, the other
    states get a quick check, and as many states as get a full check get a second crash.

    "strict" may refuse a state in which part of a page has landed without the rest, and with `torn` it may refuse any
    state: it then changes no log, and "kafka" opens the state. opened: called with each state after it was opened.
    promised: what check_found() compares with, as text for a reader of the output.
    """

    def __init__(
        self,
        place: Path,
        open_state: Callable[[Path, Policy], Found] | StateOpener[Found],
        check_found: Callable[[Found, bool], None],
        *,
        stride: int = 1,
        first: int = 0,
        randoms: int = 2,
        seed: int = 0,
        torn: bool = False,
        share: int = 1,
        opened: Callable[[State, Path], None] = lambda _state, _path: None,
        promised: Callable[[], object] = lambda: "",
    ) -> None:
        self.promised = promised
        self.root = place / "run"
        self.tally = Tally()
        self._states = StateDirectory(place / "states")
        self._open_state, self._check_found, self._opened = open_state, check_found, opened
        self._torn, self._share = torn, share
        self._stride, self._first, self._randoms, self._seed = stride, first, randoms, seed
        self._found: dict[int, Found] = {}
        self._failure: BaseException | None = None
        self._one = threading.RLock()  # one cut at a time
        self.files = CrashFiles(before_step=self._before_step)

    @property
    def log(self) -> list[str]:
        """The operations of the workload so far."""
        return self.files.log

    def run(self, workload: Callable[[Path, CrashFiles], None]) -> Tally:
        """Run workload(directory, files) once."""
        with contextlib.suppress(PowerCut), quiet(), one_thread():
            workload(self.root, self.files)
            self._cut()
        self.files.before_step = None  # no cycle of objects: what this one holds is released with it
        if self._failure is not None:
            raise self._failure
        self.tally.steps = self.files.steps
        assert self.tally.compared >= self.tally.distinct > 0, "this run has compared nothing"
        return self.tally

    def _before_step(self) -> None:
        with self._one:
            if self._failure is not None:
                raise PowerCut
            if self._stride == AT_THE_END:
                return
            if (self.files.steps - self._first) % self._stride == 0 or self._may_be_clean():
                self._cut()

    def _may_be_clean(self) -> bool:
        """Whether a cut may leave a clean-shutdown file. Such moments are few, so a cut is made at all of them."""
        marker = checkpoint.clean_shutdown_path(str(self.root))
        return marker in self.files.names or marker in self.files.durable_names

    def _cut(self) -> None:
        if not self.root.exists():
            return
        self.tally.cuts += 1
        rng = random.Random(self._seed * 1_000_003 + self.files.steps)
        for state in self._distinct(self.files.cut(self.root), rng):
            try:
                self.check(state, rng)
            except BaseException as error:
                error.add_note(f"seed={self._seed} stop_at={self.files.steps} state={state.name}: {self.log[-8:]}")
                self._failure = error
                raise PowerCut from None

    def _distinct(self, cut: Cut, rng: random.Random) -> Iterator[State]:
        """The states of one moment; states of equal content come once."""
        seen: set[int] = set()
        idle = 0
        for state in cut.states(rng, self._randoms):
            self.tally.states += 1
            idle = idle + 1 if state.key in seen or state.key in self._found else 0
            if state.key not in seen:
                seen.add(state.key)
                yield state
            if idle >= IDLE_MAX:
                return

    def check(self, state: State, rng: random.Random) -> None:
        """Open a state, unless one of equal content was opened before, and compare it with the promises."""
        key = state.key
        if key not in self._found:
            self._found[key] = self._open(state, self._states.lay_out(state))
            self.tally.digests.add(key & ((1 << 64) - 1))
            self._opened(state, self._states.path)
            if self._share > 1 and self.tally.distinct % self._share == self._share // 2:
                self._crash_again(state, rng)
        self._check_found(self._found[key], state.name == "all")
        self.tally.compared += 1

    def _open(self, state: State, at: Path) -> Found:
        if self._share > 1 and self.tally.distinct % self._share:
            open_state = self._quick(state)
        else:
            self.tally.full += 1
            open_state = self._open_state
        try:
            return open_state(at, "strict")
        except CorruptLog:
            if state.name == "all" or not (self._torn or state.by_sectors):
                raise
        self.tally.refused += 1
        for path, data in state.files.items():
            assert not path.endswith(".log") or (at / path).read_bytes() == data, f"{path}: refused, but changed"
        return open_state(at, "kafka")

    def _quick(self, state: State) -> Callable[[Path, Policy], Found]:
        opener: StateOpener[Found] = self._open_state  # type: ignore[assignment]
        return lambda at, recovery: opener.quick(state, at, recovery)

    def _crash_again(self, state: State, rng: random.Random) -> None:
        """Cut the power while klog opens the state, and open what is left."""
        opener: StateOpener[Found] = self._open_state  # type: ignore[assignment]
        at = self._states.lay_out(state)
        try:
            again = opener.interrupted(at, "strict", rng)
        except CorruptLog:
            at = self._states.lay_out(state)
            again = opener.interrupted(at, "kafka", rng)
        again = dataclasses.replace(again, name=f"{state.name}, then {again.name}", stop_at=state.stop_at)
        at = self._states.lay_out(again)
        try:
            found = opener.quick(again, at, "strict")
        except CorruptLog:
            if not (self._torn or state.by_sectors or again.by_sectors):
                raise
            found = opener.quick(again, at, "kafka")
        self._check_found(found, state.name == "all" and again.name.endswith("all"))
        self.tally.second += 1
