"""Two threads against one: see thread_contests.py."""

from __future__ import annotations

import pytest

from bench.thread_contests import FACTORIES


@pytest.mark.parametrize("place", range(2))
@pytest.mark.parametrize("contest", FACTORIES, indirect=True)
def test_threads(contest, place, measure):
    measure(contest, place)
