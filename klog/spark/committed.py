"""Decodes __consumer_offsets: the offsets that consumer groups have committed.

    key    := version:i16 (0, 1) group:string topic:string partition:i32          other versions: not an offset
    value  := version:i16 offset:i64 [leader_epoch:i32, from 3 on] metadata:string commit_timestamp:i64
              [expire_timestamp:i64, only in 1]                                    versions 0 to 3
            | 4 offset:i64 leader_epoch:i32 metadata:compact_string commit_timestamp:i64 tagged fields
    string := size:i16 UTF-8; compact_string := (size + 1):uvarint UTF-8           big-endian

The latest record of a key counts; a null value (a tombstone) removes the key. Offsets that a transaction commits count
once it is committed, so the reader is read_committed. Bytes of another form raise CorruptData with the record's offset.
Kafka: OffsetCommitKey.json, OffsetCommitValue.json, GroupCoordinatorRecordSerde.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from klog.errors import CorruptData

if TYPE_CHECKING:
    from klog import Log

TOPIC = "__consumer_offsets"
_KEY_VERSIONS = (0, 1)
_VALUE_VERSION_MAX = 4


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


class OffsetCommit(NamedTuple):
    """Times in ms; -1: none."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int


class _Bytes:
    """A cursor that checks every length."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._at:
            raise ValueError(f"{size} bytes expected at byte {self._at} of {len(self._data)}")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, form: str) -> int:
        value: int = struct.unpack(f">{form}", self.take(struct.calcsize(form)))[0]
        return value

    def string(self) -> str:
        return self.take(self.number("h")).decode()

    def compact_string(self) -> str:
        size = shift = 0
        while True:
            byte = self.take(1)[0]
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 28:
                return self.take(size - 1).decode()


def parse_key(data: bytes) -> OffsetKey | None:
    """Return the key of a committed offset; None for a record about something else. Raises ValueError."""
    at = _Bytes(data)
    if at.number("h") not in _KEY_VERSIONS:
        return None
    return OffsetKey(at.string(), at.string(), at.number("i"))


def parse_value(data: bytes) -> OffsetCommit:
    """Return a committed offset. Raises ValueError."""
    at = _Bytes(data)
    version = at.number("h")
    if not 0 <= version <= _VALUE_VERSION_MAX:
        raise ValueError(f"version {version} of a committed offset, where 0 to {_VALUE_VERSION_MAX} are known")
    offset = at.number("q")
    leader_epoch = at.number("i") if version >= 3 else -1
    metadata = at.compact_string() if version >= 4 else at.string()
    commit_timestamp = at.number("q")
    return OffsetCommit(offset, leader_epoch, metadata, commit_timestamp, at.number("q") if version == 1 else -1)


def committed(log: Log) -> dict[OffsetKey, OffsetCommit]:
    """Return the offsets that are committed in one partition of __consumer_offsets. Raises CorruptData."""
    found: dict[OffsetKey, OffsetCommit] = {}
    for record in log.read(isolation="read_committed"):
        try:
            key = None if record.key is None else parse_key(record.key)
            if key is None:
                continue
            if record.value is None:
                found.pop(key, None)
            else:
                found[key] = parse_value(record.value)
        except ValueError as error:
            raise CorruptData(
                f"a record of {TOPIC} is not of Kafka's form: {error}", path=log.path, offset=record.offset
            ) from None
    return found
