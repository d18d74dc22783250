"""A range of offsets as raw batches of one segment after the other: what a copy of a log, or of much of it, is made of.

R1  what belongs to it is settled when it is made: whole batches, the first of which may begin below `start` and the
    last end above `stop`, all of them below the isolation's bound
R2  a segment's file is opened when its turn comes, and not kept
R3  no slice has other bytes than were there when it was made: where the log was truncated or its segments were replaced
    since, CorruptBatch says that the range is to be fetched again
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from klog.arguments import whole
from klog.errors import CorruptBatch
from klog.log.read import refresh
from klog.log.read.fetch import FetchData, Isolation, place_of
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.segments import number_of
from klog.segment import AbortedTransaction, Segment

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

    __slots__ = ("_isolation", "_log", "_pieces", "_rewritten", "_segments", "size", "start", "stop")

    def __init__(
        self,
        log: LogView,
        segments: Sequence[Segment],
        start: int,
        stop: int,
        isolation: Isolation,
        pieces: list[_Piece],
        rewritten: int,
    ) -> None:
        self._log, self._segments, self._isolation = log, segments, isolation
        self._pieces, self._rewritten = pieces, rewritten
        self.start, self.stop = start, stop
        self.size = sum(piece.size for piece in pieces)

    def __len__(self) -> int:
        """Number of slices."""
        return len(self._pieces)

    def __iter__(self) -> Iterator[FetchData]:
        """The slices, each opened when it is asked for: OffsetOutOfRange where retention was faster, CorruptBatch
        where the log was truncated or compacted, so that the range is to be fetched again."""
        return map(self._slice, self._pieces)

    def slice(self, number: int) -> FetchData:
        """The slice of this number, opened anew, as iterating does."""
        return self._slice(self._pieces[whole("number", number, 0, len(self._pieces) - 1)])

    def send_to(self, target: HasFileno) -> int:
        """Outgoing([this]).send_to, to a target that blocks: all of it. For any other keep an Outgoing, which remembers
        how far it came: ValueError."""
        from klog.log.read.send import Outgoing, check_waits

        check_waits(target)
        return Outgoing([self]).send_to(target)

    async def send_to_async(self, target: HasFileno) -> int:
        """Outgoing([this]).send_to_async: all of it."""
        from klog.log.read.send import Outgoing

        return await Outgoing([self]).send_to_async(target)

    def _slice(self, piece: _Piece) -> FetchData:
        log, segment = self._log, piece.segment
        aborted: tuple[AbortedTransaction, ...] = ()
        try:
            file = segment.file
            if self._isolation == "read_committed":
                aborted = tuple(log._aborted(self._segments, piece.offset, piece.stop, log._has_producers()))
        except FileNotFoundError as error:
            log._check_there(error)
            log.check_held(piece.offset)
            refresh.overtaken(log, log._moment())
            self._check_same(piece)
            if any(known is segment for known in log._segments):
                raise
            raise self._overtaken(piece, "compacted") from None
        self._check_same(piece)  # behind the opening: a truncation counts before its first byte goes
        return FetchData(
            piece.offset,
            log.high_watermark,
            None if log.read_only else log.last_stable_offset,
            log.log_start_offset,
            log.log_end_offset,
            OffsetMetadata(piece.offset, segment.base_offset, piece.position),
            piece.size,
            aborted_transactions=aborted,
            _file=file,
            _log=log,
        )

    def _check_same(self, piece: _Piece) -> None:
        """R3. Who only reads has to look whether the writer truncates; that it compacts, no descriptor hides (S4)."""
        log = self._log
        if log.read_only and not log.closed:
            with log._lock:
                refresh.refresh_locked(log)
        if log._rewritten != self._rewritten:
            log.check_held(piece.offset)
            raise self._overtaken(piece, "truncated or rewritten")

    def _overtaken(self, piece: _Piece, how: str) -> CorruptBatch:
        return CorruptBatch(
            f"the log was {how} since the range was looked up: fetch again from offset {piece.offset} on",
            path=piece.segment.path,
            position=piece.position,
            offset=piece.offset,
        )


def fetch_range(log: LogView, start: int, stop: int | None, isolation: Isolation) -> FetchRange:
    """What Log.fetch_range documents."""
    rewritten = log._rewritten
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
    return FetchRange(log, segments, start, max(start, stop), isolation, pieces, rewritten)
