"""Topics of a LogManager: `klog-topics.json`, where klog keeps what Kafka keeps in its metadata log.

    {"version": 1, "generation": 7, "topics": {"<name>": {"topic_id": "<22 characters>", "partitions": 4,
     "config": {"<key>": value} or null, "state": "creating"}}, "deleted": ["<22 characters>", ...]}

Each log directory has a copy, written with every change. The copy with the highest generation counts, and a start
updates the others. A copy that cannot be read is skipped if another one can. state: an operation that a crash
interrupted, which the next start undoes (creating; adding: the partitions from `partitions` on) or finishes
(deleting); else absent. config: null during an operation on a topic whose configuration is unknown. deleted: ids of
topics that were deleted while a directory was offline, which may still hold logs of theirs.

Kafka ignores the file. Without it (a broker's directory) the topics are those of the directory names, and their
configuration is unknown: nothing is deleted because of it.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from klog.arguments import wrong_type
from klog.disk import Files, FileState, file_state, read_whole
from klog.errors import CorruptCheckpoint, InvalidTopic
from klog.log.directory import versioned
from klog.log.directory.checkpoint import decode_uuid, encode_uuid
from klog.log.directory.partition_names import TOPIC
from klog.logger import logger_of
from klog.values import dataclass, field

_log = logger_of("manager")
FILE = "klog-topics.json"
VERSION = 1
State = Literal["", "creating", "adding", "deleting"]
_STATES = get_args(State)


def plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as stored in JSON: lists as Kafka's comma-separated text."""
    return {name: ",".join(value) if isinstance(value, tuple) else value for name, value in config.items()}


def check_topic_name(name: str) -> str:
    """Return the name. Raises InvalidTopic if Kafka would reject it."""
    if not isinstance(name, str):
        raise wrong_type("name", name, "a topic's name, a str,")
    if not TOPIC.fullmatch(name) or name in (".", ".."):
        raise InvalidTopic(
            f"name={name!r} is not a topic name: 1 to 249 of a-z A-Z 0-9 . _ - are allowed, and neither '.' nor '..'"
        )
    return str.__str__(name)


def same_but_for_case(name: str, others: Iterable[str]) -> str | None:
    """The first of the others that differs from a name only by case; None if there is none."""
    return next((other for other in others if other != name and other.lower() == name.lower()), None)


def check_collision(name: str, others: Collection[str], case_ignored: str | None = None) -> None:
    """Raise InvalidTopic if another topic has the name but for `.` and `_`: Kafka's metrics of the two would have one
    name. Or but for case, if the names in the directory `case_ignored` do not distinguish that: the two would have the
    same files. Kafka: Topic.hasCollision."""
    other = None if case_ignored is None else same_but_for_case(name, others)
    if other is not None:
        raise InvalidTopic(
            f"topic {name!r} differs from the topic {other!r} only by case, which the file system of "
            f"{case_ignored} does not distinguish: choose another name"
        )
    if "." not in name and "_" not in name:
        return
    wanted = name.replace(".", "_")
    for other in others:
        if other != name and other.replace(".", "_") == wanted:
            raise InvalidTopic(
                f"topic {name!r} differs from the topic {other!r} only by '.' and '_', which Kafka's metrics do not "
                "distinguish: choose another name"
            )


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """One topic: its id, number of partitions, and the configuration that was given for it. known: False if that is
    unknown, during an operation on a topic of a broker's directory, which then has no entry again."""

    topic_id: uuid.UUID
    partitions: int
    config: dict[str, Any] = field(default_factory=dict)
    state: State = ""
    known: bool = True


def partition_count(partitions: Sequence[int], entry: TopicEntry | None) -> int:
    """Return how many partitions a topic with these, in order, has: the directories of others may be missing."""
    return max(partitions[-1] + 1, 0 if entry is None else entry.partitions)


@dataclass(frozen=True, slots=True)
class TopicCopy:
    """The content of one directory's file."""

    generation: int
    entries: dict[str, TopicEntry]
    deleted: frozenset[uuid.UUID]


