"""Topics of a log.dir: directory names, and `klog-topics.json`, where klog keeps what Kafka keeps in its metadata log.

    {"version": 1, "topics": {"<name>": {"topic_id": "<22 characters>", "partitions": 4, "config": {"<key>": value}}}}

Kafka ignores the file. Without it (a broker's directory) the topics are those of the directory names, and their
configuration is unknown: whatever would delete because of it stays off.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from dataclasses import dataclass, field, replace
from typing import Any

from klog.disk import Files
from klog.errors import CorruptCheckpoint, InvalidTopic, NewerFormat
from klog.log.checkpoint import decode_uuid, encode_uuid

FILE = "klog-topics.json"
VERSION = 1
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_DIRECTORY = re.compile(r"(.+)-(\d{1,10})")
_SUFFIXED = re.compile(r"(\S+)-(\S+)\.(\S+)(-delete|-future|-stray)")


def check_topic_name(name: str) -> str:
    """The name itself. Raises InvalidTopic where Kafka would refuse it."""
    if not isinstance(name, str):
        raise TypeError(f"a topic name is text, not {type(name).__name__}")
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidTopic(
            f"{name!r} is no topic name: 1 to 249 of a-z A-Z 0-9 . _ - are allowed, and neither '.' nor '..'"
        )
    return name


def parse_directory_name(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a live partition directory's name; None for any other name, suffixed ones included."""
    if _SUFFIXED.fullmatch(name):
        return None
    match = _DIRECTORY.fullmatch(name)
    if match is None or not _NAME.fullmatch(match[1]) or match[1] in (".", ".."):
        return None
    partition = int(match[2])
    return (match[1], partition) if partition < 2**31 and str(partition) == match[2] else None


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """One topic: its id, number of partitions, and the configuration that was given."""

    topic_id: uuid.UUID
    partitions: int
    config: dict[str, Any] = field(default_factory=dict)


class TopicFile:
    """klog-topics.json of one log.dir. Under the manager's lock."""

    def __init__(self, directory: str, files: Files) -> None:
        self.path = os.path.join(directory, FILE)
        self._files = files
        self.entries: dict[str, TopicEntry] = {}
        self.present = False

    def load(self) -> None:
        """Read the file, if there is one. Raises CorruptCheckpoint, NewerFormat."""
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return
        self.present = True
        try:
            document = json.loads(data)
            version = document["version"]
            if isinstance(version, int) and version > VERSION:
                raise NewerFormat(f"{self.path} has version {version}, this klog reads {VERSION}: upgrade klog")
            self.entries = {check_topic_name(name): self._entry(entry) for name, entry in document["topics"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptCheckpoint(
                f"not the topics of a log.dir ({error}); move the file away to open the topics without configuration",
                path=self.path,
            ) from None

    def _entry(self, entry: dict[str, Any]) -> TopicEntry:
        topic_id = decode_uuid(entry["topic_id"])
        if topic_id is None or not isinstance(entry["partitions"], int) or not isinstance(entry["config"], dict):
            raise ValueError(f"entry {entry!r}")
        return TopicEntry(topic_id, entry["partitions"], entry["config"])

    def put(self, name: str, entry: TopicEntry) -> None:
        """Set a topic, durably."""
        self.entries[name] = entry
        self._save()

    def remove(self, name: str) -> None:
        """Forget a topic, durably."""
        if self.entries.pop(name, None) is not None:
            self._save()

    def set_config(self, name: str, config: dict[str, Any]) -> None:
        """Replace a topic's configuration, durably."""
        self.put(name, replace(self.entries[name], config=config))

    def _save(self) -> None:
        document = {
            "version": VERSION,
            "topics": {
                name: {
                    "topic_id": encode_uuid(entry.topic_id),
                    "partitions": entry.partitions,
                    "config": entry.config,
                }
                for name, entry in sorted(self.entries.items())
            },
        }
        self._files.replace(self.path, (json.dumps(document, indent=1) + "\n").encode())
        self.present = True
