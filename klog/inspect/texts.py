"""The text files of a log directory: checkpoints, leader epochs, partition.metadata, meta.properties and others.

    checkpoint         "0\n" count "\n" (topic " " partition " " offset "\n")*      four files at the root
    epochs             "0\n" count "\n" (epoch " " start_offset "\n")*              both columns rise
    partition.metadata "version: 0\ntopic_id: " 22 characters of base64url          no line end at the end
    meta.properties    Java properties
    .kafka_cleanshutdown  {"version":0,"brokerEpoch":n}, or nothing (before Kafka 3.7)
    klog-audit.jsonl   ({"version":1,"outcome":...} "\n")*
    klog-gaps          "0\n" count "\n" (end " " base_offset "\n")*                between two segments

The parsers are stricter than the engine, which continues without a checkpoint that it cannot read. Each error has the
position of its line; ids and counts must be in canonical form, and epochs must rise. What Kafka's reader rejects raises
CorruptCheckpoint here. An empty checkpoint is valid: Kafka creates it empty.

Kafka: CheckpointFile, LeaderEpochCheckpointFile, PartitionMetadataFile.
"""

from __future__ import annotations

import base64
import json
import math
import re
from typing import Any

from klog.errors import CorruptCheckpoint
from klog.log.directory import versioned

_KEYS = ("secret", "salt", "stored_key", "server_key")  # of klog-users.json
_INT = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_ID = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)
ZERO_ID = "A" * 22


def _lines(data: bytes, path: str | None) -> list[tuple[int, str]]:
    """Return (position, text) of each line, split as Java's readLine does."""
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
        raise CorruptCheckpoint(f"{what} {text[:40]!r} is not a {bits}-bit integer", path=path, position=position)
    return int(text)


def _entries(data: bytes, path: str | None, fields: int) -> list[tuple[int, list[str]]]:
    """Return the entry lines after version and count, each as (position, its fields)."""
    lines = _lines(data, path)
    if not lines:
        return []
    version = _number(lines[0][1], 32, "version", path, 0)
    if version != 0:
        raise CorruptCheckpoint(f"version {version}, expected 0", path=path, position=0)
    if len(lines) == 1:
        return []
    count = _number(lines[1][1], 32, "entry count", path, lines[1][0])
    found = []
    for position, line in lines[2:]:
        parts = line.split(" ")  # Kafka's reader accepts other whitespace, too, but no version writes it
        if len(parts) != fields:
            raise CorruptCheckpoint(f"line {line[:80]!r} does not have {fields} fields", path=path, position=position)
        found.append((position, parts))
    if len(found) != count:
        raise CorruptCheckpoint(f"{len(found)} entries, but line 2 states {count}", path=path, position=lines[1][0])
    return found


def parse_checkpoint(data: bytes, path: str | None = None) -> list[tuple[str, int, int]]:
    """Return [(topic, partition, offset)] of one of the four checkpoints of a log.dir."""
    found: list[tuple[str, int, int]] = []
    seen: set[tuple[str, int]] = set()
    for position, (topic, partition, offset) in _entries(data, path, 3):
        entry = (
            topic,
            _number(partition, 32, "partition", path, position),
            _number(offset, 64, "offset", path, position),
        )
        if entry[:2] in seen:
            raise CorruptCheckpoint(f"{topic} {partition} is listed twice", path=path, position=position)
        if entry[1] < 0 or entry[2] < 0:
            raise CorruptCheckpoint(f"a negative number in {topic} {partition} {offset}", path=path, position=position)
        seen.add(entry[:2])
        found.append(entry)
    return found


def parse_epochs(data: bytes, path: str | None = None) -> list[tuple[int, int]]:
    """Return [(epoch, start offset)]; both must rise."""
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
    """Return (version, topic id) of partition.metadata."""
    lines = _lines(data, path)
    if len(lines) < 2:
        raise CorruptCheckpoint("two lines expected: version and topic_id", path=path, position=0)
    values = []
    for position, line in lines[:2]:
        parts = re.split(r":\s+", line)
        if len(parts) != 2:
            raise CorruptCheckpoint(f"line {line[:80]!r} is not 'name: value'", path=path, position=position)
        values.append(parts)
    for (name, _), wanted, (position, _) in zip(values, ("version", "topic_id"), lines, strict=False):
        if name != wanted:
            raise CorruptCheckpoint(f"{name[:40]!r}, expected {wanted!r}", path=path, position=position)
    version = _number(values[0][1], 32, "version", path, 0)
    if version != 0:
        raise CorruptCheckpoint(f"version {version}, expected 0", path=path, position=0)
    topic_id = values[1][1]
    if not _ID.fullmatch(topic_id) or topic_id == ZERO_ID or not _canonical(topic_id):
        raise CorruptCheckpoint(f"topic_id {topic_id[:40]!r} is not a topic id", path=path, position=lines[1][0])
    if data[len(data) - 22 :] != topic_id.encode() and data.rstrip(b"\r\n")[-22:] != topic_id.encode():
        raise CorruptCheckpoint("bytes after the topic id", path=path, position=lines[2][0])
    return version, topic_id


