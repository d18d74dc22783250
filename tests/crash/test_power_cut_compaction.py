"""Power goes at every operation of a whole cleaning of several rounds and groups, its checkpoint included; the disk keeps
any part of what was not synced. The log opens as the old or the new one, group by group, and the next cleaning ends where
an undisturbed one does.

  W1  names that were synced are there, and what they replace is not gone before
  W2  a .swap whose bytes are not all there does not win
  W3  each of a segment's files has its own moment
  W4  what was never synced leaves the old log and a .cleaned
  W5  a .deleted name takes the place of nothing
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import klog
from tests.crash.compaction import CHECKPOINT, CONFIG, Cleaning, Way, three_segments
from tests.support.crash_files import CrashFiles, PowerCut

SMALL = {**CONFIG, "segment.bytes": 1000, "segment.index.bytes": 128}
ROUNDS = {"log.cleaner.dedupe.buffer.size": 24 * 7}
WAYS = {"log": Way(False, SMALL, ROUNDS), "manager": Way(True, SMALL, ROUNDS)}
SAMPLE = 10


def long_log(log: klog.Log) -> None:
    """Twice as many segments, the second half of which rolls by itself."""
    three_segments(log)
    for number in range(30):
        log.append([(b"key-%d" % (number % 11), b"later-%d" % number * 5, None)])


def cleaning_of(place: Path, way: str) -> Cleaning:
    cleaning = Cleaning(place, WAYS[way], long_log, one_group=False)
    assert cleaning.changes
    return cleaning


def cut(cleaning: Cleaning, stop_at: int | None) -> CrashFiles:
    """Clean a copy until its power goes. What was there before is durable."""
    root = cleaning.copy()
    files = CrashFiles(stop_at)
    files.keep(root)
    try:
        cleaning.way.clean(root, files=files, abandoned=True)
    except PowerCut:
        pass
    return files


def cut_and_check(cleaning: Cleaning, stop_at: int, *, randoms: int) -> None:
    files = cut(cleaning, stop_at)
    out = cleaning.place / "states"
    for state, root in files.states(cleaning.place / "copy", out, stop_at, randoms):
        try:
            cleaning.check(root)
        except BaseException as error:
            error.add_note(f"stop_at={stop_at} state={state}: {files.log[-3:]}")
            raise
    shutil.rmtree(out)


@pytest.mark.parametrize("way", WAYS)
def test_power_goes_at_some_operations_of_a_cleaning(tmp_path: Path, way: str) -> None:
    """CL39, W1-W5, F4, F5, F6"""
    cleaning = cleaning_of(tmp_path / "c", way)
    steps = cut(cleaning, None).log
    assert sum(step.startswith("rename") and step.endswith(" " + CHECKPOINT) for step in steps) > 1
    assert len({step.split()[1] for step in steps if step.startswith("create") and ".log.cleaned" in step}) > 1
    stride = len(steps) // SAMPLE
    for stop_at in range(random.Random(way).randrange(stride), len(steps), stride):
        cut_and_check(cleaning, stop_at, randoms=1)


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", WAYS)
def test_power_goes_at_every_operation_of_a_cleaning(tmp_path: Path, way: str) -> None:
    """CL39, W1-W5, F4, F5, F6"""
    cleaning = cleaning_of(tmp_path / "c", way)
    for stop_at in range(len(cut(cleaning, None).log) + 1):
        cut_and_check(cleaning, stop_at, randoms=2)
