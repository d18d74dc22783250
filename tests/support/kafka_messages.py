"""Records of Kafka's internal topics as Kafka's own classes write them, and the same records as Kafka's JSON.

tests/golden/internal-topics: every type and version (messages.jsonl.gz, by tests/interop/java/InternalTopics.java), and
the output of Kafka's dump tool for the golden case `internal` (dumped.txt.gz).
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import klog
from klog.internal_topics import (
    Decoded,
    cluster_metadata,
    consumer_offsets,
    decode,
    names,
    remote_log_metadata,
    share_group_state,
    transaction_state,
)
from tests.support.golden import HOME

FOLDER = HOME / "internal-topics"
MEMBER_FIELDS = ("subscription", "assignment")


class Message(NamedTuple):
    """kind: the name of Kafka's class. json: the fields with klog's names and values."""

    kind: str
    version: int
    data: bytes
    json: Any


def golden() -> list[Message]:
    """All messages of the saved file."""
    return list(messages(gzip.decompress((FOLDER / "messages.jsonl.gz").read_bytes()).decode().splitlines()))


def messages(lines: Iterable[str]) -> Iterator[Message]:
    """The messages in the output of InternalTopics.java."""
    for line in lines:
        entry = json.loads(line)
        yield Message(entry["type"], entry["version"], base64.b64decode(entry["bytes"]), plain(entry["json"]))


def dumped() -> dict[tuple[str, int], str]:
    """{(topic, offset): the text after the metadata in the line of Kafka's dump tool}."""
    lines = gzip.decompress((FOLDER / "dumped.txt.gz").read_bytes()).decode().splitlines()
    parts = [line.split(" ", 2) for line in lines]
    return {(topic, int(offset)): text for topic, offset, text in parts}


def plain(value: Any) -> Any:
    """Kafka's JSON with names in snake_case."""
    if isinstance(value, dict):
        return {snake(name): plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def comparable(value: Any) -> Any:
    """klog's fields as Kafka's JSON shows them: bytes in base64."""
    if isinstance(value, dict):
        return {name: comparable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [comparable(each) for each in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def snake(name: str) -> str:
    """assignedPartitions → assigned_partitions."""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def keyed(number: int, key: bytes) -> bytes:
    """A key: its type, then the message."""
    return struct.pack(">h", number) + key


def framed(number: int, version: int, data: bytes) -> bytes:
    """A value of a topic without keys."""
    return bytes((1, number, version)) + data


KEYED = [
    (names.CONSUMER_OFFSETS, consumer_offsets.TYPES),
    (names.TRANSACTION_STATE, transaction_state.TYPES),
    (names.SHARE_GROUP_STATE, share_group_state.TYPES),
]
FRAMED = [
    (names.CLUSTER_METADATA, cluster_metadata.TYPES),
    (names.REMOTE_LOG_METADATA, remote_log_metadata.TYPES),
]


def one(topic: str, key: bytes | None, value: bytes | None) -> Decoded:
    found = decode(klog.Record(key, value), topic)
    assert found is not None
    return found


def check(messages: list[Message]) -> set[tuple[str, int]]:
    """Decode every message; returns (name of the type, version) of the values."""
    by_kind: dict[str, list[Message]] = {}
    for message in messages:
        by_kind.setdefault(snake(message.kind), []).append(message)
    seen = set()
    for topic, types in KEYED:
        for number, kind in types.items():
            name = {"transaction": "transaction_log"}.get(kind.name, kind.name)
            keys, values = by_kind.pop(f"{name}_key"), by_kind.pop(f"{name}_value")
            for key in keys:
                assert comparable(one(topic, keyed(number, key.data), None).key) == key.json
            for value in values:
                found = one(topic, keyed(number, keys[0].data), struct.pack(">h", value.version) + value.data)
                assert (found.type, found.version, comparable(found.value)) == (kind.name, value.version, value.json)
                seen.add((kind.name, value.version))
    for topic, framed_types in FRAMED:
        for number, framed_type in framed_types.items():
            for value in by_kind.pop(framed_type.name):
                found = one(topic, None, framed(number, value.version, value.data))
                assert (found.type, found.key, comparable(found.value)) == (framed_type.name, None, value.json)
                seen.add((framed_type.name, value.version))
    assert set(by_kind) <= {"producer_snapshot"}
    return seen
