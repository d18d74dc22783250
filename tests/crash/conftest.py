"""The seed of crash states that are not always the same."""

from __future__ import annotations

import os
import random

import pytest


@pytest.fixture
def crash_seed() -> int:
    """KLOG_CRASH_SEED, or another one each time; a failure names it."""
    return int(os.environ.get("KLOG_CRASH_SEED") or random.randrange(1 << 32))
