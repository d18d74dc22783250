"""A broker's requests beside Kafka's broker: see broker_contests.py."""

from __future__ import annotations

import pytest

from bench.broker_contests import FACTORIES

pytestmark = pytest.mark.java


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize("contest", FACTORIES, indirect=True)
def test_broker(contest, index, measure):
    measure(contest, index)
