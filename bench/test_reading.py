"""The policies of reading: see reading_contests.py."""

from __future__ import annotations

import pytest

from bench.reading_contests import FACTORIES


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize("contest", FACTORIES, indirect=True)
def test_reading(contest, index, measure):
    measure(contest, index)
