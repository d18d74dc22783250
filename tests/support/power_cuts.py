"""A workload runs once; at all or a sample of its operations the power is cut and restored. The sample includes each
operation at which a cut may leave a clean-shutdown file.

At each of them the workload pauses, klog opens each crash state of that moment, and the result is compared with what
the workload was promised so far. States of equal content are opened once, and compared again if more was promised
meanwhile. A run that has opened no state has failed: `Tally` counts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from klog.errors import CorruptLog
from klog.log.directory import checkpoint
from klog.log.load.loader import Policy
from tests.support.crash_files import CrashFiles, PowerCut, State

Found = TypeVar("Found")


@dataclasses.dataclass
class Tally:
    """steps: operations of the workload. cuts: those at which power was cut. distinct: the states, equal content once.
    judged: how often a state was compared with the promises. refused: states that "strict" did not open."""

    steps: int = 0
    cuts: int = 0
    distinct: int = 0
    judged: int = 0
    refused: int = 0


class PowerCuts(Generic[Found]):
    """look(directory, recovery): opens the state laid out there, and returns its content. judge(found, only_died):
    compares that with the promises to the workload so far; only_died: the page cache is intact.

    "strict" may refuse a state in which part of a page has landed without the rest, and with `torn` any state: it then
    changes no log, and "kafka" opens it. opened: called with each state after look().
    """

    def __init__(
        self,
        place: Path,
        look: Callable[[Path, Policy], Found],
        judge: Callable[[Found, bool], None],
        *,
        stride: int = 1,
        first: int = 0,
        randoms: int = 2,
        seed: int = 0,
        torn: bool = False,
        opened: Callable[[State, Path], None] = lambda _state, _path: None,
    ) -> None:
        self.root = place / "run"
        self.tally = Tally()
        self._states = place / "states"
        self._look, self._judge, self._opened = look, judge, opened
        self._torn = torn
        self._stride, self._first, self._randoms, self._seed = stride, first, randoms, seed
        self._found: dict[bytes, Found] = {}
        self._failure: BaseException | None = None
        self._files = CrashFiles(before_step=self._before_step)

    @property
    def log(self) -> list[str]:
        """The operations of the workload so far."""
        return self._files.log

    def run(self, workload: Callable[[Path, CrashFiles], None]) -> Tally:
        """Run workload(directory, files) once."""
        with contextlib.suppress(PowerCut):
            workload(self.root, self._files)
            self._cut()
        if self._failure is not None:
            raise self._failure
        self.tally.steps = self._files.steps
        return self.tally

    def _before_step(self) -> None:
        if self._failure is not None:
            raise PowerCut
        if (self._files.steps - self._first) % self._stride == 0 or self._may_look_stopped():
            self._cut()

    def _may_look_stopped(self) -> bool:
        """Whether a cut may leave a clean-shutdown file. Such moments are few, and all of them are examined."""
        marker = checkpoint.clean_shutdown_path(str(self.root))
        return marker in self._files.names or marker in self._files.durable_names

    def _cut(self) -> None:
        if not self.root.exists():
            return
        self.tally.cuts += 1
        for state in self._files.cuts(self.root, self._seed + self._files.steps, self._randoms):
            try:
                self._check(state)
            except BaseException as error:
                error.add_note(
                    f"seed={self._seed} stop_at={self._files.steps} state={state.name}: {self._files.log[-8:]}"
                )
                self._failure = error
                raise PowerCut from None

    def _check(self, state: State) -> None:
        key = state.key
        if key not in self._found:
            shutil.rmtree(self._states, ignore_errors=True)
            self._found[key] = self._open(state, state.lay_out(self._states))
            self.tally.distinct += 1
            self._opened(state, self._states)
        self._judge(self._found[key], state.name == "all")
        self.tally.judged += 1

    def _open(self, state: State, at: Path) -> Found:
        try:
            return self._look(at, "strict")
        except CorruptLog:
            if state.name == "all" or not (self._torn or state.by_sectors):
                raise
        self.tally.refused += 1
        for path, data in state.files.items():
            assert not path.endswith(".log") or (at / path).read_bytes() == data, f"{path}: refused, but changed"
        return self._look(at, "kafka")
