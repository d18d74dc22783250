"""Beside Kafka's own classes in one JVM: see kafka_contests.py. What is timed here includes a pipe to it and back."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.java
SIZES = ["100B", "1KiB"]


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("contest", [f"kafka decode {size}" for size in SIZES], indirect=True)
def test_decode(contest, place, measure):
    measure(contest, place)


@pytest.mark.parametrize("place", range(2))
@pytest.mark.parametrize(
    "contest",
    [f"kafka {what} {size}" for what in ("encode", "validate", "validate lz4") for size in SIZES],
    indirect=True,
)
def test_encode_and_validate(contest, place, measure):
    measure(contest, place)
