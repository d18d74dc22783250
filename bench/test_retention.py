"""A round of retention over many logs, beside a walk over their segments: see retention_contests.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize("contest", ["retention round"], indirect=True)
def test_retention(contest, index, measure):
    measure(contest, index)
