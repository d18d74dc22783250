"""Compaction, against its peers: see compaction_contests.py."""

from __future__ import annotations

import pytest

CONTESTS = ["keys in the map", "keys hashed 9B", "compact 100B", "compact zstd 100B, all different"]


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize(
    "contest", ["keys in the map", "keys hashed 9B", "compact 100B", "compact zstd 100B, all different"], indirect=True
)
def test_compact(contest, index, measure):
    measure(contest, index)
