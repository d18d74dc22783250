"""A round of retention over many logs, against a walk over their segments: see retention_contests.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("place", range(2))
@pytest.mark.parametrize("contest", ["retention round"], indirect=True)
def test_retention(contest, place, measure):
    measure(contest, place)
