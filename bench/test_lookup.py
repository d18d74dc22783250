"""Offset to position through the index, against its peer: see log_contests.py and lookup_contests.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize("contest", ["lookup"], indirect=True)
def test_lookup(contest, index, measure):
    measure(contest, index)


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize("contest", ["lookup in C, 1 MiB", "lookup in C, 10 MiB"], indirect=True)
def test_lookup_in_c(contest, index, measure):
    measure(contest, index)
