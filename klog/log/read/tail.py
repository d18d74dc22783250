"""Records as they arrive, for `for` and `async for`: a tail sleeps until its log changes.

A log that is open for writing wakes its tails. If the writer is another process, inotify reports changes in the
directory. With a clock other than SystemClock nothing can wake a sleeper: the tail then sleeps on the clock, in pauses
that double up to 50 ms.

A record moves the position when it is returned, not when it is read: an iteration that ends early, by `break`, an
exception or a cancelled task, loses nothing for the next one.

A truncation below the position is noticed also if the log has grown beyond it again: then the last record that was
returned is another one (D1 of divergence), or the batch before a position that no record has set: that of "latest", or
after a marker. A cleaner may have removed it: then the truncation is not noticed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from os import path
from typing import TYPE_CHECKING, Generic, TypeVar

from klog import record as record_package
from klog.clock import SystemClock
from klog.disk import Notifier, Waiter
from klog.errors import BadValue, CorruptBatch
from klog.log.read.chunks import FetchedChunk, chunks
from klog.log.read.divergence import batch_before, check_left, truncated
from klog.log.read.in_thread import in_thread
from klog.log.read.isolation import Isolation, bound
from klog.log.read.refresh import refresh
from klog.log.read.steady import note_next_offset
from klog.log.state._log_core import LogCore
from klog.record import Record
from klog.segment import Header

if TYPE_CHECKING:
    from klog.log.read.decoding import Decoded, Decoding

T = TypeVar("T", bound="Record | Decoded")
_CHUNK_BYTES = 1 << 20
_PAUSE_MIN, _PAUSE_MAX = 0.001, 0.05


def waiter_for(logs: Iterable[LogCore], also: Iterable[str] = (), others: Iterable[Notifier] = ()) -> Waiter:
    """A Waiter that wakes when one of these logs changes, an entry of the directories `also`, or what others notify of.
    Either all of the logs or none are read-only."""
    notifiers, directories, named = [*others], set(also), set()
    for log in logs:
        if log.read_only:
            directories.add(log.path)
            named.add(path.dirname(log.path))
        else:
            notifiers.append(log.notifier)
    return Waiter(notifiers, directories, named)


class LastReturned:
    """The last record of a log that was returned, or the batch before a position beyond it. One task or thread."""

    def __init__(self) -> None:
        self._record: tuple[int, int] | None = None  # its offset and hash
        self._passed: tuple[int, Header] | None = None  # a position that no record has set, and the batch before it
        self._found: tuple[LogCore, int] | None = None  # the log, and its `rewritten`, when it was last found there
        self._begun: tuple[LogCore, int] | None = None  # when the current read began

    def begin(self, log: LogCore) -> None:
        """Before each read: what it returns may be gone when it is noted."""
        self._begun = log, log.rewritten

    def note(self, item: Record | Decoded) -> None:
        """This record was returned, or decoded."""
        record = item if isinstance(item, Record) else item.record
        self._record, self._passed = (record.offset, _hash(record)), None
        self._found = self._begun

    def settle(self, log: LogCore, position: int) -> bool:
        """All below the position was read. False if that is not certain: the log was truncated since the read began.
        Raises LogTruncated."""
        begun = log, log.rewritten
        if begun != self._begun:
            return False
        if self._record is not None and self._record[0] + 1 == position:
            return True
        if self._passed is None or self._passed[0] != position:
            self.check(log, position)
            before = batch_before(log, position)
            if log.rewritten != begun[1]:
                return False
            self._passed, self._found = None if before is None else (position, before), begun
        return True

    def note_chunk(self, chunk: FetchedChunk) -> None:
        """The records of this chunk were returned."""
        *_, batch = record_package.decode(chunk.buffer, verify_crc=False, lazy=True)
        for record in batch:
            if record.offset < chunk.stop:
                self.note(record)

    def check_held(self, log: LogCore, position: int) -> None:
        """Raise LogTruncated if the log ends below the position and records were returned; else as log.check_held."""
        if position > log.log_end_offset and (self._record is not None or self._passed is not None):
            raise truncated(log, position, log.log_end_offset)
        log.check_held(position)

    def check(self, log: LogCore, position: int) -> None:
        """Raise LogTruncated if another record, or batch, has its offset in the log now, which may be another one than
        before: after a move, or of a topic that was created again."""
        found = log, log.rewritten
        if found == self._found or (self._record is None and self._passed is None):
            return
        if self._passed is not None:
            check_left(log, [self._passed[1]], position)
        elif self._record is not None and self._record[0] >= log.log_start_offset:
            offset, known = self._record
            for chunk in chunks(log, offset, offset + 1, "log_end", 1, False):
                if any(_hash(record) != known for record in chunk.records(include_control=True)):
                    raise truncated(log, position, offset)
        self._found = found


class Tail(Generic[T]):
    """Items made of the records of a log from an offset on, as they arrive. Sleeps between them. Ends `timeout` seconds
    after the last.

    One iteration at a time; the next one goes on where it ended. Raises OffsetOutOfRange if the next record was deleted
    before it was read, LogTruncated if the log was truncated below it; LogClosed once the log is closed.
    """

    def __init__(
        self,
        log: LogCore,
        start: int,
        timeout: float | None,
        isolation: Isolation,
        include_control: bool,
        decoding: Decoding | None,
    ) -> None:
        self._log = log
        self._offset = start
        self._timeout = timeout
        self._isolation = isolation
        self._include_control = include_control
        self._decoding = decoding
        self._pause = _PAUSE_MIN
        self._begun: Iterator[T] | None = None
        self._last = LastReturned()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._log.name} at {self._offset} {self._isolation}>"

    def _made(self, records: list[Record], stop: int) -> tuple[list[T], int]:
        """Return the items for these records, and the offset after them: `stop`, if it is all of them."""
        raise NotImplementedError

    def _ready(self) -> tuple[list[T], int]:
        """The items at the position, at most one chunk, and the offset after them."""
        log, offset = self._log, self._offset
        refresh(log)
        self._last.begin(log)
        self._last.check_held(log, offset)
        for chunk in chunks(log, offset, bound(log, self._isolation), self._isolation, _CHUNK_BYTES, False):
            records, damage, stop = [], None, chunk.stop
            try:
                for record in chunk.records(include_control=self._include_control):
                    records.append(record)
            except CorruptBatch as error:  # raised by the next call, after the records before it are returned
                damage, stop = error, records[-1].offset + 1 if records else offset
            if records:
                self._pause = _PAUSE_MIN
                made, stop = self._made(records, stop)
                if made:
                    self._last.check(log, offset)  # after the read: a truncation before it, or during it, counts
                    return made, stop
            if damage is not None:
                note_next_offset(log, damage, stop)
                raise damage
            offset = stop
        return [], offset

    def _returned(self, ready: list[T], stop: int) -> Iterator[T]:
        """These items; each moves the position. Ends if another iteration has moved it."""
        at, last = self._offset, None
        try:
            for item in ready:
                if self._offset != at:
                    return
                at, last = item.offset + 1, item
                self._offset = at
                yield item
        finally:
            if last is not None and self._offset >= at:
                self._last.note(last)
        if self._offset == at and self._last.settle(self._log, stop):
            self._offset = stop

    def _left(self, quiet_since: float) -> float | None:
        """Seconds until the timeout: None for never, 0 or less for now."""
        return None if self._timeout is None else self._timeout - (self._log.clock.monotonic() - quiet_since)

    def _next_pause(self) -> float:
        pause, self._pause = self._pause, min(self._pause * 2, _PAUSE_MAX)
        return pause

    def __next__(self) -> T:
        if self._begun is None:
            self._begun = iter(self)
        return next(self._begun)

    def __iter__(self) -> Iterator[T]:
        clock = self._log.clock
        with waiter_for([self._log]) as waiter:
            quiet_since = clock.monotonic()
            while True:
                ready, stop = self._ready()
                yield from self._returned(ready, stop)
                if ready:
                    quiet_since = clock.monotonic()
                    continue
                left = self._left(quiet_since)
                if left is not None and left <= 0:
                    return
                if isinstance(clock, SystemClock):
                    waiter.wait(left)
                else:
                    clock.sleep(self._next_pause())

    async def __aiter__(self) -> AsyncIterator[T]:
        import asyncio  # takes a fifth of the time of `import klog`, and few callers need it

        clock = self._log.clock
        with waiter_for([self._log]) as waiter:
            quiet_since = clock.monotonic()
            while True:
                ready, stop = await in_thread(self._ready)
                for each in self._returned(ready, stop):
                    yield each
                if ready:
                    quiet_since = clock.monotonic()
                    continue
                left = self._left(quiet_since)
                if left is not None and left <= 0:
                    return
                if isinstance(clock, SystemClock):
                    await waiter.wait_async(left)
                else:
                    await asyncio.sleep(self._next_pause())


class LogTail(Tail[Record]):
    """Records of a log from an offset on, as they arrive. Sleeps between them. Ends `timeout` seconds after the last.

    One iteration at a time, the next one goes on where it ended; next() goes on with one. Raises OffsetOutOfRange if
    the next record was deleted before it was read, LogTruncated if the log was truncated below it; LogClosed once the
    log is closed.
    """

    def decoded(self) -> DecodedTail:
        """This tail with decoded keys and values: tuples (record, key, value), for `for` and `async for`. Needs
        tail(decode=...). Raises BadValue where LogReader.decoded would; ValueError without decode."""
        if self._decoding is None:
            raise ValueError("decoded() needs formats: tail(decode=...)")
        return DecodedTail(
            self._log, self._offset, self._timeout, self._isolation, self._include_control, self._decoding
        )

    def _made(self, records: list[Record], stop: int) -> tuple[list[Record], int]:
        return records, stop


class DecodedTail(Tail["Decoded"]):
    """What LogTail.decoded() returns."""

    def _made(self, records: list[Record], stop: int) -> tuple[list[Decoded], int]:
        from klog.log.read.decoding import decoded_records  # klog.decode takes time to import

        assert self._decoding is not None
        found: list[Decoded] = []
        try:
            found += decoded_records([(self._log.partition, records)], self._decoding)
        except BadValue as error:  # raised by the next call, after the records before it are returned
            if not found:
                raise
            stop = error.offset
        return found, stop


def _hash(record: Record) -> int:
    return hash((record.timestamp, record.leader_epoch, record.producer_id, record.sequence, record.key, record.value))
