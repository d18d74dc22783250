"""A slice of a file to a socket: see send_contests.py."""

from __future__ import annotations

import pytest

from bench.send_contests import FACTORIES

BUSY = "send busy thread 64KiB"


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("contest", [name for name in FACTORIES if name != BUSY], indirect=True)
def test_send(contest, place, measure):
    measure(contest, place)


@pytest.mark.parametrize("place", range(2))
@pytest.mark.parametrize("contest", [BUSY], indirect=True)
def test_send_beside_a_busy_thread(contest, place, measure):
    measure(contest, place)
