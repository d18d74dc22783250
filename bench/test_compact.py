"""Compaction, against its peers: see compaction_contests.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("place", range(2))
@pytest.mark.parametrize("contest", ["keys in the map", "compact 100B"], indirect=True)
def test_compact(contest, place, measure):
    measure(contest, place)
