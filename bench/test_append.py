"""Records to disk, against its peer: see codec_contests.py and log_contests.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("contest", ["append 100B", "append 1KiB"], indirect=True)
def test_append(contest, place, measure):
    measure(contest, place)
