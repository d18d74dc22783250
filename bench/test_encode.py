"""Columns, lists, tuples and single records to one batch, against its peer: see codec_contests.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("place", range(7))
@pytest.mark.parametrize("contest", ["encode 100B", "encode 1KiB"], indirect=True)
def test_encode(contest, place, measure):
    measure(contest, place)


@pytest.mark.parametrize("place", range(2))
@pytest.mark.parametrize("contest", ["encode 100B memcpy", "encode 1KiB memcpy"], indirect=True)
def test_encode_beside_a_copy(contest, place, measure):
    measure(contest, place)
