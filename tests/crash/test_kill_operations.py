"""SIGKILL at every system call of every operation of the engine, and in the middle of every write: F1, F2.

The ordinary run kills at a few calls, different ones for each operation; `deep` at a third of the calls that change
something.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.crash.interrupted import OPERATIONS
from tests.crash.operations import Book
from tests.support.child import in_new_process
from tests.support.killer import killed_at
from tests.support.seeds import third

SAMPLE = 3


class Kills:
    """Runs one operation in forked processes on copies of what it starts with."""

    def __init__(self, place: Path, name: str) -> None:
        self.place, self.operation = place, OPERATIONS[name]
        (place / "prepared").mkdir()
        self.operation.prepare(place / "prepared")

    def calls(self, *, tear: bool = False) -> range:
        """The numbers of the calls that may change something."""
        self._copy()
        end = killed_at(0, self._work, tear=tear)
        self.operation.check(self.place / "run", self._book.notes())
        return range(1, len(end.calls) + 1)

    def at(self, nth: int, *, tear: bool = False) -> bool:
        """Kill at the nth call, and check the directory. Returns whether the operation was killed before its end."""
        self._copy()
        end = killed_at(nth, self._work, tear=tear)
        try:
            self.operation.check(self.place / "run", self._book.notes())
        except BaseException as error:
            error.add_note(f"nth={nth} tear={tear}, after {end.calls[-3:]}")
            raise
        return end.killed

    def _copy(self) -> None:
        shutil.rmtree(self.place / "run", ignore_errors=True)
        shutil.copytree(self.place / "prepared", self.place / "run")
        self._book = Book()

    def _work(self, armed: object) -> None:
        assert callable(armed)
        armed()
        self.operation.run(self.place / "run", self._book)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_kill_at_some_system_calls_of_every_operation(quick_path: Path, name: str) -> None:
    kills = Kills(quick_path, name)
    calls = kills.calls()
    stride = max(1, len(calls) // SAMPLE)
    for nth in calls[random.Random(name).randrange(stride) :: stride]:
        kills.at(nth)


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_kill_at_a_third_of_the_system_calls_of_every_operation(quick_path: Path, name: str, crash_seed: int) -> None:
    in_new_process(kill_at_a_third_of_the_calls, quick_path, name, crash_seed)


def kill_at_a_third_of_the_calls(place: Path, name: str, seed: int) -> None:
    kills = Kills(place, name)
    for nth in third(kills.calls(), seed):
        kills.at(nth)
    for nth in third(kills.calls(tear=True), seed):
        kills.at(nth, tear=True)
