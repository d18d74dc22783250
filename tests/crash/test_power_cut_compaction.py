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
from pathlib import Path

import pytest

from tests.crash.compaction import CHECKPOINT, WAYS, cleaning_of, cut_cleaning


@pytest.mark.parametrize("way", WAYS)
def test_a_power_cut_at_some_operations_of_a_cleaning(tmp_path: Path, way: str) -> None:
    """CL39, W1-W5, F4, F5, F6"""
    tally, steps = cut_cleaning(
        cleaning_of(tmp_path / "c", way), stride=60, first=random.Random(way).randrange(60), randoms=1
    )
    assert sum(step.startswith("rename") and step.endswith(" " + CHECKPOINT) for step in steps) > 1
    named = [word for step in steps if step.startswith(("create", "rename")) for word in step.split()[1:]]
    assert len({name for name in named if name.endswith(".log.cleaned")}) > 1
    assert tally.distinct > 12
