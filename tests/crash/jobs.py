"""Power cuts during operations whose result is durable when they return: the durable operations of operations.py.

After a cut the operation's check must hold for the notes that it had made before the cut. With `deaths` a process may
also die inside the operation; the next process runs it again.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import klog
from klog.clock import ManualClock
from klog.log.options import Policy
from tests.crash.operations import OPERATIONS, Book, Operation
from tests.crash.staged import as_after_a_restart
from tests.support.abandon import abandon
from tests.support.batches import NOW
from tests.support.crash_files import CrashFiles, until_done
from tests.support.crash_states import State
from tests.support.numbered_names import numbered_names
from tests.support.power_cuts import PowerCuts, Tally, cut_while
from tests.support.state_directory import StateDirectory


@dataclass
class Found:
    """A state that was checked with this number of notes."""

    state: State | None
    notes: int


class JobOpener:
    """Checks a state with the check of the operation. A second crash interrupts the next start."""

    def __init__(self, place: Path, operation: Operation, book: Callable[[], Book]) -> None:
        self._place, self._operation, self._book = StateDirectory(place), operation, book

    def __call__(self, root: Path, recovery: Policy) -> Found:
        return self._checked(None, root)

    def quick(self, state: State, root: Path, recovery: Policy) -> Found:
        return self._checked(state, root)

    def _checked(self, state: State | None, root: Path) -> Found:
        notes = self._book().notes()
        as_after_a_restart(root)
        self._operation.check(root, notes)
        return Found(state, len(notes))

    def again(self, found: Found) -> None:
        """Check a state again if more notes have been made since."""
        if found.state is not None and found.notes < len(self._book().notes()):
            found.notes = self._checked(found.state, self._place.lay_out(found.state)).notes

    def interrupted(self, root: Path, recovery: Policy, rng: random.Random) -> State:
        as_after_a_restart(root)
        return cut_while(root, rng, 40, lambda files: start(root, files))


def start(root: Path, files: CrashFiles) -> None:
    """Start a process on the directory; the process then dies."""
    where = root / "data" if (root / "data").exists() else root
    logs = klog.open(where, clock=ManualClock(NOW), files=files)
    try:
        logs.load_all()
    finally:
        abandon(logs)


JOBS = [name for name, operation in OPERATIONS.items() if operation.run_on is not None]


def cut_job(
    place: Path,
    *,
    seed: int,
    randoms: int,
    stride: int = 1,
    share: int = 1,
    deaths: Iterable[int] = (),
    name: str | None = None,
    rig: type[PowerCuts[Found]] = PowerCuts,
) -> Tally:
    """Cut the power at every `stride`th disk operation of one of the jobs. deaths: operations at which processes die
    before that."""
    chosen = OPERATIONS[name or random.Random(seed).choice(JOBS)]
    original, book = place / "original", Book()
    original.mkdir(parents=True)
    chosen.prepare(original)
    opener = JobOpener(place / "again", chosen, lambda: book)

    def run(root: Path, files: CrashFiles) -> None:
        shutil.copytree(original, root)
        files.keep(root)
        until_done(files, deaths, lambda: once(root, files))

    def once(root: Path, files: CrashFiles) -> None:
        assert chosen.run_on is not None
        as_after_a_restart(root)
        with numbered_names(files.steps):
            chosen.run_on(root, book, files)

    cuts = rig(
        place,
        opener,
        lambda found, _only_died: opener.again(found),
        stride=stride,
        first=seed % stride,
        randoms=randoms,
        seed=seed,
        share=share,
        promised=book.notes,
    )
    return cuts.run(run)
