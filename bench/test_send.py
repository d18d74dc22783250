"""A slice of a file to a socket: see send_contests.py."""

from __future__ import annotations

import pytest

from bench.send_contests import FACTORIES


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("contest", FACTORIES, indirect=True)
def test_send(contest, place, measure):
    measure(contest, place)
