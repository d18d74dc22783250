"""The seed of a run, from which it draws what it cannot test whole: crash states, and a third of each long sweep.

A deep run has to end within 90 minutes. Runs with KLOG_CRASH_SEED=0, 1 and 2 test all of each sweep.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def drawn() -> int:
    """KLOG_CRASH_SEED, or a random seed; it is in the output of a test that fails."""
    seed = int(os.environ.get("KLOG_CRASH_SEED") or random.randrange(1 << 32))
    print(f"KLOG_CRASH_SEED={seed}")
    return seed


def third(items: Sequence[T], seed: int) -> Sequence[T]:
    """Every third item, from one on that the seed chooses."""
    return items[seed % 3 :: 3]
