"""Beside Krabka's log crate: see krabka_contests.py. What is timed here includes a pipe to its process and back."""

from __future__ import annotations

import pytest

from bench.krabka_contests import FACTORIES

pytestmark = pytest.mark.cargo


@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("contest", FACTORIES, indirect=True)
def test_krabka(contest, place, measure):
    measure(contest, place)
