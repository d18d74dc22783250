"""The text files of a log directory: checkpoints, leader epochs, partition.metadata, meta.properties, the stop marker.

    checkpoint         "0\n" count "\n" (topic " " partition " " offset "\n")*      four files at the root
    epochs             "0\n" count "\n" (epoch " " start_offset "\n")*              both columns rise
    partition.metadata "version: 0\ntopic_id: " 22 characters of base64url          no line end at the end
    meta.properties    Java properties
    .kafka_cleanshutdown  {"version":0,"brokerEpoch":n}, or nothing (before Kafka 3.7)
    klog-audit.jsonl   {"version":1,"outcome":...} "\n", again and again

Stricter than the engine, which goes on without a checkpoint that it cannot read: here each error names the position of
its line, ids and counts must be in the form that is written, and epochs must rise.

An empty checkpoint is one without entries: Kafka creates it so. Everything that Kafka's reader refuses is a
CorruptCheckpoint here, with the position of the line. Kafka: CheckpointFile, LeaderEpochCheckpointFile,
PartitionMetadataFile.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from klog.errors import CorruptCheckpoint

_INT = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_ID = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)
ZERO_ID = "A" * 22


def _lines(data: bytes, path: str | None) -> list[tuple[int, str]]:
    """(position, text) of each line, as Java's readLine cuts them."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(
            f"byte 0x{data[error.start]:02x} is not UTF-8", path=path, position=error.start
        ) from None
    found, position = [], 0
    for line in _LINE.findall(text):
        found.append((position, line.rstrip("\r\n")))
        position += len(line.encode())
    return found


def _number(text: str, bits: int, what: str, path: str | None, position: int) -> int:
    if not _INT.fullmatch(text) or len(text) > 30 or not -(1 << (bits - 1)) <= int(text) < 1 << (bits - 1):
        raise CorruptCheckpoint(f"{what} {text[:40]!r} is no {bits}-bit integer", path=path, position=position)
    return int(text)


def _entries(data: bytes, path: str | None, fields: int) -> list[tuple[int, list[str]]]:
    """The entry lines below version and count, each as (position, its fields)."""
    lines = _lines(data, path)
    if not lines:
        return []
    version = _number(lines[0][1], 32, "version", path, 0)
    if version != 0:
        raise CorruptCheckpoint(f"version {version}; known is 0", path=path, position=0)
    if len(lines) == 1:
        return []
    count = _number(lines[1][1], 32, "entry count", path, lines[1][0])
    found = []
    for position, line in lines[2:]:
        parts = line.split(" ")  # Kafka's reader takes other blanks too, but nobody writes them
        if len(parts) != fields:
            raise CorruptCheckpoint(f"line {line[:80]!r} has not {fields} fields", path=path, position=position)
        found.append((position, parts))
    if len(found) != count:
        raise CorruptCheckpoint(f"{len(found)} entries where line 2 says {count}", path=path, position=lines[1][0])
    return found


def parse_checkpoint(data: bytes, path: str | None = None) -> list[tuple[str, int, int]]:
    """[(topic, partition, offset)] of one of the four checkpoints of a log.dir."""
    found: list[tuple[str, int, int]] = []
    seen: set[tuple[str, int]] = set()
    for position, (topic, partition, offset) in _entries(data, path, 3):
        entry = (
            topic,
            _number(partition, 32, "partition", path, position),
            _number(offset, 64, "offset", path, position),
        )
        if entry[:2] in seen:
            raise CorruptCheckpoint(f"{topic} {partition} stands there twice", path=path, position=position)
        if entry[1] < 0 or entry[2] < 0:
            raise CorruptCheckpoint(f"a negative number in {topic} {partition} {offset}", path=path, position=position)
        seen.add(entry[:2])
        found.append(entry)
    return found


def parse_epochs(data: bytes, path: str | None = None) -> list[tuple[int, int]]:
    """[(epoch, start offset)]; both must rise."""
    found: list[tuple[int, int]] = []
    for position, (epoch, start) in _entries(data, path, 2):
        entry = (_number(epoch, 32, "epoch", path, position), _number(start, 64, "offset", path, position))
        if entry[0] < 0 or entry[1] < 0:
            raise CorruptCheckpoint(f"a negative number in {epoch} {start}", path=path, position=position, kind="epoch")
        if found and (entry[0] <= found[-1][0] or entry[1] <= found[-1][1]):
            raise CorruptCheckpoint(
                f"epoch {entry[0]} from offset {entry[1]} does not rise above epoch {found[-1][0]} from {found[-1][1]}",
                path=path,
                position=position,
                offset=entry[1],
                kind="epoch",
            )
        found.append(entry)
    return found