class TopicFile:
    """klog-topics.json of one log directory, or of several. Under the manager's lock."""

    def __init__(self, directories: Sequence[str], files: Files, on_failure: Callable[[str, OSError], None]) -> None:
        self._paths = [os.path.join(directory, FILE) for directory in directories]
        self._files = files
        self._on_failure = on_failure
        self.entries: dict[str, TopicEntry] = {}
        self.deleted: frozenset[uuid.UUID] = frozenset()
        self.generation = 0
        self.changes = 0  # how often entries has changed: another number than generation, which a write raises first
        self.stale: list[str] = []  # copies that are not the newest
        self._members: dict[str, tuple[TopicEntry, str]] = {}  # each topic as it was last written

    @property
    def path(self) -> str:
        """The first copy, for messages."""
        return self._paths[0]

    def load(self) -> None:
        """Read the copies. Raises CorruptCheckpoint if all existing copies are unreadable; NewerFormat."""
        copies: dict[str, TopicCopy] = {}
        broken: CorruptCheckpoint | None = None
        for path in self._paths:
            try:
                copy = _read(path)
            except CorruptCheckpoint as error:
                broken = error
                _log.warning("event=topics_unreadable reason=%s", error)
                continue
            if copy is not None:
                copies[path] = copy
        if broken is not None and not copies:
            raise broken
        newest = max(copies.values(), key=lambda copy: copy.generation, default=TopicCopy(0, {}, frozenset()))
        self.entries, self.deleted, self.generation = dict(newest.entries), newest.deleted, newest.generation
        self.stale = [path for path in self._paths if path not in copies or copies[path] != newest] if copies else []

    def put(self, name: str, entry: TopicEntry) -> None:
        """Set a topic, durably; if that fails, nothing has changed."""
        self._save({**self.entries, name: entry}, self.deleted)

    def remove(self, name: str, *, remember: bool = False) -> None:
        """Remove a topic, durably. remember: keep its id in deleted."""
        if name in self.entries:
            left = {other: entry for other, entry in self.entries.items() if other != name}
            self._save(left, self.deleted | {self.entries[name].topic_id} if remember else self.deleted)

    def replace_all(self, entries: Mapping[str, TopicEntry]) -> None:
        """Set all topics, durably, in each copy."""
        self._save(dict(entries), self.deleted)
        self.stale = []

    def forget_deleted(self) -> None:
        """Clear deleted, after every directory was searched for logs of deleted topics."""
        if self.deleted:
            self._save(self.entries, frozenset())

    def bring_up_to_date(self) -> None:
        """Write the newest copy over older ones."""
        for path in self.stale:
            self._files.replace(path, self._text(self.entries, self.deleted, self.generation))
        self.stale = []

    def leave_out(self, directory: str) -> None:
        """Stop writing the copy of a directory that has gone offline, unless it is the last one."""
        gone = os.path.join(directory, FILE)
        if len(self._paths) > 1:
            self._paths = [path for path in self._paths if path != gone]

    def _save(self, entries: dict[str, TopicEntry], deleted: frozenset[uuid.UUID]) -> None:
        """Write every copy. One success is enough: its generation is the highest."""
        self.generation += 1  # also if it fails: a copy may have been replaced, and must not count beside the next ones
        data = self._text(entries, deleted, self.generation)
        failure: OSError | None = None
        written = False
        for path in list(self._paths):
            try:
                self._files.replace(path, data)
                written = True
            except OSError as error:
                failure = error
                _log.error("event=topics_not_written path=%s reason=%s", path, error)
                self._on_failure(os.path.dirname(path), error)
        if failure is not None and not written:
            raise failure
        self.entries, self.deleted = entries, deleted
        self.changes += 1

    def _text(self, entries: dict[str, TopicEntry], deleted: frozenset[uuid.UUID], generation: int) -> bytes:
        self._members = {name: self._member(name, entry) for name, entry in sorted(entries.items())}
        topics = ",\n".join([text for _, text in self._members.values()])
        members = [f'"version":{VERSION}', f'"generation":{generation}', f'"topics":{{\n{topics}}}']
        if deleted:
            members.append(f'"deleted":{versioned.compact(sorted(map(encode_uuid, deleted)))}')
        return versioned.sealed(members)

    def _member(self, name: str, entry: TopicEntry) -> tuple[TopicEntry, str]:
        """Return a topic as it is written. It is encoded once: a change of one topic writes all."""
        known = self._members.get(name)
        if known is not None and known[0] is entry:
            return known
        return entry, f"{versioned.compact(name)}:{versioned.compact(_plain(entry))}"


