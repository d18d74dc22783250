"""Fetches over many segments, against the same over ten: see segment_contests.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize("contest", ["segments 1,000", "segments 20,000"], indirect=True)
def test_segments(contest, index, measure):
    measure(contest, index)