def parse_partition_metadata(data: bytes, path: str | None = None) -> tuple[int, str]:
    """(version, topic id) of partition.metadata."""
    lines = _lines(data, path)
    if len(lines) < 2:
        raise CorruptCheckpoint("two lines are wanted: version and topic_id", path=path, position=0)
    values = []
    for position, line in lines[:2]:
        parts = re.split(r":\s+", line)
        if len(parts) != 2:
            raise CorruptCheckpoint(f"line {line[:80]!r} is not 'name: value'", path=path, position=position)
        values.append(parts)
    for (name, _), wanted, (position, _) in zip(values, ("version", "topic_id"), lines, strict=False):
        if name != wanted:
            raise CorruptCheckpoint(f"{name[:40]!r} where {wanted!r} is wanted", path=path, position=position)
    version = _number(values[0][1], 32, "version", path, 0)
    if version != 0:
        raise CorruptCheckpoint(f"version {version}; known is 0", path=path, position=0)
    topic_id = values[1][1]
    if not _ID.fullmatch(topic_id) or topic_id == ZERO_ID or not _canonical(topic_id):
        raise CorruptCheckpoint(f"topic_id {topic_id[:40]!r} is no topic id", path=path, position=lines[1][0])
    if data[len(data) - 22 :] != topic_id.encode() and data.rstrip(b"\r\n")[-22:] != topic_id.encode():
        raise CorruptCheckpoint("bytes behind the topic id", path=path, position=lines[2][0])
    return version, topic_id


def _canonical(topic_id: str) -> bool:
    """16 bytes take 21 characters and 2 bits: the other 4 bits of the last character are 0."""
    return base64.urlsafe_b64encode(base64.urlsafe_b64decode(topic_id + "==")).decode().rstrip("=") == topic_id


def parse_properties(data: bytes, path: str | None = None) -> dict[str, str]:
    """The keys of meta.properties; version 1 needs its cluster and node."""
    values: dict[str, str] = {}
    for position, line in _lines(data, path):
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise CorruptCheckpoint(f"line {line[:80]!r} is not key=value", path=path, position=position)
        values[name.strip()] = value.strip()
    version = values.get("version", "0")
    if "node.id" in values and "version" not in values:
        raise CorruptCheckpoint("no version", path=path, position=0)
    if version not in ("0", "1"):
        raise CorruptCheckpoint(f"version {version[:40]!r}; known are 0 and 1", path=path, position=0)
    for name in ("cluster.id", "node.id") if version == "1" else ():
        if name not in values:
            raise CorruptCheckpoint(f"no {name}, which version 1 needs", path=path, position=0)
    for name in ("node.id", "broker.id"):
        if name in values:
            _number(values[name], 32, name, path, 0)
    directory = values.get("directory.id")
    if directory is not None and not (_ID.fullmatch(directory) and _canonical(directory)):
        raise CorruptCheckpoint(f"directory.id {directory[:40]!r} is no id", path=path, position=0)
    return values


def parse_clean_shutdown(data: bytes, path: str | None = None) -> Any:
    """The stop marker: {"version": 0, "brokerEpoch": n}, or None for the empty file of older brokers."""
    value = parse_json(data, path)
    if value is not None and (value.get("version") != 0 or not isinstance(value.get("brokerEpoch"), int)):
        raise CorruptCheckpoint("version 0 and brokerEpoch are wanted", path=path, position=0)
    return value


def parse_json(data: bytes, path: str | None = None) -> Any:
    """.kafka_cleanshutdown, quorum-state, klog-topics.json: one JSON object; nothing at all is None."""
    if not data.strip():
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpoint(f"no JSON: {error}", path=path, position=0) from None
    if not isinstance(value, dict):
        raise CorruptCheckpoint("no JSON object", path=path, position=0)
    return value


def parse_audit(data: bytes, path: str | None = None) -> list[dict[str, Any]]:
    """klog-audit.jsonl: one JSON object a line, with a version. A line that was cut short by a crash is left out."""
    entries, position = [], 0
    for line in data.splitlines(keepends=True):
        whole = line.endswith(b"\n")
        if whole or not (line.startswith(b"{") or not line.strip(b"\0")):
            entries.append(_audit_line(line, path, position))
        position += len(line)
    return entries


def _audit_line(line: bytes, path: str | None, position: int) -> dict[str, Any]:
    try:
        entry = json.loads(line)
        if not isinstance(entry["version"], int) or not isinstance(entry["outcome"], str):
            raise ValueError("version and outcome are wanted")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptCheckpoint(f"no line of an audit: {error}", path=path, position=position) from None
    return dict(entry)
