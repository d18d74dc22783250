"""Two threads against one: see thread_contests.py."""

from __future__ import annotations

import pytest

from bench.thread_contests import FACTORIES


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize("contest", FACTORIES, indirect=True)
def test_threads(contest, index, measure):
    measure(contest, index)
