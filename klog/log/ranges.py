"""A range of offsets as raw batches of one segment after the other: what a copy of a log, or of much of it, is made of.

R1  what belongs to it is settled when it is made: whole batches, the first of which may begin below `start` and the
    last end above `stop`, all of them below the isolation's bound
R2  a segment's file is opened when its turn comes, and not kept
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klog.log.fetching import FetchData, Isolation, place_of
from klog.log.segments import number_of
from klog.log.watermark import OffsetMetadata
from klog.segment import Segment

if TYPE_CHECKING:
    from klog.disk import HasFileno
    from klog.log.view import LogView


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes [position, position + size) of a segment; the offsets in it are those of [offset, stop), and some about."""

    segment: Segment
    offset: int
    stop: int
    position: int
    size: int


class FetchRange:
    """Raw batches of [start, stop): `size` bytes of any number of segments. Iterate it for the FetchData of each, or
    send it as a whole. Any thread; each iteration begins anew."""

    __slots__ = ("_isolation", "_log", "_pieces", "size", "start", "stop")

    def __init__(self, log: LogView, start: int, stop: int, isolation: Isolation, pieces: list[_Piece]) -> None:
        self._log, self._isolation, self._pieces = log, isolation, pieces
        self.start, self.stop = start, stop
        self.size = sum(piece.size for piece in pieces)

    def __len__(self) -> int:
        """Number of slices."""
        return len(self._pieces)

    def __iter__(self) -> Iterator[FetchData]:
        """The slices, each opened when it is asked for: OffsetOutOfRange where retention was faster."""
        return map(self._slice, self._pieces)

    def send_to(self, target: HasFileno) -> int:
        """Outgoing([this]).send_to, to a target that blocks: all of it. For any other keep an Outgoing, which remembers
        how far it came: ValueError."""
        from klog.log.sending import Outgoing, check_waits

        check_waits(target)
        return Outgoing([self]).send_to(target)

    async def send_to_async(self, target: HasFileno) -> int:
        """Outgoing([this]).send_to_async: all of it."""
        from klog.log.sending import Outgoing

        return await Outgoing([self]).send_to_async(target)

    def _slice(self, piece: _Piece) -> FetchData:
        log, segment = self._log, piece.segment
        try:
            file = segment.file
        except FileNotFoundError:
            log.check_held(piece.offset)
            raise
        found = FetchData(
            piece.offset,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            log.log_end_offset,
            OffsetMetadata(piece.offset, segment.base_offset, piece.position),
            piece.size,
            _file=file,
            _home=log._home,
            _counts=log._sends,
        )
        if self._isolation == "read_committed":
            found.aborted_transactions = tuple(log._aborted(piece.offset, piece.stop, log._has_producers()))
        return found


def fetch_range(log: LogView, start: int, stop: int | None, isolation: Isolation) -> FetchRange:
    """What Log.fetch_range documents."""
    log.check_held(start)
    end = log.log_end_offset
    bound = min(log.bound(isolation), end)
    stop = bound if stop is None else min(stop, bound)
    segments, pieces = log._segments, []
    last = place_of(segments, stop, end)
    for segment in segments[number_of(segments, start) :] if start < stop else ():
        if segment.base_offset >= stop or last.is_message_only:
            break
        first = 0
        if segment.base_offset < start:
            header = segment.locate(start) if segment.size else None
            if header is None:
                continue
            first = header.position
        size = segment.size
        if segment.base_offset == last.segment_base_offset:
            size = last.position
            if stop < bound:
                header = segment.locate(stop)
                if header is not None and header.base_offset < stop and header.last_offset < bound:  # R1
                    size = header.position + header.size
        if size > first:
            offset, beyond = max(start, segment.base_offset), min(stop, segment.next_offset)
            pieces.append(_Piece(segment, offset, beyond, first, size - first))
    return FetchRange(log, start, max(start, stop), isolation, pieces)
