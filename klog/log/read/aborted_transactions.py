"""The aborted transactions of a range of offsets, from the transaction indexes of several segments.

The marker that aborts a transaction may be in any segment after its records, and most segments have none. So the finder
remembers which closed segments have no aborted transactions, and skips them in the next lookup.

Any thread. The memory holds for one tuple of segments: a roll, retention or truncation makes another. Kafka:
UnifiedLog.collectAbortedTransactions, which reads the index of each segment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klog.log.state.segments import number_of
from klog.segment import AbortedTransaction, Segment, collect_aborted


class AbortedFinder:
    """Finds the aborted transactions of one log."""

    def __init__(self) -> None:
        # A tuple of segments, and {number of a closed one without entries: number of the next that may have some}.
        self._known: tuple[Sequence[Segment], dict[int, int]] = ((), {})

    def forget(self) -> None:
        """Drop the memory: a closed segment may have new entries."""
        self._known = ((), {})

    def find(
        self,
        segments: Sequence[Segment],
        low: int,
        high: int,
        entries_of: Callable[[Segment], Sequence[AbortedTransaction]],
    ) -> list[AbortedTransaction]:
        """The aborted transactions with records or marker in [low, high), in the order of their markers."""
        known = self._known
        if known[0] is not segments:
            known = self._known = (segments, {})
        following = known[1]
        last = len(segments) - 1
        found: list[AbortedTransaction] = []
        passed: list[int] = []
        number = number_of(segments, low)
        while number <= last:
            beyond = following.get(number)
            if beyond is not None:
                passed.append(number)
                number = beyond
                continue
            entries = entries_of(segments[number])
            if not entries and number < last:
                passed.append(number)
                number += 1
                continue
            following.update(dict.fromkeys(passed, number))
            passed = []
            part, complete = collect_aborted(entries, low, high)
            found += part
            if complete:
                break
            number += 1
        return found
