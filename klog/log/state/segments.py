"""Lookups in the segments of a log, a tuple sorted by base offset. Kafka: LogSegments.

Each lookup is a binary search. A range of segments is returned as a slice of the tuple.
"""

from __future__ import annotations

import bisect
import itertools
from array import array
from collections.abc import Sequence

from klog.errors import SegmentOffsetOverflow
from klog.segment import Segment


def _base(segment: Segment) -> int:
    return segment.base_offset


class Sizes:
    """Prefix sums of the sizes of a tuple of segments, computed once.

    The size of a closed segment never changes: a replacement of the same base offset is in another tuple.
    """

    __slots__ = ("_sums", "segments")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = segments
        self._sums = array("q", itertools.accumulate((segment.size for segment in segments[:-1]), initial=0))

    def before(self, number: int) -> int:
        """Bytes of the first `number` segments."""
        if number < len(self._sums):
            return self._sums[number]
        return self._sums[-1] + self.segments[-1].size


def number_of(segments: Sequence[Segment], offset: int) -> int:
    """Index of the segment of an offset: the last one that begins at or below it, else the first."""
    return max(bisect.bisect_right(segments, offset, key=_base) - 1, 0)


def locate(segments: Sequence[Segment], offset: int) -> tuple[Segment, int] | None:
    """Segment and position of the first batch whose last offset is at or above offset; None after the last batch.

    If the segment has a gap there, the segment before it may have a batch that reaches beyond this base offset. Raises
    CorruptBatch if damage may hide the batch, or if one was lost from the end of a segment: see Segment.check_end.
    """
    first = number_of(segments, offset)
    for number in range(first, len(segments)):
        segment = segments[number]
        if segment.size:
            header = segment.locate(offset)
            if header is not None:
                if header.base_offset > offset and header.position == 0 and number == first and number:
                    beyond = segments[number - 1].locate(offset) if segments[number - 1].size else None
                    if beyond is not None and beyond.base_offset <= offset:
                        return segments[number - 1], beyond.position
                return segment, header.position
        if number + 1 < len(segments):
            segment.check_end()
    return None


def check_reached(name: str, active: Segment, offset: int) -> None:
    """Raise SegmentOffsetOverflow for an offset below the base offset of the active segment.

    A roll may have put that beyond the log end. A batch written there could not be found again.
    """
    if offset < active.base_offset:
        raise SegmentOffsetOverflow(
            f"{name}: offset {offset} is below {active.base_offset}, the base offset of the active segment"
        )


def beginning_below(segments: Sequence[Segment], offset: int) -> int:
    """Number of segments that begin below an offset."""
    return bisect.bisect_left(segments, offset, key=_base)


def between(segments: Sequence[Segment], start: int, stop: int) -> Sequence[Segment]:
    """The segments that may hold offsets of [start, stop). ValueError if stop is below start."""
    if stop < start:
        raise ValueError(f"no segments between {start} and {stop}: the second offset is below the first")
    if start == stop:
        return ()
    return segments[number_of(segments, start) : bisect.bisect_left(segments, stop, key=_base)]


def closed_from(segments: Sequence[Segment], offset: int) -> Sequence[Segment]:
    """The closed segments from that of an offset on; none if the offset is in the active segment or beyond."""
    if not segments or offset > segments[-1].base_offset:
        return ()
    return segments[number_of(segments, offset) : -1]
