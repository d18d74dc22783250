"""klog as an embedded store, against its peers: see store_contests.py."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize(
    "contest", [f"store {what} 100B" for what in ("append", "tuples", "scan", "commit")], indirect=True
)
def test_store(contest, index, measure):
    measure(contest, index)
