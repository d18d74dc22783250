"""Requests over the loopback: see network_contests.py."""

from __future__ import annotations

import importlib.util

import pytest

from bench.network_contests import FACTORIES


@pytest.mark.parametrize("index", range(4 if importlib.util.find_spec("uvloop") else 3))
@pytest.mark.parametrize("contest", FACTORIES, indirect=True)
def test_network(contest, index, measure):
    measure(contest, index)
