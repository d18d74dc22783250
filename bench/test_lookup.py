"""Offset to position through the index, against its peer: see codec_contests.py and log_contests.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("place", range(2))
@pytest.mark.parametrize("contest", ["lookup"], indirect=True)
def test_lookup(contest, place, measure):
    measure(contest, place)
