"""Named positions: how far each named reader has read, kept in the log.dir.

    klog-reader.NAME.json := {"version": 1, "reader": NAME, "topics": {TOPIC: {"topic_id": ID, "positions": {"0": 17}}}}

One file for each reader name, with all topics that it reads. A broker ignores the file; it would not start with a
directory that is not a partition's. A position is the offset of the next record.

  N1  a commit is on disk when commit() returns; a crash leaves the old file or the new one
  N2  commits of the same name by other processes or for other topics are kept: under an flock of the log.dir the file
      is read, changed and replaced. For one topic the last commit counts
  N3  a position belongs to one topic id: a topic that was deleted and created again is read from the start

A reader needs no lock of the log.dir, but must be able to write there. It may run while a broker or another klog
process writes, and with a read-only manager.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from klog.arguments import chosen, optional_whole, seconds, text
from klog.clock import Clock, SystemClock
from klog.disk import Files, directory_lock, read_whole
from klog.errors import CorruptCheckpoint, OffsetOutOfRange, UnknownTopicOrPartition
from klog.log.directory import versioned
from klog.log.directory.checkpoint import encode_uuid
from klog.log.log import Log, waiter_for
from klog.log.read.isolation import Isolation
from klog.log.read.lookup import resolve
from klog.log.read.positions import Position, checked_position
from klog.log.read.reader import LogReader
from klog.record import ArrowStream, Columns, Record

if TYPE_CHECKING:
    import pyarrow

_log = logging.getLogger("klog.manager")
VERSION = 1
Missing = Literal["error", "earliest", "latest"]
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_FILE = re.compile(rf"klog-reader\.({_NAME.pattern})\.json")
_OFFSET_MAX = 2**63 - 1


class TopicPositions(NamedTuple):
    """The committed positions of one reader in one topic."""

    topic_id: str | None
    positions: dict[int, int]


class PositionFile:
    """The file of one reader name."""

    def __init__(self, directory: str, name: str, files: Files) -> None:
        self.name = name = text("name", name)
        if not _NAME.fullmatch(name):
            raise ValueError(f"name={name!r} is not a reader name: 1 to 200 of a-z A-Z 0-9 . _ - are allowed")
        self.path = os.path.join(directory, f"klog-reader.{name}.json")
        self._directory = directory
        self._files = files

    def load(self) -> dict[str, TopicPositions]:
        """Return {topic: committed positions}. Raises CorruptCheckpoint, NewerFormat."""
        try:
            data = read_whole(self.path)
        except FileNotFoundError:
            return {}
        return decode(data, self.path)

    def commit(self, topic: str, entry: TopicPositions) -> None:
        """Commit the positions of one topic (N1, N2)."""
        with directory_lock(self._directory):
            topics = {**self.load(), topic: entry}
            document = {
                "version": VERSION,
                "reader": self.name,
                "topics": {
                    name: {
                        "topic_id": topic_id,
                        "positions": {str(number): offset for number, offset in sorted(positions.items())},
                    }
                    for name, (topic_id, positions) in sorted(topics.items())
                },
            }
            self._files.replace(self.path, versioned.encode(document, indent=1))


def decode(data: bytes, path: str) -> dict[str, TopicPositions]:
    """Return the content of a reader's file, by topic. Raises CorruptCheckpoint, NewerFormat."""
    try:
        document = versioned.parse(data, path, VERSION)
        return {topic: _parsed(entry) for topic, entry in document["topics"].items()}
    except versioned.MALFORMED as error:
        raise CorruptCheckpoint(
            f"not the positions of a reader ({error}); move the file away to start again", path=path
        ) from None


def _parsed(entry: Mapping[str, object]) -> TopicPositions:
    topic_id, stored = entry["topic_id"], entry["positions"]
    if not (topic_id is None or isinstance(topic_id, str)) or not isinstance(stored, dict):
        raise ValueError(f"entry {entry!r}")
    positions = {int(number): offset for number, offset in stored.items()}
    if not all(type(offset) is int and 0 <= offset <= _OFFSET_MAX for offset in positions.values()):
        raise ValueError(f"positions {stored!r}")
    return TopicPositions(topic_id, positions)


def reader_names(directory: str) -> list[str]:
    """Return the names of readers that have committed positions in a log.dir."""
    return sorted(found[1] for name in os.listdir(directory) if (found := _FILE.fullmatch(name)))


