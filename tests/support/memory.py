"""Memory that a call takes, without what other threads of the test process allocate meanwhile.

tracemalloc counts the whole process, and clients of earlier tests may still work in threads of their own. What stays
allocated is counted by where it was allocated: in klog or in a test. A peak is the least of some rounds.
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
    """Bytes that the call left allocated, and the most that the process had allocated at one time."""
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
    """The most bytes that were allocated at one time during the call: the least of some rounds."""
    return min(_traced(call)[1] for _ in range(rounds))


def left_bytes(call: Callable[[], object], rounds: int = 9) -> float:
    """The bytes that a call leaves allocated when it has returned: the median of some rounds, after a first call."""
    call()
    return statistics.median(_traced(call)[0] for _ in range(rounds))
