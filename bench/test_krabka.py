"""Beside Krabka's log crate: see krabka_contests.py. The times here include a pipe to its process and back."""

from __future__ import annotations

import pytest

from bench.krabka_contests import FACTORIES

pytestmark = pytest.mark.cargo


@pytest.mark.parametrize("index", [0, -1])
@pytest.mark.parametrize("contest", FACTORIES, indirect=True)
def test_krabka(contest, index, measure):
    measure(contest, index)