def _canonical(topic_id: str) -> bool:
    """True if the id is canonical: 16 bytes take 21 characters and 2 bits, so the last 4 bits must be 0."""
    return base64.urlsafe_b64encode(base64.urlsafe_b64decode(topic_id + "==")).decode().rstrip("=") == topic_id


def parse_properties(data: bytes, path: str | None = None) -> dict[str, str]:
    """Return the keys of meta.properties. Version 1 requires cluster.id and node.id."""
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
        raise CorruptCheckpoint("version is missing", path=path, position=0)
    if version not in ("0", "1"):
        raise CorruptCheckpoint(f"version {version[:40]!r}, expected 0 or 1", path=path, position=0)
    for name in ("cluster.id", "node.id") if version == "1" else ():
        if name not in values:
            raise CorruptCheckpoint(f"{name} is missing, which version 1 requires", path=path, position=0)
    for name in ("node.id", "broker.id"):
        if name in values:
            _number(values[name], 32, name, path, 0)
    directory = values.get("directory.id")
    if directory is not None and not (_ID.fullmatch(directory) and _canonical(directory)):
        raise CorruptCheckpoint(f"directory.id {directory[:40]!r} is not an id", path=path, position=0)
    return values


def parse_clean_shutdown(data: bytes, path: str | None = None) -> Any:
    """Return the clean-shutdown marker: {"version": 0, "brokerEpoch": n}, or None for the empty file of older
    brokers."""
    value = parse_json(data, path)
    if value is not None and (value.get("version") != 0 or not isinstance(value.get("brokerEpoch"), int)):
        raise CorruptCheckpoint("version 0 and brokerEpoch expected", path=path, position=0)
    return value


def parse_json(data: bytes, path: str | None = None) -> Any:
    """Return the JSON object of .kafka_cleanshutdown, quorum-state or klog-topics.json; None for an empty file."""
    if not data.strip():
        return None
    try:
        value = _loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpoint(f"not JSON: {error}", path=path, position=0) from None
    if not isinstance(value, dict):
        raise CorruptCheckpoint("not a JSON object", path=path, position=0)
    return value


def _loads(data: bytes) -> Any:
    """Return the value of JSON text that can be written as JSON again. Raises ValueError, RecursionError."""
    return json.loads(data, parse_constant=_finite, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a number of JSON, or too large")
    return number


def parse_versioned(data: bytes, path: str) -> dict[str, Any]:
    """Return the document of one of klog's own JSON files, whose checksum must match. Raises CorruptCheckpoint,
    NewerFormat."""
    try:
        return dict(versioned.parse(data, path, 1))
    except versioned.MALFORMED as error:
        raise CorruptCheckpoint(f"not a file that klog wrote: {error}", path=path, position=0) from None


def without_keys(value: Any) -> Any:
    """Return a document of klog.Broker without the keys of users."""
    if not isinstance(value, dict):
        return value
    return {
        name: "(hidden)" if name in _KEYS and isinstance(each, str) else without_keys(each)
        for name, each in value.items()
    }


def parse_gaps(data: bytes, path: str | None = None) -> list[tuple[int, int]]:
    """Return [(end of a segment, base offset of the next one)] of klog-gaps."""
    return [
        (_number(end, 64, "offset", path, position), _number(base, 64, "offset", path, position))
        for position, (end, base) in _entries(data, path, 2)
    ]


def parse_audit(data: bytes, path: str | None = None) -> list[dict[str, Any]]:
    """Return the lines of klog-audit.jsonl: one JSON object a line, with a version. Skips a line torn by a crash."""
    entries, position = [], 0
    for line in data.splitlines(keepends=True):
        whole = line.endswith(b"\n")
        if whole or not (line.startswith(b"{") or not line.strip(b"\0")):
            entries.append(_audit_line(line, path, position))
        position += len(line)
    return entries


def _audit_line(line: bytes, path: str | None, position: int) -> dict[str, Any]:
    try:
        entry = _loads(line)
        if not isinstance(entry["version"], int) or not isinstance(entry["outcome"], str):
            raise ValueError("version and outcome expected")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptCheckpoint(f"not a line of an audit: {error}", path=path, position=position) from None
    return dict(entry)
