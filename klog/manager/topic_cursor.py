"""TopicCursor: a position in each of several partitions, and the records from there on.

C1  a record moves the position when it is returned to the caller, not when it is read
C2  a partition without a position is not read: removing or moving the position ends an iteration of it
C3  after a truncation below a position it goes on where follow() or `missing` sets it, or raises LogTruncated
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeVar

from klog.errors import LogTruncated
from klog.log.log import Log
from klog.log.read.chunks import FetchedChunk
from klog.log.read.in_thread import in_thread
from klog.log.read.isolation import Isolation
from klog.log.read.lookup import resolve
from klog.log.read.positions import Position
from klog.log.read.reader import LogReader
from klog.log.read.tail import LastReturned
from klog.logger import logger_of
from klog.record import Columns, Record
from klog.values import dataclass

if TYPE_CHECKING:
    from klog.log.read.decoding import Decoded, Decoding

T = TypeVar("T", bound="Record | Decoded")
_log = logger_of("manager")
Missing = Literal["error", "earliest", "latest"]
_AT_ONCE = 1000  # records that one call of a thread reads


class TopicCursor:
    """One task or thread. position: {partition: offset of the next record}. settled: the same, when the partition was
    placed or last committed; if equal, no record of it was returned since. decoding: of decoded(). follow: calls
    lower() for truncations that were noted."""

    def __init__(
        self,
        name: str,
        missing: Missing,
        isolation: Isolation,
        decoding: Decoding | None = None,
        *,
        include_control: bool = False,
        follow: Callable[[], None] = lambda: None,
    ) -> None:
        self.position: dict[int, int] = {}
        self.settled: dict[int, int] = {}
        self._name = name
        self._missing = missing
        self._isolation = isolation
        self.decoding = decoding
        self._include_control = include_control
        self._follow = follow
        self._last: dict[int, LastReturned] = {}

    def place(self, partition: int, offset: int) -> None:
        """Begin to read a partition."""
        self.settled[partition] = offset
        self.seek(partition, offset)

    def seek(self, partition: int, offset: int) -> None:
        """Go on at an offset, whatever was returned before."""
        self.position[partition] = offset
        self._last.pop(partition, None)

    def leave(self, partitions: Iterable[int]) -> None:
        """Read these partitions no more."""
        for partition in partitions:
            self.position.pop(partition, None)
            self.settled.pop(partition, None)
            self._last.pop(partition, None)

    def lower(self, ends: Mapping[int, int]) -> None:
        """Go back to where truncations have ended logs, {partition: log end}: what is appended there was not read."""
        for number, end in ends.items():
            position = self.position.get(number)
            if position is not None and position > end:
                self.seek(number, end)
                self.settled[number] = min(self.settled[number], end)
                _log.warning(
                    "event=truncated reader=%s partition=%d position=%d now=%d", self._name, number, position, end
                )

    def settle(self) -> dict[int, int]:
        """Note that all positions were committed; return them."""
        self.settled = dict(self.position)
        return dict(self.position)

    def is_settled(self, partition: int) -> bool:
        """True if no record of a partition was returned, and no position set, since it was settled."""
        return self.position.get(partition) == self.settled.get(partition)

    def lag(self, log: Log) -> int:
        """Number of offsets left to read."""
        offset = max(self.position[log.partition], log.log_start_offset)
        return max(0, log.bound(self._isolation) - offset)

    # ---- reading ---------------------------------------------------------------------------------------------------

    def _next_of(self, log: Log) -> int:
        """Return where to go on in a log; if those records are gone, where `missing` asks to go on."""
        offset = self.position[log.partition]
        start, end = log.log_start_offset, log.log_end_offset
        if start <= offset <= end:
            return offset
        if self._missing == "error":
            self._last_of(log).check_held(log._core, offset)
        return self._go_on(log)

    def _go_on(self, log: Log) -> int:
        """Go where `missing` asks to go on."""
        offset, found = self.position[log.partition], log.log_start_offset
        if self._missing == "latest":
            found = log.log_end_offset
        self.seek(log.partition, found)
        _log.warning("event=position_gone log=%s reader=%s position=%d now=%d", log.name, self._name, offset, found)
        return found

    def _goes_on(self, log: Log) -> bool:
        """After a truncation below the position: go on elsewhere. False if the error is to be raised (C3)."""
        before = self.position.get(log.partition)
        self._follow()
        if self.position.get(log.partition) == before:
            if self._missing == "error":
                return False
            self._go_on(log)
        return True

    def _parts(self, log: Log) -> Iterator[_Part]:
        """A partition's range from the position to the current end, if it is not empty; after a truncation below the
        position another one, from where it goes on."""
        done = False
        while not done and log.partition in self.position:
            rewritten = log._core.rewritten  # first: then a truncation of what the bound counts is noticed
            self._last_of(log).begin(log._core)
            start, stop = self._next_of(log), log.bound(self._isolation)
            if start >= stop:
                if self._settles(log):
                    return
                continue
            reader = log.read(start, stop, isolation=self._isolation, include_control=self._include_control)
            part = _Part(reader, stop, rewritten, self.position[log.partition])
            yield part
            done = part.done

    @contextmanager
    def _reading(self, log: Log, part: _Part) -> Iterator[None]:
        """Around the reading of a part. Raises LogTruncated unless it goes on elsewhere (C3)."""
        try:
            try:
                yield
            finally:
                self._note_last(log, part.last, part.at)
            if log._core.rewritten == part.rewritten:
                self._passed(log.partition, part.at, part.stop)
                part.done = self._settles(log)
            else:  # its end may be beyond what a truncation has left, and what was appended there is to be read
                part.done = self.position.get(log.partition) != part.at
        except LogTruncated:
            if not self._goes_on(log):
                raise

    def _settles(self, log: Log) -> bool:
        """Nothing is left to read. False if it goes on elsewhere after a truncation (C3)."""
        position = self.position.get(log.partition)
        try:
            if position is not None:
                self._last_of(log).settle(log._core, position)
        except LogTruncated:
            if not self._goes_on(log):
                raise
            return False
        return True

    def _passed(self, partition: int, at: int, stop: int) -> None:
        """Go past control records, and offsets that were compacted away, up to the end of a range. Not if the position
        has moved from `at`."""
        if self.position.get(partition) == at:
            if self.is_settled(partition):
                self.settled[partition] = stop
            self.position[partition] = stop

    def records(self, logs: Iterable[Log]) -> Iterator[Record]:
        """The records of these logs up to their current ends, partition after partition."""
        return self._items(logs, lambda _, reader: iter(reader))

    def records_async(self, logs: Iterable[Log]) -> AsyncIterator[Record]:
        """The same for a task: threads of the loop's executor read them."""
        return self._items_async(logs, lambda _, reader: iter(reader))

    def decoded(self, logs: Iterable[Log]) -> Iterator[Decoded]:
        """The same as records(), with their keys and values decoded. Raises BadValue and ValueError."""
        return self._items(logs, self._decoded)

    def decoded_async(self, logs: Iterable[Log]) -> AsyncIterator[Decoded]:
        """The same for a task."""
        return self._items_async(logs, self._decoded)

    def _decoded(self, log: Log, reader: LogReader) -> Iterator[Decoded]:
        from klog.log.read.decoding import decoded_records  # klog.decode takes time to import

        if self.decoding is None:
            raise ValueError("decoded() needs formats: pass decode=")
        return decoded_records([(log.partition, reader)], self.decoding)

    def _items(self, logs: Iterable[Log], read: Callable[[Log, LogReader], Iterator[T]]) -> Iterator[T]:
        """What read() makes of each partition's range."""
        position = self.position
        for log in logs:
            number = log.partition
            for part in self._parts(log):
                with self._reading(log, part):
                    for item in read(log, part.reader):
                        if position.get(number) != part.at:
                            break
                        if part.last is None:
                            self._check_last(log)  # after the read: a truncation before it counts
                        part.last = item
                        part.at = position[number] = item.offset + 1
                        yield item

    async def _items_async(
        self, logs: Iterable[Log], read: Callable[[Log, LogReader], Iterator[T]]
    ) -> AsyncIterator[T]:
        position = self.position
        for log in logs:
            number = log.partition
            for part in self._parts(log):
                with self._reading(log, part):
                    async for item in _in_threads(read(log, part.reader)):
                        if position.get(number) != part.at:
                            break
                        if part.last is None:
                            self._check_last(log)
                        part.last = item
                        part.at = position[number] = item.offset + 1
                        yield item

    def _last_of(self, log: Log) -> LastReturned:
        return self._last.setdefault(log.partition, LastReturned())

    def _check_last(self, log: Log) -> None:
        self._last_of(log).check(log._core, self.position[log.partition])

    def _note_last(self, log: Log, last: Record | Decoded | FetchedChunk | None, at: int) -> None:
        """Note what has moved the position to `at`, unless it has moved since."""
        if last is None or self.position.get(log.partition) != at:
            return
        if isinstance(last, FetchedChunk):
            self._last_of(log).note_chunk(last)
        else:
            self._last_of(log).note(last)

    def columns(self, logs: Iterable[Log], fields: Sequence[str] | None) -> Iterator[tuple[int, Columns]]:
        """The same as Arrow arrays, none of them empty, each with its partition."""
        for log in logs:
            number = log.partition
            for part in self._parts(log):
                with self._reading(log, part):
                    for chunk, columns in part.reader.columns_of_chunks(fields):
                        if self.position.get(number) != part.at:
                            break
                        if part.last is None:
                            self._check_last(log)
                        part.last = chunk
                        part.at = self.position[number] = chunk.stop
                        yield number, columns


