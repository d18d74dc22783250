"""Named positions: how far each named reader has read, kept in the log.dir.

    klog-reader.NAME.json := {"version": 1, "reader": NAME, "topics": {TOPIC: {"topic_id": ID, "positions": {"0": 17}}}}
    after a truncation, until the reader has seen it, also "truncated": {"0": 12}

One file for each reader name, with all topics that it reads; a group's name is such a name. A broker ignores the file;
it would not start with a directory that is not a partition's. A position is the offset of the next record.

  N1  a commit is on disk when it returns; a crash leaves the old file or the new one
  N2  other partitions and topics of the same name, which other processes commit, are kept: under an flock of the
      log.dir the file is read, changed and replaced. For one partition the last commit counts
  N3  a position belongs to one topic id: a topic that was deleted and created again is read from the start
  N4  no committed position lies above the log end that a crash or a truncation has left: the records that are appended
      there later are delivered
  N5  an open reader has later positions in its memory. So a truncation also notes its log end for each reader that has
      committed a position in the partition: before the first byte is removed, and again afterwards, since the reader
      may have read, and committed, what was removed meanwhile. The reader takes the note away and goes back there

This needs no lock of the log.dir, but must be able to write there: it also works beside a broker or another klog
process that writes, and with a read-only manager.
"""

from __future__ import annotations

import os
import re
import types
from collections.abc import Collection, Iterable, Mapping

from klog.arguments import LONG_MAX, text
from klog.disk import Files, FileState, directory_lock, file_state, read_whole, settled_change
from klog.errors import CorruptCheckpoint, CorruptData, NewerFormat
from klog.log.directory import versioned
from klog.logger import logger_of
from klog.values import NamedTuple

_log = logger_of("log")
VERSION = 1
_NAME = r"[a-zA-Z0-9._-]{1,200}"
_FILE = rf"klog-reader\.({_NAME})\.json"


class TopicPositions(NamedTuple):
    """The committed positions of one reader in one topic. truncated: the lowest log ends that truncations have noted
    (N5)."""

    topic_id: str | None
    positions: dict[int, int]
    truncated: Mapping[int, int] = types.MappingProxyType({})


def reader_name(argument: str, name: str) -> str:
    """Return the name of a reader or of a group. Raises TypeError, ValueError."""
    name = text(argument, name)
    if not re.fullmatch(_NAME, name):
        raise ValueError(f"{argument}={name!r} is not a reader name: 1 to 200 of a-z A-Z 0-9 . _ - are allowed")
    return name


def position_path(directory: str, name: str) -> str:
    """Return the path of a reader's file in a log.dir."""
    return os.path.join(directory, f"klog-reader.{name}.json")


