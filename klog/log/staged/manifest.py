"""The manifest of a commit: which staged files become which offsets of which partitions.

    klog-commit-TOKEN.json := {"version": 1, "token": TOKEN, "state": "committed" | "applied",
      "stream": {"query_id": Q, "batch_id": 7},                         absent for a batch job
      "topics": {NAME: {"topic_id": ID, "partitions": 4, "config": {}}},              those that the commit creates
      "partitions": [{"topic": NAME, "partition": 0, "base_offset": 120, "next_offset": 240, "overwrite": false,
                      "append_time": -1, "files": [{"name": "3-17", "base_offset": 120, "last_offset": 239,
                                                    "records": 120, "bytes": 4711, "crc": 305419896}]}]}

  M1  the job is committed once this file is durable; before, nothing of it counts; from then on, all of it does
  M2  committed: a reader that opens a partition ends it at its base_offset, and sees no topic that the commit creates,
      until M3. One that was open before follows each change. A plan of Spark has all of a commit or none (survey S5)
  M3  applied: every partition is appended and on disk; readers see all of it, and of an overwritten partition nothing
      below base_offset. The file is removed last, after everything that belongs to the job
  M4  applying is repeatable: a start that finds the file does what is left. append_time is fixed here, so that the
      bytes are the same each time

A partition that is overwritten has the log end as base_offset. append_time: -1 keeps the records' timestamps.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from klog.arguments import LONG_MAX
from klog.config import LogConfig
from klog.disk import read_whole
from klog.errors import CorruptCheckpoint
from klog.log.directory import versioned
from klog.log.directory.checkpoint import Partition, decode_uuid, encode_uuid
from klog.log.directory.partition_names import is_partition
from klog.log.staged import layout
from klog.values import dataclass, field, replace

VERSION = 1
State = Literal["committed", "applied"]


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One staged file of a task: batches of one partition, numbered from 0. name: <task>-<attempt>."""

    topic: str
    partition: int
    name: str
    records: int
    bytes: int
    crc: int
    max_timestamp: int = -1


@dataclass(frozen=True, slots=True)
class AssignedFile:
    """A staged file and the offset of its first record."""

    name: str
    base_offset: int
    records: int
    bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that the commit creates."""

    topic_id: uuid.UUID
    partitions: int
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """What a commit does to one partition."""

    topic: str
    partition: int
    base_offset: int
    files: tuple[AssignedFile, ...]
    overwrite: bool = False
    append_time: int = -1

    @property
    def key(self) -> Partition:
        """(topic, partition)"""
        return self.topic, self.partition

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + sum(file.records for file in self.files)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One commit in one log.dir. stream: (query id, batch id), or None."""

    token: str
    parts: tuple[Part, ...]
    topics: Mapping[str, NewTopic] = field(default_factory=dict)
    stream: tuple[str, int] | None = None
    state: State = "committed"

    def applied(self) -> Manifest:
        """The same after every partition is appended (M3)."""
        return replace(self, state="applied")

    def part(self, topic: str, partition: int) -> Part | None:
        """What it does to a partition; None: nothing."""
        return next((part for part in self.parts if part.key == (topic, partition)), None)

    def encode(self) -> bytes:
        """The bytes of the file."""
        document: dict[str, Any] = {"version": VERSION, "token": self.token, "state": self.state}
        if self.stream is not None:
            document["stream"] = {"query_id": self.stream[0], "batch_id": self.stream[1]}
        document["topics"] = {
            name: {"topic_id": encode_uuid(topic.topic_id), "partitions": topic.partitions, "config": {**topic.config}}
            for name, topic in sorted(self.topics.items())
        }
        document["partitions"] = [_plain(part) for part in self.parts]
        return versioned.encode(document, indent=1)


def _plain(part: Part) -> dict[str, Any]:
    return {
        "topic": part.topic,
        "partition": part.partition,
        "base_offset": part.base_offset,
        "next_offset": part.next_offset,
        "overwrite": part.overwrite,
        "append_time": part.append_time,
        "files": [
            {
                "name": file.name,
                "base_offset": file.base_offset,
                "last_offset": file.base_offset + file.records - 1,
                "records": file.records,
                "bytes": file.bytes,
                "crc": file.crc,
            }
            for file in part.files
        ],
    }


