"""A slice of a file to a socket: see send_contests.py."""

from __future__ import annotations

import pytest

from bench.send_contests import FACTORIES

PAIRS = [name for name in FACTORIES if name.startswith(("send busy thread", "send after fetch"))]


@pytest.mark.parametrize("index", range(6))
@pytest.mark.parametrize("contest", [name for name in FACTORIES if name not in PAIRS], indirect=True)
def test_send(contest, index, measure):
    measure(contest, index)


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize("contest", PAIRS, indirect=True)
def test_send_beside_a_peer(contest, index, measure):
    measure(contest, index)
