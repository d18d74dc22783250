"""A whole log, first record to last, against its peer: see codec_contests.py and log_contests.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("contest", ["read 100B", "read 1KiB"], indirect=True)
def test_read(contest, place, measure):
    measure(contest, place)