class FollowedTopicFile(TopicFile):
    """The file of a reader: its entries are those that the writer has stored by now. If all copies are unreadable, what
    was read before counts. Reading them raises NewerFormat, OSError. Any thread."""

    _entries: dict[str, TopicEntry]
    _changes: int
    _seen: list[FileState | None]  # the copies, as they were before the last load

    @property
    def entries(self) -> dict[str, TopicEntry]:  # type: ignore[override]
        """{topic: its entry}"""
        self._follow()
        return self._entries

    @entries.setter
    def entries(self, entries: dict[str, TopicEntry]) -> None:
        self._entries = entries

    @property
    def changes(self) -> int:  # type: ignore[override]
        """How often entries has changed."""
        self._follow()
        return self._changes

    @changes.setter
    def changes(self, changes: int) -> None:
        self._changes = changes

    def load(self) -> None:
        """Read the copies. Raises CorruptCheckpoint if all existing copies are unreadable; NewerFormat."""
        found = list(map(file_state, self._paths))
        super().load()
        self._seen = found

    def _follow(self) -> None:
        """Read the copies again if the writer has replaced one."""
        found, before = list(map(file_state, self._paths)), self._entries
        if found != self._seen:
            with contextlib.suppress(CorruptCheckpoint):
                self.load()
            self._seen = found
            self._changes += self._entries != before


def _plain(entry: TopicEntry) -> dict[str, Any]:
    config = entry.config if entry.known else None
    plain = {"topic_id": encode_uuid(entry.topic_id), "partitions": entry.partitions, "config": config}
    return {**plain, "state": entry.state} if entry.state else plain


def _read(path: str) -> TopicCopy | None:
    """Return the copy at path; None if there is none."""
    try:
        return decode(read_whole(path), path)
    except FileNotFoundError:
        return None


def decode(data: bytes, path: str) -> TopicCopy:
    """Return the content of a file. Raises CorruptCheckpoint, NewerFormat."""
    try:
        document = versioned.parse(data, path, VERSION)
        generation = document.get("generation", 0)
        if isinstance(generation, bool) or not isinstance(generation, int):
            raise ValueError(f"generation {generation!r}")
        entries = {check_topic_name(name): _entry(entry) for name, entry in document["topics"].items()}
        deleted = frozenset(_topic_id(text) for text in document.get("deleted", []))
    except versioned.MALFORMED as error:
        raise CorruptCheckpoint(
            f"not the topics of a log.dir ({error}); move the file away to open the topics without configuration",
            path=path,
        ) from None
    return TopicCopy(generation, entries, deleted)


def _entry(entry: dict[str, Any]) -> TopicEntry:
    state, config = entry.get("state", ""), entry["config"]
    if not isinstance(entry["partitions"], int) or not isinstance(config, dict | None):
        raise ValueError(f"entry {entry!r}")
    if state not in _STATES:
        raise ValueError(f"state {state!r}")
    return TopicEntry(_topic_id(entry["topic_id"]), entry["partitions"], config or {}, state, config is not None)


def _topic_id(text: Any) -> uuid.UUID:
    topic_id = decode_uuid(text)
    if topic_id is None:
        raise ValueError(f"topic id {text!r}")
    return topic_id
