"""CRC-32C through Python, against its peer: see codec_contests.py and log_contests.py."""

from __future__ import annotations

import pytest

from bench.checksum_contests import FACTORIES


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize("contest", ["crc32c 1KiB", "crc32c 16KiB", "crc32c 1MiB"], indirect=True)
def test_crc32c(contest, index, measure):
    measure(contest, index)


@pytest.mark.parametrize("index", [-2, -1])  # the number of kernels before these depends on the processor
@pytest.mark.parametrize("contest", FACTORIES, indirect=True)
def test_kernels(contest, index, measure):
    measure(contest, index)
