"""NamedReader: reads a topic from its last commit on; alone under its name, or as a member of a group.

R1  at least once: a record is committed only after it was returned, and by commit_every only when the next one is
    asked for. After a crash the records since the last commit are read again
R2  one reader at a time reads a partition under one name (reader_share.py)
R3  a reader follows a truncation of a partition that it has committed, also by another process: at its next iteration
    or commit it goes back to the log end that is left (N5 of reader_positions.py). In other partitions it goes where
    `missing` asks to go on, or raises LogTruncated
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from klog.arguments import optional_whole, seconds
from klog.disk import NUMBERS, Holder, Leases
from klog.errors import AlreadyLocked, KlogError, UnknownTopicOrPartition
from klog.log.directory.checkpoint import encode_uuid
from klog.log.directory.reader_positions import PositionFile, TopicPositions
from klog.log.log import Log
from klog.log.read import tables
from klog.log.read.in_thread import in_thread
from klog.log.read.isolation import Isolation
from klog.log.read.optional_decoding import stream_of
from klog.log.read.positions import checked_position
from klog.log.read.reader import fields_of
from klog.logger import logger_of
from klog.manager.reader_share import GroupShare
from klog.manager.topic_cursor import Missing, TopicCursor, offset_of
from klog.manager.topic_positions import TopicPosition, check_positions, of_partition
from klog.manager.topic_source import TopicSource
from klog.manager.topic_tail import Delivery, TopicTail
from klog.record import Columns, Record
from klog.shown import display, first_few
from klog.values import dataclass

if TYPE_CHECKING:
    from klog.log.read.decoding import Decoded, Decoding

T = TypeVar("T")
_log = logger_of("manager")


@dataclass(frozen=True)
class ReaderOptions:
    """How a reader reads; see LogManager.reader."""

    start: TopicPosition
    missing: Missing
    isolation: Isolation
    commit_every: int | None
    decoding: Decoding | None


class NamedReader(tables.Tabular):
    """Reads a topic from its last commit on, and commits how far it has read. Get it from LogManager.reader().

    Iterate it, with `for` or `async for`, for the records that are there now, partition after partition; iterate it
    again for newer ones; tail() waits for them. With reader(decode=...), decoded() of both iterates tuples (record,
    key, value). Every record that it returns moves `position`; only commit() stores the position for the next run. The
    end of a `with` block commits and closes; an exception only closes, so that the records since the last commit are
    read again. Tables and files hold all remaining records, without commits by commit_every, with keys and values
    decoded if reader() has got decode=. One thread or task.

        with klog.open("data", read_only=True) as logs, logs.reader("flights", "billing") as reader:
            for record in reader:
                ...

    The name belongs to this reader until close(), its garbage collection, the manager's close() or the end of the
    process. A forked child cannot use it.
    """

    def __init__(
        self,
        source: TopicSource,
        leases: Leases,
        share: GroupShare | None,
        file: PositionFile,
        name: str,
        options: ReaderOptions,
    ) -> None:
        self._source = source
        self._leases = leases
        self._share = share
        self._file = file
        self._name = name
        self._options = options
        follow = weakref.WeakMethod(self._follow_truncations)  # in a circle a dropped reader would keep its leases

        def follow_truncations() -> None:
            method = follow()
            assert method is not None  # the reader iterates over its cursor
            method()

        self._cursor = TopicCursor(
            name, options.missing, options.isolation, options.decoding, follow=follow_truncations
        )
        self._committed: dict[int, int] = {}
        self._final: dict[int, int] | None = None  # the position at close()
        self._checked: Log | None = None  # the log whose topic id was read last
        self._topic_id: str | None = None
        self._later = not source.partitions()  # new partitions are read from their first record, not from `start`
        self._uncommitted = 0  # records processed since the last commit, for commit_every
        try:
            self._find_logs()
        except BaseException:
            with contextlib.suppress(OSError):
                leases.remove()  # a call that raises changes nothing on disk
            self.close()
            raise

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} belongs to its process: open one there with logs.reader(topic, name)")

    def __repr__(self) -> str:
        at = first_few(self.position.items(), lambda item: f"{item[0]}: {item[1]}")
        return f"<NamedReader {self.name} of {self.topic} at {{{at}}}>"

    def _repr_html_(self) -> str:
        heads = ("partition", "position", "committed", "left to read")
        position, committed = self.position, self.committed
        return display(
            repr(self),
            heads,
            lambda: [
                (log.partition, position[log.partition], committed.get(log.partition), self._cursor.lag(log))
                for log in self._source.logs(position)
            ],
        )

    # ---- partitions ------------------------------------------------------------------------------------------------

    def _find_logs(self) -> list[Log]:
        """Return the logs to read now, each with a position. A group's member gives up and takes partitions first."""
        self._leases.check()
        partitions = self._source.partitions()
        if self._share is not None and partitions:
            self._begin_group(partitions)
            self._cursor.leave(self._share.give_up_surplus(partitions, self._cursor.is_settled))
            self._share.take(partitions)
            partitions = sorted(self._share.held)
        logs = self._source.logs(partitions)
        self._place(logs)
        self._follow_truncations()
        return logs

    def _follow_truncations(self) -> None:
        self._follow(self._file.take_truncations(self.topic, self._topic_id, self._cursor.position))

    def _follow(self, ends: Mapping[int, int]) -> None:
        """Go back to where truncations have ended logs (R3)."""
        self._cursor.lower(ends)
        for partition, end in ends.items():
            if partition in self._committed:
                self._committed[partition] = min(self._committed[partition], end)

    def _begin_group(self, partitions: Sequence[int]) -> None:
        """Commit where a new group begins, so that each member, now or after a crash, begins there."""
        if self._later:
            return
        logs = self._source.logs(partitions)
        if logs:
            self._check_topic(logs[0])
            if self._stored():
                self._file.sync_name()
            else:
                first = {log.partition: self._start_of(log) for log in logs}
                self._file.begin(self.topic, TopicPositions(self._topic_id, first))
            self._later = True

    def _check_topic(self, log: Log) -> None:
        """Forget the positions if the topic was deleted and created again (N3 of reader_positions.py)."""
        if log is self._checked and not log.read_only:  # beside a writer a log follows the name of its directory
            return
        found = log.topic_id
        topic_id = None if found is None else encode_uuid(found)
        if self._checked is not None and topic_id != self._topic_id:
            _log.warning("event=topic_made_anew topic=%s reader=%s", self.topic, self.name)
            self._cursor.leave(list(self._cursor.position))
            self._committed.clear()
        self._checked, self._topic_id = log, topic_id

    def _stored(self) -> dict[int, int]:
        """Return the committed positions of this topic, also those of other readers."""
        stored = self._file.load().get(self.topic)
        if stored is None:
            return {}
        if stored.topic_id != self._topic_id:
            _log.warning("event=topic_made_anew topic=%s reader=%s", self.topic, self.name)
            return {}
        return stored.positions

    def _place(self, logs: list[Log]) -> None:
        """Give each log without a position that of the last commit; else `start`, or the log start if it came later."""
        if logs:
            self._check_topic(logs[0])
        new = [log for log in logs if log.partition not in self._cursor.position]
        if not new:
            return
        stored = self._stored()
        later = self._later or (bool(stored) and self._source.partition is None)
        placed = {}
        for log in new:
            found = stored.get(log.partition)
            if found is None:
                found = log.log_start_offset if later else self._start_of(log)
            else:
                self._committed[log.partition] = found
            placed[log.partition] = found
        for partition, offset in placed.items():
            self._cursor.place(partition, offset)
        self._later = True

    def _start_of(self, log: Log) -> int:
        return offset_of(log, of_partition(self._options.start, log.partition), "start")

    # ---- position --------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The reader's name; of a group's member that of the member."""
        return self._name

    @property
    def topic(self) -> str:
        """The topic it reads."""
        return self._source.topic

    @property
    def group(self) -> str | None:
        """The group it is a member of, or None."""
        return None if self._share is None else self._file.name

    @property
    def assignment(self) -> list[int]:
        """The partitions that it reads now. Those of a group's member change when it is iterated and after a commit."""
        return sorted(self._cursor.position)

    @property
    def members(self) -> list[Holder]:
        """(name, pid) of the living readers of this name, or members of this group, in this topic."""
        return self._leases.holders()

    @property
    def position(self) -> dict[int, int]:
        """{partition: offset of the next record}."""
        return dict(sorted((self._cursor.position if self._final is None else self._final).items()))

    @property
    def committed(self) -> dict[int, int]:
        """{partition: offset} of the last commit, without partitions that were never committed."""
        return dict(sorted(self._committed.items()))

    @property
    def lag(self) -> dict[int, int]:
        """{partition: number of offsets left to read}, computed from the files as they are now."""
        return {log.partition: self._cursor.lag(log) for log in self._find_logs()}

    def seek(self, position: TopicPosition, partition: int | None = None) -> None:
        """Go on from an offset, "earliest", "latest" or a time, in one partition or in all that it reads; or from a
        position for each partition that {partition: position} names. An iteration of a partition whose position moves
        ends.

        Raises OffsetOutOfRange, and no position has moved then; ValueError; UnknownTopicOrPartition for a partition
        that it does not read.
        """
        partition = optional_whole("partition", partition)
        if not isinstance(position, Mapping):
            position = checked_position("position", position)
        elif partition is not None:
            raise ValueError(f"partition={partition}: position={position!r} names its partitions; leave out partition")
        logs = self._find_logs()
        check_positions("position", position, self.topic, [log.partition for log in logs])
        logs = [log for log in logs if partition in (None, log.partition)]
        if not logs:
            raise UnknownTopicOrPartition(
                f"reader {self.name!r} of topic {self.topic!r} reads no partition {partition}; it reads "
                f"{', '.join(map(str, self.assignment)) or 'none now'}"
            )
        wanted = [(log, of_partition(position, log.partition)) for log in logs]
        offsets = {log.partition: offset_of(log, at, "position") for log, at in wanted if at is not None}
        for number, offset in offsets.items():
            self._cursor.seek(number, offset)

    def commit(self) -> None:
        """Store the position: the next reader of this name begins here. On disk when it returns.

        A group's member then gives up partitions that others are to have. Raises OSError, CorruptCheckpoint, LogClosed,
        ForkedHandle.
        """
        self._leases.check()
        self._uncommitted = 0
        if self._cursor.position:
            # The topic may be gone: then its positions are still committed.
            with contextlib.suppress(KlogError, OSError):
                for log in self._source.logs([min(self._cursor.position)]):
                    self._check_topic(log)
        if not self._cursor.position:  # the topic is not there yet, or the group has more members than partitions
            return
        self._follow(self._file.commit(self.topic, TopicPositions(self._topic_id, self._cursor.position)))
        self._committed.update(self._cursor.settle())
        if self._share is not None:
            partitions = self._source.partitions()
            self._cursor.leave(self._share.give_up_surplus(partitions, self._cursor.is_settled))

    def delete(self) -> None:
        """Remove what is committed under this name in this topic, and close. A reader of one partition removes only its
        position.

        Raises AlreadyLocked while the group has other members: nothing is removed then.
        """
        self._leases.check()
        partition = self._source.partition
        if self._share is not None and (len(self.members) > 1 or not self._leases.take(0, NUMBERS)):
            members = ", ".join(f"{name} (process {pid})" for name, pid in self.members)
            raise AlreadyLocked(
                f"group {self.group!r} has several members in topic {self.topic!r}: {members}; close the others first",
                path=self._leases.path,
            )
        self._file.forget(self.topic, range(NUMBERS) if partition is None else [partition])
        self._leases.remove()
        self.close()

    def close(self) -> None:
        """Release the name, without a commit. A second call is not an error."""
        if self._final is None:
            self._final = dict(self._cursor.position)
            self._cursor.leave(self._final)
        self._leases.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is None and self._final is None:  # not after close() or delete() in the block
                self.commit()
        finally:
            self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        await in_thread(lambda: self.__exit__(kind))

    # ---- reading ---------------------------------------------------------------------------------------------------

    def _is_due(self, records: int) -> bool:
        """Count records that were processed. True if commit_every asks for a commit."""
        self._uncommitted += records
        return self._options.commit_every is not None and self._uncommitted >= self._options.commit_every

    def _ends_uncommitted(self) -> bool:
        """True if commit_every asks for a commit at the end of an iteration, where all records were processed."""
        self._leases.check()
        return self._options.commit_every is not None and self._cursor.position != self._cursor.settled

    def _committing(self, items: Iterator[T]) -> Iterator[T]:
        for item in items:
            yield item
            if self._is_due(1):
                self.commit()
        if self._ends_uncommitted():
            self.commit()

    async def _committing_async(self, items: AsyncIterator[T]) -> AsyncIterator[T]:
        async for item in items:
            yield item
            if self._is_due(1):
                await in_thread(self.commit)
        if self._ends_uncommitted():
            await in_thread(self.commit)

    @property
    def _as_stored(self) -> Delivery[Record]:
        cursor = self._cursor
        return Delivery(
            lambda logs: self._committing(cursor.records(logs)),
            lambda logs: self._committing_async(cursor.records_async(logs)),
        )

    @property
    def _as_decoded(self) -> Delivery[Decoded]:
        cursor = self._cursor
        return Delivery(
            lambda logs: self._committing(cursor.decoded(logs)),
            lambda logs: self._committing_async(cursor.decoded_async(logs)),
        )

    def __iter__(self) -> Iterator[Record]:
        yield from self._as_stored.now(self._find_logs())

    async def __aiter__(self) -> AsyncIterator[Record]:
        async for record in self._as_stored.now_async(await in_thread(self._find_logs)):
            yield record

    def decoded(self) -> DecodedRecords:
        """The same as iterating, as tuples (record, key, value) with key and value in the formats of
        reader(decode=...), for `for` and `async for`. Raises BadValue where LogReader.decoded does, with the position
        before that record; ValueError without decode."""
        if self._options.decoding is None:
            raise ValueError("decoded() needs formats: logs.reader(..., decode=)")
        return DecodedRecords(self._find_logs, self._as_decoded)

    def tail(self, *, timeout: float | None = None) -> TopicTail[Record]:
        """Return the records that are there, then wait for new ones; end after `timeout` seconds without any. For `for`
        and `async for`."""
        timeout = seconds("timeout", timeout)
        self._leases.check()
        return TopicTail(self._source, self._find_logs, self._as_stored, self._as_decoded, timeout)

    def columns(self, fields: Sequence[str] | None = None) -> Iterator[Columns]:
        """The same as iterating, as Arrow arrays, none of them empty; each array that it returns moves the position.
        Keys and values are as they are stored."""
        logs = self._find_logs()
        for _, columns in self._cursor.columns(logs, fields_of(len(logs)) if fields is None else fields):
            yield columns
            if self._is_due(columns.num_rows):
                self.commit()
        if self._ends_uncommitted():
            self.commit()

    def _stream(self) -> tables.Stream:
        # Without commit_every: a library asks for all arrays before its caller has processed the first one.
        logs, cursor = self._find_logs(), self._cursor
        return stream_of(lambda names: cursor.columns(logs, names), cursor.decoding, fields_of(len(logs)))


class DecodedRecords:
    """What NamedReader.decoded() returns, for `for` and `async for`."""

    def __init__(self, find_logs: Callable[[], list[Log]], delivery: Delivery[Decoded]) -> None:
        self._find_logs = find_logs
        self._delivery = delivery

    def __iter__(self) -> Iterator[Decoded]:
        yield from self._delivery.now(self._find_logs())

    async def __aiter__(self) -> AsyncIterator[Decoded]:
        async for each in self._delivery.now_async(await in_thread(self._find_logs)):
            yield each
