"""Memory that a call takes, without the memory that other threads of the test process allocate at the same time.

tracemalloc counts the whole process, and clients of earlier tests may still run in threads of their own. Memory that
stays allocated is counted only if klog or a test has allocated it. A peak is the smallest of some rounds.
"""

from __future__ import annotations

import gc
import statistics
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import klog

_OURS = [
    tracemalloc.Filter(True, f"{folder}/*")
    for folder in (Path(klog.__file__).parent, Path(__file__).resolve().parent.parent)
]


def _traced(call: Callable[[], object]) -> tuple[int, int]:
    """The bytes that the call left allocated, and the peak of the bytes that the process had allocated."""
    gc.collect()
    tracemalloc.start()
    try:
        call()
        peak = tracemalloc.get_traced_memory()[1]
        gc.collect()
        left = tracemalloc.take_snapshot().filter_traces(_OURS).traces
        return sum(trace.size for trace in left), peak
    finally:
        tracemalloc.stop()


def peak_bytes(call: Callable[[], object], rounds: int = 3) -> int:
    """The peak of the bytes that were allocated during the call: the smallest of some rounds."""
    return min(_traced(call)[1] for _ in range(rounds))


def left_bytes(call: Callable[[], object], rounds: int = 9) -> float:
    """The bytes that a call leaves allocated when it has returned: the median of some rounds, after a first call."""
    call()
    return statistics.median(_traced(call)[0] for _ in range(rounds))