class NamedReader:
    """Reads a topic from its last commit on, and commits how far it has read. Get it from LogManager.reader().

    Iterate it for the records that are there now, partition after partition; iterate it again for newer ones. Every
    record that it returns moves `position`; only commit() stores the position for the next run. One thread. Use one
    reader per name and topic at a time; with more, the last commit counts.

        with klog.open("data", read_only=True) as logs:
            reader = logs.reader("flights", "billing")
            for record in reader:
                ...
            reader.commit()
    """

    def __init__(
        self,
        logs_now: Callable[[], list[Log]],
        clock: Clock,
        file: PositionFile,
        topic: str,
        start: Position,
        missing: Missing,
        isolation: Isolation,
    ) -> None:
        chosen("missing", missing, get_args(Missing))
        chosen("isolation", isolation, get_args(Isolation))
        self._logs_now = logs_now  # the topic's logs, also of partitions that were added
        self._clock = clock
        self._file = file
        self._topic = topic
        self._start = checked_position("start", start)
        self._missing = missing
        self._isolation = isolation
        self._position: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._topic_id = next((encode_uuid(log.topic_id) for log in logs_now() if log.topic_id is not None), None)
        stored = file.load().get(topic)
        if stored is not None and stored.topic_id == self._topic_id:
            self._committed = dict(stored.positions)
            self._position = dict(stored.positions)
        elif stored is not None:
            _log.warning("event=topic_made_anew topic=%s reader=%s", topic, file.name)
        self._find_partitions()

    def __repr__(self) -> str:
        return f"<NamedReader {self.name} of {self._topic} at {self._position}>"

    def _find_partitions(self) -> list[Log]:
        """Return the current logs; one that was never read gets the position `start`."""
        logs = self._logs_now()
        for log in logs:
            log.refresh()
            if log.partition not in self._position:
                self._position[log.partition] = self._resolve(log, self._start, "start")
        return logs

    def _resolve(self, log: Log, position: Position, name: str) -> int:
        offset = resolve(log._core, position, log.log_start_offset, log.clock.wall_ms(), name)
        log.check_held(offset)
        return offset

    def _next_of(self, log: Log) -> int:
        """Return where to go on in a log; if those records are gone, where `missing` asks to go on."""
        offset = self._position[log.partition]
        start, end = log.log_start_offset, log.log_end_offset
        if start <= offset <= end:
            return offset
        if self._missing == "error":
            raise OffsetOutOfRange(offset, start, end, log.name)
        self._position[log.partition] = found = start if self._missing == "earliest" else end
        _log.warning("event=position_gone log=%s reader=%s position=%d now=%d", log.name, self.name, offset, found)
        return found

    # ---- position --------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The reader's name."""
        return self._file.name

    @property
    def topic(self) -> str:
        """The topic it reads."""
        return self._topic

    @property
    def position(self) -> dict[int, int]:
        """{partition: offset of the next record}."""
        return dict(sorted(self._position.items()))

    @property
    def committed(self) -> dict[int, int]:
        """{partition: offset} of the last commit, without partitions that were never committed."""
        return dict(sorted(self._committed.items()))

    @property
    def lag(self) -> dict[int, int]:
        """{partition: number of offsets left to read}, computed from the files as they are now."""
        found = {}
        for log in self._find_partitions():
            offset = max(self._position[log.partition], log.log_start_offset)
            found[log.partition] = max(0, log.bound(self._isolation) - offset)
        return found

    def seek(self, position: Position, partition: int | None = None) -> None:
        """Go on from an offset, "earliest", "latest" or a time, in one partition or in all of them.

        Raises OffsetOutOfRange, and no position has moved then; ValueError.
        """
        position, partition = checked_position("position", position), optional_whole("partition", partition)
        logs = [log for log in self._find_partitions() if partition in (None, log.partition)]
        if not logs:
            raise UnknownTopicOrPartition(f"topic {self._topic!r} has no partition {partition}")
        self._position.update({log.partition: self._resolve(log, position, "position") for log in logs})

    def commit(self) -> None:
        """Store the position: the next reader of this name begins here. On disk when it returns. Raises OSError,
        CorruptCheckpoint."""
        self._file.commit(self._topic, TopicPositions(self._topic_id, self._position))
        self._committed = dict(self._position)

    # ---- reading ---------------------------------------------------------------------------------------------------

    def _ranges(self) -> Iterator[tuple[Log, LogReader, int]]:
        """Each partition's range from the position to the current end, and that end."""
        for log in self._find_partitions():
            start, stop = self._next_of(log), log.bound(self._isolation)
            if start < stop:
                yield log, log.read(start, stop, isolation=self._isolation), stop

    def __iter__(self) -> Iterator[Record]:
        position = self._position
        for log, reader, stop in self._ranges():
            number = log.partition
            for record in reader:
                position[number] = record.offset + 1
                yield record
            position[number] = stop  # after control records and offsets that were compacted away, too

    def columns(self, fields: Sequence[str] | None = None) -> Iterator[Columns]:
        """The same as Arrow arrays, none of them empty; each array that it returns moves the position."""
        for log, reader, stop in self._ranges():
            for chunk, columns in reader.columns_of_chunks(fields):
                self._position[log.partition] = chunk.stop
                yield columns
            self._position[log.partition] = stop

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return ArrowStream(self.columns()).__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pyarrow.Table:
        """Return all remaining records as one pyarrow.Table. Needs pyarrow: pip install 'klog[arrow]'."""
        try:
            import pyarrow
        except ImportError as error:
            raise ImportError("to_arrow() needs pyarrow: pip install 'klog[arrow]'") from error
        return pyarrow.table(self)

    def tail(self, *, timeout: float | None = None) -> Iterator[Record]:
        """Return the records that are there, then wait for new ones; end after `timeout` seconds without any."""
        return self._tail(seconds("timeout", timeout))

    def _tail(self, timeout: float | None) -> Iterator[Record]:
        clock = self._clock
        with waiter_for(self._find_partitions()) as waiter:
            quiet_since = clock.monotonic()
            while True:
                for record in self:
                    yield record
                    quiet_since = clock.monotonic()
                left = None if timeout is None else timeout - (clock.monotonic() - quiet_since)
                if left is not None and left <= 0:
                    return
                if isinstance(clock, SystemClock):
                    waiter.wait(left)
                else:
                    clock.sleep(0.05)
