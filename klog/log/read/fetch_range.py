"""A range of offsets as raw batches, one slice per segment: for copying a log or much of it.

R1  the content is fixed when the range is made: whole batches below the isolation's bound; the first may begin below
    `start`, and the last may end above `stop`
R2  a segment's file is opened when its slice is requested, and not kept open
R3  a slice never has other bytes than when the range was made: if the log was truncated or its segments were replaced
    since, it raises CorruptBatch, and the caller fetches the range again
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from klog.arguments import whole
from klog.errors import CorruptBatch
from klog.log.read._fetch import FetchData
from klog.log.read.aborted_transactions import aborted_in_part
from klog.log.read.fetch import place_of
from klog.log.read.isolation import Isolation, bound, last_stable_offset
from klog.log.read.send import Outgoing, Slices, check_waits
from klog.log.read.steady import check_there, overtaken
from klog.log.state._log_core import LogCore
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.log.state.segments import number_of
from klog.segment import AbortedTransaction, Segment
from klog.values import dataclass

if TYPE_CHECKING:
    from klog.disk import HasFileno


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes [position, position + size) of a segment. They hold the offsets [offset, stop), and maybe some around.
    ends: the range goes on in the next segment."""

    segment: Segment
    offset: int
    stop: int
    position: int
    size: int
    ends: bool


class FetchRange(Slices):
    """Raw batches of [start, stop): `size` bytes in any number of segments.

    Iterating gives a FetchData per segment; send_to() sends all. Any thread; each iteration starts at the beginning.
    """

    __slots__ = ("_isolation", "_log", "_pieces", "_rewritten", "_segments", "size", "start", "stop")

    def __init__(
        self,
        log: LogCore,
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

    def __repr__(self) -> str:
        return f"<FetchRange {self._log.name}[{self.start}:{self.stop}] {self.size} bytes in {len(self)} slices>"

    def __len__(self) -> int:
        """Number of slices."""
        return len(self._pieces)

    def __iter__(self) -> Iterator[FetchData]:
        """The slices, each opened when it is requested.

        Raises OffsetOutOfRange if retention deleted the segment, CorruptBatch if the log was truncated or compacted:
        then fetch the range again.
        """
        return map(self._slice, self._pieces)

    def slice(self, number: int) -> FetchData:
        """Open the slice of this number. Raises as iterating does."""
        return self._slice(self._pieces[whole("number", number, 0, len(self._pieces) - 1)])

    def send_to(self, target: HasFileno) -> int:
        """Send all of it to a blocking target. Returns the number of bytes.

        ValueError for a non-blocking target: use an Outgoing, which remembers how far it came.
        """
        check_waits(target)
        return Outgoing([self]).send_to(target)

    async def send_to_async(self, target: HasFileno) -> int:
        """Send all of it to a non-blocking target. Returns the number of bytes."""
        return await Outgoing([self]).send_to_async(target)

    def _slice(self, piece: _Piece) -> FetchData:
        log, segment = self._log, piece.segment
        aborted: tuple[AbortedTransaction, ...] = ()
        try:
            file = segment.file
            if piece.ends:
                segment.check_end()
            if self._isolation == "read_committed":
                part = segment, piece.position, piece.size
                aborted = tuple(aborted_in_part(log, self._segments, part, piece.offset, piece.stop))
        except FileNotFoundError as error:
            check_there(log, error)
            log.check_held(piece.offset)
            overtaken(log, log.moment)
            self._check_same(piece)
            if any(known is segment for known in log.segments):
                raise
            raise self._overtaken(piece, "compacted") from None
        except CorruptBatch:
            self._check_same(piece)
            raise
        log.counters.read(piece.size)
        self._check_same(piece)  # after opening the file: a truncation is counted before it removes the first byte
        return FetchData(
            piece.offset,
            log.high_watermark,
            None if log.read_only else last_stable_offset(log),
            log.log_start_offset,
            log.log_end_offset,
            OffsetMetadata(piece.offset, segment.base_offset, piece.position),
            piece.size,
            aborted_transactions=aborted,
            file=file,
            log=log,
        )

    def _check_same(self, piece: _Piece) -> None:
        """R3. A read-only log looks for truncations by the writer. Compaction it notices at the next open (S4)."""
        log = self._log
        if log.follower is not None and not log.closed:
            with log.lock:
                log.follower.refresh_locked(log)
        if log.rewritten != self._rewritten:
            log.check_held(piece.offset)
            raise self._overtaken(piece, "truncated or rewritten")

    def _overtaken(self, piece: _Piece, how: str) -> CorruptBatch:
        return CorruptBatch(
            f"the log was {how} after the range was made: fetch again from offset {piece.offset}",
            path=piece.segment.path,
            position=piece.position,
            offset=piece.offset,
        )


def fetch_range(log: LogCore, start: int, stop: int | None, isolation: Isolation) -> FetchRange:
    """Make the range of [start, stop). stop None: up to the isolation's bound."""
    rewritten = log.rewritten
    log.check_held(start)
    end = log.log_end_offset
    limit = min(bound(log, isolation), end)
    stop = limit if stop is None else min(stop, limit)
    segments, pieces = log.segments, []
    last = place_of(segments, stop, end)
    for segment in segments[number_of(segments, start) :] if start < stop else ():
        if segment.base_offset >= stop or last.is_message_only:
            break
        first = 0
        if segment.base_offset < start:
            header = segment.locate(start) if segment.size else None
            if header is None:
                if segment is not segments[-1]:
                    segment.check_end()
                continue
            first = header.position
        size = segment.size
        if segment.base_offset == last.segment_base_offset:
            size = last.position
            if stop < limit:
                header = segment.locate(stop)
                if header is not None and header.base_offset < stop and header.last_offset < limit:  # R1
                    size = header.position + header.size
        if size > first:
            offset, beyond = max(start, segment.base_offset), min(stop, segment.next_offset)
            closed = segment is not segments[-1] and beyond == segment.next_offset
            pieces.append(_Piece(segment, offset, beyond, first, size - first, closed))
        elif not segment.size and segment is not segments[-1]:
            segment.check_end()
    return FetchRange(log, segments, start, max(start, stop), isolation, pieces, rewritten)
