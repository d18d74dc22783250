"""A power cut at every operation of a cleaning with several rounds and groups, its checkpoint included; the disk keeps
any part of the unsynced changes. The log opens as the old or the new one, group by group, and the next cleaning has the
same outcome as an undisturbed one.

  W1  synced names exist, and what they replace is not removed before
  W2  an incomplete .swap does not win
  W3  each of a segment's files changes at its own moment
  W4  without syncs the old log and a .cleaned remain
  W5  a .deleted name replaces nothing
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import klog
from tests.crash.compaction import CHECKPOINT, CONFIG, Cleaning, Way, three_segments
from tests.support.crash_files import CrashFiles
from tests.support.power_cuts import PowerCuts, Tally

SMALL = {**CONFIG, "segment.bytes": 1000, "segment.index.bytes": 128}
ROUNDS = {"log.cleaner.dedupe.buffer.size": 24 * 7}
WAYS = {"log": Way(False, SMALL, ROUNDS), "manager": Way(True, SMALL, ROUNDS)}


def long_log(log: klog.Log) -> None:
    """A log with twice as many segments; the second half rolls by itself."""
    three_segments(log)
    for number in range(30):
        log.append([(b"key-%d" % (number % 11), b"later-%d" % number * 5, None)])


def cleaning_of(place: Path, way: str) -> Cleaning:
    cleaning = Cleaning(place, WAYS[way], long_log, one_group=False)
    assert cleaning.changes
    return cleaning


def cut(cleaning: Cleaning, *, stride: int, randoms: int, first: int = 0, seed: int = 0) -> tuple[Tally, list[str]]:
    """Clean a copy whose earlier content is durable. Return the outcome, and the operations."""

    def clean(root: Path, files: CrashFiles) -> None:
        shutil.copytree(cleaning.original, root)
        files.keep(root)
        cleaning.way.clean(root, files=files, abandoned=True)

    cuts = PowerCuts(
        cleaning.place,
        lambda root, _: cleaning.check(root),
        lambda *_: None,
        stride=stride,
        first=first,
        randoms=randoms,
        seed=seed,
    )
    return cuts.run(clean), cuts.log


@pytest.mark.parametrize("way", WAYS)
def test_a_power_cut_at_some_operations_of_a_cleaning(tmp_path: Path, way: str) -> None:
    """CL39, W1-W5, F4, F5, F6"""
    tally, steps = cut(cleaning_of(tmp_path / "c", way), stride=60, first=random.Random(way).randrange(60), randoms=1)
    assert sum(step.startswith("rename") and step.endswith(" " + CHECKPOINT) for step in steps) > 1
    assert len({step.split()[1] for step in steps if step.startswith("create") and ".log.cleaned" in step}) > 1
    assert tally.distinct > 12


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", WAYS)
def test_a_power_cut_at_every_operation_of_a_cleaning(tmp_path: Path, way: str, crash_seed: int) -> None:
    """CL39, W1-W5, F4, F5, F6"""
    tally, _ = cut(cleaning_of(tmp_path / "c", way), stride=1, randoms=2, seed=crash_seed)
    assert tally.distinct > 300
