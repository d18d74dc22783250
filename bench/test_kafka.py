"""Beside Kafka's own classes in one JVM: see kafka_contests.py, engine_contests.py, append_contests.py,
cleaner_contests.py.

What is timed here includes a pipe to the JVM and back.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.java
SIZES = ["100B", "1KiB"]


@pytest.mark.parametrize("index", range(5))
@pytest.mark.parametrize("contest", [f"kafka decode {size}" for size in SIZES], indirect=True)
def test_decode(contest, index, measure):
    measure(contest, index)


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize(
    "contest",
    [f"kafka {what} {size}" for what in ("encode", "validate", "validate lz4") for size in SIZES],
    indirect=True,
)
def test_encode_and_validate(contest, index, measure):
    measure(contest, index)


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize(
    "contest",
    [
        *(f"kafka open {what}" for what in ("partitions", "segments")),
        "kafka recover 100B",
        *(f"kafka fetch {name}" for name in ("random", "sequential", "1MiB")),
        *(f"kafka translate {size}" for size in ("16KiB", "4KiB", "100B")),
        *(
            f"kafka append {role} {size} {codec}"
            for role in ("leader", "follower")
            for size in ("16KiB", "1MiB")
            for codec in ("none", "lz4")
        ),
        *(f"kafka compact {codec} {size}" for codec in ("none", "lz4") for size in SIZES),
    ],
    indirect=True,
)
def test_engine(contest, index, measure):
    measure(contest, index)
