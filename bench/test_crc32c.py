"""CRC-32C through Python, against its peer: see codec_contests.py and log_contests.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("place", range(2))
@pytest.mark.parametrize("contest", ["crc32c 1KiB", "crc32c 16KiB", "crc32c 1MiB"], indirect=True)
def test_crc32c(contest, place, measure):
    measure(contest, place)
