"""Columns, lists, tuples and single records to one batch, against its peer: see codec_contests.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("index", range(7))
@pytest.mark.parametrize("contest", ["encode 100B", "encode 1KiB"], indirect=True)
def test_encode(contest, index, measure):
    measure(contest, index)


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize("contest", ["encode 100B memcpy", "encode 1KiB memcpy"], indirect=True)
def test_encode_beside_a_copy(contest, index, measure):
    measure(contest, index)
