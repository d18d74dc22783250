"""The seed of random crash states; Kafka, which loads them."""

from __future__ import annotations

import os
import random

import pytest

from tests.interop.conftest import judge, kafka

__all__ = ["crash_seed", "judge", "kafka"]


@pytest.fixture
def crash_seed() -> int:
    """KLOG_CRASH_SEED, or a random one; a failure names it."""
    return int(os.environ.get("KLOG_CRASH_SEED") or random.randrange(1 << 32))
