"""klog's codecs against the codecs' own C code: see compression_contests.py."""

from __future__ import annotations

import pytest

from bench.compression_contests import FACTORIES


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize("contest", FACTORIES, indirect=True)
def test_compression(contest, index, measure):
    measure(contest, index)
