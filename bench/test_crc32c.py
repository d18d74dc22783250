"""CRC-32C through Python, against its peer: see codec_contests.py and log_contests.py."""

from __future__ import annotations

import pytest

from bench.checksum_contests import FACTORIES


@pytest.mark.parametrize("place", range(2))
@pytest.mark.parametrize("contest", ["crc32c 1KiB", "crc32c 16KiB", "crc32c 1MiB"], indirect=True)
def test_crc32c(contest, place, measure):
    measure(contest, place)


@pytest.mark.parametrize("place", [-2, -1])  # how many kernels come before depends on the processor
@pytest.mark.parametrize("contest", FACTORIES, indirect=True)
def test_kernels(contest, place, measure):
    measure(contest, place)