def read_all(log_dir: str, names: Iterable[str]) -> list[Manifest]:
    """The manifests among the names of a log.dir. Raises CorruptCheckpoint, NewerFormat."""
    found = []
    for token in layout.commits_in(names):
        try:
            found.append(read(log_dir, token))
        except FileNotFoundError:
            continue  # its commit has ended meanwhile
    return found


def read(log_dir: str, token: str) -> Manifest:
    """The manifest of a token. Raises FileNotFoundError, CorruptCheckpoint, NewerFormat."""
    path = layout.commit_path(log_dir, token)
    return decode(read_whole(path), path)


def decode(data: bytes, path: str) -> Manifest:
    """The manifest of a file's bytes. Raises CorruptCheckpoint, NewerFormat."""
    try:
        document = versioned.parse(data, path, VERSION)
        manifest = _manifest(document)
        if os.path.basename(path) != os.path.basename(layout.commit_path("", manifest.token)):
            raise ValueError(f"it is of token {manifest.token!r}")
        return manifest
    except versioned.MALFORMED as error:
        raise CorruptCheckpoint(
            f"not the manifest of a commit ({error}); restore it, or move it away with the staged files that it names "
            "to give up what it did not apply",
            path=path,
        ) from None


def _manifest(document: Any) -> Manifest:
    if document["state"] not in ("committed", "applied"):
        raise ValueError(f"state {document['state']!r}")
    parts = tuple(map(_part, document["partitions"]))
    if len({part.key for part in parts}) != len(parts):
        raise ValueError("a partition is listed twice")
    stream = document.get("stream")
    return Manifest(
        layout.check_token(document["token"]),
        parts,
        {name: _topic(name, entry) for name, entry in document["topics"].items()},
        None if stream is None else (layout.check_token(stream["query_id"]), _whole(stream["batch_id"])),
        document["state"],
    )


def _part(entry: Any) -> Part:
    topic, partition = entry["topic"], _whole(entry["partition"])
    if not is_partition(topic, partition):
        raise ValueError(f"partition {topic!r}-{partition}")
    part = Part(
        topic,
        partition,
        _whole(entry["base_offset"]),
        tuple(map(_file, entry["files"])),
        _flag(entry["overwrite"]),
        _whole(entry["append_time"], -1),
    )
    expected = part.base_offset
    for file in part.files:
        if file.base_offset != expected:
            raise ValueError(f"{topic}-{partition}: file {file.name} begins at {file.base_offset}, not at {expected}")
        expected += file.records
    if entry["next_offset"] != expected or expected > LONG_MAX:
        raise ValueError(f"{topic}-{partition}: next_offset {entry['next_offset']!r}, expected {expected}")
    return part


def _file(entry: Any) -> AssignedFile:
    name = entry["name"]
    if not isinstance(name, str) or not layout.is_file_name(name):
        raise ValueError(f"file {name!r}")
    records = _whole(entry["records"], 1)
    file = AssignedFile(name, _whole(entry["base_offset"]), records, _whole(entry["bytes"], 1), _whole(entry["crc"]))
    if entry["last_offset"] != file.base_offset + records - 1:
        raise ValueError(f"file {name}: last_offset {entry['last_offset']!r}")
    return file


def _topic(name: str, entry: Any) -> NewTopic:
    topic_id = decode_uuid(entry["topic_id"])
    if not is_partition(name, 0) or topic_id is None or topic_id.int == 0 or not isinstance(entry["config"], dict):
        raise ValueError(f"topic {name!r}: {entry!r}")
    LogConfig(entry["config"])  # else every later start would fail by it
    return NewTopic(topic_id, _whole(entry["partitions"], 1, 10_000), entry["config"])


def _whole(value: Any, low: int = 0, high: int = LONG_MAX) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{value!r} is not a number from {low} to {high}")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{value!r} is not true or false")
    return value
