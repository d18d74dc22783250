"""Memory that a call takes, measured so that other threads of the test process do not decide a test.

tracemalloc counts the whole process, and clients of earlier tests may still allocate in threads of their own. What they
allocate falls into some rounds, what the call needs into all.
"""

from __future__ import annotations

import gc
import statistics
import tracemalloc
from collections.abc import Callable


def _traced(call: Callable[[], object]) -> tuple[int, int]:
    """Bytes that the call left allocated, and the most that it had allocated at one time."""
    gc.collect()
    tracemalloc.start()
    try:
        call()
        peak = tracemalloc.get_traced_memory()[1]
        gc.collect()
        return tracemalloc.get_traced_memory()[0], peak
    finally:
        tracemalloc.stop()


def peak_bytes(call: Callable[[], object], rounds: int = 3) -> int:
    """The most bytes that the call had allocated at one time: the least of some rounds."""
    return min(_traced(call)[1] for _ in range(rounds))


def left_bytes(call: Callable[[], object], rounds: int = 9) -> float:
    """The bytes that a call leaves allocated when it has returned: the median of some rounds, after a first call."""
    call()
    return statistics.median(_traced(call)[0] for _ in range(rounds))
