"""SIGKILL at every system call of a cleaning leaves the old log or the new one, with the same value for each key.

The ordinary run kills at a few of them, seeded; `deep` at all.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from tests.crash.compaction import CONFIG, Cleaning, Setup, TaskSetup
from tests.support.dirty_logs import DirtyLog
from tests.support.killer import killed_at

SETUPS = {
    "log": Setup(False, CONFIG, {}),
    "manager": Setup(True, CONFIG, {}),
    "tasks": TaskSetup(True, CONFIG, {}, roll=True),
}
SAMPLE = 8


def kill_and_check(cleaning: Cleaning, nth: int, *, tear: bool = False) -> bool:
    """Kill the cleaning at the nth call, and check the directory. Returns whether it was killed before its end."""
    root = cleaning.copy()
    end = killed_at(nth, lambda armed: cleaning.setup.clean(root, armed), tear=tear)
    try:
        cleaning.check(root)
    except BaseException as error:
        error.add_note(f"nth={nth} tear={tear}, after {end.calls[-3:]}")
        raise
    return end.killed


def calls_of(cleaning: Cleaning, *, tear: bool = False) -> list[str]:
    """The system calls of an undisturbed cleaning."""
    root = cleaning.copy()
    return killed_at(0, lambda armed: cleaning.setup.clean(root, armed), tear=tear).calls


@pytest.mark.parametrize("setup", SETUPS)
def test_a_kill_at_some_system_calls_of_a_cleaning(quick_path: Path, setup: str) -> None:
    """CL39, F1, W1, W3, W5: before calls that change something, and in the middle of a write."""
    cleaning = Cleaning(quick_path, SETUPS[setup])
    assert cleaning.changes
    calls = calls_of(cleaning)
    assert {"rename", "fsync", "pwrite64"} <= set(calls)
    stride = len(calls) // SAMPLE
    for nth in range(1 + random.Random(setup).randrange(stride), len(calls) + 1, stride):
        assert kill_and_check(cleaning, nth)
    writes = len(calls_of(cleaning, tear=True))
    assert kill_and_check(cleaning, random.Random(setup).randrange(writes) + 1, tear=True)


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("setup", SETUPS)
def test_a_kill_at_every_system_call_of_a_cleaning(quick_path: Path, setup: str) -> None:
    """CL39, F1, F2, W1, W3, W5: for n = 1, 2, ... until a run has fewer calls; then in the middle of every write."""
    cleaning = Cleaning(quick_path, SETUPS[setup])
    for tear, least in ((False, 50), (True, 4)):
        nth = 1
        while kill_and_check(cleaning, nth, tear=tear):
            nth += 1
            assert nth < 10_000, "no attempt succeeded"
        assert nth > least


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [0, 1, 2, 5, 7, 9, 10, 14, 17, 20, 29, 35])
def test_a_kill_at_some_system_calls_of_larger_cleanings(quick_path: Path, seed: int) -> None:
    """CL39: many segments, transactions, all codecs, cleanup.policy=compact,delete; the offset map holds a few keys, so
    that a cleaning needs many rounds."""
    dirty = DirtyLog(seed)

    def fill(log: klog.Log) -> None:
        assert isinstance(log.clock, ManualClock)
        for _ in range(4):
            dirty.append_to(log, log.clock)

    broker = {"log.cleaner.dedupe.buffer.size": 24 * (4, 12, 5000)[seed % 3]}
    cleaning = Cleaning(quick_path, Setup(False, dirty.config, broker, seed % 2 == 0), fill, one_group=False)
    assert cleaning.changes
    count = len(calls_of(cleaning))
    chance = random.Random(seed)
    for nth in sorted(chance.sample(range(1, count + 1), min(25, count))):
        assert kill_and_check(cleaning, nth)
    writes = len(calls_of(cleaning, tear=True))
    for _ in range(5):
        assert kill_and_check(cleaning, chance.randrange(writes) + 1, tear=True)
