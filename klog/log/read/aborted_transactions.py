"""The aborted transactions of a range of offsets, from the transaction indexes of several segments.

The marker that aborts a transaction may be in any segment after its records, and most segments have none. So the finder
remembers which closed segments have no aborted transactions, and skips them in the next lookup.

Any thread. The memory holds for one tuple of segments: a roll, retention or truncation makes another. Kafka:
UnifiedLog.collectAbortedTransactions, which reads the index of each segment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klog.log.load.inputs import inputs_of
from klog.log.load.rebuild import rebuild_txn_index
from klog.log.state._fields import FinderFields
from klog.log.state._log_core import LogCore
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.segments import number_of
from klog.segment import AbortedTransaction, Segment, collect_aborted


class AbortedFinder(FinderFields):
    """Finds the aborted transactions of one log.

    shown: does a transaction index, an abort by this process, or a batch that a reader has met show transactions? Else
    only a reader that meets a transactional batch looks for aborted ones.
    _known: a tuple of segments, and {number of a closed one without entries: number of the next that may have some}.
    """

    __slots__ = ()

    def __init__(self) -> None:
        self.shown = False
        self.forget()

    def show(self) -> None:
        """There are transactions. Any thread."""
        self.shown = True

    def forget(self) -> None:
        """Drop the memory: a closed segment may have new entries."""
        self._known = (None, {})

    def exchange(self, other: AbortedFinder) -> None:
        """The logs exchange their files."""
        self.shown, other.shown = other.shown, self.shown
        self.forget()
        other.forget()

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


def aborted_in_range(log: LogCore, segments: Sequence[Segment], low: int, high: int) -> list[AbortedTransaction]:
    """The aborted transactions with records or marker in [low, high), in the order of their markers.

    segments: those from which the data is read. A cleaner may have replaced them meanwhile by segments without the
    transactions that it has removed.
    """
    first, last = number_of(segments, low), number_of(segments, max(low, high - 1))
    if not any(may_need(log, segment, 0, segment.size) for segment in segments[first : last + 1]):
        return []
    return aborted_of_met(log, segments, low, high)


def aborted_in_part(
    log: LogCore, segments: Sequence[Segment], part: tuple[Segment, int, int], low: int, high: int
) -> list[AbortedTransaction]:
    """The same for the part of a segment that has [low, high): (segment, position, size)."""
    return aborted_of_met(log, segments, low, high) if may_need(log, *part) else []


def aborted_of_met(log: LogCore, segments: Sequence[Segment], low: int, high: int) -> list[AbortedTransaction]:
    """The same for a caller that has met a transactional batch there."""
    log.aborted_finder.show()
    return log.aborted_finder.find(segments, low, lambda: high, lambda segment: aborted_in(log, segment))


def may_need(log: LogCore, segment: Segment, position: int, size: int) -> bool:
    """May a reader of this part of a segment need aborted transactions?

    Not if none of its batches is transactional. They decide, since a transaction index that is lost leaves no trace.
    """
    finder = log.aborted_finder
    if not finder.shown and not segment.is_plain(position, size):
        finder.show()
    return finder.shown


def aborted_in(log: LogCore, segment: Segment) -> Sequence[AbortedTransaction]:
    """The aborted transactions of a segment. Its index is checked once against the markers: a missing or invalid index
    must not make aborted records visible."""
    index = segment.txn_index
    if index.settled:
        return index.entries
    with log.lock:
        log.lock.check(log, "a first look at aborted transactions")
        index = segment.txn_index  # a new object if the directory was renamed meanwhile
        if not index.checked:
            rebuild_txn_index(inputs_of(log), log.segments, segment)
        entries = index.entries
        try:
            segment.check_place()
        except FileNotFoundError:
            segment.forget_paths()
            raise
        index.note_checked()
        return entries


def aborted_in_slice(
    log: LogCore, segments: Sequence[Segment], position: OffsetMetadata, size: int, log_end_offset: int
) -> list[AbortedTransaction]:
    """The aborted transactions that may have records in a slice of `size` bytes at a position. Kafka:
    LocalLog.addAbortedTransactions.
    """
    number = number_of(segments, position.segment_base_offset)
    segment = segments[number]
    if not may_need(log, segment, position.position, size):
        return []

    def bound() -> int:
        """Return an offset above the slice, by the offset index, the next segment, or the log end at the fetch."""
        upper = segment.upper_bound(position.position + size)
        if upper is None:
            upper = segments[number + 1].base_offset if number + 1 < len(segments) else log_end_offset
        return upper

    return log.aborted_finder.find(segments, position.offset, bound, lambda each: aborted_in(log, each))
