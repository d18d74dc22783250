"""Batch headers as columns: see header_contests.py."""

from __future__ import annotations

import pytest

from bench.header_contests import FACTORIES


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("contest", FACTORIES, indirect=True)
def test_headers(contest, index, measure):
    measure(contest, index)
