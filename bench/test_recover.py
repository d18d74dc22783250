"""Opening a log after a crash, against its peer: see codec_contests.py and log_contests.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize("contest", ["recover 100B"], indirect=True)
def test_recover(contest, index, measure):
    measure(contest, index)