@dataclass(eq=False)
class _Part:
    """A partition's range that is read. stop: its end. rewritten: log.rewritten before the range was made. at: the
    position, as `last`, the last that was returned, has set it. done: it was read to its end, or the caller has moved
    the position."""

    reader: LogReader
    stop: int
    rewritten: int
    at: int
    last: Record | Decoded | FetchedChunk | None = None
    done: bool = False


async def _in_threads(items: Iterator[T]) -> AsyncIterator[T]:
    """The items, which threads of the loop's executor get."""
    more = True
    while more:
        ready, error = await in_thread(partial(_some, items))
        for item in ready:
            yield item
        if error is not None:
            raise error
        more = len(ready) == _AT_ONCE


def _some(items: Iterator[T]) -> tuple[list[T], Exception | None]:
    """Up to _AT_ONCE items, and the error that ended them."""
    ready: list[T] = []
    try:
        for item in islice(items, _AT_ONCE):
            ready.append(item)
    except Exception as error:
        return ready, error
    return ready, None


def offset_of(log: Log, position: Position | None, name: str) -> int:
    """Return the offset of a position in a log, None: its start. Raises OffsetOutOfRange, ValueError."""
    offset = resolve(log._core, position, log.log_start_offset, log.clock.wall_ms(), name)
    log.check_held(offset)
    return offset