class PositionFile:
    """The file of one reader name."""

    def __init__(self, directory: str, name: str, files: Files) -> None:
        self.name = name
        self.path = position_path(directory, name)
        self._directory = directory
        self._files = files
        self._seen: FileState | None = None  # the state of the file at the last look for truncations
        self._loaded: tuple[int | None, dict[str, TopicPositions]] = None, {}  # what it had at a settled_change

    def load(self) -> dict[str, TopicPositions]:
        """Return {topic: committed positions}. Raises CorruptCheckpoint, NewerFormat."""
        try:
            changed = settled_change(self.path)
            if changed is None or changed != self._loaded[0]:
                self._loaded = changed, decode(read_whole(self.path), self.path)
        except FileNotFoundError:
            return {}
        return dict(self._loaded[1])

    def commit(self, topic: str, entry: TopicPositions) -> dict[int, int]:
        """Commit the positions of partitions of a topic (N1, N2), but none above a log end that a truncation has noted.
        Takes these notes away and returns them: {partition: log end} (N5)."""
        with directory_lock(self._directory):
            topics = self.load()
            before = topics.get(topic)
            if before is None or before.topic_id != entry.topic_id:
                before = TopicPositions(entry.topic_id, {})
            noted = {number: end for number, end in before.truncated.items() if number in entry.positions}
            left = {number: end for number, end in before.truncated.items() if number not in noted}
            lowered = {number: min(entry.positions[number], end) for number, end in noted.items()}
            positions = {**before.positions, **entry.positions, **lowered}
            self._save({**topics, topic: TopicPositions(entry.topic_id, positions, left)})
            return noted

    def take_truncations(self, topic: str, topic_id: str | None, partitions: Collection[int]) -> dict[int, int]:
        """Take away what truncations have noted of these partitions since the last call, and return it: {partition: log
        end} (N5). Raises CorruptCheckpoint, NewerFormat, OSError."""
        state = file_state(self.path)
        if state is None or state == self._seen:
            return {}
        entry = self.load().get(topic)
        if entry is not None and entry.topic_id == topic_id and not entry.truncated.keys().isdisjoint(partitions):
            stored = {number: entry.positions[number] for number in entry.truncated if number in partitions}
            return self.commit(topic, TopicPositions(topic_id, stored))
        self._seen = state
        return {}

    def begin(self, topic: str, entry: TopicPositions) -> None:
        """Commit the first positions of a topic id, unless there are some already. They are on disk when it returns."""
        with directory_lock(self._directory):
            topics = self.load()
            before = topics.get(topic)
            if before is None or before.topic_id != entry.topic_id:
                self._save({**topics, topic: entry})
            else:
                self.sync_name()

    def forget(self, topic: str, partitions: Collection[int]) -> None:
        """Remove the positions of these partitions, and the file if no position is left."""
        with directory_lock(self._directory):
            topics = self.load()
            if (before := topics.pop(topic, None)) is None:
                self.sync_name()
                return
            left = {number: offset for number, offset in before.positions.items() if number not in partitions}
            if left:
                truncated = {number: end for number, end in before.truncated.items() if number in left}
                topics[topic] = TopicPositions(before.topic_id, left, truncated)
            if topics:
                self._save(topics)
            else:
                self._files.unlink(self.path)
                self.sync_name()

    def sync_name(self) -> None:
        """Make durable what another process has committed or removed: it may have been killed before it did that."""
        self._files.fsync_dir(self._directory)

    def lower(self, topic: str, partition: int, log_end: int, *, truncated: bool) -> bool:
        """Lower the position in a partition to the log end if it is above (N4). truncated: also note the log end (N5).
        Returns whether it was above. Raises OSError, CorruptCheckpoint, NewerFormat."""
        with directory_lock(self._directory):
            topics = self.load()
            entry = topics.get(topic)
            if entry is None or partition not in entry.positions:
                return False
            position = entry.positions[partition]
            lowered = entry._replace(positions={**entry.positions, partition: min(position, log_end)})
            if truncated:
                noted = min(log_end, entry.truncated.get(partition, log_end))
                lowered = lowered._replace(truncated={**entry.truncated, partition: noted})
            if lowered != entry:
                self._save({**topics, topic: lowered})
            return position > log_end

    def _save(self, topics: Mapping[str, TopicPositions]) -> None:
        document = {
            "version": VERSION,
            "reader": self.name,
            "topics": {
                name: {
                    "topic_id": topic_id,
                    "positions": _document(positions),
                    **({"truncated": _document(truncated)} if truncated else {}),
                }
                for name, (topic_id, positions, truncated) in sorted(topics.items())
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
    topic_id = entry["topic_id"]
    positions, truncated = _offsets(entry["positions"]), _offsets(entry.get("truncated", {}))
    if not (topic_id is None or isinstance(topic_id, str)) or not truncated.keys() <= positions.keys():
        raise ValueError(f"entry {entry!r}")
    return TopicPositions(topic_id, positions, truncated)


def _offsets(stored: object) -> dict[int, int]:
    if not isinstance(stored, dict):
        raise ValueError(f"offsets {stored!r}")
    offsets = {int(number): offset for number, offset in stored.items()}
    if not all(type(offset) is int and 0 <= offset <= LONG_MAX for offset in offsets.values()):
        raise ValueError(f"offsets {stored!r}")
    return offsets


def _document(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(number): offset for number, offset in sorted(offsets.items())}


def reader_names(directory: str) -> list[str]:
    """Return the names of readers that have committed positions in a log.dir."""
    return sorted(found[1] for name in os.listdir(directory) if (found := re.fullmatch(_FILE, name)))


def stored_positions(directory: str) -> tuple[dict[str, dict[str, TopicPositions]], dict[str, Exception]]:
    """Return {reader: {topic: committed positions}} of a log.dir, and {reader: why its file cannot be read}. Raises
    OSError if the log.dir cannot be listed."""
    found: dict[str, dict[str, TopicPositions]] = {}
    problems: dict[str, Exception] = {}
    for name in reader_names(directory):
        path = position_path(directory, name)
        try:
            found[name] = decode(read_whole(path), path)
        except FileNotFoundError:
            continue  # removed meanwhile
        except (CorruptData, NewerFormat, OSError) as error:
            problems[name] = error
    return found, problems


def lower_positions(
    readers: Iterable[PositionFile], topic: str, partition: int, log_end: int, *, truncated: bool
) -> None:
    """Before the first append to a log that was, or may have been, shortened: these readers go on at its end at the
    latest (N4). truncated: also those that are open (N5). Skips a damaged file, which raises again where its reader is
    opened. Raises OSError."""
    for reader in readers:
        try:
            if reader.lower(topic, partition, log_end, truncated=truncated):
                _log.warning("event=position_lowered reader=%s log=%s-%d", reader.name, topic, partition)
        except (CorruptData, NewerFormat) as error:
            _log.warning("event=position_kept reader=%s reason=%s", reader.name, error)
