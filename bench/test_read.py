"""A whole log, first record to last, against its peer: see codec_contests.py and log_contests.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("index", range(5))
@pytest.mark.parametrize("contest", ["read 100B", "read 1KiB"], indirect=True)
def test_read(contest, index, measure):
    measure(contest, index)


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("contest", ["slice 64KiB", "verify 100B"], indirect=True)
def test_slice_and_verify(contest, index, measure):
    measure(contest, index)
