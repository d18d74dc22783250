"""The aborted transactions of a range of offsets, from the transaction indexes of several segments.

The marker that aborts a transaction may be in any segment after its records, and most segments have none. So the finder
remembers which closed segments have no aborted transactions, and skips them in the next lookup.

Any thread. The memory holds for one tuple of segments: a roll, retention or truncation makes another. Kafka:
UnifiedLog.collectAbortedTransactions, which reads the index of each segment.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from klog.log.load.inputs import inputs_of
from klog.log.load.rebuild import has_producers, rebuild_txn_index
from klog.log.state._fields import FinderFields
from klog.log.state._log_core import LogCore
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.segments import number_of
from klog.segment import AbortedTransaction, Segment, collect_aborted


class AbortedFinder(FinderFields):
    """Finds the aborted transactions of one log.

    _known: a tuple of segments, and {number of a closed one without entries: number of the next that may have some}.
    """

    __slots__ = ()

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Drop the memory: a closed segment may have new entries."""
        self._known = (None, {})

    def find(
        self,
        segments: Sequence[Segment],
        low: int,
        bound: Callable[[], int],
        entries_of: Callable[[Segment], Sequence[AbortedTransaction]],
    ) -> list[AbortedTransaction]:
        """The aborted transactions with records or marker in [low, bound()), in the order of their markers.

        bound: it may read the log, so it is called only if a marker is at or above low, and at most once.
        """
        known = self._known
        if known[0] is not segments:
            known = self._known = (segments, {})
        following = known[1]
        last = len(segments) - 1
        high: int | None = None
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
            if entries and entries[-1].last_offset >= low:
                high = bound() if high is None else high
                part, complete = collect_aborted(entries, low, high)
                found += part
                if complete:
                    break
            number += 1
        return found


def finder_of_producers(log: LogCore) -> Callable[[], bool]:
    """A function: do producers write here? Scans the directory at its first call."""
    return functools.cache(lambda: has_producers(log.path))


def aborted_in_range(
    log: LogCore, segments: Sequence[Segment], low: int, high: int, producers: Callable[[], bool]
) -> list[AbortedTransaction]:
    """The aborted transactions with records or marker in [low, high), in the order of their markers.

    segments: those from which the data is read. A cleaner may have replaced them meanwhile by segments without the
    transactions that it has removed.
    """
    return log.aborted_finder.find(segments, low, lambda: high, lambda segment: aborted_in(log, segment, producers))


def aborted_in(log: LogCore, segment: Segment, producers: Callable[[], bool]) -> Sequence[AbortedTransaction]:
    """The aborted transactions of a segment. In a log with producers the index is checked once against the markers: a
    missing or invalid index must not make aborted records visible."""
    index = segment.txn_index
    if index.settled:
        return index.entries
    with log.lock:
        log.lock.check(log, "a first look at aborted transactions")
        index = segment.txn_index  # a new object if the directory was renamed meanwhile
        if not index.checked and producers():
            rebuild_txn_index(inputs_of(log), log.segments, segment)
        entries = index.entries
        try:
            segment.check_place()
        except FileNotFoundError:
            segment.forget_paths()
            raise
        index.checked = True
        return entries


def aborted_in_slice(
    log: LogCore, segments: Sequence[Segment], position: OffsetMetadata, size: int, log_end_offset: int
) -> list[AbortedTransaction]:
    """The aborted transactions that may have records in a slice of `size` bytes at a position. Kafka:
    LocalLog.addAbortedTransactions.
    """

    def bound() -> int:
        """Return an offset above the slice, by the offset index, the next segment, or the log end at the fetch."""
        number = number_of(segments, position.segment_base_offset)
        upper = segments[number].upper_bound(position.position + size)
        if upper is None:
            upper = segments[number + 1].base_offset if number + 1 < len(segments) else log_end_offset
        return upper

    producers = finder_of_producers(log)
    return log.aborted_finder.find(
        segments, position.offset, bound, lambda segment: aborted_in(log, segment, producers)
    )
