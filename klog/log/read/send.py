"""Sending to one peer: bytes, fetched slices and ranges, in the given order.

  O1  `sent` is the number of bytes that the peer has taken, however a call ended; the next call, sync or async,
      continues there
  O2  a slice is opened when it is sent, so a range of any number of segments needs one descriptor
  O3  bytes between slices are not sent in a packet of their own: the socket is corked until the last byte

One thread. Example: a Fetch response is header, slice, header, slice. Kafka: MultiRecordsSend.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING

from klog.arguments import items, wrong_type
from klog.disk import YIELD_BYTES, HasFileno, Target, check_target, cork, send_bytes, send_yielding
from klog.log.read._fetch import FetchData
from klog.log.read.sending import note_sent

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MORE_THAN_EVER = 1 << 62


class Slices(ABC):
    """Slices to be opened one after the other, when they are sent. size: their bytes in all."""

    __slots__ = ()
    size: int

    @abstractmethod
    def __len__(self) -> int:
        """Number of slices."""

    @abstractmethod
    def slice(self, number: int) -> FetchData:
        """Open the slice of this number."""


class Outgoing:
    """Parts to send to a peer: `size` bytes in all, `sent` of them sent."""

    __slots__ = ("_at", "_corked", "_many", "_number", "_of_range", "_part", "_pieces", "sent", "size")

    def __init__(self, parts: Iterable[Buffer | FetchData | Slices]) -> None:
        given = items("parts", parts, "an iterable of buffers, FetchData and FetchRange")
        pieces = [part if isinstance(part, (FetchData, Slices)) else _bytes_of(part) for part in given]
        self.size = sum(part.nbytes if isinstance(part, memoryview) else part.size for part in pieces)
        self.sent = 0
        # Corking does not pay for bytes before one slice: they are sent with MSG_MORE.
        self._many = len(pieces) > 2 or any(isinstance(part, Slices) for part in pieces)
        self._corked = False
        self._pieces = pieces
        self._number = self._of_range = 0  # the next piece, and the next slice of it
        self._part: memoryview | FetchData = memoryview(b"")
        self._at = 0

    @property
    def done(self) -> bool:
        """Is all of it sent?"""
        return self.sent == self.size

    def send_to(self, target: HasFileno) -> int:
        """Send all that is left, to a non-blocking target what it takes now. Returns the number of bytes.

        Raises what FetchData.send_to raises, and OffsetOutOfRange if a segment was deleted before it was sent.
        """
        check_target(target)
        return self._send(target, _MORE_THAN_EVER)

    async def send_to_async(self, target: HasFileno) -> int:
        """Send all that is left to a non-blocking target, in the running event loop. Returns the number of bytes.

        Yields to other tasks. After a cancellation `sent` is the number of bytes sent: call again, or close the
        connection.
        """
        before = self.sent

        def step() -> bool:
            self._send(target, YIELD_BYTES)
            return self.done

        try:
            await send_yielding(target, step)
        except BaseException as error:
            note_sent(error, self.sent - before)
            raise
        return self.sent - before

    def _send(self, target: HasFileno, limit: int) -> int:
        before, stop = self.sent, min(self.size, self.sent + limit)
        if self._many and not self._corked and stop > before:
            cork(target, True)
            self._corked = True
        try:
            while self.sent < stop and self._send_part(target, stop - self.sent):
                pass
        except BaseException as error:
            self._advance(getattr(error, "sent", 0))
            note_sent(error, self.sent - before)
            self._uncork(target)
            raise
        if self.done:
            self._uncork(target)
        return self.sent - before

    def _send_part(self, target: HasFileno, limit: int) -> bool:
        """Send from the current part. Does the target take more?"""
        part = self._part
        while self._at == (size := part.nbytes if isinstance(part, memoryview) else part.size):
            part = self._part = self._next_part()
            self._at = 0
        wanted = min(size - self._at, limit)
        if isinstance(part, memoryview):
            more = self.sent + size - self._at < self.size
            sent = send_bytes(target, part[self._at : self._at + wanted], more)
        else:
            sent = part.send_part(target, self._at, wanted)
        self._advance(sent)
        return sent == wanted

    def _next_part(self) -> memoryview | FetchData:
        """The next part (O2). If it cannot be opened, the next call tries it again."""
        while True:
            piece = self._pieces[self._number]
            if not isinstance(piece, Slices):
                self._number += 1
                return piece
            if self._of_range < len(piece):
                found = piece.slice(self._of_range)
                self._of_range += 1
                return found
            self._number, self._of_range = self._number + 1, 0

    def _advance(self, sent: int) -> None:
        self._at += sent
        self.sent += sent

    def _uncork(self, target: HasFileno) -> None:
        if self._corked:
            cork(target, False)
            self._corked = False


def _bytes_of(part: Buffer) -> memoryview:
    try:
        return memoryview(part).cast("B")
    except TypeError:
        raise wrong_type("parts", part, "a buffer, a FetchData or a FetchRange in it") from None


def check_waits(target: HasFileno) -> None:
    """ValueError for a non-blocking target."""
    if Target(target).timeout == 0:
        raise ValueError("the target is non-blocking: make an Outgoing and call its send_to() until it is done")
