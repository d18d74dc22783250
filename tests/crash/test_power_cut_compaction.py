"""A power cut at every operation of a cleaning with several rounds and groups, including its checkpoint. The disk keeps
any part of the unsynced changes. Each group of segments opens in its old or its new state, and the next cleaning has
the same result as one without a power cut.

  W1  the new names are synced before the files that they replace are removed
  W2  an incomplete .swap does not replace a segment
  W3  the files of one segment may be renamed at different moments
  W4  without syncs the old log and a .cleaned remain
  W5  a .deleted name replaces nothing
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.compaction import CHECKPOINT, SETUPS, cleaning_of, cut_cleaning


@pytest.mark.parametrize("setup", SETUPS)
def test_a_power_cut_at_some_operations_of_a_cleaning(tmp_path: Path, setup: str) -> None:
    """CL39, W1-W5, F4, F5, F6"""
    tally, steps = cut_cleaning(
        cleaning_of(tmp_path / "c", setup), stride=60, first=random.Random(setup).randrange(60), randoms=1
    )
    assert sum(step.startswith("rename") and step.endswith(" " + CHECKPOINT) for step in steps) > 1
    named = [word for step in steps if step.startswith(("create", "rename")) for word in step.split()[1:]]
    assert len({name for name in named if name.endswith(".log.cleaned")}) > 1
    assert tally.distinct > 12
