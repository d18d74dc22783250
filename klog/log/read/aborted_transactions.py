"""Aborted transactions of a range of offsets, over the segments that may name them.

The marker that aborts a transaction may lie in any segment behind its records, and mostly there is none in any. So of
closed segments it is remembered which have no aborted transactions: the next question goes on behind them.

Any thread. What is known holds for one tuple of segments: a roll, retention or truncation makes another. Kafka:
UnifiedLog.collectAbortedTransactions, which asks each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klog.log.state.segments import number_of
from klog.segment import AbortedTransaction, Segment, collect_aborted


class AbortedFinder:
    """Of one log."""

    def __init__(self) -> None:
        # A tuple of segments, and by the number of a closed one without entries: the next that may have some.
        self._known: tuple[Sequence[Segment], dict[int, int]] = ((), {})

    def forget(self) -> None:
        """A closed segment may have more entries than when it was asked."""
        self._known = ((), {})

    def find(
        self,
        segments: Sequence[Segment],
        low: int,
        high: int,
        entries_of: Callable[[Segment], Sequence[AbortedTransaction]],
    ) -> list[AbortedTransaction]:
        """Those with records or marker in [low, high), in the order of their markers."""
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
